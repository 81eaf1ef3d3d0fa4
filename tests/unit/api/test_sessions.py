"""Sessions of the console: when they end."""

from __future__ import annotations

from app.api.sessions import ABSOLUTE_MS, IDLE_MS, Sessions
from app.security.principal import Login, Principal

ALICE = Principal("alice")


class SetClock:
    """A clock of two times that the test sets: of day, and since the start."""

    def __init__(self) -> None:
        self.of_day_ms = 1_000_000
        self.monotonic = 5_000

    def now_ms(self) -> int:
        return self.of_day_ms

    def monotonic_ms(self) -> int:
        return self.monotonic


def test_a_session_ends_when_it_is_idle_and_when_it_is_old() -> None:
    clock = SetClock()
    sessions = Sessions(clock)
    login = Login(principal=ALICE, mechanism="PLAIN", credential="user:alice")
    idle, used = sessions.begin(login), sessions.begin(login)
    for _ in range(ABSOLUTE_MS // (IDLE_MS - 1)):
        clock.monotonic += IDLE_MS - 1
        assert sessions.find(used) == login
    assert sessions.find(idle) is None
    clock.monotonic += IDLE_MS - 1
    assert sessions.find(used) is None


def test_a_session_ends_with_the_api_key_that_began_it() -> None:
    clock = SetClock()
    sessions = Sessions(clock)
    login = Login(
        principal=ALICE, mechanism="API-KEY", credential="key:1", expires_at_ms=clock.of_day_ms + 1000
    )
    session_id = sessions.begin(login)
    clock.of_day_ms += 999
    assert sessions.find(session_id) == login
    clock.of_day_ms += 1
    assert sessions.find(session_id) is None
