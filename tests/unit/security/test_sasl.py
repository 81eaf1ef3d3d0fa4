"""PLAIN and OAUTHBEARER: what logs in, and what never does."""

from __future__ import annotations

import pytest

from app.security.login_throttle import (
    ADDRESS_DELAY_MAX_MS,
    ENTRIES_MAX,
    FREE_FAILURES,
    USER_DELAY_MAX_MS,
    LoginThrottle,
)
from app.security.principal import Login, Principal
from app.security.sasl import (
    BearerExchange,
    Challenge,
    CheckPassword,
    CheckToken,
    Done,
    Failed,
    PlainExchange,
)

LOGIN = Login(principal=Principal("alice"), mechanism="PLAIN")


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_asks_for_a_check_of_the_password(message: bytes) -> None:
    plain = PlainExchange()
    assert plain.receive(message) == CheckPassword("alice", "secret")
    assert plain.checked(LOGIN) == Done(LOGIN)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0secret",
        b"\0alice\0",
        b"admin\0alice\0secret",
        b"\0a\0b\0c",
        b"\0\xff\0x",
    ],
)
def test_plain_refuses(message: bytes) -> None:
    plain = PlainExchange()
    assert isinstance(plain.receive(message), Failed)
    assert isinstance(plain.checked(LOGIN), Failed), "a login that nothing asked for is none"


def test_a_wrong_password_fails_and_the_exchange_ends() -> None:
    plain = PlainExchange()
    plain.receive(b"\0alice\0secret")
    assert plain.checked(None) == Failed("wrong user or password", "alice")
    assert isinstance(plain.receive(b"\0alice\0secret"), Failed)
    assert isinstance(plain.checked(LOGIN), Failed)


@pytest.mark.parametrize(
    "message", [b"n,,\1auth=Bearer a.b.c\1\1", b"n,a=x,\1traits=1\1auth=bearer a.b.c\1\1"]
)
def test_a_bearer_token_is_checked(message: bytes) -> None:
    bearer = BearerExchange()
    assert bearer.receive(message) == CheckToken("a.b.c")
    assert bearer.checked(LOGIN) == Done(LOGIN)


@pytest.mark.parametrize("confirmation", [b"\1", b"\\x01", b""])
def test_a_refused_token_gets_an_error_and_fails_at_its_confirmation(confirmation: bytes) -> None:
    bearer = BearerExchange()
    bearer.receive(b"n,,\1auth=Bearer a.b.c\1\1")
    assert bearer.checked(None) == Challenge(b'{"status":"invalid_token"}')
    assert isinstance(bearer.receive(confirmation), Failed)
    assert isinstance(bearer.receive(b"n,,\1auth=Bearer a.b.c\1\1"), Failed)
    assert isinstance(bearer.checked(LOGIN), Failed)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,",
        b"y,,\1auth=Bearer t\1\1",
        b"n,,\1auth=Basic dA==\1\1",
        b"n,,\1auth=Bearer \1\1",
        b"\xff",
    ],
)
def test_a_malformed_bearer_message_is_refused(message: bytes) -> None:
    assert isinstance(BearerExchange().receive(message), Failed)


def test_no_password_is_in_a_representation() -> None:
    assert "secret" not in repr(CheckPassword("alice", "secret"))
    assert "a.b.c" not in repr(CheckToken("a.b.c"))


# ── failed logins ──


def test_a_few_failures_cost_nothing_and_more_are_slowed_down_then_refused() -> None:
    throttle = LoginThrottle()
    delays: list[int | None] = []
    for _ in range(FREE_FAILURES + ADDRESS_DELAY_MAX_MS // 1000 + 1):
        throttle.failed("10.0.0.1", "alice", 0)
        delays.append(throttle.delay_ms("10.0.0.1", "bob", 0))
    assert delays == [0] * FREE_FAILURES + [1000, 2000, 3000, 4000, 5000, None]
    assert throttle.delay_ms("10.0.0.1", "bob", 120_000) == 0, "time pays the debt"


def test_a_user_is_never_locked_out_by_others() -> None:
    throttle = LoginThrottle()
    for number in range(1000):
        throttle.failed(f"10.0.1.{number}", "alice", 0)
    assert throttle.delay_ms("10.0.0.1", "alice", 0) == USER_DELAY_MAX_MS
    assert throttle.delay_ms("10.0.0.1", "bob", 0) == 0


def test_what_is_remembered_is_bounded() -> None:
    throttle = LoginThrottle()
    for number in range(ENTRIES_MAX + 100):
        throttle.failed("10.0.0.1", f"user {number}", 0)
    assert len(throttle) == ENTRIES_MAX
    assert throttle.delay_ms("10.0.0.1", "", 0) is None, "names cannot push the address out"


def test_the_addresses_of_an_ipv6_network_count_as_one() -> None:
    throttle = LoginThrottle()
    for number in range(100):
        throttle.failed(f"2001:db8::{number:x}", "", 0)
        throttle.failed(f"::ffff:10.0.1.{number}", "", 0)
    assert throttle.delay_ms("2001:db8::ffff", "", 0) is None
    assert throttle.delay_ms("2001:db8:0:1::1", "", 0) == 0
    assert throttle.delay_ms("::ffff:10.0.2.1", "", 0) == 0, "a mapped IPv4 address is one host"


def test_long_names_are_remembered_by_their_beginning() -> None:
    throttle = LoginThrottle()
    for number in range(2 * FREE_FAILURES):
        throttle.failed(f"10.0.1.{number}", "a" * 10_000 + str(number), 0)
    assert throttle.delay_ms("10.0.0.1", "a" * 255, 0) == USER_DELAY_MAX_MS
