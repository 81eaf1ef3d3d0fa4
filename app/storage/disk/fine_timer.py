"""A timer for less than a millisecond, to which the timers of event loops round.

Linux has timers that are files, so the loop can wait for one (``man 2 timerfd_create``). Elsewhere the timer of
the loop has to do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_CLOCK_MONOTONIC = 1
_NS_PER_S = 1_000_000_000
# struct itimerspec: seconds and nanoseconds of the interval, and of the time until the call. All 0 stops the timer.
_Spec = ctypes.c_long * 4
_STOPPED = _Spec()


class FineTimer(Protocol):
    """Calls back once per start. Used from one event loop at a time."""

    def start(self, delay_s: float) -> None:
        """Call back after ``delay_s``, instead of when it was to call before."""
        ...

    def stop(self) -> None:
        """Do not call back."""
        ...

    def close(self) -> None: ...


def fine_timer(callback: Callable[[], object]) -> FineTimer:
    """Return a timer for the running loop."""
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:
        with suppress(OSError, NotImplementedError):
            return _TimerFile(callback)
    return LoopTimer(callback)


class LoopTimer:
    """A timer of the event loop."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    def start(self, delay_s: float) -> None:
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._callback)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        self.stop()


class _TimerFile:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Spec()
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._belong_to(asyncio.get_running_loop())
        except BaseException:
            os.close(self._fd)
            raise

    def _belong_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have ``loop`` wait for the file, if another one did, which has ended."""
        if loop is not self._loop:
            loop.add_reader(self._fd, self._fired)
            self._loop = loop

    def start(self, delay_s: float) -> None:
        self._belong_to(asyncio.get_running_loop())
        # 0 would stop it.
        self._spec[2], self._spec[3] = divmod(max(1, int(delay_s * _NS_PER_S)), _NS_PER_S)
        self._set(self._spec)

    def stop(self) -> None:
        self._set(_STOPPED)

    def _set(self, spec: ctypes.Array[ctypes.c_long]) -> None:
        if self._libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            # Stopped, or started again, since the loop saw that it had fired.
            return
        self._callback()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)
