"""The asyncio consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack, cast, overload

from ..async_client import AsyncClient
from ..errors import ClosedError, SteleClientError
from ..operations.fetch import Fetch, FetchOutcome
from ..records import Record
from ..serializers import Deserializer, bytes_deserializer
from .core import ConsumerCore, ConsumerOptions, ConsumerSettings

V = TypeVar("V")


class AsyncConsumer(Generic[V]):
    """Reads a topic's partitions from a position on, in offset order within each.

    ::

        async for record in consumer: ...

    It keeps its position itself and survives a restart of the broker: it goes on
    with the record after the last one it gave out. The next fetch is under way
    while the application works. For one task at a time; use it with ``async with``.
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
        """See ``ConsumerOptions`` for the settings. Raises ValueError for one that makes no sense."""
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
        """Raises SteleClientErrors; after any of them iterating on is safe and loses nothing."""
        if not self._core.has_records and not await self._fill():
            raise StopAsyncIteration
        return self._core.next_record()

    async def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to ``max_records``, as soon as there is one; an empty list after ``timeout_s``."""
        if not self._core.has_records:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._fill()
            except TimeoutError:
                return []
        return self._core.next_records(max_records)

    async def batches(self, *, max_records: int = 10_000) -> AsyncIterator[list[Record[V]]]:
        """What was fetched, as lists: less overhead for each record than iterating over them."""
        while self._core.has_records or await self._fill():
            yield self._core.next_records(max_records)

    # ── positions ──

    async def start(self) -> None:
        """Find partitions and positions now, rather than with the first record.

        Raises:
            UnknownTopicError: the topic must exist.
        """
        if self._is_started:
            return
        options, core = self._core.options, self._core
        partitions = options.partitions
        if partitions is None:
            partitions = range(await self._client.partition_count(core.topic))
        elif isinstance(partitions, int):
            partitions = (partitions,)
        found: list[tuple[int, int, int | None]] = []
        for partition in partitions:
            # The end first: what is written meanwhile must not lie before the start.
            end = None if options.follow else await self._client.list_offset(core.topic, partition, "latest")
            start = options.start_of(partition)
            if not isinstance(start, int):
                offset = await self._client.list_offset(core.topic, partition, start)
                start = await self._latest(partition) if offset is None else offset
            found.append((partition, start, end))
        for partition, start, end in found:
            core.assign(partition, start, end)
        self._is_started = True

    async def _latest(self, partition: int) -> int:
        offset = await self._client.list_offset(self._core.topic, partition, "latest")
        assert offset is not None
        return offset

    def position(self, partition: int) -> int:
        """The offset of the next record the application gets. Raises KeyError before ``start``."""
        return self._core.position(partition)

    def lag(self, partition: int) -> int | None:
        """How many offsets the position was behind the log's end at the last fetch; None before it."""
        return self._core.lag(partition)

    @property
    def partitions(self) -> list[int]:
        return self._core.partitions

    async def seek(self, partition: int, offset: int) -> None:
        """Go on at ``offset``."""
        await self.start()
        self._core.seek(partition, offset)
        # A fetch under way would be waited for, to be thrown away.
        await self._cancel([group for group in self._fetches if partition in group])

    # ── fetching ──

    async def _fill(self) -> bool:
        """Wait until there are records; False when the end that was asked for is reached."""
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
                offset = await self._client.list_offset(self._core.topic, partition, policy)
                assert offset is not None
                self._core.seek(partition, offset)
        # The next fetch runs while the application works on these.
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
        """Stop fetching; the client stays open."""
        self._is_closed = True
        await self._cancel(list(self._fetches))

    async def _cancel(self, groups: list[tuple[int, ...]]) -> None:
        tasks = [self._fetches.pop(group) for group in groups]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
