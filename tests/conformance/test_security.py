"""Each client with TLS and a login: passwords and tokens, long work, and what the client reports when it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from tests.conformance.clients import Client
from tests.conformance.conftest import BOOTSTRAP
from tests.conformance.driver import Driver, Record, Refused
from tests.conformance.support import StartLocked, a_name, contents, numbered
from tests.support.locked_broker import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    LockedBroker,
    locked_broker,
)
from tests.support.waiting import eventually

# They take longer than their share of `make test`, which has the logins of the clients in Python elsewhere.
pytestmark = pytest.mark.long

SESSION_MS = 3000
# KafkaJS logs in again ten seconds before the end of a session.
SESSIONS_MS = {"kafkajs": 12_000}
# Of tokens that are renewed while a client works. Java looks for a new one after 80 % of it, and logs in again
# after 85 % of a session at the earliest; KafkaJS as above.
TOKEN_S = 10
TOKENS_S = {"kafkajs": 20}
# These do not log in again: their connections are closed, and they connect again.
RECONNECTING = ("aiokafka",)
LOGINS = 3
REFUSED_TIMEOUT_MS = 20_000
# kafka-python reports a refused login, and kcat a refused group, only when its time is over.
SHORT_TIMEOUT_MS = 5000
RECORD: dict[str, Any] = {"partition": 0, "key": None, "value": "eA==", "headers": []}
# The op that reports a refused login at once, and its error.
WRONG_PASSWORD = {
    "java": ("list_topics", "SASL_AUTHENTICATION_FAILED: Authentication failed"),
    "confluent-kafka": ("fetch", "_AUTHENTICATION: .*SASL authentication error: Authentication failed"),
    "kcat": ("produce", "SASL authentication error: Authentication failed"),
    "aiokafka": ("fetch", "KafkaConnectionError: .*Unable to bootstrap"),
    "kafka-python": ("fetch", "KafkaTimeoutError: .*Unable to bootstrap"),
    "kafkajs": ("fetch", "KafkaJSSASLAuthenticationError: .*Authentication failed"),
    "franz-go": ("list_topics", "SASL_AUTHENTICATION_FAILED: .*Authentication failed"),
    "sarama": ("fetch", "run out of available brokers.*SASL Authentication failed"),
}
TOPIC_REFUSED = {"kcat": "KCAT: (.|\n)*Broker: Topic authorization failed"}
GROUP_REFUSED = {
    "kcat": "FindCoordinator response error",
    "kafkajs": "KafkaJSGroupCoordinatorNotFound",
}


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], LockedBroker]]:
    """The broker whose sessions last so many milliseconds."""
    if BOOTSTRAP:
        pytest.skip("the broker at STELE_CONFORMANCE_BOOTSTRAP has no logins that these tests know")
    with ExitStack() as stack:

        @cache
        def start(session_ms: int) -> LockedBroker:
            directory = tmp_path_factory.mktemp("locked")
            return stack.enter_context(locked_broker(directory, session_ms=session_ms))

        yield start


@pytest.fixture
def locked(start_broker: Callable[[int], LockedBroker]) -> LockedBroker:
    """A broker whose sessions do not end."""
    return start_broker(0)


class Work:
    """A user who may do everything and whose client reads as a member of a group, and writes in transactions."""

    def __init__(
        self, locked: LockedBroker, client: Client, start: StartLocked, *, token_s: int | None = None
    ) -> None:
        """Log in with a password, or with tokens that last for ``token_s``."""
        self._locked = locked
        self._token_s = token_s
        self.user = locked.add_user(may_do_everything=True)
        password = PLAIN if client.name == "kcat" else SCRAM_512
        login_file = locked.login_file(self.user, password if token_s is None else OAUTHBEARER)
        self._renew_token()
        self.driver = start(locked.bootstrap, login_file)
        self._read_topic, self._written_topic = locked.make_topic(), locked.make_topic()
        self._transactional_id = a_name("transaction")
        self._count = 0
        self.driver.join("member", a_name("group"), [self._read_topic])

    def _renew_token(self) -> None:
        if self._token_s is not None:
            self._locked.token_file(self.user, lifetime_s=self._token_s)

    def go_on(self) -> None:
        """Read a record and commit; write one and commit."""
        self._renew_token()
        value = f"value {self._count}".encode()
        self._locked.write(self._read_topic, [value])
        self._count += 1
        assert [record.value for record in self.driver.poll("member", 1)] == [value]
        if self.driver.offers("commit metadata"):
            self.driver.commit("member", {(self._read_topic, 0): self._count})
        if self.driver.offers("transactions"):
            record = Record(value=value)
            self.driver.transact("p", self._transactional_id, self._written_topic, [record], end="commit")

    def check(self) -> None:
        """Each record was written once, in order, also by a connection that is made now."""
        written: list[bytes | None] = []
        if self.driver.offers("transactions"):
            written += [f"value {number}".encode() for number in range(self._count)]
        self.driver.produce(self._written_topic, [Record(value=b"last")])
        assert self._locked.values(self._written_topic) == [*written, b"last"]


def log_in_and_work(locked: LockedBroker, start_locked: StartLocked, mechanism: str) -> Driver:
    user = locked.add_user(may_do_everything=True)
    driver = start_locked(locked.bootstrap, locked.login_file(user, mechanism))
    topic = locked.make_topic()
    records = numbered(5)
    driver.produce(topic, records)
    assert contents(driver.fetch(topic, count=5)) == contents(records)
    assert locked.logins(user)
    return driver


@pytest.mark.capability("SCRAM")
@pytest.mark.parametrize("mechanism", [SCRAM_256, SCRAM_512])
def test_scram(locked: LockedBroker, start_locked: StartLocked, mechanism: str) -> None:
    log_in_and_work(locked, start_locked, mechanism)


@pytest.mark.capability("PLAIN")
def test_plain(locked: LockedBroker, start_locked: StartLocked) -> None:
    log_in_and_work(locked, start_locked, PLAIN)


@pytest.mark.capability("OAUTHBEARER")
def test_tokens(locked: LockedBroker, start_locked: StartLocked) -> None:
    driver = log_in_and_work(locked, start_locked, OAUTHBEARER)
    topic = locked.make_topic()
    locked.write(topic, [b"value"])
    driver.join("member", a_name("group"), [topic])
    assert [record.value for record in driver.poll("member", 1)] == [b"value"]
    assert topic in driver.list_topics()


@pytest.mark.capability("re-authentication")
def test_work_goes_on_past_the_end_of_sessions(
    client: Client, start_broker: Callable[[int], LockedBroker], start_locked: StartLocked
) -> None:
    locked = start_broker(SESSIONS_MS.get(client.name, SESSION_MS))
    check_long_work(client, locked, Work(locked, client, start_locked))


@pytest.mark.capability("OAUTHBEARER")
def test_work_goes_on_past_the_end_of_tokens(
    client: Client, locked: LockedBroker, start_locked: StartLocked
) -> None:
    token_s = TOKENS_S.get(client.name, TOKEN_S)
    check_long_work(client, locked, Work(locked, client, start_locked, token_s=token_s))


def check_long_work(client: Client, locked: LockedBroker, work: Work) -> None:
    """Go on until the client has logged in several times, and check what it read and wrote."""

    def sessions_have_ended() -> bool:
        work.go_on()
        logins = locked.logins(work.user)
        if client.name in RECONNECTING:
            return set(logins.values()) == {1} and len(logins) > first + LOGINS
        return max(logins.values()) >= LOGINS

    work.go_on()
    first = len(locked.logins(work.user))
    eventually(sessions_have_ended, "the client has logged in again")
    work.check()


@pytest.mark.capability("certificate renewal")
def test_work_goes_on_while_the_certificate_is_renewed(
    client: Client, locked: LockedBroker, start_locked: StartLocked
) -> None:
    work = Work(locked, client, start_locked)
    work.go_on()
    before = locked.connections(work.user)
    locked.renew_certificate()
    work.go_on()
    assert before
    assert before <= locked.connections(work.user), "open connections stay"
    work.check()


@pytest.mark.capability("wrong password")
def test_a_wrong_password_is_an_error_of_the_client(
    client: Client, locked: LockedBroker, start_locked: StartLocked
) -> None:
    user = locked.add_user(may_do_everything=True)
    topic = locked.make_topic()
    locked.write(topic, [b"secret"])
    mechanism = PLAIN if client.name == "kcat" else SCRAM_512
    driver = start_locked(
        locked.bootstrap, locked.login_file(user, mechanism, password="another-password-than-hers")
    )
    op, error = WRONG_PASSWORD[client.name]
    arguments: dict[str, Any] = {
        "list_topics": {},
        "fetch": {"topic": topic, "partition": 0, "offset": "earliest", "count": 1},
        "produce": {"topic": topic, "acks": "all", "idempotent": False, "codec": "none", "records": [RECORD]},
    }[op]
    with pytest.raises(Refused, match=error):
        driver.call(
            op,
            **arguments,
            timeout_ms=SHORT_TIMEOUT_MS if client.name == "kafka-python" else REFUSED_TIMEOUT_MS,
        )
    assert locked.logins(user, verdict="denied")
    assert not locked.logins(user)
    assert locked.values(topic) == [b"secret"]


@pytest.mark.capability("missing right")
def test_a_missing_right_is_an_error_of_the_client(
    client: Client, locked: LockedBroker, start_locked: StartLocked
) -> None:
    user = locked.add_user()
    readable, writable = locked.make_topic(), locked.make_topic()
    locked.allow(user, "READ", "TOPIC", readable)
    locked.allow(user, "WRITE", "TOPIC", writable)
    # Of the clients that fetch as a member of a group.
    locked.allow(user, "READ", "GROUP", "fetch-", pattern="PREFIXED")
    locked.write(readable, [b"open"])
    locked.write(writable, [b"secret"])
    mechanism = PLAIN if client.name == "kcat" else SCRAM_512
    driver = start_locked(locked.bootstrap, locked.login_file(user, mechanism))
    topic_refused = TOPIC_REFUSED.get(client.name, "TOPIC_AUTHORIZATION_FAILED")

    assert [record.value for record in driver.fetch(readable, count=1)] == [b"open"]
    with pytest.raises(Refused, match=topic_refused):
        driver.produce(readable, numbered(1))
    assert locked.values(readable) == [b"open"]

    driver.produce(writable, [Record(value=b"own")])
    with pytest.raises(Refused, match=topic_refused):
        driver.fetch(writable, count=1)
    assert locked.values(writable) == [b"secret", b"own"]

    # A member of sarama tries for eight seconds before it reports a refusal.
    op, arguments = "join", {"member": "member", "topics": [readable]}
    if client.name == "sarama":
        op, arguments = "committed", {"topic": readable, "partition": 0}
    timeout_ms = SHORT_TIMEOUT_MS if client.name == "kcat" else REFUSED_TIMEOUT_MS
    with pytest.raises(Refused, match=GROUP_REFUSED.get(client.name, "GROUP_AUTHORIZATION_FAILED")):
        driver.call(op, group=a_name("group"), timeout_ms=timeout_ms, **arguments)
