"""The retention of committed offsets: a periodic sweep drops those that expired.

When an offset expires is decided by ``offsets.is_due``.
"""

from __future__ import annotations

import asyncio
import logging

from ..clock import PatientClock
from ..cluster.group_store import OffsetRecord
from ..work_budget import WorkBudget
from .base.offset_rules import is_due
from .base.pending_offsets import Key
from .base.timers import Timer
from .live_group import LiveGroup
from .table import GroupTable

logger = logging.getLogger(__name__)

# As in Kafka: offsets.retention.check.interval.ms.
CHECK_INTERVAL_MS = 600_000
# What a look at an offset takes, compared with a partition of a log.
_OF_A_PARTITION = 0.1


class OffsetRetention:
    """Sweeps the groups of ``table``, and drops groups in which nothing is left."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._clock = PatientClock(table.clock)
        self._timer: Timer | None = None
        self._sweeping: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Sweep every ``CHECK_INTERVAL_MS`` until ``stop``."""
        self._timer = Timer(self._table.scheduler, self._sweep_and_wait)
        self._timer.start(CHECK_INTERVAL_MS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep_and_wait(self) -> None:
        if not self._table.is_open:
            # Another coordinator has the groups now.
            return
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.ensure_future(self._sweep_and_log())
        assert self._timer is not None
        self._timer.start(CHECK_INTERVAL_MS)

    async def _sweep_and_log(self) -> None:
        try:
            await self.sweep()
        except Exception:  # the edge of a task: the next sweep may succeed
            logger.exception("expired offsets could not be dropped")

    async def sweep(self) -> None:
        """Drop the offsets that expired, and groups in which nothing is left; with pauses."""
        budget = WorkBudget()
        now_ms = self._clock.now_ms()
        for live in list(self._table.groups.values()):
            await budget.visit()
            if live.is_empty and self._table.groups.get(live.group.name) is live:
                await self._sweep_group(live, now_ms, budget)

    async def _sweep_group(self, live: LiveGroup, now_ms: int, budget: WorkBudget) -> None:
        offsets, retention_ms = live.offsets, self._table.settings.offsets_retention_ms
        expired: list[tuple[Key, OffsetRecord]] = []
        for key, record in list(offsets.records.items()):
            if is_due(record, live, now_ms=now_ms, retention_ms=retention_ms):
                expired.append((key, record))
            await budget.visit(_OF_A_PARTITION)
        # From here on nothing pauses, so what is found is dropped.
        if not self._table.is_open or not live.is_empty or offsets.is_being_written:
            # A commit on its way to the store may replace an offset that expired, or be a pending one.
            return
        due = [
            key
            for key, record in expired
            if offsets.records.get(key) is record and key not in offsets.pending
        ]
        if due:
            logger.info("group %r: %d committed offsets expired", live.group.name, len(due))
        is_unused = not live.group.pending and not offsets.pending
        # The states of a share group are its offsets, and have no retention (KIP-932).
        has_shares = live.share is not None and not live.share.is_unused
        if is_unused and not has_shares and len(due) == len(offsets.records):
            self._table.drop(live)
        elif due:
            offsets.delete(due, [])
