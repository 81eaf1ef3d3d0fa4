# Generated from async_producer.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking producer."""

from __future__ import annotations

import time
from typing import Generic, TypeVar, Unpack, cast, overload

from ..client import Client
from ..concurrency import Closing, give_way, sleep
from ..errors import ClosedError, SteleClientError
from ..records import HeadersLike, RecordMetadata, Timestamp
from ..serializers import Serializer, bytes_serializer
from ..transport.base import retry_pause_s
from .core import ProducerCore
from .options import ProducerSettings, make_options
from .sending import Acked, Sending

V = TypeVar("V")

# Calls of ``send`` after which others run, so that a loop does not hold back its own batches.
_GIVE_WAY_EVERY = 100


class Producer(Closing, Generic[V]):
    """Stores records of a topic in batches, exactly once and in order per partition.

    ``send_and_wait(...)`` returns once the record is acked. ``send(...)`` returns
    a future for the receipt once the record is accepted. ``flush`` waits for all records
    and raises ``ProduceError`` for those that failed. Retriable failures are retried for
    ``delivery_timeout_s`` without storing a record twice.

    Any number of threads may use it; its own is a daemon.
    In the child of a fork it begins without records, because the parent stores those that it
    accepted before. Use ``with``, or ``close`` it: records that were not flushed are lost
    when the process exits.
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
        self._sending = Sending(client, self._core)

    @property
    def topic(self) -> str:
        return self._core.topic

    @property
    def buffered_bytes(self) -> int:
        """The approximate size of accepted records without an outcome, in bytes."""
        return self._core.buffered_bytes

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

        The record may still be stored after the caller was interrupted.

        Raises:
            SteleClientError: the record could not be stored within ``delivery_timeout_s``,
                or was rejected.
        """
        acked = self._accept(value, key, headers, partition, timestamp, is_counted=False)
        return self._sending.outcome(acked)

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

        Waits while the buffer is full. The future raises a failure, and so does the
        next ``flush`` or ``close``.
        """
        acked = self._accept(value, key, headers, partition, timestamp, is_counted=True)
        if not self._core.sent_count % _GIVE_WAY_EVERY:
            give_way()
        return acked

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
        sending = self._sending
        if sending.is_closed:
            raise ClosedError("producer")
        record, size = self._core.outgoing(value, key, headers, timestamp)
        count = 0
        if partition is None:
            count = self._client.known_partition_count(self._core.topic) or self._partition_count()
        acked = sending.put(record, size, partition, count, is_counted=is_counted)
        while acked is None:
            sending.wait_for_room(size)
            acked = sending.put(record, size, partition, count, is_counted=is_counted, has_room=True)
        return acked

    def _partition_count(self) -> int:
        """Look up the partition count; retry while the broker is down."""
        give_up_s = time.monotonic() + self._core.options.delivery_timeout_s
        failures = 0
        while True:
            try:
                return self._client.partition_count(self.topic, auto_create=True)
            except SteleClientError as error:
                failures += 1
                pause_s = retry_pause_s(failures)
                if not error.retriable or self._sending.is_closed or time.monotonic() + pause_s >= give_up_s:
                    raise
            sleep(pause_s)

    # ── flush and close ──

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Wait until every record accepted before the call has an outcome, or for ``timeout_s``.

        Raises:
            ProduceError: records sent since the last flush failed.
        """
        self._sending.flush(timeout_s)

    def close(self, *, timeout_s: float | None = None) -> None:
        """Flush and stop; records without an outcome after ``timeout_s`` fail.

        Raises:
            ProduceError: as for ``flush``.
        """
        self._sending.close(timeout_s)
