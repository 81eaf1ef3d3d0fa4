"""Logins over the binary protocol: the frame, its bounds, and the client library."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import stele
from stele.broker_process import BrokerProcess, run_broker
from stele.config import Endpoint
from stele.credentials import Credentials, LoginOptions
from stele.transport.login import Login
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from app.tcp.binary.login import LOGIN_FAILURES_MAX, LOGIN_FRAME_BYTES_MAX, LOGIN_FRAMES_MAX
from tests.integration import test_kafka_logins
from tests.integration.test_kafka_logins import AUDIENCE, ISSUER, PASSWORD, USER, add_user, token
from tests.support.binary_peer import (
    FLUSH,
    FLUSHED,
    Peer,
    consume_frame,
    decode,
    error_text,
    framed,
    produce_frame,
)

SESSION_MS = 1500

key_set = test_kafka_logins.key_set


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("binary-logins") / "data"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def api_key(data_dir: Path) -> str:
    return add_user(data_dir)


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def broker(data_dir: Path, api_key: str, key_set: Path, audit_log: Path) -> Iterator[BrokerProcess]:
    environment = {
        "STELE_BINARY_AUTHENTICATION": "required",
        "STELE_AUTHORIZATION": "none",
        "STELE_OAUTH_JWKS": str(key_set),
        "STELE_OAUTH_ISSUER": ISSUER,
        "STELE_OAUTH_AUDIENCE": AUDIENCE,
        "STELE_LOGIN_FAILURES_FREE": "10000",
        "STELE_CONNECTIONS_MAX_REAUTH_MS": str(SESSION_MS),
        "STELE_AUDIT_LOG_FILE": str(audit_log),
        # The audit log does not depend on the level.
        "STELE_LOG_LEVEL": "error",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


@pytest.fixture(autouse=True)
def no_login_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "STELE_USER",
        "STELE_PASSWORD",
        "STELE_PASSWORD_FILE",
        "STELE_API_KEY",
        "STELE_API_KEY_FILE",
    ):
        monkeypatch.delenv(name, raising=False)


def plain(password: str = PASSWORD, user: str = USER) -> m.AuthenticateRequest:
    return m.AuthenticateRequest(mechanism="PLAIN", data=f"\0{user}\0{password}".encode())


def log_in(peer: Peer) -> m.AuthenticateResponse:
    answer = peer.call(plain())
    assert isinstance(answer, m.AuthenticateResponse), answer
    assert answer.is_done
    return answer


def refused(answer: m.Response | m.ErrorResponse) -> ErrorCode:
    assert isinstance(answer, m.ErrorResponse), answer
    return answer.code


# ── the frame ──


def test_a_password_opens_the_connection_for_all_messages(peer: Peer) -> None:
    assert log_in(peer).lifetime_ms == SESSION_MS
    assert peer.ask(produce_frame("opened", b"x"))[4:6] == b"\x04\x01"
    assert peer.ask(FLUSH) == FLUSHED
    assert isinstance(peer.call(m.MetadataRequest(topics=("opened",))), m.MetadataResponse)


@pytest.mark.parametrize("sent", [produce_frame("t", b"x"), consume_frame("t", 0, 1), FLUSH])
def test_a_simple_client_without_a_login_gets_an_error_of_its_own_type(peer: Peer, sent: bytes) -> None:
    peer.send(sent, sent)
    text = error_text(peer.frame(), sent[4] + 1)
    assert "requires a login" in text
    assert "AUTHENTICATE" in text
    assert peer.rest() == b"", "the second request is not begun, and the connection is closed"


def test_other_requests_before_a_login_close_the_connection(peer: Peer) -> None:
    assert refused(peer.call(m.MetadataRequest(topics=None))) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.rest() == b""


def test_requests_that_were_pipelined_behind_a_login_wait_for_it(peer: Peer) -> None:
    peer.send(plain().encode(), produce_frame("pipelined", b"x"), FLUSH)
    kinds = [frame[4:6] for frame in peer.frames(3)]
    assert kinds == [b"\x3c\x01", b"\x04\x01", b"\x06\x01"]


def test_requests_that_were_pipelined_behind_a_failed_login_are_refused(peer: Peer) -> None:
    peer.send(plain("wrong-password").encode(), produce_frame("never", b"x"))
    failed, produced = peer.frames(2)
    assert failed[4:6] == b"\x3c\x00"
    assert "requires a login" in error_text(produced, 0x04)


def test_a_failed_login_is_never_anonymous() -> None:
    """The client believes that it acts as its user, where logins are optional, too."""
    with run_broker(environment={"STELE_BINARY_AUTHENTICATION": "optional"}) as broker:
        with Peer(broker) as peer:
            assert peer.ask(FLUSH) == FLUSHED
            peer.send(plain("wrong-password").encode(), produce_frame("t", b"x"), FLUSH)
            assert refused(decode(peer.frame())) == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "has failed" in error_text(peer.frame(), 4)
            assert peer.rest() == b""
        with httpx.Client(base_url=broker.http_url) as http:
            assert http.get("/v1/topics").json()["topics"] == []


def test_a_failed_login_leaves_the_connection_open_for_a_few_more(peer: Peer) -> None:
    assert refused(peer.call(plain("wrong-password"))) == ErrorCode.SASL_AUTHENTICATION_FAILED
    log_in(peer)
    assert peer.ask(FLUSH) == FLUSHED


def test_too_many_failed_logins_close_the_connection(peer: Peer) -> None:
    for _ in range(LOGIN_FAILURES_MAX):
        assert refused(peer.call(plain("wrong-password"))) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.rest() == b""


def test_an_unknown_mechanism_names_those_that_there_are(peer: Peer) -> None:
    answer = peer.call(m.AuthenticateRequest(mechanism="GSSAPI", data=b""))
    assert refused(answer) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert isinstance(answer, m.ErrorResponse)
    assert "SCRAM-SHA-512" in answer.message
    log_in(peer)


def test_messages_before_a_login_are_few(peer: Peer) -> None:
    unknown = m.AuthenticateRequest(mechanism="GSSAPI", data=b"").encode()
    peer.send(unknown * (LOGIN_FRAMES_MAX + 1))
    answers = [m.decode_response(frame[4], frame[5:]) for frame in peer.frames(LOGIN_FRAMES_MAX + 1)]
    assert [refused(answer) for answer in answers] == [
        *[ErrorCode.UNSUPPORTED_SASL_MECHANISM] * LOGIN_FRAMES_MAX,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    ]
    assert peer.rest() == b""


def test_frames_before_a_login_are_small(peer: Peer) -> None:
    # The length alone is refused, before anything is allocated for it.
    peer.send((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert str(LOGIN_FRAME_BYTES_MAX) in error_text(peer.frame(), 0x00)
    assert peer.rest() == b""


def test_a_malformed_login_is_refused(peer: Peer) -> None:
    answer = peer.ask(framed(0x3B, b"\0\0\0\xff"))
    assert refused(m.decode_response(answer[4], answer[5:])) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.rest() == b""


def test_the_mechanism_cannot_change_within_an_exchange(peer: Peer) -> None:
    first = m.AuthenticateRequest(mechanism="SCRAM-SHA-512", data=b"n,,n=alice,r=nonce")
    challenge = peer.call(first)
    assert isinstance(challenge, m.AuthenticateResponse)
    assert not challenge.is_done
    assert challenge.data.startswith(b"r=nonce")
    assert refused(peer.call(plain())) == ErrorCode.ILLEGAL_SASL_STATE
    # A challenge is no login.
    assert "requires a login" in error_text(peer.ask(FLUSH), 0x06)


def test_a_proof_of_a_wrong_password_fails(peer: Peer) -> None:
    first = m.AuthenticateRequest(mechanism="SCRAM-SHA-512", data=b"n,,n=alice,r=nonce")
    challenge = peer.call(first)
    assert isinstance(challenge, m.AuthenticateResponse)
    nonce = challenge.data.split(b",")[0]
    proof = m.AuthenticateRequest(mechanism="SCRAM-SHA-512", data=b"c=biws," + nonce + b",p=AAAA")
    assert refused(peer.call(proof)) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "requires a login" in error_text(peer.ask(FLUSH), 0x06)


def test_a_connection_keeps_its_principal(peer: Peer, broker: BrokerProcess) -> None:
    log_in(peer)
    log_in(peer)
    assert peer.ask(FLUSH) == FLUSHED

    def log_in_with_a_token(user: str) -> m.Response | m.ErrorResponse:
        bearer = f"n,,\1auth=Bearer {token(user)}\1\1".encode()
        return peer.call(m.AuthenticateRequest(mechanism="OAUTHBEARER", data=bearer))

    again = log_in_with_a_token(USER)
    assert isinstance(again, m.AuthenticateResponse), "the same principal by another mechanism"
    assert refused(log_in_with_a_token("bob")) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.rest() == b""


def test_a_session_ends_unless_the_client_logs_in_again(peer: Peer) -> None:
    log_in(peer)
    while (answer := peer.ask(FLUSH)) == FLUSHED:
        threading.Event().wait(0.1)
    assert "session has expired" in error_text(answer, 0x06)
    assert peer.rest() == b""


def test_logins_are_in_the_audit_log_and_passwords_are_not(
    peer: Peer, broker: BrokerProcess, audit_log: Path
) -> None:
    peer.call(plain("not-the-password"))
    log_in(peer)
    denied, allowed = audit_lines(audit_log)[-2:]
    assert denied["verdict"] == "denied"
    assert allowed["verdict"] == "allowed"
    for line in (denied, allowed):
        assert line["time"].endswith("Z")
        assert (line["listener"], line["principal"], line["mechanism"]) == ("binary", "User:alice", "PLAIN")
    assert audit_log.stat().st_mode & 0o777 == 0o600
    for text in (audit_log.read_text(), broker.stderr):
        assert "not-the-password" not in text
        assert PASSWORD not in text
    assert "stele.audit" not in broker.stderr


def test_the_audit_log_is_reopened_when_it_was_moved(peer: Peer, audit_log: Path) -> None:
    log_in(peer)
    audit_log.rename(audit_log.with_suffix(".1"))
    log_in(peer)
    (line,) = audit_lines(audit_log)
    assert line["verdict"] == "allowed"


def audit_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_listener_without_logins_says_so() -> None:
    with run_broker() as open_broker, Peer(open_broker) as peer:
        assert refused(peer.call(plain())) == ErrorCode.SECURITY_DISABLED
        assert peer.ask(FLUSH) == FLUSHED
        with (
            stele.Client(open_broker.binary_url, user=USER, password=PASSWORD) as client,
            pytest.raises(stele.AuthenticationError, match="has no logins"),
        ):
            client.topics()


# ── the client library ──


def with_user(url: str, user: str = USER) -> str:
    return url.replace("://", f"://{user}@")


@pytest.fixture(params=["password", "api key", "token", "url", "environment", "file"])
def login(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    api_key: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> tuple[str, LoginOptions]:
    url = broker.binary_url
    match request.param:
        case "password":
            return url, {"user": USER, "password": PASSWORD}
        case "api key":
            return url, {"api_key": api_key}
        case "token":
            return url, {"token": token}
        case "url":
            return with_user(url, f"{USER}:{PASSWORD}"), {}
        case "environment":
            monkeypatch.setenv("STELE_PASSWORD", PASSWORD)
            return with_user(url), {}
        case _:
            file = tmp_path / "password"
            file.write_text(f"{PASSWORD}\n")
            file.chmod(0o600)
            monkeypatch.setenv("STELE_USER", USER)
            monkeypatch.setenv("STELE_PASSWORD_FILE", str(file))
            return url, {}


def test_both_halves_of_the_client_log_in(login: tuple[str, LoginOptions]) -> None:
    url, options = login
    with stele.Client(url, **options) as client:
        client.produce("logged-in", b"x")
        # A connection of its own for a long poll.
        with stele.Consumer(client, "logged-in", start="earliest") as consumer:
            assert next(iter(consumer)).value == b"x"
    assert PASSWORD not in repr(client.config)

    async def run() -> None:
        async with stele.AsyncClient(url, **options) as client:
            await client.produce("logged-in", b"x")
            async with stele.AsyncConsumer(client, "logged-in", start="earliest") as consumer:
                assert (await anext(aiter(consumer))).value == b"x"

    asyncio.run(run())


@pytest.mark.parametrize(
    "options", [{"user": USER, "password": "wrong-password"}, {"api_key": "stele_0123456789ab_wrong"}, {}]
)
def test_a_refused_login_is_an_authentication_error(
    broker: BrokerProcess, options: LoginOptions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        stele.Client(broker.binary_url, **options) as client,
        pytest.raises(stele.AuthenticationError) as raised,
    ):
        client.topics()
    assert not raised.value.retriable

    async def run() -> None:
        async with stele.AsyncClient(broker.binary_url, **options) as client:
            with pytest.raises(stele.AuthenticationError):
                await client.topics()

    asyncio.run(run())
    for secret in ("wrong-password", "stele_0123456789ab_wrong"):
        assert secret not in caplog.text
        assert secret not in str(raised.value)


def test_clients_log_in_again_before_their_session_ends(broker: BrokerProcess, audit_log: Path) -> None:
    """Both halves, each on its one connection."""

    def connections() -> set[str]:
        listed = httpx.get(f"{broker.http_url}/v1/connections").json()["connections"]
        return {one["peer"] for one in listed if one["protocol"] == "binary"}

    async def run() -> None:
        async with stele.AsyncClient(broker.binary_url, user=USER, password=PASSWORD) as client:
            with stele.Client(broker.binary_url, user=USER, password=PASSWORD) as blocking:
                await client.topics()
                await asyncio.to_thread(blocking.topics)
                first, before = connections(), logins()
                while logins() < before + 4:
                    await client.topics()
                    await asyncio.to_thread(blocking.topics)
                    await asyncio.sleep(0.05)
                assert connections() == first

    def logins() -> int:
        return sum(line["verdict"] == "allowed" for line in audit_lines(audit_log))

    asyncio.run(run())


def test_clients_log_in_again_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    add_user(data)
    environment = {"STELE_BINARY_AUTHENTICATION": "required", "STELE_AUTHORIZATION": "none"}
    with run_broker(data_dir=data, environment=environment) as broker:

        async def run() -> None:
            async with stele.AsyncClient(broker.binary_url, user=USER, password=PASSWORD) as client:
                with stele.Client(broker.binary_url, user=USER, password=PASSWORD) as blocking:
                    await client.topics()
                    blocking.topics()
                    broker.restart()
                    assert await client.topics() == blocking.topics() == []

        asyncio.run(run())


# ── a false broker ──


def test_a_password_is_not_revealed_to_a_broker_that_has_only_plain_on_a_network() -> None:
    endpoint = Endpoint.parse("stele://192.0.2.1:9009")
    credentials = Credentials(user=USER, password=PASSWORD)
    # One that hears nobody else does not make the other safe.
    login = Login(credentials, [Endpoint.parse("stele://127.0.0.1"), endpoint])
    attempt = login.begin(endpoint)
    refusal = m.ErrorResponse(
        response_type=0x3C, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, message="this broker has PLAIN"
    ).encode()
    first, second = attempt.first(), attempt.receive(refusal[4], refusal[5:])
    with pytest.raises(stele.AuthenticationError, match="none of the mechanisms"):
        attempt.receive(refusal[4], refusal[5:])
    assert second is not None
    assert all(b"SCRAM" in frame and PASSWORD.encode() not in frame for frame in (first, second))


def test_success_without_the_proof_of_the_broker_is_refused() -> None:
    credentials = Credentials(user=USER, password=PASSWORD)
    endpoint = Endpoint.parse("stele://127.0.0.1")
    login = Login(credentials, [endpoint])
    done = m.AuthenticateResponse(is_done=True).encode()
    attempt = login.begin(endpoint)
    attempt.first()
    with pytest.raises(stele.AuthenticationError, match="does not know the password"):
        attempt.receive(done[4], done[5:])


def test_a_silent_peer_is_closed_at_the_login_timeout(tmp_path: Path) -> None:
    environment = {"STELE_BINARY_AUTHENTICATION": "required", "STELE_LOGIN_TIMEOUT_MS": "1000"}
    with (
        run_broker(environment=environment) as broker,
        socket.create_connection((broker.host, broker.binary_port), timeout=60) as silent,
    ):
        assert "logged in in time" in error_text(silent.recv(1000), 0x00)
