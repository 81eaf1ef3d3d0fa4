"""Schedules background syncs of logs without waiting producers.

Logs that are due at about the same time are due together. A timer per log would be cheap for a few busy
logs. A producer that writes now and then to each of a thousand partitions has every record in a log of its own, and
would pay for a timer and a thread with each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

_Log = TypeVar("_Log", bound=Hashable)


class _Batch(NamedTuple, Generic[_Log]):
    """Logs that are due at ``due_s`` of the loop; a dictionary for their order."""

    logs: dict[_Log, None]
    due_s: float


class FlushSchedule(Generic[_Log]):
    """Calls ``on_due`` with logs whose time has come.

    There is one timer for each delay in use, which begins with the first log. One that is added later is due earlier
    than it must be.
    """

    def __init__(self, on_due: Callable[[Iterable[_Log]], object]) -> None:
        self._on_due = on_due
        self._batches: dict[int, _Batch[_Log]] = {}
        # The delay of the batch that each log is in.
        self._delays: dict[_Log, int] = {}

    def add(self, log: _Log, delay_ms: int) -> None:
        """Have ``log`` be due within ``delay_ms``, if it is not due earlier."""
        delay_before = self._delays.get(log)
        if delay_before is not None and delay_before <= delay_ms:
            # It ends earlier than one that begins now: so it is for all but the first append of a round.
            return
        batch = self._batches.get(delay_ms)
        if batch is None:
            loop = asyncio.get_running_loop()
            loop.call_later(delay_ms / 1000, self._end, delay_ms)
            batch = self._batches[delay_ms] = _Batch({}, loop.time() + delay_ms / 1000)
        if delay_before is not None:
            if self._batches[delay_before].due_s <= batch.due_s:
                return
            self.discard(log)
        batch.logs[log] = None
        self._delays[log] = delay_ms

    def discard(self, log: _Log) -> None:
        """Forget ``log``."""
        delay_ms = self._delays.pop(log, None)
        if delay_ms is not None:
            del self._batches[delay_ms].logs[log]

    def _end(self, delay_ms: int) -> None:
        logs = self._batches.pop(delay_ms).logs
        for log in logs:
            del self._delays[log]
        if logs:
            self._on_due(logs)
