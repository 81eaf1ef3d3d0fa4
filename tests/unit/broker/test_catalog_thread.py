"""A change of the catalog and the files is made as a whole, whatever becomes of its caller."""

from __future__ import annotations

import asyncio

import pytest

from app.broker.catalog_thread import whole


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_change_ends_before_its_caller_however_often_that_is_cancelled(times: int) -> None:
    may_end, has_ended = asyncio.Event(), False

    async def change() -> None:
        nonlocal has_ended
        await may_end.wait()
        has_ended = True

    caller = asyncio.ensure_future(whole(change()))
    for _ in range(times):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.wait((caller,), timeout=0)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert has_ended


async def test_the_result_and_the_error_of_a_change_are_those_of_its_caller() -> None:
    async def change(number: int) -> int:
        return 10 // number

    assert await whole(change(2)) == 5
    with pytest.raises(ZeroDivisionError):
        await whole(change(0))
