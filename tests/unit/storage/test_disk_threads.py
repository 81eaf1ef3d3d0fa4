"""Work that waits for a disk runs in threads, and comes back to the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.storage.disk.disk_threads import DiskThreads


def run_on(threads: DiskThreads, *works: object) -> list[object]:
    async def main() -> list[object]:
        return await asyncio.gather(*(threads.run(work) for work in works), return_exceptions=True)  # type: ignore[arg-type]

    try:
        return asyncio.run(main())
    finally:
        threads.shutdown()


def test_results_and_exceptions_come_back() -> None:
    error = OSError(5, "input/output error")

    def fail() -> None:
        raise error

    assert run_on(DiskThreads(2), lambda: 1, fail, lambda: 3) == [1, error, 3]


def test_work_gets_its_arguments() -> None:
    async def main() -> str:
        return await threads.run("{}-{}".format, "a", 7)

    threads = DiskThreads(1)
    assert asyncio.run(main()) == "a-7"
    threads.shutdown()


def test_as_many_works_run_at_once_as_there_are_threads_and_no_more() -> None:
    together = threading.Barrier(3)
    running, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    run_on(DiskThreads(3), *[work] * 9)
    assert most == 3


def test_one_work_after_the_other_needs_one_thread() -> None:
    async def main() -> set[int]:
        return {await threads.run(threading.get_ident) for _ in range(20)}

    threads = DiskThreads(8)
    assert len(asyncio.run(main())) == 1
    threads.shutdown()


def test_a_thread_that_the_system_does_not_start_leaves_its_work_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, allowed = DiskThreads(4), 0
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        nonlocal allowed
        if not allowed:
            raise RuntimeError("can't start new thread")
        allowed -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="thread"):
        run_on(threads, lambda: 1)
    allowed = 1
    assert run_on(threads, lambda: 1, lambda: 2, lambda: 3) == [1, 2, 3]
    assert not allowed


def test_work_goes_on_when_its_future_is_cancelled() -> None:
    may_go, done = threading.Event(), threading.Event()

    def work() -> None:
        may_go.wait()
        done.set()

    async def main() -> None:
        future = threads.run(work)
        future.cancel()
        may_go.set()
        assert await threads.run(lambda: 1) == 1

    threads = DiskThreads(1)
    asyncio.run(main())
    threads.shutdown()
    assert done.is_set()


def test_a_shutdown_waits_for_work_whose_loop_is_gone() -> None:
    may_go, done = threading.Event(), threading.Event()

    def work() -> None:
        may_go.wait()
        done.set()

    async def main() -> None:
        threads.run(work)

    threads = DiskThreads(1)
    asyncio.run(main())
    may_go.set()
    threads.shutdown()
    assert done.is_set()


def test_a_failure_is_raised_where_the_work_is_awaited() -> None:
    def fail() -> None:
        raise KeyError("missing")

    async def main() -> None:
        with pytest.raises(KeyError, match="missing"):
            await threads.run(fail)

    threads = DiskThreads(1)
    asyncio.run(main())
    threads.shutdown()
