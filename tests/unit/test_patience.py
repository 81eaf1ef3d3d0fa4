"""A broker that stood still reads what has arrived before it ends what has timed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from app.groups.base.timers import Sessions, Timer
from app.patience import Timeout, grace_s
from app.tcp.deadlines import Deadlines
from tests.support.toy_listener import SteeredClock


class Watched:
    """A connection that notes when it is looked at."""

    def __init__(self, rung: list[float]) -> None:
        self.due_s = 0.0
        self._rung = rung

    def look_at_clock(self) -> None:
        self._rung.append(asyncio.get_running_loop().time())


def start(kind: str, rung: list[float]) -> object:
    """Start a time-out of 10 seconds; return what must be kept of it."""
    loop = asyncio.get_running_loop()

    def ring() -> None:
        rung.append(loop.time())

    if kind == "timeout":
        return Timeout(loop, 10, ring)
    if kind == "group session":
        sessions = Sessions(loop, lambda _: ring())
        sessions.start("m", 10_000)
        return sessions
    if kind == "session":
        timer = Timer(loop)
        timer.start(10_000, ring)
        return timer
    deadlines = Deadlines()
    deadlines.watch(Watched(rung), 9.5)
    return deadlines


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


KINDS = pytest.mark.parametrize("kind", ["timeout", "session", "group session", "connection"])


@KINDS
async def test_a_time_out_that_is_noticed_late_is_put_off_once_for_as_long(kind: str) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    rung: list[float] = []
    kept = start(kind, rung)
    clock.advance(12)
    await turns()
    assert rung == []
    clock.advance(1)
    await turns()
    assert rung == []
    # Again late; it waits no longer.
    clock.advance(60)
    await turns()
    assert len(rung) == 1, kept


@KINDS
async def test_after_a_long_standstill_it_is_put_off_for_seconds(kind: str) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    rung: list[float] = []
    kept = start(kind, rung)
    clock.advance(3600)
    await turns()
    assert rung == []
    clock.advance(5.1)
    await turns()
    assert len(rung) == 1, kept


async def test_a_heartbeat_that_was_waiting_to_be_read_keeps_a_session() -> None:
    loop = asyncio.get_running_loop()
    clock = SteeredClock(loop)
    rung: list[None] = []
    timer = Timer(loop, lambda: rung.append(None))
    timer.start(10_000)
    clock.advance(13)
    await turns()
    timer.start(10_000)
    clock.advance(9)
    await turns()
    assert rung == []
    assert timer.is_running


def test_what_is_on_time_is_not_put_off() -> None:
    assert [grace_s(late) for late in (-1.0, 0.0, 0.05)] == [0.0] * 3


class BusyLoop:
    """Time and calls of a loop that, like uvloop, does not say when a call that is due at once is due."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, _when: float, callback: Callable[[], object]) -> object:
        self.calls.append(callback)
        return object()


def test_moments_that_are_due_at_once_are_looked_at_however_late_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = BusyLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    deadlines, looks = Deadlines(), list[float]()
    for _ in range(300):
        deadlines.watch(Watched(looks), 0.0)
    # More than are looked at in one turn, after a standstill: the rest is due at once.
    loop.now_s += 60
    for _ in range(5):
        for call in loop.calls[-1:]:
            loop.now_s += 6
            call()
    assert len(looks) == 300
