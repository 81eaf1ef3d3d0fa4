"""Work on many things, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .work_budget import WorkBudget

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Look-ups of one request that wait for storage at the same time.
LOOK_UPS_MAX = 16


async def several(
    work: Callable[[_Item], Awaitable[_Result]], items: Sequence[_Item], *, at_a_time: int = LOOK_UPS_MAX
) -> list[_Result]:
    """Return the results of ``work`` for each item, in the order of the items.

    The first error ends the work on all of them, and is raised.
    """
    results: dict[int, _Result] = {}
    waiting = iter(enumerate(items))
    budget = WorkBudget()

    async def run() -> None:
        for number, item in waiting:
            results[number] = await work(item)
            await budget.visit()

    if min(at_a_time, len(items)) <= 1:
        await run()
    else:
        runs = [asyncio.ensure_future(run()) for _ in range(min(at_a_time, len(items)))]
        try:
            await asyncio.gather(*runs)
        finally:
            for one in runs:
                one.cancel()
    return [results[number] for number in range(len(items))]
