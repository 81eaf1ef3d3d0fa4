"""Work on many things, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .work_budget import PARTITIONS_PER_TURN, pause

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Look-ups of one request that wait for storage at the same time.
LOOK_UPS_MAX = 16
# Partitions of one request whose records are deleted at the same time: they share the checkpoint that makes it durable,
# and each goes on for some 20 µs when that is saved.
DELETIONS_MAX = 250


async def several(
    work: Callable[[_Item], Awaitable[_Result]], items: Sequence[_Item], *, at_a_time: int = LOOK_UPS_MAX
) -> list[_Result]:
    """Return the results of ``work`` for each item, in the order of the items.

    The first error ends the work on all of them, and is raised.
    """
    results: dict[int, _Result] = {}
    waiting = iter(enumerate(items))
    runs_max = min(at_a_time, len(items))
    # All of them may run in one turn of the loop.
    per_turn = PARTITIONS_PER_TURN // max(runs_max, 1) or 1

    async def run() -> None:
        for done, (number, item) in enumerate(waiting, 1):
            results[number] = await work(item)
            if done % per_turn == 0:
                await pause()

    if runs_max <= 1:
        await run()
    else:
        runs = [asyncio.ensure_future(run()) for _ in range(runs_max)]
        try:
            await asyncio.gather(*runs)
        finally:
            for task in runs:
                task.cancel()
    return [results[number] for number in range(len(items))]
