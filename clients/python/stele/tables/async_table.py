"""The table for asyncio, the counterpart of ``table``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, Unpack

from .. import forks
from ..config import ClientConfig
from ..errors import ClosedError, RequestTimedOutError, SteleClientError
from ..operations.base import Operation
from ..operations.tables import TableFetch
from ..records import TopicDescription
from ..serializers import Deserializer
from ..transport.base import AsyncTransport
from .core import Change, PendingChanges, TableCore, TableOptions, TableSettings, Target

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class Caller(Protocol):
    """The part of ``AsyncClient`` that a table uses; a protocol, because it imports this module."""

    @property
    def config(self) -> ClientConfig: ...
    @property
    def transport(self) -> AsyncTransport: ...
    async def call(self, operation: Operation[R], *, timeout_s: float | None = None) -> R: ...
    async def describe_topic(self, topic: str) -> TopicDescription: ...
    async def list_offset(self, topic: str, partition: int = 0) -> int | None: ...
    async def close(self) -> None: ...


class AsyncTable(TableCore[K, V]):
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
        client: Caller,
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
        self._update = asyncio.Event()
        self._starting = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Load again in ``start``: tasks are of the parent's event loop."""
        self._update = asyncio.Event()
        self._starting = asyncio.Lock()
        self._tasks = []
        self._reload()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Load the table and begin to follow it.

        Raises:
            UnknownTopicError: the topic does not exist.
            InvalidRequestError: the topic is not compacted.
            SteleClientError: another error of the broker, or an outage of ``outage_timeout_s``.
        """
        async with self._starting:
            if self._is_loaded or self._is_closed:
                return
            if not self._partitions:
                await self._assign()
            for group in self.groups():
                await self._advance(group, lambda group=group: self.is_loaded(group))
            self._is_loaded = True
            if self.options.follow:
                self._tasks = [asyncio.create_task(self._follow(group)) for group in self.groups()]

    async def _assign(self) -> None:
        described = await self._client.describe_topic(self.topic)
        partitions = self.options.partitions
        if partitions is None:
            partitions = range(described.partitions)
        elif isinstance(partitions, int):
            partitions = (partitions,)
        retention_ms = int(described.configs.get("delete.retention.ms", "0"))
        self.assign(partitions, delete_retention_ms=retention_ms)

    async def close(self) -> None:
        """Stop following, and close the connection; the table cannot be used any longer."""
        self._is_closed = True
        self._notify_waiters()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    # ── following ──

    def _notify_waiters(self) -> None:
        self._update.set()
        self._update = asyncio.Event()

    async def _step(self, group: Sequence[int], *, wait_ms: int, is_patient: bool = False) -> None:
        """Execute one request, and apply its result; pause after a failure that may pass."""
        operation = self.next_operation(group, wait_ms=wait_ms)
        try:
            if isinstance(operation, TableFetch):
                self.accept_page(operation, await self._client.call(operation), time.time())
            else:
                self.accept_fetch(operation, await self._client.call(operation), time.time())
        except SteleClientError as error:
            if self._is_closed:
                raise ClosedError("table") from error
            now_s = None if is_patient else asyncio.get_running_loop().time()
            await asyncio.sleep(self.pause_s_after(operation, error, now_s))
        finally:
            self._notify_waiters()

    async def _advance(self, group: Sequence[int], is_done: Callable[[], bool], *, wait_ms: int = 0) -> None:
        while not is_done():
            await self._step(group, wait_ms=wait_ms)

    async def _follow(self, group: Sequence[int]) -> None:
        try:
            while not self._is_closed:
                await self._step(group, wait_ms=self.options.wait_ms, is_patient=True)
        except SteleClientError as error:
            self.fail(error)
            self._notify_waiters()

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
        self._check()
        positions = await self._ends() if target is None else self.target_of(target)
        timeout_s = self._client.config.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait(positions)
        except TimeoutError:
            raise RequestTimedOutError(
                f"the table of {self.topic!r} did not get the awaited changes in time; raise timeout_s, "
                "or check the broker"
            ) from None

    async def _wait(self, positions: Mapping[int, int]) -> None:
        if self.options.follow:
            while not self.is_at(positions):
                await self._update.wait()
                self._check()
            return
        for group in self.groups():
            wanted = {partition: positions[partition] for partition in group if partition in positions}
            await self._advance(group, lambda wanted=wanted: self.is_at(wanted), wait_ms=self.options.wait_ms)

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
        return AsyncTableChanges(self, self.subscribe())

    async def next_change(self, pending: PendingChanges[K, V]) -> Change[K, V] | None:
        """Wait for a change; None if the table was closed."""
        while True:
            change = pending.take()
            if change is not None or self._is_closed:
                return change
            if self._failure is not None:
                raise self._failure.twin()
            await self._update.wait()

    @property
    def is_closed(self) -> bool:
        return self._is_closed


class AsyncTableChanges(Generic[K, V]):
    """Iterates over the changes of a table, until the table is closed.

    An iterator that is slower than the changes gets the newest change per key. Use
    ``close`` to end it earlier.
    """

    def __init__(self, table: AsyncTable[K, V], pending: PendingChanges[K, V]) -> None:
        self._table = table
        self._pending = pending
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._table.unsubscribe(self._pending)

    def __aiter__(self) -> AsyncIterator[Change[K, V]]:
        return self

    async def __anext__(self) -> Change[K, V]:
        """Wait for the next change.

        Raises:
            DeserializationError: the deserializer rejected the value; iterating goes on.
            SteleClientError: the table can no longer follow its topic, or too many keys changed
                before their changes were taken.
        """
        change = None if self._is_closed else await self._table.next_change(self._pending)
        if change is None:
            raise StopAsyncIteration
        return change
