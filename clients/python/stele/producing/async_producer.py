"""The asyncio producer."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, cast, overload

from .. import forks
from ..async_client import AsyncClient
from ..errors import ClosedError, ConnectionLostError, SteleClientError, UnknownTopicError
from ..operations.produce import InitProducerId, RecordOutcome
from ..records import HeadersLike, RecordMetadata, Timestamp
from ..serializers import Serializer, bytes_serializer
from ..transport.base import BACKOFF_MAX_S, retry_pause_s
from .core import ProducerCore
from .lane import Batch
from .options import ProducerSettings, make_options

V = TypeVar("V")

Acked = asyncio.Future[RecordMetadata]

# Records accepted before the event loop runs other tasks. Without this, a loop over send
# would block the sending of its own batches until the buffer is full.
YIELD_EVERY = 100


class AsyncProducer(Generic[V]):
    """Stores records of a topic in batches, exactly once and in order per partition.

    ``await send_and_wait(...)`` returns once the record is acked. ``await send(...)`` returns
    a future for the receipt once the record is accepted. ``flush`` waits for all records
    and raises ``ProduceError`` for those that failed. Retriable failures are retried for
    ``delivery_timeout_s`` without storing a record twice.

    It is bound to the event loop of its first call. Use ``async with``, or ``close`` it.
    """

    @overload
    def __init__(
        self: AsyncProducer[bytes | str],
        client: AsyncClient,
        topic: str,
        *,
        serializer: None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        *,
        serializer: Serializer[V],
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        *,
        serializer: Serializer[V] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """See ``ProducerOptions`` for the settings. Raises ValueError for an invalid one."""
        options = make_options(settings)
        self._client = client
        self._core = ProducerCore(
            topic,
            serializer or cast("Serializer[V]", bytes_serializer),
            options,
            keeps_order=client.transport.keeps_order,
        )
        self._room_waiters: deque[tuple[int, asyncio.Future[bool]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_pump_due = False
        self._is_closed = False
        self._until_yield = YIELD_EVERY
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Begin again without records; tasks and futures are of the parent's event loop."""
        self._core.restart()
        self._room_waiters = deque()
        self._tasks = set()
        self._identity_task = None
        self._timer = None
        self._is_pump_due = False

    @property
    def topic(self) -> str:
        return self._core.topic

    @property
    def buffered_bytes(self) -> int:
        """The approximate size of accepted records without an outcome, in bytes."""
        return self._core.buffered_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ── records in ──

    async def send_and_wait(
        self,
        value: V | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordMetadata:
        """Store one record and return its receipt.

        The record may still be stored after the caller was cancelled.

        Raises:
            SteleClientError: the record could not be stored within ``delivery_timeout_s``,
                or was rejected.
        """
        return await (await self._accept(value, key, headers, partition, timestamp, is_counted=False))

    async def send(
        self,
        value: V | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> Acked:
        """Accept one record and return a future for its receipt.

        Waits while the buffer is full. The future raises a failure, and so does the
        next ``flush`` or ``close``.
        """
        acked = await self._accept(value, key, headers, partition, timestamp, is_counted=True)
        self._until_yield -= 1
        if not self._until_yield:
            self._until_yield = YIELD_EVERY
            await asyncio.sleep(0)
        return acked

    async def _accept(
        self,
        value: V | None,
        key: bytes | str | None,
        headers: HeadersLike,
        partition: int | None,
        timestamp: Timestamp | None,
        *,
        is_counted: bool,
    ) -> Acked:
        if self._is_closed:
            raise ClosedError("producer")
        core = self._core
        record, size = core.outgoing(value, key, headers, timestamp)
        count = 0 if partition is not None else await self._partition_count()
        if self._room_waiters or not core.reserve(size):
            await self._wait_for_room(size)
        if partition is None:
            partition = core.choose_partition(record.key, count, size)
        loop = asyncio.get_running_loop()
        acked: Acked = loop.create_future()
        index = core.count_sent() if is_counted else -1
        core.append(partition, record, (acked, index), size, loop.time())
        self._pump_soon()
        return acked

    async def _partition_count(self) -> int:
        """Look up the partition count; retry while the broker is down."""
        count = self._client.known_partition_count(self.topic)
        if count is not None:
            return count
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._core.options.delivery_timeout_s
        failures = 0
        while True:
            try:
                return await self._client.partition_count(self.topic, auto_create=True)
            except SteleClientError as error:
                failures += 1
                pause_s = retry_pause_s(failures)
                if not error.retriable or loop.time() + pause_s >= give_up_s:
                    raise
                await asyncio.sleep(pause_s)

    # ── back-pressure on callers ──

    async def _wait_for_room(self, size: int) -> None:
        """Wait until ``size`` bytes of the buffer are reserved."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._room_waiters.append((size, waiter))
        try:
            has_room = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._core.release(size)
                self._wake_waiters()
            raise
        if not has_room:
            raise ClosedError("producer")

    def _wake_waiters(self) -> None:
        while self._room_waiters:
            size, waiter = self._room_waiters[0]
            if not waiter.done():
                if not self._core.reserve(size):
                    return
                waiter.set_result(True)
            self._room_waiters.popleft()

    # ── sending ──

    def _pump_soon(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            # After this iteration of the loop, so that records sent together share a batch.
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        wake_at_s: float | None = None
        for partition in list(self._core.busy):
            lane = self._core.lanes[partition]
            self._core.settle_failed(lane.expire(now_s), self._deliver)
            if lane.needs_identity(now_s) and not self._core.give_identity(lane):
                self._ask_identity()
                continue
            while (batch := lane.take(now_s)) is not None:
                task = loop.create_task(self._send(partition, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if lane.is_idle:
                self._core.busy.discard(partition)
            elif (at_s := lane.wake_at_s()) is not None and (wake_at_s is None or at_s < wake_at_s):
                wake_at_s = at_s
        self._wake_waiters()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_s is not None:
            self._timer = loop.call_at(wake_at_s, self._pump_soon)

    async def _send(self, partition: int, batch: Batch) -> None:
        core = self._core
        outcome: list[RecordOutcome] | SteleClientError
        try:
            outcome = await self._client.transport.call(
                core.operation(partition, batch), timeout_s=core.options.request_timeout_s
            )
        except SteleClientError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = ConnectionLostError("the producer was closed before the response arrived")
        except Exception as error:  # noqa: BLE001 (the boundary of a task: a record must have an outcome)
            outcome = SteleClientError(f"the batch could not be sent: {error!r}")
        if isinstance(outcome, UnknownTopicError):
            self._client.forget_partition_count(self.topic)
        core.finish(partition, batch, outcome, asyncio.get_running_loop().time(), self._deliver)
        self._pump_soon()

    def _deliver(self, token: Any, outcome: RecordOutcome) -> None:
        acked, index = cast("tuple[Acked, int]", token)
        if isinstance(outcome, SteleClientError):
            if index >= 0:
                self._core.note_failure(index, outcome)
            if not acked.done():
                acked.set_exception(outcome)
                # Marks it as retrieved; flush reports the failures of futures that are never awaited.
                acked.exception()
        elif not acked.done():
            acked.set_result(outcome)

    # ── producer ids ──

    def _ask_identity(self) -> None:
        if self._identity_task is None or self._identity_task.done():
            self._identity_task = asyncio.get_running_loop().create_task(self._init_producer_id())

    async def _init_producer_id(self) -> None:
        try:
            producer_id, epoch = await self._client.call(
                InitProducerId(), timeout_s=self._core.options.request_timeout_s
            )
        except SteleClientError as error:
            self._core.last_error = error
            if not error.retriable:
                self._core.fail_unsent(error, self._deliver)
            else:
                await asyncio.sleep(BACKOFF_MAX_S)
        else:
            self._core.set_producer_id(producer_id, epoch)
        self._identity_task = None
        self._pump_soon()

    # ── flush and close ──

    async def flush(self) -> None:
        """Wait until every record accepted before the call has an outcome.

        Raises:
            ProduceError: records sent since the last flush failed.
        """
        waiting = [cast("tuple[Acked, int]", token)[0] for token in self._core.flush()]
        if waiting:
            self._pump_soon()
            await asyncio.wait(waiting)
        self._core.raise_failures()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Flush and stop; records without an outcome after ``timeout_s`` fail.

        Raises:
            ProduceError: as for ``flush``.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            await self._stop()
            self._core.raise_failures()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._core.fail_unsent(ClosedError("producer"), self._deliver)
        tasks = [*self._tasks, *([self._identity_task] if self._identity_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Batches in flight returned to their lanes for a retry.
        self._core.fail_unsent(ClosedError("producer"), self._deliver)
        for _, waiter in self._room_waiters:
            if not waiter.done():
                waiter.set_result(False)
        # Lets tasks that await a future see its outcome before close returns.
        await asyncio.sleep(0)
