"""Retention of committed offsets: a sweep at an interval drops what nobody has used for long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ..clock import Clock, PatientClock
from ..settings import Settings
from .group import GroupState
from .live_group import LiveGroup
from .offsets import is_due
from .timers import Scheduler, Timer

logger = logging.getLogger(__name__)


class OffsetRetention:
    """Sweeps ``groups``; ``drop`` deletes one in which nothing is left."""

    def __init__(
        self,
        groups: Mapping[str, LiveGroup],
        *,
        clock: Clock,
        settings: Settings,
        drop: Callable[[LiveGroup], object],
    ) -> None:
        self._groups = groups
        self._clock = PatientClock(clock)
        self._settings = settings
        self._drop = drop
        self._timer: Timer | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Sweep after each ``offsets_retention_check_interval_ms`` until ``stop``."""
        self._timer = Timer(scheduler, self._sweep_and_wait)
        self._timer.start(self._settings.offsets_retention_check_interval_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()

    def _sweep_and_wait(self) -> None:
        self.sweep()
        assert self._timer is not None
        self._timer.start(self._settings.offsets_retention_check_interval_ms)

    def sweep(self) -> None:
        """Drop the offsets that are due, and groups in which nothing is left."""
        now_ms = self._clock.now_ms()
        for live in list(self._groups.values()):
            offsets, group = live.offsets, live.group
            if offsets.is_being_written:
                # What is on its way may be newer than what is due.
                continue
            due = [
                key
                for key, record in offsets.records.items()
                if is_due(record, group, now_ms=now_ms, retention_ms=self._settings.offsets_retention_ms)
            ]
            if due:
                logger.info("group %r: %d offsets are dropped", group.name, len(due))
            if group.state is GroupState.EMPTY and not group.pending and len(due) == len(offsets.records):
                self._drop(live)
            elif due:
                offsets.delete(due, [])
