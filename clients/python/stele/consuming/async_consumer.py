"""The asyncio consumer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Generic, Self, TypeVar, Unpack, cast, overload

from ..async_client import AsyncClient
from ..async_concurrency import AsyncClosing, run_until, sleep
from ..calls import At
from ..errors import ClosedError, SteleClientError
from ..operations.fetch import Fetch, FetchOutcome, fetched_records
from ..operations.topics import TopicId
from ..records import Record, values_of
from ..serializers import Deserializer, async_preparing, bytes_deserializer
from .async_fetching import AsyncFetching
from .core import ConsumerCore, ConsumerOptions, ConsumerSettings

V = TypeVar("V")


class AsyncConsumer(AsyncClosing, Generic[V]):
    """Reads partitions of a topic in a task, in offset order within each.

    ::

        async for record in consumer: ...

    It keeps its own position and continues after an outage of the broker with the
    record after the last one it returned. It fetches ahead while the application works.
    Use it from one task at a time, in an ``async with`` block.
    """

    @overload
    def __init__(
        self: AsyncConsumer[bytes],
        client: AsyncClient,
        topic: str,
        *,
        deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        *,
        deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        *,
        deserializer: Deserializer[V] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """See ``ConsumerOptions`` for the settings. Raises ValueError for an invalid one."""
        self._client = client
        self._preparing = async_preparing(deserializer)
        self._core = ConsumerCore(
            topic,
            deserializer or cast("Deserializer[V]", bytes_deserializer),
            ConsumerOptions(**settings),
            fetches_many=client.transport.fetches_many,
        )
        self._fetching = AsyncFetching(client, self._core, self._accept)
        self._is_started = False
        self._is_closed = False

    @property
    def topic(self) -> str:
        return self._core.topic

    # ── records ──

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[V]:
        """Return the next record.

        Iterating again after an error is safe and loses no record.

        Raises:
            DeserializationError: the position is past the record in ``error.record``.
            SteleClientError: an error of the broker, or an outage of ``outage_timeout_s``.
        """
        if not self._core.has_records and not await self._fill():
            raise StopAsyncIteration
        return self._core.next_record()

    async def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[V]]:
        """Return up to ``max_records``; an empty list if none came within ``timeout_s``.

        Raises:
            DeserializationError: the deserializer rejected the next value. Records before
                it were returned by the previous call; the position is past it.
            SteleClientError: as for iteration.
        """
        if not self._core.has_records:
            await run_until(time.monotonic() + timeout_s, self._fill)
        return self._core.next_records(max_records)

    async def batches(self, *, max_records: int = 10_000) -> AsyncIterator[list[Record[V]]]:
        """Yield the fetched records as lists, which is faster than iterating over records.

        Raises:
            SteleClientError: call ``batches`` again to continue; no record is lost. See
                ``poll`` for DeserializationError.
        """
        while self._core.has_records or await self._fill():
            yield self._core.next_records(max_records)

    # ── positions ──

    async def start(self) -> None:
        """Look up partitions and positions now, instead of with the first record.

        Raises:
            UnknownTopicError: the topic does not exist; a consumer does not create it.
        """
        if self._is_started:
            return
        options, core = self._core.options, self._core
        # Before the positions, which are of this topic.
        core.topic_id = await self._client.call(TopicId(topic=core.topic))
        partitions = options.partitions
        if partitions is None:
            partitions = range(await self._client.partition_count(core.topic))
        elif isinstance(partitions, int):
            partitions = (partitions,)
        positions: list[tuple[int, int, int | None]] = []
        for partition in partitions:
            # The end first, so that a record written meanwhile cannot put the end before the start.
            end = None if options.follow else await self._offset_at(partition, "latest")
            start = options.start_of(partition)
            if not isinstance(start, int):
                offset = await self._offset_at(partition, start)
                start = await self._latest(partition) if offset is None else offset
            positions.append((partition, start, end))
        for partition, start, end in positions:
            core.assign(partition, start, end)
        self._is_started = True

    async def _offset_at(self, partition: int, at: At) -> int | None:
        isolation = self._core.options.isolation
        return await self._client.list_offset(self._core.topic, partition, at, isolation=isolation)

    async def _latest(self, partition: int) -> int:
        offset = await self._offset_at(partition, "latest")
        assert offset is not None
        return offset

    def position(self, partition: int) -> int:
        """Return the offset of the next record for the application.

        Raises KeyError before ``start``.
        """
        return self._core.position(partition)

    def lag(self, partition: int) -> int | None:
        """Return the lag of the position at the last fetch, in offsets.

        None before a fetch.
        """
        return self._core.lag(partition)

    @property
    def partitions(self) -> list[int]:
        return self._core.partitions

    async def seek(self, partition: int, offset: int) -> None:
        """Continue at ``offset``."""
        await self.start()
        self._core.seek(partition, offset)
        await self._fetching.drop(partition)

    # ── fetching ──

    async def _fill(self, deadline_s: float | None = None) -> bool:
        """Wait for records, at most until the deadline.

        Return False if there are none: then, or at the end of an iteration without ``follow``.
        """
        while not self._core.has_records:
            if self._is_closed:
                raise ClosedError("consumer")
            try:
                await self._fetch_once(deadline_s)
            except SteleClientError as error:
                now_s = time.monotonic()
                pause_s = self._core.pause_s_after(error, now_s)
                await sleep(pause_s if deadline_s is None else max(min(pause_s, deadline_s - now_s), 0))
            if self._core.is_finished or (deadline_s is not None and time.monotonic() >= deadline_s):
                return self._core.has_records
        return True

    async def _fetch_once(self, deadline_s: float | None) -> None:
        await self.start()
        if (error := self._core.take_error()) is not None:
            raise error
        await self._fetching.fetch(deadline_s)

    async def _accept(self, fetch: Fetch, outcomes: Sequence[FetchOutcome]) -> None:
        if self._preparing is not None:
            await self._preparing.prepare(values_of(fetched_records(outcomes)))
        for partition in self._core.accept(fetch, outcomes):
            policy = self._core.options.on_out_of_range
            assert policy != "error"
            offset = await self._offset_at(partition, policy)
            assert offset is not None
            self._core.seek(partition, offset)

    async def close(self) -> None:
        """Stop consuming; the client stays open."""
        self._is_closed = True
        await self._fetching.stop()
