"""The asyncio group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self, Unpack

from ..async_client import AsyncClient
from ..errors import ClosedError, GroupError, LeaseLostError, SteleClientError
from ..operations.groups import Ack, Extend, Nack
from ..records import Polled, Record
from ..transport.base import retry_pause_s
from .core import BatchCore, GroupOptions, GroupSettings, dead_letters

logger = logging.getLogger(__name__)


class AsyncBatch(BatchCore):
    """Records that are this client's for a while. Left without an exception, they are acknowledged.

    ::

        async with batch:
            for record in batch: ...

    Iterating raises ``LeaseLostError`` as soon as the lease is lost, and so does leaving the block.
    """

    def __init__(self, group: AsyncGroup, polled: Polled) -> None:
        super().__init__(polled)
        self._group = group
        self._lost: SteleClientError | None = None
        self._keeper: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Record[bytes]]:
        for record in self.records:
            self.check()
            yield record

    def check(self) -> None:
        """Raises ``LeaseLostError`` if the records are somebody else's by now."""
        if self._lost is not None:
            raise self._lost.twin()

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        if error is None:
            self.check()
            await self.ack()
            return False
        return await self._group.failed(self, error)

    async def _keep(self) -> None:
        options = self._group.options
        loop = asyncio.get_running_loop()
        lease_ends_s = loop.time() + options.lease_s
        handling_ends_s = loop.time() + options.handling_s_max
        while True:
            await asyncio.sleep(options.lease_s / 3)
            if loop.time() > handling_ends_s:
                self._lost = LeaseLostError(
                    f"the batch was not handled within {options.handling_s_max} s; raise handling_s_max, "
                    "or take fewer records at once"
                )
                return
            try:
                await self._group.extend(self.lease)
                lease_ends_s = loop.time() + options.lease_s
            except SteleClientError as error:
                if isinstance(error, GroupError) or (not error.retriable or loop.time() > lease_ends_s):
                    self._lost = LeaseLostError(f"the lease is lost: {error}")
                    return

    async def ack(self) -> None:
        """Commit them; ``async with`` does it by itself. Raises ``LeaseLostError``."""
        await self._group.ack(self.lease)

    async def nack(self) -> None:
        """Give them back, to be delivered again at once."""
        await self._group.nack(self.lease)


class AsyncGroup:
    """Reads topics together with all others that read as the same group; ``AsyncClient.group`` makes one.

    ::

        async with client.group("billing", "orders") as group:
            async for batch in group:
                async with batch:
                    for record in batch: ...

    Nothing is kept here but the lease of the batch at hand: any number of these, in any
    number of processes, share the partitions, and one that dies is made up for by the
    others when its lease runs out. Each partition is handled by one at a time, in order.
    """

    def __init__(
        self, client: AsyncClient, group: str, *topics: str, **options: Unpack[GroupSettings]
    ) -> None:
        """See ``GroupOptions``. Raises ValueError for one that makes no sense."""
        if not topics:
            raise ValueError("name at least one topic to read")
        self.options = GroupOptions(**options)
        self.group = group
        self.topics = list(topics)
        # A connection of its own: answers come in order, and a poll may hold its back.
        self._client = AsyncClient(client.url, timeout_s=client.config.timeout_s)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        await self._client.close()

    async def __aiter__(self) -> AsyncIterator[AsyncBatch]:
        while not self._is_closed:
            batch = await self.poll()
            if batch is not None:
                yield batch

    async def poll(self) -> AsyncBatch | None:
        """The next batch; None if nothing came within ``wait_s``. A broker that is away is waited for.

        Raises:
            SteleClientError: one that does not pass by itself.
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
                await asyncio.sleep(retry_pause_s(failures))
            else:
                for one in polled.skipped:
                    logger.warning(
                        "group %r: offsets %d to %d of %s-%d were deleted before they were read",
                        self.group,
                        one.offset,
                        one.next_offset - 1,
                        one.topic,
                        one.partition,
                    )
                return None if polled.lease is None else AsyncBatch(self, polled)

    async def ack(self, lease: str) -> None:
        await self._until_done(Ack(group=self.group, lease=lease))

    async def nack(self, lease: str) -> None:
        await self._client.call(Nack(group=self.group, lease=lease))

    async def extend(self, lease: str) -> None:
        await self._client.call(Extend(group=self.group, lease=lease, lease_ms=self.options.lease_ms))

    async def _until_done(self, operation: Ack) -> None:
        """Again while the broker is away: the same ack is answered in the same way, or says that it is too late."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.options.lease_s
        failures = 0
        while True:
            try:
                return await self._client.call(operation)
            except SteleClientError as error:
                if not error.retriable or loop.time() > deadline_s:
                    raise
                failures += 1
            await asyncio.sleep(retry_pause_s(failures))

    async def failed(self, batch: AsyncBatch, error: BaseException) -> bool:
        """What becomes of a batch that was left by ``error``; True: it goes no further."""
        is_ours = isinstance(error, Exception) and self.options.on_error == "redeliver"
        dead_letter_topic = self.options.dead_letter_topic
        if is_ours and dead_letter_topic is not None and batch.deliveries >= self.options.max_deliveries:
            logger.error(
                "group %r: %d records go to %s after %d deliveries: %s",
                self.group,
                len(batch),
                dead_letter_topic,
                batch.deliveries,
                error,
            )
            await self._client.produce_many(dead_letter_topic, dead_letters(self.group, batch.records, error))
            await batch.ack()
            return True
        # If that does not reach the broker, the lease runs out.
        with contextlib.suppress(SteleClientError):
            await batch.nack()
        if is_ours:
            logger.warning("group %r: %d records are delivered again: %s", self.group, len(batch), error)
        return is_ours
