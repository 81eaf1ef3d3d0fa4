"""The work on the dead letters of one partition: written, archived, and repeated after an error.

A record waits as ``ARCHIVING``, which is stored, so a restart goes on with it. Its letter is written
before it is archived, so a crash in between writes the letter again, and never loses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context

from ...errors import SteleError
from ...storage.topic_partition import TopicPartition
from ..base.share_state import StoredRange
from ..base.timers import Scheduler, Timer
from .partition import SharePartition

logger = logging.getLogger(__name__)

# What is written at a time, and how long to wait after an error; the wait doubles with each.
_RECORDS = 500
_RETRY_MS, _RETRY_MS_MAX = 1_000, 30_000

WriteLetters = Callable[[str, TopicPartition, Sequence[StoredRange]], Awaitable[None]]


class DeadLetterDrain:
    """Writes the letters of ``records`` one slice at a time; ``archived`` is called after each.

    ``write`` returns once the letters are durable, or will never be. It raises ``SteleError`` if it may
    succeed later.
    """

    def __init__(
        self,
        records: SharePartition,
        write: Callable[[Sequence[StoredRange]], Awaitable[None]],
        *,
        scheduler: Scheduler,
        archived: Callable[[], object],
    ) -> None:
        self._records = records
        self._write = write
        self._archived = archived
        self._retry = Timer(scheduler, self.start)
        self._retry_ms = _RETRY_MS
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def close(self) -> None:
        """Stop for good; what is not written stays archiving."""
        self._is_closed = True
        self._retry.stop()
        if self._task is not None:
            self._task.cancel()

    def start(self) -> None:
        """Write what waits, unless that is under way."""
        if self._is_closed or self._task is not None or self._retry.is_running:
            return
        if self._records.archiving(1):
            # Outside the context of the request that gave the record up.
            self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())

    async def _run(self) -> None:
        try:
            while waiting := self._records.archiving(_RECORDS):
                epoch = self._records.state_epoch
                await self._write(waiting)
                self._retry_ms = _RETRY_MS
                # After a reset these offsets are other deliveries.
                if self._records.state_epoch == epoch:
                    self._records.archive(waiting)
                    self._archived()
        except SteleError as error:
            logger.warning(
                "share group %r: dead letters are written again in %d ms: %s",
                self._records.group,
                self._retry_ms,
                error,
            )
            self._repeat_later()
        except Exception:
            logger.exception("share group %r: dead letters could not be written", self._records.group)
            self._repeat_later()
        finally:
            self._task = None

    def _repeat_later(self) -> None:
        if not self._is_closed:
            self._retry.start(self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, _RETRY_MS_MAX)
