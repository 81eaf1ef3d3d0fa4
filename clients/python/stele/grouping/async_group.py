"""The asyncio group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from ..async_concurrency import AsyncClosing, AsyncWorker, sleep
from ..errors import ClosedError, SteleClientError
from ..operations.leases import Ack, Extend, Nack
from ..records import Polled
from ..transport.async_transport import AsyncCaller
from ..transport.base import retry_pause_s
from .core import BatchCore, GroupCore, GroupSettings, LeaseTimes

R = TypeVar("R")


class AsyncBatch(BatchCore):
    """Records under a lease, acknowledged at the end of an ``async with`` block.

    ::

        async with batch:
            for record in batch: ...

    The block extends the lease while it runs. Iterating and leaving the block raise
    ``LeaseLostError`` once the lease is lost. An exception returns the records for
    redelivery; see ``GroupOptions.on_error``.
    """

    def __init__(self, group: AsyncGroup, polled: Polled) -> None:
        super().__init__(polled)
        self._group = group
        self._keeper = AsyncWorker("stele-lease")

    async def __aenter__(self) -> Self:
        self._is_entered = True
        self._keeper.start(self._keep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        await self._keeper.stop()
        if self.is_in_transaction:
            return error is not None and self._group.absorbs(self, error)
        if error is None:
            self.check()
            await self.ack()
            return False
        return not self.is_of_parent and await self._group.failed(self, error)

    async def _keep(self) -> None:
        options = self._group.options
        times = LeaseTimes(options, time.monotonic())
        while self._lost is None and not await self._keeper.stops_within(options.lease_s / 3):
            if self.is_in_transaction:
                return
            self._lost = times.overdue(time.monotonic())
            if self._lost is not None:
                return
            try:
                await self._group.extend(self.lease)
            except SteleClientError as error:
                if not self.is_in_transaction:
                    self._lost = times.not_extended(error, time.monotonic())
            else:
                times.extended(time.monotonic())

    @property
    def group_id(self) -> str:
        return self._group.group

    async def ack(self) -> None:
        """Commit the records; ``async with`` does this. Raises ``LeaseLostError``."""
        self.check_process()
        await self._group.ack(self.lease)

    async def nack(self) -> None:
        """Return the records for immediate redelivery."""
        self.check_process()
        await self._group.nack(self.lease)


class AsyncGroup(GroupCore, AsyncClosing):
    """Reads topics as one of the readers of a group; created by ``AsyncClient.group``.

    ::

        async with client.group("billing", "orders") as group:
            async for batch in group:
                async with batch:
                    for record in batch: ...

    Any number of readers in any number of processes share the partitions. Each
    partition is handled by one reader at a time, in order. The only state of a reader
    is its current lease: if it dies, the others get its records when the lease expires.
    """

    def __init__(
        self, client: AsyncCaller, group: str, *topics: str, **options: Unpack[GroupSettings]
    ) -> None:
        """Use ``client`` for this group alone; ``close`` closes it. See ``GroupOptions``.

        Raises:
            ValueError: no topic was given, or an option is invalid.
        """
        super().__init__(group, topics, options)
        self._client = client
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        await self._client.close()

    async def __aiter__(self) -> AsyncIterator[AsyncBatch]:
        while not self._is_closed:
            batch = await self.poll()
            if batch is not None:
                yield batch

    async def poll(self) -> AsyncBatch | None:
        """Return the next batch; None if no record came within ``wait_s``.

        Retries while the broker is down.

        Raises:
            SteleClientError: an error that is not retriable.
        """
        if self._is_closed:
            raise ClosedError("group")
        operation = self.options.poll(self.group, self.topics)
        failures = 0
        while True:
            try:
                polled = await self._client.call(
                    operation, timeout_s=self.options.wait_s + self._client.config.timeout_s
                )
            except SteleClientError as error:
                if not error.retriable:
                    raise
                failures += 1
                await sleep(retry_pause_s(failures))
            else:
                self.report_skipped(polled)
                return None if polled.lease is None else AsyncBatch(self, polled)

    async def ack(self, lease: str) -> None:
        await self._until_done(Ack(group=self.group, lease=lease))

    async def nack(self, lease: str) -> None:
        await self._client.call(Nack(group=self.group, lease=lease))

    async def extend(self, lease: str) -> None:
        await self._client.call(Extend(group=self.group, lease=lease, lease_ms=self.options.lease_ms))

    async def _until_done(self, operation: Ack) -> None:
        """Retry while the broker is down.

        Acks are idempotent, and fail once the lease expired.
        """
        deadline_s = time.monotonic() + self.options.lease_s
        failures = 0
        while True:
            try:
                return await self._client.call(operation)
            except SteleClientError as error:
                if not error.retriable or time.monotonic() > deadline_s:
                    raise
                failures += 1
            await sleep(retry_pause_s(failures))

    async def failed(self, batch: AsyncBatch, error: BaseException) -> bool:
        """Dead-letter or return a batch that failed with ``error``.

        True suppresses the error.
        """
        letters = self.dead_letters(batch, error)
        if letters is not None:
            await self._client.produce_many(*letters)
            await batch.ack()
            return True
        # If this does not reach the broker, the lease expires.
        with contextlib.suppress(SteleClientError):
            await batch.nack()
        return self.absorbs(batch, error)
