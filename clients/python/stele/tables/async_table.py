"""The asyncio table."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from .. import forks
from ..async_concurrency import (
    AsyncClosing,
    AsyncMonitor,
    AsyncSharedCalls,
    AsyncWorker,
    run_at_once,
    run_until,
)
from ..errors import ClosedError, RequestTimedOutError, SteleClientError
from ..operations.fetch import fetched_records
from ..operations.tables import TableFetch
from ..operations.topics import TopicId
from ..records import Record, keys_of, values_of
from ..serializers import Deserializer, async_preparing
from ..transport.async_transport import AsyncCaller
from .core import Change, PendingChanges, TableCore, TableOptions, TableSettings, Target

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

# Over HTTP a thread ends only with its long poll; no caller waits for that.
_STOP_S = 0.5


class AsyncTable(TableCore[K, V], AsyncClosing):
    """The table of a compacted topic as a mapping; created by ``AsyncClient.table``.

    ::

        async with client.table("users", key=str_deserializer, value=json_deserializer) as users:
            users["ada"]

    The block loads the table; then tasks follow its changes, over outages of the broker,
    until ``close``. Reading does not wait. While the broker is down the table has the last
    values. Without ``follow`` there are no tasks.

    The whole table is in memory, so choose topics or ``partitions`` that fit.
    """

    def __init__(
        self,
        client: AsyncCaller,
        topic: str,
        *,
        key: Deserializer[K],
        value: Deserializer[V],
        **settings: Unpack[TableSettings],
    ) -> None:
        """Use ``client`` for this table alone; ``close`` closes it. See ``TableOptions``.

        Raises:
            ValueError: a setting has an invalid value.
        """
        super().__init__(
            topic,
            key=key,
            value=value,
            options=TableOptions(**settings),
            fetches_many=client.transport.fetches_many,
        )
        self._client = client
        self._preparing = (async_preparing(key), keys_of), (async_preparing(value), values_of)
        # Guards what ``TableCore`` keeps.
        self._state = AsyncMonitor()
        self._starts: AsyncSharedCalls[None, None] = AsyncSharedCalls()
        self._workers: list[AsyncWorker] = []
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Load again: nothing follows the changes in the child."""
        self._workers = []
        self._reload()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def start(self) -> None:
        """Load the table and begin to follow it.

        Raises:
            UnknownTopicError: the topic does not exist.
            InvalidRequestError: the topic is not compacted.
            SteleClientError: another error of the broker, or an outage of ``outage_timeout_s``.
        """
        if not self._is_loaded and not self._is_closed:
            await self._starts.call(None, self._start)

    def _load_first(self) -> None:
        run_at_once(self.start)

    async def _start(self) -> None:
        if self._is_loaded or self._is_closed:
            return
        if not self._partitions:
            await self._assign()
        for group in self.groups():
            await self._advance(group, partial(self.is_loaded, group))
        self._is_loaded = True
        if self.options.follow:
            for group in self.groups():
                worker = AsyncWorker(f"stele-table-{self.topic}")
                self._workers.append(worker)
                worker.start(partial(self._follow, group))

    async def _assign(self) -> None:
        # Before the pages, which are of this topic: what follows them is refused if they were not.
        self.topic_id: str | None = await self._client.call(TopicId(topic=self.topic))
        described = await self._client.describe_topic(self.topic)
        partitions = self.options.partitions
        if partitions is None:
            partitions = range(described.partitions)
        elif isinstance(partitions, int):
            partitions = (partitions,)
        retention_ms = int(described.configs.get("delete.retention.ms", "0"))
        with self._state:
            self.assign(partitions, delete_retention_ms=retention_ms)

    async def close(self) -> None:
        """Stop following, and close the connection; the table cannot be used any longer."""
        with self._state:
            self._is_closed = True
        for worker in self._workers:
            worker.cancel()
        await self._client.close()
        for worker in self._workers:
            await worker.stop(wait_s=_STOP_S)

    # ── following ──

    async def _step(self, group: Sequence[int], *, wait_ms: int, is_patient: bool = False) -> None:
        """Execute one request, and apply its result; pause after a failure that may pass."""
        with self._state:
            operation = self.next_operation(group, wait_ms=wait_ms)
        try:
            if isinstance(operation, TableFetch):
                page = await self._client.call(operation)
                await self._prepare(page.records)
                with self._state:
                    self.accept_page(operation, page, time.time())
            else:
                outcomes = await self._client.call(operation)
                await self._prepare(list(fetched_records(outcomes)))
                with self._state:
                    self.accept_fetch(operation, outcomes, time.time())
        except SteleClientError as error:
            if self._is_closed:
                raise ClosedError("table") from error
            with self._state:
                pause_s = self.pause_s_after(operation, error, None if is_patient else time.monotonic())
            await self._state.wait_for(lambda: self._is_closed, pause_s)

    async def _prepare(self, records: Sequence[Record[bytes]]) -> None:
        for deserializer, parts_of in self._preparing:
            if deserializer is not None:
                await deserializer.prepare(parts_of(records))

    async def _advance(
        self, group: Sequence[int], is_done: Callable[[], bool], *, deadline_s: float | None = None
    ) -> None:
        """Execute requests until ``is_done``, or until the deadline."""
        while not is_done():
            wait_ms = 0
            if deadline_s is not None:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                wait_ms = min(self.options.wait_ms, int(left_s * 1000))
            await self._step(group, wait_ms=wait_ms)

    async def _follow(self, group: Sequence[int]) -> None:
        try:
            while not self._is_closed:
                await self._step(group, wait_ms=self.options.wait_ms, is_patient=True)
        except ClosedError:
            return
        except SteleClientError as error:
            with self._state:
                self.fail(error)

    # ── waiting ──

    async def wait_until(self, target: Target | None = None, *, timeout_s: float | None = None) -> None:
        """Wait until the table has all changes before ``target``.

        ``target``: receipts of records, so that a writer reads its own writes; positions by
        partition, such as those of another table; None for the end of the log now.
        ``timeout_s`` None waits as long as a call of the client may take.

        Raises:
            RequestTimedOutError: the table is not there in time.
            ValueError: a receipt has no offset, or is of another topic or partition.
            SteleClientError: the table can no longer follow its topic.
        """
        await self.start()
        self._check()
        positions = await self._ends() if target is None else self.target_of(target)
        timeout_s = self._client.config.timeout_s if timeout_s is None else timeout_s
        if self.options.follow:
            is_over = await self._state.wait_for(
                lambda: self._is_closed or self._failure is not None or self.is_at(positions), timeout_s
            )
        else:
            await run_until(time.monotonic() + timeout_s, partial(self._advance_to, positions))
            is_over = self.is_at(positions)
        self._check()
        if not is_over:
            raise RequestTimedOutError(
                f"the table of {self.topic!r} did not get the awaited changes in time; raise timeout_s, "
                "or check the broker"
            )

    async def _advance_to(self, positions: Mapping[int, int], deadline_s: float) -> None:
        for group in self.groups():
            wanted = {partition: positions[partition] for partition in group if partition in positions}
            await self._advance(group, partial(self.is_at, wanted), deadline_s=deadline_s)

    async def refresh(self) -> None:
        """Wait until the table has all changes before the end of the log now.

        See ``wait_until``.
        """
        await self.wait_until()

    async def _ends(self) -> Mapping[int, int]:
        return {
            partition: await self._client.list_offset(self.topic, partition) or 0
            for partition in self.positions
        }

    def changes(self) -> AsyncTableChanges[K, V]:
        """Return an asynchronous iterator of the changes from now on."""
        self._check()
        with self._state:
            return AsyncTableChanges(self, self.subscribe())

    async def next_change(
        self, pending: PendingChanges[K, V], timeout_s: float | None
    ) -> Change[K, V] | None:
        """Wait for a change; None if none came in time, or the table was closed."""
        await self.start()
        change: Change[K, V] | None = None

        def is_over() -> bool:
            nonlocal change
            change = pending.take()
            return change is not None or self._is_closed or self._failure is not None

        await self._state.wait_for(is_over, timeout_s)
        if change is None and self._failure is not None and not self._is_closed:
            raise self._failure.twin()
        return change

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def end_changes(self, pending: PendingChanges[K, V]) -> None:
        with self._state:
            self.unsubscribe(pending)


class AsyncTableChanges(Generic[K, V]):
    """Iterates over the changes of a table, until the table is closed.

    An iterator that is slower than the changes gets the newest change per key. Use
    ``close``, or an ``async with`` block, to end it earlier.
    """

    def __init__(self, table: AsyncTable[K, V], pending: PendingChanges[K, V]) -> None:
        self._table = table
        self._pending = pending
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._table.end_changes(self._pending)

    def __aiter__(self) -> AsyncIterator[Change[K, V]]:
        return self

    async def __anext__(self) -> Change[K, V]:
        """Wait for the next change.

        Raises:
            DeserializationError: the deserializer rejected the value; iterating goes on.
            SteleClientError: the table can no longer follow its topic, or too many keys changed
                before their changes were taken.
        """
        change = None if self._is_closed else await self._table.next_change(self._pending, None)
        if change is None:
            raise StopAsyncIteration
        return change

    async def poll(self, timeout_s: float = 1.0) -> Change[K, V] | None:
        """Return the next change; None if none came in time. Raises as iterating."""
        return None if self._is_closed else await self._table.next_change(self._pending, timeout_s)
