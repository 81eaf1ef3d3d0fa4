"""The idempotent producers of one partition: each batch once, in order (KIP-98).

The rules of sequences are in ``storage.sequences``; the engine asks for a check before it appends.

A partition also remembers which transactions are open: the first transactional batch of a producer
opens one, a marker with its producer id ends it. A marker whose epoch is higher than the
producer's begins that epoch: its first batch has sequence 0.

A gap in the log empties what is known of batches, but open transactions stay open: their
marker may follow the gap, and readers must not see them until it does.

Snapshot, big-endian (kept beside the log, see ``storage.log``)::

    version:2 = 3   crc32c:4 of all following bytes and then the version   count:4
    then for each producer, by its id:
      producer id:8  producer epoch:2  timestamp ms:8  whole:1  batches:1
      coordinator epoch:4  first offset of the open transaction:8  offset of the last marker:8  (-1: none)
      then for each batch, oldest first:  base sequence:4  last sequence:4  base offset:8

Version 2 has nothing of transactions, and its CRC leaves out the version. So does version 1,
which has also ``complete:1`` before the count and no ``whole``. Both are still read.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import crc32c
from stele.wire.control_record import EndTransactionMarker
from stele.wire.record_batch import BatchHeader

from ...clock import Clock
from ...errors import CoordinatorFenced, ProducerFenced
from ...storage.segments.open_transactions import OpenTransactions
from ...storage.segments.transaction_index import AbortedEntry
from ...storage.sequences import ProducerSequences, ProducerView, StoredBatch, check_batch
from ...storage.topic_partition import TopicPartition
from ...work_budget import Pace, Steps

# Beyond this limit a later batch of a refused producer may be accepted before the refused one.
_REFUSED_MAX = 1000

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhq?biqq")
_BATCH = struct.Struct(">iiq")
_VERSION = 3
# Without the fields of transactions.
_VERSION_2 = 2
_PRODUCER_2 = struct.Struct(">qhq?b")
# Of releases before KIP-360: complete:1 count:4, and producers without ``whole``.
_VERSION_1 = 1
_COUNT_1 = struct.Struct(">?i")
_PRODUCER_1 = struct.Struct(">qhqb")
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction of which the partition has batches, but no marker.

    ``last_timestamp_ms``: its last batch arrived. ``coordinator_epoch`` is that of the producer's last
    marker, -1 if there is none.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    coordinator_epoch: int
    last_timestamp_ms: int


@dataclass(slots=True)
class _Producer(ProducerSequences):
    timestamp_ms: int = 0
    # Of its last marker; -1: there is none.
    coordinator_epoch: int = _NONE
    marker_offset: int = _NONE


@dataclass(slots=True)
class Arrivals:
    """Counts the producers that come to the partitions of a broker."""

    count: int = 0


class ProducerStates:
    """The producers of one partition. Implements ``storage.engine.ProducerState``."""

    def __init__(
        self,
        clock: Clock,
        *,
        named_epochs: Mapping[int, int] | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        """``named_epochs`` are the newest epochs of named producers, by id; their owner changes them.

        ``arrivals`` counts the producers that come, also in threads of recovery, so it may miss a few.
        """
        self._clock = clock
        self._arrivals = arrivals or Arrivals()
        self._named_epochs: Mapping[int, int] = {} if named_epochs is None else named_epochs
        self._producers: dict[int, _Producer] = {}
        self._open = OpenTransactions()
        # For producers without state: epoch and sequence of a batch that the disk had no room for.
        self._refused: dict[int, tuple[int, int]] = {}

    def blank(self) -> ProducerStates:
        """Return a state of the same partition that knows nothing."""
        return ProducerStates(self._clock, named_epochs=self._named_epochs, arrivals=self._arrivals)

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_open_offset(self) -> int | None:
        return self._open.first_offset

    # ── views ──

    def view(self, producer_id: int) -> ProducerView | None:
        """Return the current state of one producer; None if nothing is known of it."""
        state = self._producers.get(producer_id)
        if state is None:
            return None
        last = state.batches[-1] if state.batches else None
        return ProducerView(
            producer_id=producer_id,
            epoch=state.epoch,
            last_sequence=-1 if last is None else last.last_sequence,
            last_offset=-1 if last is None else last.last_offset,
            last_timestamp_ms=state.timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            transaction_start_offset=self._open.first_offset_of(producer_id),
        )

    def views(self) -> list[ProducerView]:
        """Return the current state of every producer."""
        return [view for producer_id in self._producers if (view := self.view(producer_id)) is not None]

    def open_since(self, producer_id: int) -> int | None:
        """Return the first offset of the open transaction of a producer; None if it has none."""
        return self._open.first_offset_of(producer_id) if producer_id in self._open else None

    def open_transactions(self, topic_partition: TopicPartition) -> list[OpenTransaction]:
        """Return the open transactions, oldest first; ``topic_partition`` is the name of this partition."""
        return [
            OpenTransaction(
                topic_partition=topic_partition,
                producer_id=producer_id,
                producer_epoch=state.epoch,
                first_offset=self._open.first_offset_of(producer_id),
                coordinator_epoch=state.coordinator_epoch,
                last_timestamp_ms=state.timestamp_ms,
            )
            for producer_id in self._open
            if (state := self._producers[producer_id])
        ]

    def last_uses(self, producer_ids: Mapping[int, object]) -> dict[int, int]:
        """Return when the last batch of each producer arrived, in ms.

        Only of those of ``producer_ids`` that are known.
        """
        known = self._producers.keys() & producer_ids.keys()
        return {producer_id: self._producers[producer_id].timestamp_ms for producer_id in known}

    # ── checks ──

    def check(self, header: BatchHeader, *, needs_state: bool = False) -> StoredBatch | None:
        """See ``storage.sequences.check_batch``."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        return check_batch(
            header,
            producer,
            newest_epoch=self._named_epochs.get(producer_id),
            has_open_transaction=producer_id in self._open,
            needs_state=needs_state,
            refused=self._refused.get(producer_id) if producer is None else None,
        )

    def must_append(self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker) -> bool:
        """Return whether a marker changes anything: not if the partition has it already.

        Raises:
            ProducerFenced: a newer epoch of the producer has begun.
            CoordinatorFenced: a newer coordinator has written a marker of the producer.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        if producer_epoch < producer.epoch:
            raise ProducerFenced(producer_id=producer_id, epoch=producer_epoch, current_epoch=producer.epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(epoch=marker.coordinator_epoch, current_epoch=producer.coordinator_epoch)
        return producer_epoch > producer.epoch or producer_id in self._open

    def refused(self, header: BatchHeader) -> None:
        """Note that a checked batch was not stored for now: its producer sends it again."""
        if header.producer_id not in self._producers and len(self._refused) < _REFUSED_MAX:
            self._refused.setdefault(header.producer_id, (header.producer_epoch, header.base_sequence))

    # ── batches of the log ──

    def apply(self, header: BatchHeader, marker: EndTransactionMarker | None = None) -> AbortedEntry | None:
        """Note a batch that is in the log; return the transaction that it aborted, if any.

        ``marker`` is that of a control batch.
        """
        if not header.has_producer_id:
            return None
        if header.is_control:
            return None if marker is None else self._end(header, marker)
        if header.base_sequence < 0:
            return None
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if self._refused:
            self._refused.pop(producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._begin_epoch(producer_id, header.producer_epoch, header.base_sequence == 0)
        # The broker's clock, because the timestamps of records may be years old.
        producer.timestamp_ms = self._clock.now_ms()
        producer.note(header)
        if header.is_transactional:
            self._open.open(producer_id, header.base_offset)
        return None

    def _begin_epoch(self, producer_id: int, epoch: int, is_whole: bool) -> _Producer:
        before = self._producers.get(producer_id)
        producer = self._producers[producer_id] = _Producer(epoch, is_whole)
        if before is None:
            self._arrivals.count += 1
        else:
            producer.coordinator_epoch = before.coordinator_epoch
            producer.marker_offset = before.marker_offset
        return producer

    def _end(self, header: BatchHeader, marker: EndTransactionMarker) -> AbortedEntry | None:
        """Note a marker, which ends the transaction of its producer if one is open."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._begin_epoch(producer_id, header.producer_epoch, False)
        elif producer.epoch < header.producer_epoch:
            producer = self._begin_epoch(producer_id, header.producer_epoch, True)
        producer.timestamp_ms = self._clock.now_ms()
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        producer.marker_offset = header.base_offset
        return self._open.end(header, marker)

    def expire(self, before_ms: int) -> Steps[int]:
        """Forget producers whose last batch arrived before ``before_ms``; return how many they were.

        Producers with an open transaction are kept.
        """
        self._refused.clear()
        pace, count = Pace(), 0
        for producer_id in list(self._producers):
            state = self._producers.get(producer_id)
            if state is not None and state.timestamp_ms < before_ms and producer_id not in self._open:
                del self._producers[producer_id]
                count += 1
            if pace.is_due():
                yield
        return count

    def count_last_uses(self, seconds: Counter[int]) -> Steps[None]:
        """Count the producers by the second in which their last batch arrived."""
        pace = Pace()
        for state in list(self._producers.values()):
            seconds[state.timestamp_ms // 1000] += 1
            if pace.is_due():
                yield

    def clear(self) -> None:
        """Forget everything except open transactions.

        Batches are missing from here on.
        """
        self._refused.clear()
        kept = {producer_id: self._producers[producer_id] for producer_id in self._open}
        for producer in kept.values():
            producer.batches.clear()
            producer.is_whole = False
        self._producers = kept

    def forget(self) -> None:
        """Forget everything, because every batch before here is deleted.

        What is left of a transaction whose marker may be among them begins with its next batch: that of the
        producer's next transaction must not be taken for the same one.
        """
        self._refused.clear()
        self._producers = {}
        self._open = OpenTransactions()

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer; without one, that of its last marker."""
        return frozenset(
            state.batches[-1].base_offset if state.batches else state.marker_offset
            for state in self._producers.values()
        )

    # ── snapshots ──

    def snapshot(self) -> bytes:
        """Return all state; the same state has the same bytes."""
        parts = [_COUNT.pack(len(self._producers))]
        for producer_id, state in sorted(self._producers.items()):
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    state.epoch,
                    state.timestamp_ms,
                    state.is_whole,
                    len(state.batches),
                    state.coordinator_epoch,
                    self._open.first_offset_of(producer_id),
                    state.marker_offset,
                )
            )
            parts += (_BATCH.pack(*batch) for batch in state.batches)
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, _crc(_VERSION, body)) + body

    def restore(self, data: bytes) -> None:
        """Replace all state by a snapshot. Raises ``ValueError`` if ``data`` is none."""
        if len(data) < _HEAD.size:
            raise ValueError("it is cut short")
        version, crc = _HEAD.unpack_from(data)
        if version not in (_VERSION, _VERSION_2, _VERSION_1) or _crc(version, data[_HEAD.size :]) != crc:
            raise ValueError("its version or CRC does not match")
        position = _HEAD.size
        is_whole = False
        if version == _VERSION_1:
            # Complete: every producer was seen from its sequence 0 on.
            is_whole, count = _COUNT_1.unpack_from(data, position)
            position += _COUNT_1.size
        else:
            (count,) = _COUNT.unpack_from(data, position)
            position += _COUNT.size
        self._producers.clear()
        opened: list[tuple[int, int]] = []
        layout = {_VERSION: _PRODUCER, _VERSION_2: _PRODUCER_2, _VERSION_1: _PRODUCER_1}[version]
        for _ in range(count):
            producer_id, epoch, timestamp_ms, *rest = layout.unpack_from(data, position)
            position += layout.size
            if version != _VERSION_1:
                is_whole = rest.pop(0)
            batches, *ends = rest
            state = self._producers[producer_id] = _Producer(epoch, is_whole, timestamp_ms=timestamp_ms)
            if ends:
                state.coordinator_epoch, first_offset, state.marker_offset = ends
                if first_offset != _NONE:
                    opened.append((producer_id, first_offset))
            for _ in range(batches):
                state.batches.append(StoredBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
        self._open = OpenTransactions(opened)
        self._arrivals.count += count


def _crc(version: int, body: bytes) -> int:
    crc = crc32c.crc32c(body)
    return crc32c.crc32c(version.to_bytes(2, "big"), crc) if version == _VERSION else crc
