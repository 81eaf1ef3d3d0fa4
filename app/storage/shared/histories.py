"""Takes logs over when the metadata begin another history (ADR-0071).

A database that was promoted or restored may know less than the broker does. What the broker knew beyond it is lost:
the same offsets are given out again. So everything that it remembers of its logs is replaced, and what is lost is
logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ..engine import SharedStorageCounts
from ..topic_partition import TopicPartition
from .log import LostRecords, SharedLog
from .meta import LogRow, Meta

logger = logging.getLogger(__name__)

_LOGS_PER_QUERY = 1000


class Histories:
    """``on_adopted`` is called with each log that was taken over.

    ``heartbeat`` tells the metadata that this broker uploads: its row may be lost, too.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        logs: Mapping[TopicPartition, SharedLog],
        on_adopted: Callable[[SharedLog], None],
        heartbeat: Callable[[], Awaitable[None]],
        counts: SharedStorageCounts,
    ) -> None:
        self._meta = meta
        self._heartbeat = heartbeat
        self._logs = logs
        self._on_adopted = on_adopted
        self._counts = counts
        self._run: asyncio.Task[None] | None = None
        # The newest one whose logs this broker has; 0 before it has any.
        self.epoch = 0

    async def adopt(self, epoch: int) -> None:
        """Take all logs over from the history ``epoch`` or a later one.

        Callers share the work. Raises ``MetaUnavailable``.
        """
        while any(log.history < epoch for log in self._logs.values()):
            if self._run is None:
                self._run = asyncio.create_task(self._adopt(epoch))
                self._run.add_done_callback(self._ended)
            await asyncio.shield(self._run)
        self.epoch = max(self.epoch, epoch)

    def _ended(self, run: asyncio.Task[None]) -> None:
        self._run = None
        if not run.cancelled():
            # The waiting caller may have given up.
            run.exception()

    async def close(self) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)

    async def _adopt(self, epoch: int) -> None:
        await self._heartbeat()
        outdated = [log for log in self._logs.values() if log.history < epoch]
        lost = 0
        for first in range(0, len(outdated), _LOGS_PER_QUERY):
            part = outdated[first : first + _LOGS_PER_QUERY]
            rows = await self._meta.log_rows([log.log_id for log in part])
            for log in part:
                row = rows.get(log.log_id)
                if row is None or row.partition_id != log.partition_id:
                    # The catalog will say so, too.
                    lost += self._note(log, LostRecords(log.log_start_offset, log.next_offset), epoch)
                    log.history = epoch
                else:
                    records = self.adopt_log(log, row)
                    lost += 0 if records is None else self._note(log, records, row.history)
                self._on_adopted(log)
        if outdated:
            self._counts.histories += 1
            logger.log(
                logging.WARNING if lost else logging.INFO,
                "this broker has taken over %d logs from history %d of the database: %s",
                len(outdated),
                # Another history may have begun since ``epoch`` was noticed.
                min(log.history for log in outdated),
                f"{lost} records are lost" if lost else "no record that it knows is lost",
            )

    def adopt_log(self, log: SharedLog, row: LogRow) -> LostRecords | None:
        """Replace what is known of a log; return what is lost."""
        return log.adopt(row)

    def _note(self, log: SharedLog, lost: LostRecords, epoch: int) -> int:
        """Report lost records and return their number."""
        count = lost.end - lost.first
        if count > 0:
            self._counts.lost_records += count
            logger.error(
                "records of %s are lost: offsets %d to %d, which this broker knew, are not in history %d of the"
                " database. A standby without them was promoted, or a backup was restored; new records get these"
                " offsets",
                log.topic_partition,
                lost.first,
                lost.end - 1,
                epoch,
            )
        return count
