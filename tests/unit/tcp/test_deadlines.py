"""One timer for all connections: each is looked at when it is due, and not before."""

from __future__ import annotations

import asyncio
import random

import pytest

from app.tcp.deadlines import Deadlines
from tests.support.toy_listener import SteeredClock


class Watched:
    def __init__(self, looks: list[Watched]) -> None:
        self.due_s = 0.0
        self._looks = looks

    def look_at_clock(self) -> None:
        self._looks.append(self)


async def turn() -> None:
    # The timer of the loop, and what it puts off to its next turns.
    for _ in range(50):
        await asyncio.sleep(0)


async def test_an_earlier_look_replaces_a_later_one_and_not_the_reverse(
    clock: SteeredClock,
) -> None:
    looks: list[Watched] = []
    deadlines, connection = Deadlines(), Watched(looks)
    deadlines.watch(connection, 600)
    deadlines.watch(connection, 30)
    deadlines.watch(connection, 700)
    clock.advance(29)
    await turn()
    assert looks == []
    clock.advance(2)
    await turn()
    assert looks == [connection]
    assert connection.due_s == 0.0
    clock.advance(1000)
    await turn()
    assert looks == [connection], "once"


async def test_a_connection_that_has_ended_is_not_looked_at(clock: SteeredClock) -> None:
    looks: list[Watched] = []
    deadlines, gone, here = Deadlines(), Watched(looks), Watched(looks)
    for connection in (gone, here):
        deadlines.watch(connection, 5)
    deadlines.forget(gone)
    clock.advance(6)
    await turn()
    assert looks == [here]


async def test_an_exception_for_one_connection_is_logged_and_the_others_are_looked_at(
    clock: SteeredClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Watched):
        def look_at_clock(self) -> None:
            super().look_at_clock()
            raise RuntimeError("its clock is broken")

    looks: list[Watched] = []
    deadlines = Deadlines()
    watched = [Watched(looks), Broken(looks), Watched(looks), Broken(looks), Watched(looks)]
    for connection in watched:
        deadlines.watch(connection, 5)
    later = Watched(looks)
    deadlines.watch(later, 20)
    clock.advance(6)
    await turn()
    assert set(looks) == set(watched)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "its clock is broken"
    ] * 2
    clock.advance(20)
    await turn()
    assert looks[-1] is later, "the timer goes on"


async def test_thousands_that_are_due_at_once_are_looked_at_in_many_turns(clock: SteeredClock) -> None:
    looks: list[Watched] = []
    deadlines = Deadlines()
    for _ in range(2000):
        deadlines.watch(Watched(looks), 600)
    clock.advance(602)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(looks) < 2000
    await turn()
    assert len(looks) == 2000


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_looked_at_too_early_or_more_than_a_second_late(
    clock: SteeredClock, seed: int
) -> None:
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    looks: list[Watched] = []
    deadlines = Deadlines()
    due: dict[Watched, float] = {}
    for _ in range(300):
        for _ in range(rng.randint(0, 3)):
            connection = rng.choice(list(due)) if due and rng.random() < 0.5 else Watched(looks)
            if rng.random() < 0.2:
                deadlines.forget(connection)
                due.pop(connection, None)
                continue
            delay_s = rng.choice([0.05, 0.3, 9.9, 10, 30, 600])
            before_s = loop.time()
            deadlines.watch(connection, delay_s)
            due[connection] = min(due.get(connection, before_s + delay_s), before_s + delay_s)
        clock.advance(rng.choice([0.01, 0.2, 1.5, 20]))
        now_s = loop.time()
        looks.clear()
        await turn()
        for connection in looks:
            assert due.pop(connection) <= loop.time(), f"seed {seed}"
        assert all(due_s > now_s - 1.1 for due_s in due.values()), f"seed {seed}"
