"""Users and API keys over a real catalog file: stored without secrets, revoked at once."""

from __future__ import annotations

import asyncio
import hashlib
import stat
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.cluster.credentials import CredentialStore
from app.cluster.sqlite.catalog import CatalogDatabase, SqliteCatalog
from app.errors import DuplicateUser, InvalidCredential, UnknownCredential
from app.security import scram
from app.security.audit import Peer
from app.security.authenticator import Authenticator
from app.security.credentials import Credentials
from app.security.principal import Principal
from app.security.sasl import Challenge, Done, Failed, Mechanism
from app.security.scram import ScramCredential, ScramMechanism, credential_of_password, is_password

PASSWORD = "correct horse battery"
PEER = Peer("kafka", "10.0.0.1:5000", "10.0.0.1")


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def files_in(path: Path) -> list[Path]:
    return list(path.iterdir())


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Credentials]:
    credentials = Credentials(CredentialStore(CatalogDatabase(path / "metadata.sqlite")))
    await credentials.open()
    try:
        yield credentials
    finally:
        await credentials.close()


async def test_users_and_keys_survive_a_restart_and_no_secret_is_in_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as credentials:
        await credentials.add_user("alice", PASSWORD)
        made = await credentials.create_key("alice", description="ingest", now_ms=1000, expires_at_ms=5000)
        challenge = credentials.scram("nobody", "SCRAM-SHA-256")
    stored = b"".join(path.read_bytes() for path in files_in(tmp_path))
    assert PASSWORD.encode() not in stored
    assert made.token.split("_", 2)[2].encode() not in stored
    async with opened(tmp_path) as credentials:
        assert [c.mechanism for c in credentials.users()["alice"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert credentials.api_keys() == [made.record]
        assert credentials.scram("nobody", "SCRAM-SHA-256") == challenge, "the same salt as before"
        login = credentials.key_login(made.token, 4999)
        assert login is not None
        assert (login.principal, login.expires_at_ms) == (Principal("alice"), 5000)
        assert credentials.key_login(made.token, 5000) is None


async def test_only_the_owner_may_read_the_catalog(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    file.touch(mode=0o644)
    catalog = SqliteCatalog(file)
    async with opened(tmp_path) as credentials:
        await credentials.add_user("alice", PASSWORD)
        for path in files_in(tmp_path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    catalog.close()


async def test_what_is_changed_is_reported(tmp_path: Path) -> None:
    revoked: list[str] = []
    async with opened(tmp_path) as credentials:
        credentials.observe_revocations(revoked.append)
        await credentials.add_user("alice", PASSWORD)
        made = await credentials.create_key("bob", now_ms=0)
        assert revoked == []
        await credentials.set_password("alice", PASSWORD + "!")
        await credentials.delete_key(made.record.key_id)
        assert credentials.key_login(made.token, 0) is None
        weak = credential_of_password("SCRAM-SHA-256", PASSWORD, salt=b"s", iterations=4096)
        await credentials.set_scram("alice", weak)
        await credentials.delete_scram("alice", "SCRAM-SHA-512")
        assert credentials.has_scram("alice", "SCRAM-SHA-256")
        assert not credentials.has_scram("alice", "SCRAM-SHA-512")
        assert not credentials.has_scram("nobody", "SCRAM-SHA-256")
        await credentials.delete_user("alice")
    assert revoked == ["user:alice", f"key:{made.record.key_id}", "user:alice", "user:alice", "user:alice"]


async def test_what_does_not_exist_or_cannot_be_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as credentials:
        await credentials.add_user("alice", PASSWORD)
        with pytest.raises(DuplicateUser):
            await credentials.add_user("alice", PASSWORD)
        for name in ("", "ANONYMOUS", "*", "a\nb", "x" * 256):
            with pytest.raises(InvalidCredential):
                await credentials.add_user(name, PASSWORD)
            with pytest.raises(InvalidCredential):
                await credentials.create_key(name, now_ms=0)
        with pytest.raises(InvalidCredential):
            await credentials.add_user("bob", "short")
        for work in (
            credentials.delete_user("bob"),
            credentials.set_password("bob", PASSWORD),
            credentials.delete_key("bob"),
        ):
            with pytest.raises(UnknownCredential):
                await work


@pytest.mark.parametrize(
    "change", ["{}x", "x{}", "stele__", "stele_{}", "", "stele", "_", "stele_000000000000_x"]
)
async def test_only_the_whole_key_logs_in(tmp_path: Path, change: str) -> None:
    async with opened(tmp_path) as credentials:
        made = await credentials.create_key("alice", now_ms=0)
        assert credentials.key_login(made.token, 0) is not None
        assert credentials.key_login(change.format(made.token), 0) is None
        assert made.token not in repr(made)


# ── the authenticator ──


@asynccontextmanager
async def authenticator(path: Path, clock: SetClock, slept: list[float]) -> AsyncGenerator[Authenticator]:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with opened(path) as credentials:
        made = Authenticator(credentials, clock=clock, mechanisms=("PLAIN",), sleep=sleep)
        yield made
        made.close()


async def test_a_password_logs_in_until_it_is_replaced(tmp_path: Path) -> None:
    async with authenticator(tmp_path, SetClock(), []) as logins:
        await logins.credentials.add_user("alice", PASSWORD)
        for _ in range(2):  # the second from the cache
            login = await logins.login_password("alice", PASSWORD, PEER, mechanism="BASIC")
            assert login is not None
            assert login.principal == Principal("alice")
        await logins.credentials.set_password("alice", "another password")
        assert await logins.login_password("alice", PASSWORD, PEER, mechanism="BASIC") is None
        assert await logins.login_password("nobody", PASSWORD, PEER, mechanism="BASIC") is None


async def test_a_password_is_right_while_the_credentials_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker changes a user while the password of a second one is checked."""
    checking, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def check(credential: ScramCredential, password: str) -> bool:
        loop.call_soon_threadsafe(checking.set)
        go_on.wait()
        return is_password(credential, password)

    monkeypatch.setattr("app.security.authenticator.is_password", check)
    async with authenticator(tmp_path, SetClock(), []) as logins, opened(tmp_path) as elsewhere:
        await logins.credentials.add_user("alice", PASSWORD)
        # The order in which a client stored them, or the store lists them, makes no difference.
        await logins.credentials.delete_scram("alice", "SCRAM-SHA-256")
        await logins.credentials.set_scram(
            "alice", credential_of_password("SCRAM-SHA-256", PASSWORD, salt=b"0123456789abcdef")
        )
        login = asyncio.create_task(logins.login_password("alice", PASSWORD, PEER, mechanism="BASIC"))
        await checking.wait()
        await elsewhere.add_user("bob", "another password")
        await logins.credentials.refresh()
        go_on.set()
        assert await login is not None
        # What another broker replaced is wrong from the moment on at which this one knows.
        checking.clear()
        go_on.clear()
        stale = asyncio.create_task(logins.login_password("bob", "another password", PEER, mechanism="BASIC"))
        await checking.wait()
        await elsewhere.set_password("bob", "a third password")
        await logins.credentials.refresh()
        go_on.set()
        assert await stale is None


async def test_an_api_key_logs_in_as_bearer_and_as_the_password_of_its_id(tmp_path: Path) -> None:
    async with authenticator(tmp_path, SetClock(), []) as logins:
        made = await logins.credentials.create_key("alice", now_ms=0)
        assert await logins.login_token(made.token, PEER) is not None
        key_id = made.record.key_id
        assert await logins.login_password(key_id, made.token, PEER, mechanism="BASIC") is not None
        assert await logins.login_password("alice", made.token, PEER, mechanism="BASIC") is None
        assert await logins.login_token("a.b.c", PEER) is None, "there is no issuer of tokens"


async def test_failed_logins_are_answered_late_and_then_refused_unchecked(tmp_path: Path) -> None:
    clock, slept = SetClock(), list[float]()
    async with authenticator(tmp_path, clock, slept) as logins:
        await logins.credentials.add_user("alice", PASSWORD)
        for _ in range(20):
            exchange = logins.start("PLAIN")
            assert isinstance(await logins.step(exchange, b"\0alice\0wrong password", PEER), Failed)
        assert slept[6] == 1.0
        assert slept[:6] == [0.1] * 6
        late = await logins.step(logins.start("PLAIN"), f"\0alice\0{PASSWORD}".encode(), PEER)
        assert late == Failed("too many failed logins", "alice")
        other = Peer("kafka", "10.0.0.2:5000", "10.0.0.2")
        right = f"\0alice\0{PASSWORD}".encode()
        assert isinstance(await logins.step(logins.start("PLAIN"), right, other), Done)
        clock.ms += 60_000
        assert isinstance(await logins.step(logins.start("PLAIN"), right, PEER), Done)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_attempts_at_the_same_time_are_refused_like_others(
    tmp_path: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def count(credential: ScramCredential, password: str) -> bool:
        checked.append(password)
        return False

    monkeypatch.setattr("app.security.authenticator.is_password", count)
    async with opened(tmp_path) as credentials:
        logins = Authenticator(credentials, clock=SetClock(), mechanisms=(mechanism,), sleep=yielding)

        async def attempt(number: int) -> str:
            exchange = logins.start(mechanism)
            if mechanism == "PLAIN":
                outcome = await logins.step(exchange, b"\0alice\0password %d" % number, PEER)
            else:
                challenge = await logins.step(exchange, b"n,,n=alice,r=x", PEER)
                assert isinstance(challenge, Challenge)
                nonce = challenge.data.partition(b",")[0]
                outcome = await logins.step(exchange, b"c=biws," + nonce + b",p=AAAA", PEER)
            assert isinstance(outcome, Failed)
            return outcome.reason

        reasons = await asyncio.gather(*map(attempt, range(100)))
        logins.close()
    unchecked = reasons.count("too many failed logins")
    # Five are free, five are delayed, and two more may be under way in the threads.
    assert 85 <= unchecked <= 90
    assert len(checked) == (100 - unchecked if mechanism == "PLAIN" else 0)


async def yielding(_seconds: float) -> None:
    await asyncio.sleep(0)


async def test_refused_attempts_do_not_prolong_the_refusal(tmp_path: Path) -> None:
    clock = SetClock()
    async with authenticator(tmp_path, clock, []) as logins:
        await logins.credentials.add_user("alice", PASSWORD)
        for _ in range(20):
            await logins.login_password("alice", "wrong", PEER, mechanism="BASIC")
        for _ in range(100):
            assert await logins.login_password("alice", PASSWORD, PEER, mechanism="BASIC") is None
        clock.ms += 10_000
        assert await logins.login_password("alice", PASSWORD, PEER, mechanism="BASIC") is not None


async def test_failures_of_others_do_not_refuse_an_api_key(tmp_path: Path) -> None:
    async with authenticator(tmp_path, SetClock(), []) as logins:
        made = await logins.credentials.create_key("alice", now_ms=0)
        for _ in range(20):
            assert await logins.login_token("x", PEER) is None
        assert await logins.login_token(made.token + "x", PEER) is None
        assert await logins.login_token(made.token, PEER) is not None
        key_id = made.record.key_id
        assert await logins.login_password(key_id, made.token, PEER, mechanism="BASIC") is not None
        plain = f"\0{key_id}\0{made.token}".encode()
        assert isinstance(await logins.step(logins.start("PLAIN"), plain, PEER), Done)


async def test_scram_against_stored_credentials(tmp_path: Path) -> None:
    async with authenticator(tmp_path, SetClock(), []) as logins:
        await logins.credentials.add_user("alice", PASSWORD)
        exchange = logins.start("SCRAM-SHA-512")
        assert isinstance(await logins.step(exchange, b"n,,n=alice,r=x", PEER), Challenge)
        assert isinstance(await logins.step(exchange, b"c=biws,r=x,p=AAAA", PEER), Failed)


async def test_a_user_is_deleted_with_its_api_keys_and_those_of_others_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as credentials:
        revoked: list[str] = []
        credentials.observe_revocations(revoked.append)
        await credentials.add_user("alice", PASSWORD)
        own = await credentials.create_key("alice", now_ms=0)
        other = await credentials.create_key("bob", now_ms=0)
        await credentials.delete_user("alice")
        assert credentials.key_login(own.token, 1) is None
        assert credentials.key_login(other.token, 1) is not None
        assert revoked == ["user:alice", f"key:{own.record.key_id}"]
        await credentials.delete_user("bob")
        with pytest.raises(UnknownCredential):
            await credentials.delete_user("bob")
    async with opened(tmp_path) as credentials:
        assert credentials.api_keys() == []


# ── users who do not exist ──


def _java_salt(number: int) -> bytes:
    """A salt as kafka-configs and Java's AdminClient make it: 130 bits to the base of 36."""
    value, digits = int.from_bytes(hashlib.sha256(b"%d" % number).digest()[:17]) >> 6, ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.encode()


def _made(mechanism: ScramMechanism, number: int, iterations: int, salt: bytes) -> ScramCredential:
    keys = hashlib.sha512(b"%d" % number).digest()[: 32 if mechanism == "SCRAM-SHA-256" else 64]
    return ScramCredential(
        mechanism=mechanism, salt=salt, stored_key=keys, server_key=keys, iterations=iterations
    )


async def test_made_up_credentials_look_like_those_of_the_users_there_are(tmp_path: Path) -> None:
    """Their iterations, and length and alphabet of the salt, as often as among the users."""

    def look(credential: ScramCredential) -> tuple[object, ...]:
        is_text = credential.salt.isalnum() and credential.salt.islower()
        return credential.mechanism, credential.iterations, "text" if is_text else len(credential.salt)

    names = [f"nobody-{number}" for number in range(1000)]
    async with opened(tmp_path) as credentials:
        # Kafka's tools, librdkafka's salts, and Stele's own users; some have one mechanism only.
        for number in range(60):
            await credentials.set_scram(
                f"k{number}", _made("SCRAM-SHA-256", number, 4096, _java_salt(number))
            )
        for number in range(30):
            await credentials.set_scram(f"r{number}", _made("SCRAM-SHA-512", number, 8192, bytes([200] * 64)))
        for number in range(10):
            salt = hashlib.sha256(b"%d" % number).digest()
            await credentials.set_scram(f"s{number}", _made("SCRAM-SHA-256", number, 16_384, salt))
        real = {user: by_name[0] for user, by_name in credentials.users().items()}
        made_up = {name: credentials.scram(name, "SCRAM-SHA-256") for name in names}
        kinds = Counter(map(look, made_up.values()))
        assert kinds.keys() == {look(real["k0"]), look(real["s0"])}
        # 60 to 10 users.
        assert 800 < kinds[look(real["k0"])] < 900
        lengths = {len(one.salt) for one in made_up.values() if look(one) == look(real["k0"])}
        assert {25, 26} <= lengths <= set(range(20, 27))
        other = {look(credentials.scram(name, "SCRAM-SHA-512")) for name in names}
        assert other == {look(real["r0"])}
        # A password is checked in the same time: with all three kinds of credentials, 60, 30 and 10 of a hundred.
        checked = Counter(look(credentials.password_credential(name)) for name in names)
        for name, most in (("k0", 600), ("r0", 300), ("s0", 100)):
            assert most - 80 < checked[look(real[name])] < most + 80
        # The same name has the same credential, until the users change; then it looks like a new password.
        assert made_up == {name: credentials.scram(name, "SCRAM-SHA-256") for name in names}
        for number in range(60):
            await credentials.delete_user(f"k{number}")
        for name, before in made_up.items():
            after = credentials.scram(name, "SCRAM-SHA-256")
            assert look(after) == look(real["s0"])
            assert (after == before) is (look(before) == look(after))
    async with opened(tmp_path) as credentials:
        assert look(credentials.scram("nobody-1", "SCRAM-SHA-256")) == look(real["s0"])


async def test_the_time_of_a_challenge_does_not_depend_on_whether_there_is_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    unknown_user = scram.unknown_user

    def note(mechanism: ScramMechanism, name: str, *args: Any, **more: Any) -> ScramCredential:
        made.append(name)
        return unknown_user(mechanism, name, *args, **more)

    monkeypatch.setattr("app.security.credentials.unknown_user", note)
    async with opened(tmp_path) as credentials:
        await credentials.add_user("alice", PASSWORD)
        for name in ("alice", "nobody"):
            credentials.scram(name, "SCRAM-SHA-256")
            credentials.password_credential(name)
    assert made == ["alice", "alice", "nobody", "nobody"]
