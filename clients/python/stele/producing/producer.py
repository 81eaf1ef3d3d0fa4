"""The blocking producer, whose thread sends the batches."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, cast, overload

from .. import forks
from ..client import Client
from ..errors import ClosedError, SteleClientError, UnknownTopicError
from ..operations.produce import InitProducerId, Produce, RecordOutcome
from ..records import HeadersLike, RecordMetadata, Timestamp
from ..serializers import Serializer, bytes_serializer
from ..transport.base import BACKOFF_MAX_S, retry_pause_s
from .core import ProducerCore
from .lane import Batch
from .options import ProducerSettings, make_options

V = TypeVar("V")

Acked = Future[RecordMetadata]


class Producer(Generic[V]):
    """Stores records of a topic in batches, exactly once and in order per partition.

    ``send_and_wait`` returns once the record is acked. ``send`` returns a
    ``concurrent.futures.Future`` for the receipt and blocks only while the buffer is
    full. ``flush`` waits for all records and raises ``ProduceError`` for those that
    failed. Retriable failures are retried for ``delivery_timeout_s`` without storing a
    record twice.

    Any number of threads may use it. In the child of a fork it begins without records, because
    the parent stores those that it accepted before. Its own thread is a daemon, so records that were
    not flushed are lost when the process exits. Use ``with``, or ``close`` it.
    """

    @overload
    def __init__(
        self: Producer[bytes | str],
        client: Client,
        topic: str,
        *,
        serializer: None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        serializer: Serializer[V],
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        serializer: Serializer[V] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """See ``ProducerOptions`` for the settings. Raises ValueError for an invalid one."""
        self._client = client
        self._core = ProducerCore(
            topic,
            serializer or cast("Serializer[V]", bytes_serializer),
            make_options(settings),
            keeps_order=client.transport.keeps_order,
        )
        # Guards the core and everything below.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._identity_not_before_s = 0.0
        self._is_closing = False
        self._must_stop = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Begin again without records, with a thread and a producer id of its own."""
        self._changed = threading.Condition()
        self._thread = None
        self._identity_not_before_s = 0.0
        for acked, _ in cast("list[tuple[Acked, int]]", self._core.restart()):
            # A thread of the parent may have held the lock of the future.
            Future.__init__(acked)
            acked.set_exception(
                ClosedError(
                    "producer of the parent process, which stores the records that it accepted before the fork"
                )
            )

    @property
    def topic(self) -> str:
        return self._core.topic

    @property
    def buffered_bytes(self) -> int:
        """The approximate size of accepted records without an outcome, in bytes."""
        return self._core.buffered_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── records in ──

    def send_and_wait(
        self,
        value: V | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> RecordMetadata:
        """Store one record and return its receipt.

        Raises:
            SteleClientError: the record could not be stored within ``delivery_timeout_s``,
                or was rejected.
        """
        return self._accept(value, key, headers, partition, timestamp, is_counted=False).result()

    def send(
        self,
        value: V | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> Acked:
        """Accept one record and return a future, not cancellable, for its receipt.

        Blocks while the buffer is full. The future raises a failure, and so does the
        next ``flush`` or ``close``.
        """
        return self._accept(value, key, headers, partition, timestamp, is_counted=True)

    def _accept(
        self,
        value: V | None,
        key: bytes | str | None,
        headers: HeadersLike,
        partition: int | None,
        timestamp: Timestamp | None,
        *,
        is_counted: bool,
    ) -> Acked:
        core = self._core
        record, size = core.outgoing(value, key, headers, timestamp)
        count = 0 if partition is not None else self._partition_count()
        acked: Acked = Future()
        acked.set_running_or_notify_cancel()
        with self._changed:
            while not self._is_closing and not core.reserve(size):
                self._changed.wait()
            if self._is_closing:
                raise ClosedError("producer")
            if partition is None:
                partition = core.choose_partition(record.key, count, size)
            index = core.count_sent() if is_counted else -1
            core.append(partition, record, (acked, index), size, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"stele-producer-{self.topic}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return acked

    def _partition_count(self) -> int:
        """Look up the partition count; retry while the broker is down."""
        count = self._client.known_partition_count(self.topic)
        if count is not None:
            return count
        give_up_s = time.monotonic() + self._core.options.delivery_timeout_s
        failures = 0
        while True:
            try:
                return self._client.partition_count(self.topic, auto_create=True)
            except SteleClientError as error:
                failures += 1
                pause_s = retry_pause_s(failures)
                if not error.retriable or self._is_closing or time.monotonic() + pause_s >= give_up_s:
                    raise
                time.sleep(pause_s)

    # ── the sending thread ──

    def _run(self) -> None:
        while True:
            with self._changed:
                work, needs_producer_id = self._next_work()
                while not work and not needs_producer_id:
                    if self._must_stop or (self._is_closing and not self._core.busy):
                        # A batch in flight when close gave up returned for a retry.
                        self._core.fail_unsent(ClosedError("producer"), self._deliver)
                        return
                    self._changed.wait(self._pause_s())
                    work, needs_producer_id = self._next_work()
            if work:
                self._send(work)
            if needs_producer_id:
                self._init_producer_id()

    def _next_work(self) -> tuple[list[tuple[int, Batch]], bool]:
        now_s = time.monotonic()
        work: list[tuple[int, Batch]] = []
        needs_producer_id = False
        if self._must_stop:
            return work, False
        for partition in list(self._core.busy):
            lane = self._core.lanes[partition]
            self._core.settle_failed(lane.expire(now_s), self._deliver)
            if lane.needs_identity(now_s) and not self._core.give_identity(lane):
                needs_producer_id = needs_producer_id or now_s >= self._identity_not_before_s
                continue
            while (batch := lane.take(now_s)) is not None:
                work.append((partition, batch))
            if lane.is_idle:
                self._core.busy.discard(partition)
        return work, needs_producer_id

    def _pause_s(self) -> float | None:
        """Return how long until a batch is due; None if only a change can make one due."""
        now_s = time.monotonic()
        pauses: list[float] = []
        for partition in self._core.busy:
            lane = self._core.lanes[partition]
            if lane.needs_identity(now_s):
                pauses.append(self._identity_not_before_s - now_s)
            elif (at_s := lane.wake_at_s()) is not None:
                pauses.append(at_s - now_s)
        return max(min(pauses), 0.0) if pauses else None

    def _send(self, work: list[tuple[int, Batch]]) -> None:
        core = self._core
        operations: list[Produce] = [core.operation(partition, batch) for partition, batch in work]
        outcomes: list[list[RecordOutcome] | SteleClientError]
        try:
            outcomes = self._client.transport.call_all(operations, timeout_s=core.options.request_timeout_s)
        except Exception as error:  # noqa: BLE001 (the boundary of a thread: a record must have an outcome)
            outcomes = [SteleClientError(f"the batch could not be sent: {error!r}") for _ in work]
        with self._changed:
            now_s = time.monotonic()
            for (partition, batch), outcome in zip(work, outcomes, strict=True):
                if isinstance(outcome, UnknownTopicError):
                    self._client.forget_partition_count(self.topic)
                core.finish(partition, batch, outcome, now_s, self._deliver)
            self._changed.notify_all()

    def _init_producer_id(self) -> None:
        try:
            answer = self._client.call(InitProducerId(), timeout_s=self._core.options.request_timeout_s)
        except SteleClientError as error:
            with self._changed:
                self._core.last_error = error
                self._identity_not_before_s = time.monotonic() + BACKOFF_MAX_S
                if not error.retriable:
                    self._core.fail_unsent(error, self._deliver)
                self._changed.notify_all()
        else:
            with self._changed:
                self._core.set_producer_id(*answer)

    def _deliver(self, token: Any, outcome: RecordOutcome) -> None:
        acked, index = cast("tuple[Acked, int]", token)
        if acked.done():
            # close() has already settled it.
            return
        if isinstance(outcome, SteleClientError):
            if index >= 0:
                self._core.note_failure(index, outcome)
            acked.set_exception(outcome)
        else:
            acked.set_result(outcome)

    # ── flush and close ──

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Wait until every record accepted before has an outcome, or for ``timeout_s``.

        Raises:
            ProduceError: records sent since the last flush failed.
        """
        with self._changed:
            waiting = [cast("tuple[Acked, int]", token)[0] for token in self._core.flush()]
            self._changed.notify_all()
        if waiting:
            wait(waiting, timeout_s)
        with self._changed:
            self._core.raise_failures()

    def close(self, *, timeout_s: float | None = None) -> None:
        """Flush and stop; records without an outcome after ``timeout_s`` fail.

        Raises:
            ProduceError: as for ``flush``.
        """
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            for lane in self._core.lanes.values():
                lane.flush()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            self._must_stop = True
            self._abandon_all()
            self._changed.notify_all()
            self._core.raise_failures()

    def _abandon_all(self) -> None:
        """Settle every record, including batches in flight, whose request may last long."""
        for lane in self._core.lanes.values():
            for batch in lane.batches():
                error = batch.error or self._core.last_error or ClosedError("producer")
                for token in batch.tokens:
                    twin = error.twin()
                    twin.is_outcome_unknown = True
                    self._deliver(token, twin)
