"""Timers that are restarted far more often than they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from ...patience import grace_s


class Scheduler(Protocol):
    """Time that passes and calls back; an event loop is one."""

    def time(self) -> float:
        """Seconds, from an arbitrary start; never goes back."""
        ...

    def call_later(
        self, delay: float, callback: Callable[[], object], /, *, context: Context | None = None
    ) -> asyncio.TimerHandle: ...


class Timer:
    """Calls ``ring`` once, unless it is stopped or restarted before.

    Each heartbeat restarts a session. That only notes the new time: the handle on the
    loop stays, and waits again when it finds that it came early. ``ring`` runs outside
    the context of any request, so its log lines have no request id.
    """

    __slots__ = ("_at_s", "_handle", "_handle_at_s", "_ring", "_scheduler")

    def __init__(self, scheduler: Scheduler, ring: Callable[[], object] | None = None) -> None:
        self._scheduler = scheduler
        self._ring = ring
        self._at_s: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at_s = 0.0

    def start(self, after_ms: int, ring: Callable[[], object] | None = None) -> None:
        """Ring ``after_ms`` from now instead of at the earlier time; ``ring`` replaces the callback."""
        if ring is not None:
            self._ring = ring
        self._at_s = at_s = self._scheduler.time() + after_ms / 1000
        if self._handle is not None:
            if at_s >= self._handle_at_s:
                return
            self._handle.cancel()
        self._wait(at_s, after_ms / 1000)

    def stop(self) -> None:
        self._at_s = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    @property
    def is_running(self) -> bool:
        return self._at_s is not None

    def _wait(self, at_s: float, delay_s: float) -> None:
        self._handle_at_s = at_s
        self._handle = self._scheduler.call_later(delay_s, self._due, context=Context())

    def _due(self) -> None:
        self._handle = None
        if self._at_s is None:
            return
        now_s = self._scheduler.time()
        if self._at_s > self._handle_at_s:
            self._wait(self._at_s, max(0.0, self._at_s - now_s))
            return
        # Later than its time: it was put off.
        if self._handle_at_s == self._at_s and (grace := grace_s(now_s - self._at_s)):
            self._wait(now_s + grace, grace)
            return
        self._at_s = None
        assert self._ring is not None
        self._ring()


class Sessions:
    """One timer per member, and per member id that was handed out."""

    def __init__(self, scheduler: Scheduler, expire: Callable[[str], None]) -> None:
        self.timers: dict[str, Timer] = {}
        self._scheduler = scheduler
        self._expire = expire
        self._is_closed = False

    def start(self, member_id: str, timeout_ms: int) -> None:
        """Restart the timer of a member; it is kept until ``stop``, even after it expired."""
        if self._is_closed:
            return
        timer = self.timers.get(member_id)
        if timer is None:
            timer = self.timers[member_id] = Timer(self._scheduler, lambda: self._expire(member_id))
        timer.start(timeout_ms)

    def stop(self, member_id: str) -> None:
        timer = self.timers.pop(member_id, None)
        if timer is not None:
            timer.stop()

    def close(self) -> None:
        """Stop all timers for good."""
        self._is_closed = True
        for timer in self.timers.values():
            timer.stop()
