# Generated from async_queue.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, Unpack

from .. import forks
from ..concurrency import Closing
from ..errors import ClosedError, SteleClientError
from ..operations.share_queue import Redrive, Settlement
from ..records import Redriven
from ..transport.transport import Caller
from .queue_core import QueueCore, QueuedRecordCore, QueueSettings


class QueueRecord(QueuedRecordCore):
    """A record that a queue holds.

    A ``with`` block acknowledges it, or releases it after an exception.

    ::

        with record:
            send(record.value)
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue, core: QueuedRecordCore) -> None:
        super().__init__(core.record, core.deliveries, core.lock)
        self._queue = queue

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._may_settle(error):
            return
        if error is None:
            self._queue.ack(self)
            return
        # If this does not reach the broker, the lock ends by itself.
        with contextlib.suppress(SteleClientError):
            self._queue.release(self)


class Queue(QueueCore, Closing):
    """Takes single records of topics, as one of the readers of a share group.

    Created by ``Client.queue``.

    ::

        with client.queue("packers", "orders") as queue:
            for record in queue:
                with record:
                    send(record.value)

    Any number of readers in any number of processes, also ``KafkaShareConsumer``, share the records.
    A record is delivered again when its reader releases it or dies, and given up after
    ``share.delivery.count.limit`` deliveries or by ``reject``. There is no order. Over HTTP only.
    """

    def __init__(self, client: Caller, group: str, *topics: str, **options: Unpack[QueueSettings]) -> None:
        """Use ``client`` for this queue alone; ``close`` closes it. See ``QueueOptions``.

        Raises:
            ValueError: no topic was given, or an option is invalid.
        """
        super().__init__(group, topics, options)
        self._client = client
        self._is_closed = False
        self._left: list[QueueRecord] = []
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The parent hands them out.
        self._left = []

    def close(self) -> None:
        """Release records that were not handed out, and close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(SteleClientError):
            self._settle("release", self._left)
        self._left = []
        self._client.close()

    def __iter__(self) -> Iterator[QueueRecord]:
        """Hand out records one by one; locks of those that wait are renewed."""
        while not self._is_closed:
            if not self._left:
                self._left = self.poll()
                continue
            if self.must_renew(time.monotonic()):
                self.renew(*self._left)
            yield self._left.pop(0)

    def poll(self) -> list[QueueRecord]:
        """Take records; none if no record came within ``wait_s``.

        Raises:
            UnsupportedOperationError: the URL is not an ``http://`` or ``https://`` URL.
            SteleClientError: any other error, after retries while the connection breaks.
        """
        if self._is_closed:
            raise ClosedError("queue")
        timeout_s = self.options.wait_s + self._client.config.timeout_s
        polled = self._client.call(self.poll_operation(), timeout_s=timeout_s)
        self.note_polled(polled, time.monotonic())
        lock = polled.lock or ""
        return [
            QueueRecord(self, QueuedRecordCore(record, deliveries, lock))
            for record, deliveries in polled.records
        ]

    def ack(self, *records: QueuedRecordCore) -> None:
        """Finish records: the group never delivers them again.

        Durable when the call returns.

        Raises:
            GroupError: a lock ended before; its records are delivered again, and none of it was finished.
        """
        self._settle("ack", records)

    def release(self, *records: QueuedRecordCore) -> None:
        """Let records be delivered again at once, unless it was their last delivery.

        Raises ``GroupError``.
        """
        self._settle("release", records)

    def reject(self, *records: QueuedRecordCore) -> None:
        """Give records up: the group does not deliver them again. Raises ``GroupError``."""
        self._settle("reject", records)

    def renew(self, *records: QueuedRecordCore) -> None:
        """Start the locks of records again. Raises ``GroupError``."""
        self._settle("renew", records)

    def redrive(self, max_records: int = 1000) -> Redriven:
        """Append the records of the group's dead letters where they came from.

        Raises:
            InvalidRequestError: the group has no dead-letter topic (``errors.deadletterqueue.topic.name``).
        """
        return self._client.call(Redrive(group=self.group, max_records=max_records))

    def _settle(self, kind: Settlement, records: Iterable[QueuedRecordCore]) -> None:
        settled = list(records)
        for operation in self.settle_operations(kind, settled):
            expires_in_ms = self._client.call(operation)
            if kind == "renew":
                self._note_lock(expires_in_ms, time.monotonic())
        for record in settled:
            record.is_settled = kind != "renew"
