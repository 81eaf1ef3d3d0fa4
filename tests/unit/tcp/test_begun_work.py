"""A coroutine that is begun without a task gives what it would have given in one."""

from __future__ import annotations

import asyncio

import pytest

from app.tcp.begun_work import begin_now, go_on


async def _work(waits: list[asyncio.Future[int]], steps: list[str]) -> int:
    total = 0
    try:
        for future in waits:
            total += await future
            steps.append("waited")
            await asyncio.sleep(0)
    finally:
        steps.append("ended")
    return total


async def _never() -> int:
    raise ValueError("the reason")


async def test_work_that_waits_for_nothing_ends_at_once() -> None:
    assert begin_now(_work([], [])) == (None, 0)


async def test_work_that_waits_goes_on_in_a_task() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
    steps: list[str] = []
    work = _work(futures, steps)
    first, result = begin_now(work)
    assert result is None
    task = asyncio.create_task(_result_of(work, first))
    for number, future in enumerate(futures):
        await asyncio.sleep(0)
        future.set_result(number + 1)
    assert await task == 6
    assert steps == ["waited"] * 3 + ["ended"]


async def _result_of(work: object, first: object) -> int:
    return await go_on(work, first)  # type: ignore[arg-type]


async def test_what_it_waits_for_may_end_before_there_is_a_task() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    work = _work([future], [])
    first, _ = begin_now(work)
    future.set_result(5)
    await asyncio.sleep(0)
    assert await asyncio.create_task(_result_of(work, first)) == 5


async def test_an_error_of_what_it_waits_for_is_raised_in_it() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps: list[str] = []
    work = _work([future], steps)
    first, _ = begin_now(work)
    task = asyncio.create_task(_result_of(work, first))
    await asyncio.sleep(0)
    future.set_exception(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await task
    assert steps == ["ended"]


async def test_an_error_in_the_first_step_is_raised() -> None:
    with pytest.raises(ValueError, match="the reason"):
        begin_now(_never())


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_task_that_is_cancelled_ends_its_work(has_begun: bool) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps: list[str] = []
    work = _work([future], steps)
    first, _ = begin_now(work)
    task = asyncio.create_task(_result_of(work, first))
    if has_begun:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled() == has_begun
    work.close()
    assert steps == ["ended"]
