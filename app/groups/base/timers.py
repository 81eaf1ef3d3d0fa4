"""Timers that are restarted far more often than they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Protocol

from ...patience import grace_s

# Time-outs that end in one turn of the loop; each removes a member, which takes some 50 µs.
EXPIRED_PER_TURN = 50
# Most members have sent a heartbeat meanwhile, so they only wait again.
_LOOKED_AT_PER_TURN = 1000
# Entries of a queue that count no longer, in addition to one per member.
_STALE_MAX = 64


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

    def close(self) -> None:
        """Stop for good, and forget ``ring``: a cycle with what it belongs to would wait for a collection of garbage."""
        self.stop()
        self._ring = None

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
    """One time-out per member, and per member id that was handed out.

    Thousands of members may go silent at the same moment, so all share one timer, and at most
    ``EXPIRED_PER_TURN`` of them expire in one turn of the loop.
    """

    def __init__(self, scheduler: Scheduler, expire: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._expire = expire
        # By member id; None after it expired.
        self._deadlines: dict[str, float | None] = {}
        # When to look at members, the earliest first. A deadline that moved on stays where it is until it comes up.
        self._queue: list[tuple[float, str]] = []
        # The entry of the queue that counts for a member.
        self._queued: dict[str, float] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at_s = 0.0
        self._is_closed = False

    def __contains__(self, member_id: str) -> bool:
        """True from the start of a time-out until ``stop``, even after it expired."""
        return member_id in self._deadlines

    @property
    def member_ids(self) -> frozenset[str]:
        return frozenset(self._deadlines)

    def is_running(self, member_id: str) -> bool:
        return self._deadlines.get(member_id) is not None

    def start(self, member_id: str, timeout_ms: int) -> None:
        """Restart the time-out of a member."""
        if self._is_closed:
            return
        at_s = self._deadlines[member_id] = self._scheduler.time() + timeout_ms / 1000
        queued_s = self._queued.get(member_id)
        if queued_s is None or at_s < queued_s:
            self._look_at(member_id, at_s)
            self._wait()

    def stop(self, member_id: str) -> None:
        self._deadlines.pop(member_id, None)
        self._queued.pop(member_id, None)

    def close(self) -> None:
        """Stop all time-outs for good."""
        self._is_closed = True
        self._deadlines.clear()
        self._queued.clear()
        self._queue.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _look_at(self, member_id: str, at_s: float) -> None:
        self._queued[member_id] = at_s
        heappush(self._queue, (at_s, member_id))
        if len(self._queue) > 2 * len(self._queued) + _STALE_MAX:
            self._queue = [(at_s, member_id) for member_id, at_s in self._queued.items()]
            heapify(self._queue)

    def _wait(self) -> None:
        """Wait for the first entry of the queue."""
        if not self._queue or self._is_closed:
            return
        at_s = self._queue[0][0]
        if self._handle is not None:
            if at_s >= self._handle_at_s:
                return
            self._handle.cancel()
        self._handle_at_s = at_s
        delay_s = max(0.0, at_s - self._scheduler.time())
        # Outside the context of any request, so log lines have no request id.
        self._handle = self._scheduler.call_later(delay_s, self._due, context=Context())

    def _due(self) -> None:
        self._handle = None
        try:
            self._look()
        finally:
            self._wait()

    def _look(self) -> None:
        """Let members expire whose time has come."""
        # A loop may call back a little early.
        called_for_s, expired = self._handle_at_s, 0
        for _ in range(_LOOKED_AT_PER_TURN):
            now_s = self._scheduler.time()
            if not self._queue or self._queue[0][0] > max(now_s, called_for_s):
                return
            at_s, member_id = heappop(self._queue)
            if self._queued.get(member_id) != at_s:
                continue
            del self._queued[member_id]
            deadline_s = self._deadlines[member_id]
            assert deadline_s is not None
            if deadline_s > at_s:
                self._look_at(member_id, deadline_s)
            # Later than its time: it was put off.
            elif deadline_s == at_s and (grace := grace_s(now_s - at_s)):
                self._look_at(member_id, now_s + grace)
            else:
                self._deadlines[member_id] = None
                expired += 1
                self._expire(member_id)
            if expired == EXPIRED_PER_TURN:
                return
