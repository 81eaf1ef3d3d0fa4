"""Workers, monitors and shared calls do the same for tasks and for threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
from stele import ConnectionLostError, async_concurrency, concurrency
from stele.async_concurrency import AsyncMonitor, AsyncSharedCalls, AsyncSlots, AsyncWorker
from stele.concurrency import Monitor, SharedCalls, Slots, Worker

PATIENCE_S = 60


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end the event loop of the test too."""


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.001)


def public_names(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
    }


def signatures(value: Any) -> dict[str, list[tuple[str, Any]]]:
    """The parameters of a function, or of each public method of a class."""
    functions = vars(value) if inspect.isclass(value) else {"": value}
    return {
        name: [
            (parameter.name, parameter.kind) for parameter in inspect.signature(function).parameters.values()
        ]
        for name, function in functions.items()
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_"))
    }


def test_both_modules_have_the_same_interface() -> None:
    names = public_names(async_concurrency)
    assert {"sleep", "AsyncMonitor", "AsyncSharedCalls", "AsyncWorker"} <= names
    assert {name.removeprefix("Async") for name in names} == public_names(concurrency)
    for name in names:
        other = getattr(concurrency, name.removeprefix("Async"))
        assert signatures(getattr(async_concurrency, name)) == signatures(other)


# ── shared calls ──


class Tasks:
    """Callers that are tasks."""

    def __init__(self) -> None:
        self._shared: AsyncSharedCalls[str, int] = AsyncSharedCalls()
        self.open = asyncio.Event()
        self.made: list[str] = []
        self.error: Exception | None = None

    async def _make(self, key: str) -> int:
        self.made.append(key)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return len(self.made)

    def call(self, key: str) -> Awaitable[int]:
        return asyncio.create_task(self._shared.call(key, lambda: self._make(key)))

    async def all_wait(self, key: str, count: int) -> None:
        """Wait until ``count`` callers of ``key`` wait for the first one."""
        # The first turn of the loop begins the callers, the second one what they share.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Threads:
    """Callers that are threads."""

    def __init__(self) -> None:
        self._shared: SharedCalls[str, int] = SharedCalls()
        self.open = threading.Event()
        self.made: list[str] = []
        self.error: BaseException | None = None

    def _make(self, key: str) -> int:
        self.made.append(key)
        assert self.open.wait(PATIENCE_S)
        error, self.error = self.error, self.error if isinstance(self.error, Exception) else None
        if error is not None:
            raise error
        return len(self.made)

    def call(self, key: str) -> Awaitable[int]:
        return asyncio.ensure_future(asyncio.to_thread(self._shared.call, key, lambda: self._make(key)))

    async def all_wait(self, key: str, count: int) -> None:
        await asyncio.to_thread(wait_until, lambda: self._waiting(key) == count)

    def _waiting(self, key: str) -> int | None:
        shared: Any = self._shared._calls.get(key)
        return None if shared is None else len(shared._condition._waiters)


@pytest.fixture(params=[Tasks, Threads])
async def callers(request: pytest.FixtureRequest) -> Tasks | Threads:
    return request.param()


async def test_callers_of_one_key_share_a_call_and_its_result(callers: Tasks | Threads) -> None:
    calls = [callers.call("a") for _ in range(4)]
    await callers.all_wait("a", 3)
    callers.open.set()
    assert await asyncio.gather(*calls) == [1, 1, 1, 1]
    assert callers.made == ["a"]
    assert await callers.call("a") == 2


async def test_callers_of_other_keys_do_not_wait(callers: Tasks | Threads) -> None:
    first, second = callers.call("a"), callers.call("b")
    await callers.all_wait("a", 0)
    await callers.all_wait("b", 0)
    assert sorted(callers.made) == ["a", "b"]
    callers.open.set()
    await asyncio.gather(first, second)


async def test_each_caller_gets_an_error_of_its_own(callers: Tasks | Threads) -> None:
    callers.error = ConnectionLostError("gone")
    calls = [callers.call("a") for _ in range(4)]
    await callers.all_wait("a", 3)
    callers.open.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert callers.made == ["a"]
    assert [type(error) for error in errors] == [ConnectionLostError] * 4
    assert len({id(error) for error in errors}) == 4


async def test_a_task_that_is_cancelled_does_not_end_the_call_of_others() -> None:
    callers = Tasks()
    first, second = callers.call("a"), callers.call("a")
    await callers.all_wait("a", 1)
    assert isinstance(first, asyncio.Task)
    first.cancel()
    callers.open.set()
    assert await second == 1
    assert callers.made == ["a"]


async def test_a_call_of_a_thread_that_is_interrupted_is_executed_by_another_one() -> None:
    callers = Threads()
    callers.error = Interrupted()
    calls = [callers.call("a") for _ in range(3)]
    await callers.all_wait("a", 2)
    callers.open.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert len([one for one in outcomes if isinstance(one, Interrupted)]) == 1
    # The second execution may have ended before the last caller was awake.
    assert sorted(one for one in outcomes if isinstance(one, int)) in ([2, 2], [2, 3])


# ── workers ──


async def test_a_worker_runs_until_it_is_stopped() -> None:
    runs: list[str] = []

    worker = AsyncWorker("task")

    async def run() -> None:
        try:
            while not await worker.stops_within(0.001):
                runs.append("task")
        finally:
            runs.append("end of task")

    worker.start(run)
    await asyncio.to_thread(wait_until, lambda: bool(runs))
    await worker.stop()
    assert runs[-1] == "end of task"
    await worker.stop()


def test_a_worker_in_a_thread_does_so_too() -> None:
    runs: list[str] = []
    worker = Worker("thread")

    def run() -> None:
        while not worker.stops_within(0.001):
            runs.append(threading.current_thread().name)
        runs.append("end of thread")

    worker.start(run)
    wait_until(lambda: bool(runs))
    assert runs[0] == "thread"
    worker.stop()
    assert runs[-1] == "end of thread"
    worker.stop()


async def test_a_worker_that_was_not_started_has_ended() -> None:
    await AsyncWorker("task").stop()
    Worker("thread").stop()


async def test_a_worker_that_stops_itself_does_not_wait_for_its_end() -> None:
    task, thread = AsyncWorker("task"), Worker("thread")
    ended: list[str] = []

    async def run_task() -> None:
        try:
            await task.stop()
            await asyncio.sleep(0)
        finally:
            ended.append("task")

    def run_thread() -> None:
        thread.stop()
        assert thread.stops_within(0)
        ended.append("thread")

    task.start(run_task)
    thread.start(run_thread)
    await asyncio.to_thread(wait_until, lambda: sorted(ended) == ["task", "thread"])


def test_the_wait_for_the_end_of_a_thread_can_be_bounded() -> None:
    worker, may_end = Worker("thread"), threading.Event()
    worker.start(lambda: assert_that(may_end.wait(PATIENCE_S)))
    worker.stop(wait_s=0.001)
    may_end.set()
    worker.stop()


def assert_that(value: bool) -> None:
    assert value


# ── limits, and what is left to others ──


async def test_a_time_limit_ends_the_block_of_a_task_and_not_that_of_a_thread() -> None:
    past_s = time.monotonic() - 1
    with pytest.raises(TimeoutError):
        async with async_concurrency.time_limit(past_s):
            await asyncio.Event().wait()
    with concurrency.time_limit(past_s):
        pass


async def test_slots_bound_the_calls_of_tasks_and_not_those_of_threads() -> None:
    async_slots, slots = AsyncSlots(1), Slots(1)
    slots.take()
    slots.take()
    await async_slots.take()
    second = asyncio.create_task(async_slots.take())
    await asyncio.sleep(0)
    assert not second.done()
    async_slots.give_back()
    await second


async def test_a_function_runs_at_once_where_its_caller_can_wait() -> None:
    runs: list[str] = []

    async def run() -> None:
        runs.append("task")

    async_concurrency.run_at_once(run)
    concurrency.run_at_once(lambda: runs.append("thread"))
    assert runs == ["thread"]


async def test_a_function_that_may_block_runs_beside_the_tasks_or_in_its_thread() -> None:
    here = threading.current_thread()
    assert await async_concurrency.in_thread(threading.current_thread) is not here
    assert concurrency.in_thread(threading.current_thread) is here


async def test_other_tasks_run_when_one_gives_way() -> None:
    runs: list[str] = []
    other = asyncio.create_task(async_concurrency.sleep(0))
    other.add_done_callback(lambda _: runs.append("other"))
    while not runs:
        await async_concurrency.give_way()
    concurrency.give_way()


# ── monitors ──


async def test_a_wait_ends_with_the_change_that_it_waits_for() -> None:
    state: list[int] = []
    async_monitor, monitor = AsyncMonitor(), Monitor()
    task = asyncio.create_task(async_monitor.wait_for(lambda: len(state) == 2, PATIENCE_S))
    thread = asyncio.create_task(asyncio.to_thread(monitor.wait_for, lambda: len(state) == 2, PATIENCE_S))
    for number in range(2):
        await asyncio.sleep(0)
        assert not task.done()
        assert not thread.done()
        with monitor, async_monitor:
            state.append(number)
    assert await task
    assert await thread


async def test_a_wait_ends_in_time_without_the_change() -> None:
    assert not await AsyncMonitor().wait_for(lambda: False, 0.001)
    assert not Monitor().wait_for(lambda: False, 0.001)
    assert await AsyncMonitor().wait_for(lambda: True, 0)
    assert Monitor().wait_for(lambda: True, 0)


def test_one_thread_at_a_time_is_in_the_block_of_a_monitor() -> None:
    monitor = Monitor()
    inside: list[int] = []

    def enter() -> None:
        for _ in range(100):
            with monitor:
                inside.append(1)
                # Lets another thread run.
                time.sleep(0)
                assert len(inside) == 1
                inside.pop()

    workers = [Worker("thread") for _ in range(4)]
    for worker in workers:
        worker.start(enter)
    for worker in workers:
        worker.stop()
    assert inside == []


# ── deadlines ──


async def test_what_runs_until_a_deadline_gets_it_and_a_task_is_cancelled_there() -> None:
    seen: list[float] = []

    async def run(deadline_s: float) -> None:
        seen.append(deadline_s)
        await asyncio.Event().wait()

    deadline_s = time.monotonic()
    await async_concurrency.run_until(deadline_s, run)
    concurrency.run_until(deadline_s, seen.append)
    assert seen == [deadline_s, deadline_s]
