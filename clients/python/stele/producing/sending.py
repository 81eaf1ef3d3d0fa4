"""Sends the batches of a blocking producer in its own thread, the counterpart of ``async_sending``."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from typing import Any

from .. import forks
from ..client import Client
from ..errors import ClosedError, SteleClientError, UnknownTopicError
from ..operations.produce import InitProducerId, Produce, RecordOutcome
from ..records import OutgoingRecord, RecordMetadata
from .core import Due, ProducerCore
from .lane import Batch

Acked = Future[RecordMetadata]


class Sending:
    """The records of a producer until they are sent, by a daemon thread that the first one starts."""

    def __init__(self, client: Client, core: ProducerCore[Any]) -> None:
        self._client = client
        self._core = core
        # Guards the core and everything below.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.is_closed: bool = False
        self._must_stop = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Begin again without records, with a thread and a producer id of its own."""
        self._changed = threading.Condition()
        self._thread = None
        for acked in self._core.restart():
            # A thread of the parent may have held the lock of the future.
            Future.__init__(acked)
            acked.set_exception(
                ClosedError(
                    "producer of the parent process, which stores the records that it accepted before the fork"
                )
            )

    # ── records in ──

    def put(
        self,
        record: OutgoingRecord,
        size: int,
        partition: int | None,
        count: int,
        *,
        is_counted: bool,
        has_room: bool = False,
    ) -> Acked | None:
        """Accept a record; None if there is no room, unless ``wait_for_room`` has reserved it.

        See ``ProducerCore.put``. Raises ClosedError.
        """
        core = self._core
        acked: Acked = Future()
        acked.set_running_or_notify_cancel()
        with self._changed:
            if self.is_closed:
                raise ClosedError("producer")
            if not has_room and not core.reserve(size):
                return None
            core.put(record, size, partition, count, acked, time.monotonic(), is_counted=is_counted)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"stele-producer-{core.topic}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return acked

    def outcome(self, acked: Acked) -> RecordMetadata:
        """Wait for the receipt, or the error."""
        return acked.result()

    def wait_for_room(self, size: int) -> None:
        """Wait until ``size`` bytes of the buffer are reserved. Raises ClosedError."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._core.reserve(size))
            if self.is_closed:
                raise ClosedError("producer")

    # ── batches out ──

    def _run(self) -> None:
        while (due := self._next()) is not None:
            if due.batches:
                self._send(due.batches)
            if due.needs_producer_id:
                self._init_producer_id()

    def _next(self) -> Due | None:
        """Wait for something to send; None if the thread has to end."""
        with self._changed:
            while not self._must_stop:
                now_s = time.monotonic()
                due = self._core.due(now_s)
                if due.batches or due.needs_producer_id:
                    return due
                if self.is_closed and not self._core.busy:
                    return None
                self._changed.wait(None if due.wake_at_s is None else max(due.wake_at_s - now_s, 0.0))
            # A batch in flight when close gave up returned for a retry.
            self._core.fail_unsent(ClosedError("producer"))
            return None

    def _send(self, batches: list[tuple[int, Batch]]) -> None:
        core = self._core
        operations: list[Produce] = [core.operation(partition, batch) for partition, batch in batches]
        outcomes: list[list[RecordOutcome] | SteleClientError]
        try:
            outcomes = self._client.transport.call_all(operations, timeout_s=core.options.request_timeout_s)
        except Exception as error:  # noqa: BLE001 (the boundary of a thread: a record must have an outcome)
            outcomes = [SteleClientError(f"the batch could not be sent: {error!r}") for _ in batches]
        with self._changed:
            now_s = time.monotonic()
            for (partition, batch), outcome in zip(batches, outcomes, strict=True):
                if isinstance(outcome, UnknownTopicError):
                    self._client.forget_partition_count(core.topic)
                core.finish(partition, batch, outcome, now_s)
            self._changed.notify_all()

    def _init_producer_id(self) -> None:
        core = self._core
        answer: tuple[int, int] | SteleClientError
        try:
            answer = self._client.call(InitProducerId(), timeout_s=core.options.request_timeout_s)
        except SteleClientError as error:
            answer = error
        with self._changed:
            if isinstance(answer, SteleClientError):
                core.lack_producer_id(answer, time.monotonic())
            else:
                core.set_producer_id(*answer)
            self._changed.notify_all()

    # ── flush and close ──

    def flush(self, timeout_s: float | None) -> None:
        with self._changed:
            waiting = self._core.flush()
            self._changed.notify_all()
        if waiting:
            wait(waiting, timeout_s)
        with self._changed:
            self._core.raise_failures()

    def close(self, timeout_s: float | None) -> None:
        with self._changed:
            if self.is_closed:
                return
            self.is_closed = True
            self._core.flush()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            self._must_stop = True
            self._core.abandon()
            self._changed.notify_all()
            self._core.raise_failures()
