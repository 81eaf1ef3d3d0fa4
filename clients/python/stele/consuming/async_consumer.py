"""The asyncio consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack, cast, overload

from .. import forks
from ..async_client import AsyncClient
from ..calls import At
from ..errors import ClosedError, SteleClientError
from ..operations.fetch import Fetch, FetchOutcome
from ..records import Record
from ..serializers import Deserializer, bytes_deserializer
from .core import ConsumerCore, ConsumerOptions, ConsumerSettings

V = TypeVar("V")


class AsyncConsumer(Generic[V]):
    """Reads partitions of a topic in a task, in offset order within each.

    ::

        async for record in consumer: ...

    It keeps its own position and continues after an outage of the broker with the
    record after the last one it returned. It fetches ahead while the application
    works. Use it from one task at a time, in an ``async with`` block.
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
        self._core = ConsumerCore(
            topic,
            deserializer or cast("Deserializer[V]", bytes_deserializer),
            ConsumerOptions(**settings),
            fetches_many=client.transport.fetches_many,
        )
        self._fetches: dict[tuple[int, ...], asyncio.Task[tuple[Fetch, list[FetchOutcome]]]] = {}
        self._is_started = False
        self._is_closed = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The tasks are of the parent's event loop.
        self._fetches = {}

    @property
    def topic(self) -> str:
        return self._core.topic

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
            try:
                async with asyncio.timeout(timeout_s):
                    await self._fill()
            except TimeoutError:
                return []
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
        # Its result would be dropped.
        await self._cancel([group for group in self._fetches if partition in group])

    # ── fetching ──

    async def _fill(self) -> bool:
        """Wait for records; return False at the end of an iteration without ``follow``."""
        if self._is_closed:
            raise ClosedError("consumer")
        while not self._core.has_records:
            try:
                await self._fetch_once()
            except SteleClientError as error:
                await asyncio.sleep(self._core.pause_s_after(error, asyncio.get_running_loop().time()))
                continue
            if self._core.is_finished:
                return False
        return True

    async def _fetch_once(self) -> None:
        await self.start()
        if not self._core.has_records and (error := self._core.take_error()) is not None:
            raise error
        self._launch()
        if not self._fetches:
            return
        done, _ = await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
        for group in [group for group, task in self._fetches.items() if task in done]:
            fetch, outcomes = self._fetches.pop(group).result()
            to_reset = self._core.accept(fetch, outcomes)
            for partition in to_reset:
                policy = self._core.options.on_out_of_range
                assert policy != "error"
                offset = await self._offset_at(partition, policy)
                assert offset is not None
                self._core.seek(partition, offset)
        # Fetch ahead while the application handles these records.
        self._launch()

    def _launch(self) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = self._core.options.wait_ms if self._core.options.follow else 0
        busy = {partition for group in self._fetches for partition in group}
        for group in self._core.groups():
            if busy.isdisjoint(group):
                fetch = self._core.fetch(group, wait_ms=wait_ms)
                self._fetches[group] = loop.create_task(self._fetch(fetch))

    async def _fetch(self, fetch: Fetch) -> tuple[Fetch, list[FetchOutcome]]:
        return fetch, await self._client.call(fetch)

    async def close(self) -> None:
        """Stop consuming; the client stays open."""
        self._is_closed = True
        await self._cancel(list(self._fetches))

    async def _cancel(self, groups: list[tuple[int, ...]]) -> None:
        tasks = [self._fetches.pop(group) for group in groups]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
