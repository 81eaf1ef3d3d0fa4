"""Fail a test that exceeds its time limit, with the stacks of all threads and asyncio tasks.

The limit covers a test with the setup and teardown of its fixtures, and bounds a hang; it is no
expectation of speed. ``--time-limit`` sets it for a run, ``@pytest.mark.time_limit(SECONDS)`` for a test;
0 means none. A debugger (``--pdb``, ``--trace``, ``breakpoint()``) lifts it.

When it is exceeded, SIGALRM fails the test: the stacks are in its captured stderr. An exception that is
raised within a callback of asyncio ends that callback only, so the signal is repeated until the phase has
ended. A process that does not react at all, because its main thread never returns from C code, writes the
stacks of its threads and exits ``BACKSTOP_S`` later; under pytest-xdist this fails the test in question.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest

from .warm_processes import show_stacks

# On two idle cores the slowest test takes about a minute; a busy machine is several times slower.
LIMIT_S = 600.0
# Spark starts, several times, on a cluster of processes.
LONG_LIMIT_S = 3600.0
# Longer than the teardown of any test takes.
BACKSTOP_S = 180.0
_REPEAT_S = 2.0
_HAS_ALARM = hasattr(signal, "SIGALRM")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--time-limit", type=float, metavar="SECONDS", help="time limit per test; 0: none")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "time_limit(seconds): the time limit of this test; 0: none")
    config.pluginmanager.register(_TimeLimit(config), "time-limit")


def limit_s(item: pytest.Item) -> float:
    """The limit of a test in seconds; 0 if it has none."""
    marker = item.get_closest_marker("time_limit")
    if marker:
        return float(marker.args[0])
    chosen: float | None = item.config.getoption("time_limit")
    if chosen is not None:
        return chosen
    if item.get_closest_marker("torture"):
        return 0.0
    return LONG_LIMIT_S if item.get_closest_marker("long") else LIMIT_S


class _TimeLimit:
    """One timer, for the test that runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_off = bool(config.getoption("usepdb") or config.getoption("trace"))
        # While a test runs, its output is captured; the backstop must be seen all the same.
        self._stderr = os.fdopen(os.dup(2), "w")
        self._has_fired = False

    def pytest_unconfigure(self) -> None:
        self._stderr.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        seconds = 0.0 if self._is_off else limit_s(item)
        if seconds <= 0:
            return (yield)
        self._has_fired = False

        def fire(_number: int, _frame: FrameType | None) -> None:
            if not self._has_fired:
                self._has_fired = True
                sys.stderr.write(all_stacks())
                show_stacks()
            pytest.fail(
                f"the test exceeded its time limit of {seconds:g} s; the stacks are in its stderr, "
                "those of the processes that it started in theirs"
            )

        if _HAS_ALARM and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, fire)
            signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
        faulthandler.dump_traceback_later(seconds + BACKSTOP_S, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            _disarm()
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, Any, Any]:
        # The phase has ended: nothing may interrupt the teardown, which the backstop bounds.
        if self._has_fired:
            _disarm()
        return (yield)

    def pytest_enter_pdb(self) -> None:
        _disarm()
        faulthandler.cancel_dump_traceback_later()


def _disarm() -> None:
    if _HAS_ALARM:
        signal.setitimer(signal.ITIMER_REAL, 0)


def all_stacks() -> str:
    """The stacks of all threads of this process and of all asyncio tasks that are not done."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"── thread {names.get(ident, ident)} ──\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    # Tasks of every loop, those of other threads too: asyncio lists them by loop only.
    for found in gc.get_objects():
        if issubclass(type(found), asyncio.Task) and not found.done():
            parts.append(f"── task {found.get_name()} ──\n{''.join(_stack_of(found))}")
    return "\n".join(parts) + "\n"


def _stack_of(task: asyncio.Task[Any]) -> list[str]:
    """The frames of a task, from its coroutine to what that awaits in the end."""
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        lines += traceback.format_stack(frame, limit=1)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return lines
