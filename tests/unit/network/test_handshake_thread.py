"""Handshakes run beside the event loop, one at a time and in order; too many make the listener wait."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from app.network.handshake_thread import WAITING_MAX, HandshakeThread


@asynccontextmanager
async def handshake_thread() -> AsyncGenerator[HandshakeThread]:
    thread = HandshakeThread(asyncio.get_running_loop())
    try:
        yield thread
    finally:
        thread.close()


class Steps:
    """Steps that wait in the thread until ``go`` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.ran: list[tuple[int, int]] = []
        self.done: list[int] = []
        self.all_done = asyncio.Event()

    def step(self, number: int) -> Exception | None:
        assert self.go.wait(60)
        self.ran.append((number, threading.get_ident()))
        return None

    def finish(self, number: int, last: int, outcome: Exception | None) -> None:
        assert outcome is None
        self.done.append(number)
        if number == last:
            self.all_done.set()

    def run(self, thread: HandshakeThread, count: int) -> None:
        for number in range(count):
            thread.run(partial(self.step, number), partial(self.finish, number, count - 1))


async def test_the_loop_goes_on_while_handshakes_run_one_at_a_time_and_in_order() -> None:
    async with handshake_thread() as thread:
        steps = Steps()
        steps.run(thread, 10)
        # The thread waits for this coroutine, which therefore does not wait for the thread.
        await asyncio.sleep(0)
        assert steps.ran == []
        steps.go.set()
        await steps.all_done.wait()
        assert [number for number, _ in steps.ran] == steps.done == list(range(10))
        assert {ident for _, ident in steps.ran}.isdisjoint({threading.get_ident()})
        assert len({ident for _, ident in steps.ran}) == 1


async def test_it_is_full_until_one_more_begins() -> None:
    async with handshake_thread() as thread:
        steps, was_freed = Steps(), asyncio.Event()
        # One is in the thread; the others wait.
        steps.run(thread, WAITING_MAX)
        assert not thread.is_full
        thread.run(partial(steps.step, WAITING_MAX), lambda _: None)
        assert thread.is_full
        thread.when_free(was_freed.set)
        await asyncio.sleep(0)
        assert not was_freed.is_set()
        steps.go.set()
        await was_freed.wait()
        assert not thread.is_full
        await steps.all_done.wait()


async def test_nothing_is_finished_after_it_was_closed() -> None:
    async with handshake_thread() as thread:
        steps = Steps()
        steps.run(thread, 5)
        thread.when_free(lambda: steps.done.append(-1))
        steps.go.set()
        thread.close()
        await asyncio.sleep(0)
        assert steps.done == []
        assert len(steps.ran) <= 1


async def test_the_error_of_a_handshake_is_its_outcome() -> None:
    async with handshake_thread() as thread:
        outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        error = ssl.SSLWantReadError()
        thread.run(lambda: error, outcome.set_result)
        assert await outcome is error


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness per thread")
@pytest.mark.parametrize("is_allowed", [True, False], ids=["allowed", "forbidden by a sandbox"])
async def test_handshakes_have_a_lower_priority_than_the_loop(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    if not is_allowed:
        monkeypatch.setattr(os, "setpriority", refuse)
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    niceness: list[int] = []

    def step() -> None:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    async with handshake_thread() as thread:
        thread.run(step, ended.set_result)
        await ended
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    # The system has no niceness above 19.
    assert niceness == [min(own + 7, 19) if is_allowed else own]
