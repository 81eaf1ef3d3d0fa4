"""How many handshakes begin in one turn of the loop, and in which order."""

from __future__ import annotations

import asyncio
from functools import partial

from app.network.handshake_turns import HANDSHAKES_PER_TURN, HandshakeTurns


async def test_few_begin_in_a_turn_and_all_in_order() -> None:
    turns = HandshakeTurns(asyncio.get_running_loop())
    begun: list[int] = []
    count = 10 * HANDSHAKES_PER_TURN
    at_once = [turns.run(partial(begun.append, number)) for number in range(count)]
    assert at_once.count(True) == len(begun) == HANDSHAKES_PER_TURN
    while len(begun) < count:
        before = len(begun)
        await asyncio.sleep(0)
        assert len(begun) - before <= HANDSHAKES_PER_TURN
    assert begun == list(range(count))


async def test_a_later_one_waits_behind_those_that_wait() -> None:
    turns = HandshakeTurns(asyncio.get_running_loop())
    begun: list[int] = []
    for number in range(2 * HANDSHAKES_PER_TURN):
        turns.run(partial(begun.append, number))
    await asyncio.sleep(0)
    assert not turns.run(partial(begun.append, 99))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == [*range(2 * HANDSHAKES_PER_TURN), 99]


async def test_after_a_pause_one_begins_at_once() -> None:
    turns = HandshakeTurns(asyncio.get_running_loop())
    for _ in range(3):
        begun: list[int] = []
        assert turns.run(partial(begun.append, 1))
        assert begun == [1]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
