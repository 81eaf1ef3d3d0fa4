"""Who goes on in which turn of the event loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from app.turns import LONG_S, Turns


async def turns_of(turns: Turns, asked: list[tuple[str, str]]) -> list[list[str]]:
    """Return which of ``asked``, a client and what it wants, went on in each turn, in order."""
    went_on: list[list[str]] = [[]]

    def go_on(name: str) -> None:
        went_on[-1].append(name)

    for client, wanted in asked:
        turns.call(partial(go_on, wanted), client)
    while sum(map(len, went_on)) < len(asked):
        went_on.append([])
        await asyncio.sleep(0)
    return went_on


async def test_so_many_go_on_in_each_turn_as_there_is_room_for() -> None:
    asked = [("a", str(number)) for number in range(5)]
    assert await turns_of(Turns(2), asked) == [["0", "1"], ["2", "3"], ["4"]]


async def test_a_client_that_asks_once_does_not_wait_for_one_that_asks_often() -> None:
    many = [("many", f"many {number}") for number in range(6)]
    went_on = await turns_of(Turns(2), [*many, ("other", "other")])
    assert went_on[1] == ["many 2", "other"]
    assert [name for turn in went_on for name in turn if name != "other"] == [name for _, name in many]


async def test_each_client_goes_on_once_before_one_goes_on_again() -> None:
    asked = [(client, client + number) for client in "abc" for number in "123"]
    went_on = await turns_of(Turns(1), asked)
    assert [name for (name,) in went_on] == ["a1", "a2", "b1", "c1", "a3", "b2", "c2", "b3", "c3"]


async def test_nobody_waits_when_all_have_gone_on() -> None:
    turns = Turns(1)
    await turns_of(turns, [("a", "1"), ("a", "2")])
    await asyncio.sleep(0)
    assert turns.take()
    assert not turns.take()


async def test_fewer_go_on_after_a_long_turn_and_more_again_after_short_ones() -> None:
    turns, went_on = Turns(4), [0]

    def go_on(cpu_s: float) -> None:
        went_on[-1] += 1
        end_s = time.thread_time() + cpu_s
        while time.thread_time() < end_s:
            pass

    for number in range(15):
        turns.call(partial(go_on, 2 * LONG_S if number < 7 else 0))
    while sum(went_on) < 15:
        went_on.append(0)
        await asyncio.sleep(0)
    # The turns of the first seven are long; one of the others goes on in the last of these.
    assert went_on == [4, 2, 1, 1, 2, 3, 2]
