"""The retention of committed offsets: a periodic sweep drops those that expired.

When an offset expires is decided by ``offsets.is_due``.
"""

from __future__ import annotations

import logging

from ..clock import PatientClock
from .base.offset_rules import is_due
from .base.timers import Timer
from .table import GroupTable

logger = logging.getLogger(__name__)

# As in Kafka: offsets.retention.check.interval.ms.
CHECK_INTERVAL_MS = 600_000


class OffsetRetention:
    """Sweeps the groups of ``table``, and drops groups in which nothing is left."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._clock = PatientClock(table.clock)
        self._timer: Timer | None = None

    def start(self) -> None:
        """Sweep every ``CHECK_INTERVAL_MS`` until ``stop``."""
        self._timer = Timer(self._table.scheduler, self._sweep_and_wait)
        self._timer.start(CHECK_INTERVAL_MS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()

    def _sweep_and_wait(self) -> None:
        if not self._table.is_open:
            # Another coordinator has the groups now.
            return
        self.sweep()
        assert self._timer is not None
        self._timer.start(CHECK_INTERVAL_MS)

    def sweep(self) -> None:
        """Drop the offsets that expired, and groups in which nothing is left."""
        now_ms = self._clock.now_ms()
        retention_ms = self._table.settings.offsets_retention_ms
        for live in list(self._table.groups.values()):
            offsets = live.offsets
            if offsets.is_being_written:
                # A commit on its way to the store may replace an offset that expired, or be a pending one.
                continue
            due = [
                key
                for key, record in offsets.records.items()
                if key not in offsets.pending
                and is_due(record, live, now_ms=now_ms, retention_ms=retention_ms)
            ]
            if due:
                logger.info("group %r: %d committed offsets expired", live.group.name, len(due))
            is_unused = live.is_empty and not live.group.pending and not offsets.pending
            # The states of a share group are its offsets, and have no retention (KIP-932).
            has_shares = live.share is not None and not live.share.is_unused
            if is_unused and not has_shares and len(due) == len(offsets.records):
                self._table.drop(live)
            elif due:
                offsets.delete(due, [])
