"""The asyncio queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self, Unpack

from .. import forks
from ..async_concurrency import AsyncClosing
from ..errors import ClosedError, SteleClientError
from ..operations.share_queue import Redrive, Settlement
from ..records import Redriven
from ..transport.async_transport import AsyncCaller
from .queue_core import QueueCore, QueuedRecordCore, QueueSettings


class AsyncQueueRecord(QueuedRecordCore):
    """A record that a queue holds.

    An ``async with`` block acknowledges it, or releases it after an exception.

    ::

        async with record:
            send(record.value)
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: AsyncQueue, core: QueuedRecordCore) -> None:
        super().__init__(core.record, core.deliveries, core.lock)
        self._queue = queue

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._may_settle(error):
            return
        if error is None:
            await self._queue.ack(self)
            return
        # If this does not reach the broker, the lock ends by itself.
        with contextlib.suppress(SteleClientError):
            await self._queue.release(self)


class AsyncQueue(QueueCore, AsyncClosing):
    """Takes single records of topics, as one of the readers of a share group.

    Created by ``AsyncClient.queue``.

    ::

        async with client.queue("packers", "orders") as queue:
            async for record in queue:
                async with record:
                    send(record.value)

    Any number of readers in any number of processes, also ``KafkaShareConsumer``, share the records.
    A record is delivered again when its reader releases it or dies, and given up after
    ``share.delivery.count.limit`` deliveries or by ``reject``. There is no order. Over HTTP only.
    """

    def __init__(
        self, client: AsyncCaller, group: str, *topics: str, **options: Unpack[QueueSettings]
    ) -> None:
        """Use ``client`` for this queue alone; ``close`` closes it. See ``QueueOptions``.

        Raises:
            ValueError: no topic was given, or an option is invalid.
        """
        super().__init__(group, topics, options)
        self._client = client
        self._is_closed = False
        self._left: list[AsyncQueueRecord] = []
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The parent hands them out.
        self._left = []

    async def close(self) -> None:
        """Release records that were not handed out, and close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(SteleClientError):
            await self._settle("release", self._left)
        self._left = []
        await self._client.close()

    async def __aiter__(self) -> AsyncIterator[AsyncQueueRecord]:
        """Hand out records one by one; locks of those that wait are renewed."""
        while not self._is_closed:
            if not self._left:
                self._left = await self.poll()
                continue
            if self.must_renew(time.monotonic()):
                await self.renew(*self._left)
            yield self._left.pop(0)

    async def poll(self) -> list[AsyncQueueRecord]:
        """Take records; none if no record came within ``wait_s``.

        Raises:
            UnsupportedOperationError: the URL is not an ``http://`` or ``https://`` URL.
            SteleClientError: any other error, after retries while the connection breaks.
        """
        if self._is_closed:
            raise ClosedError("queue")
        timeout_s = self.options.wait_s + self._client.config.timeout_s
        polled = await self._client.call(self.poll_operation(), timeout_s=timeout_s)
        self.note_polled(polled, time.monotonic())
        lock = polled.lock or ""
        return [
            AsyncQueueRecord(self, QueuedRecordCore(record, deliveries, lock))
            for record, deliveries in polled.records
        ]

    async def ack(self, *records: QueuedRecordCore) -> None:
        """Finish records: the group never delivers them again.

        Durable when the call returns.

        Raises:
            GroupError: a lock ended before; its records are delivered again, and none of it was finished.
        """
        await self._settle("ack", records)

    async def release(self, *records: QueuedRecordCore) -> None:
        """Let records be delivered again at once, unless it was their last delivery.

        Raises ``GroupError``.
        """
        await self._settle("release", records)

    async def reject(self, *records: QueuedRecordCore) -> None:
        """Give records up: the group does not deliver them again. Raises ``GroupError``."""
        await self._settle("reject", records)

    async def renew(self, *records: QueuedRecordCore) -> None:
        """Start the locks of records again. Raises ``GroupError``."""
        await self._settle("renew", records)

    async def redrive(self, max_records: int = 1000) -> Redriven:
        """Append the records of the group's dead letters where they came from.

        Raises:
            InvalidRequestError: the group has no dead-letter topic (``errors.deadletterqueue.topic.name``).
        """
        return await self._client.call(Redrive(group=self.group, max_records=max_records))

    async def _settle(self, kind: Settlement, records: Iterable[QueuedRecordCore]) -> None:
        settled = list(records)
        for operation in self.settle_operations(kind, settled):
            expires_in_ms = await self._client.call(operation)
            if kind == "renew":
                self._note_lock(expires_in_ms, time.monotonic())
        for record in settled:
            record.is_settled = kind != "renew"
