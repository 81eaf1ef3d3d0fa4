"""The idempotent producers of one partition: each batch once, in order (KIP-98).

A producer numbers its records per partition. For each producer id the partition
remembers the epoch and the last five batches, as many as a client may have in
flight. A retry of any of them is answered with the offsets of the first time.
Transactional batches are refused before they get here.

A partition that has no state of a producer accepts any first sequence (KIP-360):
the state may have been lost with deleted records, or because the producer sent
nothing for ``producer_id_expiration_ms``. What was stored before that first batch
is not known, so an earlier sequence is out of order, not a duplicate.

Snapshot, big-endian (kept beside the log, see ``storage.log``)::

    version:2 = 2   crc32c:4 of all following bytes   count:4
    then for each producer:
      producer id:8  producer epoch:2  timestamp ms:8  whole:1  batches:1
      then for each batch, oldest first:  base sequence:4  last sequence:4  base offset:8

Version 1 has ``complete:1`` before the count and no ``whole``; it is still read.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c
from stele.wire.record_batch import BatchHeader

from ..clock import Clock
from ..errors import DuplicateSequence, InvalidBatch, OutOfOrderSequence, ProducerFenced

# Kafka's bound on max.in.flight.requests.per.connection with idempotence.
BATCHES_REMEMBERED = 5
SEQUENCE_MODULUS = 2**31
# Beyond this limit a later batch of a refused producer may be accepted before the refused one.
_REFUSED_MAX = 1000

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhq?b")
_BATCH = struct.Struct(">iiq")
_VERSION = 2
# Of releases before KIP-360: complete:1 count:4, and producers without ``whole``.
_VERSION_1 = 1
_COUNT_1 = struct.Struct(">?i")
_PRODUCER_1 = struct.Struct(">qhqb")


class StoredBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.last_sequence - self.base_sequence) % SEQUENCE_MODULUS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """A producer as operators see it; ``last_timestamp_ms``: its last batch arrived.

    ``last_sequence`` and ``last_offset`` are those of its last record in the partition.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    timestamp_ms: int
    # True if the partition has seen the epoch from sequence 0 on: then all sequences before ``batches`` are stored.
    is_whole: bool
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerStates:
    """The producers of one partition. Implements ``storage.engine.ProducerState``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._producers: dict[int, _Producer] = {}
        # For producers without state: epoch and sequence of a batch that the disk had no room for.
        self._refused: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def view(self, producer_id: int) -> ProducerView | None:
        """Return the current state of one producer; None if it has no batches here."""
        state = self._producers.get(producer_id)
        if state is None or not state.batches:
            return None
        last = state.batches[-1]
        return ProducerView(
            producer_id=producer_id,
            epoch=state.epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            last_timestamp_ms=state.timestamp_ms,
        )

    def views(self) -> list[ProducerView]:
        """Return the current state of every producer."""
        return [view for producer_id in self._producers if (view := self.view(producer_id)) is not None]

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Check whether this batch is the next one of its producer.

        Returns None if it is, or the stored batch that it repeats.

        Raises:
            ProducerFenced: its epoch is older than the producer's.
            OutOfOrderSequence: a batch before it is missing.
            DuplicateSequence: it is stored, but its offsets are no longer remembered.
            InvalidBatch: its epoch or sequence is negative.
        """
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidBatch("an idempotent batch needs a producer epoch and a base sequence")
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # A new producer, or one whose state is lost and that continues. It must not skip a batch that
            # was refused and that it is about to send again.
            epoch, sequence = self._refused.get(header.producer_id, (-1, 0))
            if epoch == header.producer_epoch and sequence < header.base_sequence:
                raise OutOfOrderSequence(
                    producer_id=header.producer_id, sequence=header.base_sequence, expected=sequence
                )
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                producer_id=header.producer_id, epoch=header.producer_epoch, current_epoch=producer.epoch
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    producer_id=header.producer_id, sequence=header.base_sequence, expected=0
                )
            return None
        last_sequence = _last_sequence(header)
        for stored in producer.batches:
            if stored.base_sequence == header.base_sequence and stored.last_sequence == last_sequence:
                return stored
        expected = (producer.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if header.base_sequence == expected:
            return None
        if producer.is_whole and _is_before(header.base_sequence, last_sequence, expected):
            raise DuplicateSequence(producer_id=header.producer_id, sequence=header.base_sequence)
        raise OutOfOrderSequence(
            producer_id=header.producer_id, sequence=header.base_sequence, expected=expected
        )

    def refused(self, header: BatchHeader) -> None:
        """Note that a checked batch was not stored for now: its producer sends it again."""
        if header.producer_id not in self._producers and len(self._refused) < _REFUSED_MAX:
            self._refused.setdefault(header.producer_id, (header.producer_epoch, header.base_sequence))

    def apply(self, header: BatchHeader) -> None:
        if not header.has_producer_id or header.base_sequence < 0:
            return
        producer = self._producers.get(header.producer_id)
        if self._refused:
            self._refused.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            is_whole = header.base_sequence == 0
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch, 0, is_whole)
        # The broker's clock, because the timestamps of records may be years old.
        producer.timestamp_ms = self._clock.now_ms()
        producer.batches.append(StoredBatch(header.base_sequence, _last_sequence(header), header.base_offset))

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch arrived before ``before_ms``."""
        self._refused.clear()
        for producer_id in [p for p, state in self._producers.items() if state.timestamp_ms < before_ms]:
            del self._producers[producer_id]

    def clear(self) -> None:
        self._producers.clear()
        self._refused.clear()

    def last_batches(self) -> frozenset[int]:
        """Return the base offset of the last batch of each producer."""
        return frozenset(state.batches[-1].base_offset for state in self._producers.values() if state.batches)

    def snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self._producers))]
        for producer_id, state in self._producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id, state.epoch, state.timestamp_ms, state.is_whole, len(state.batches)
                )
            )
            parts += (_BATCH.pack(*batch) for batch in state.batches)
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + body

    def restore(self, data: bytes) -> None:
        """Replace all state by a snapshot. Raises ``ValueError`` if ``data`` is none."""
        if len(data) < _HEAD.size:
            raise ValueError("it is cut short")
        version, crc = _HEAD.unpack_from(data)
        if version not in (_VERSION, _VERSION_1) or crc32c.crc32c(data[_HEAD.size :]) != crc:
            raise ValueError("its version or CRC does not match")
        position = _HEAD.size
        is_whole = False
        if version == _VERSION:
            (count,) = _COUNT.unpack_from(data, position)
            position += _COUNT.size
        else:
            # Complete: every producer was seen from its sequence 0 on.
            is_whole, count = _COUNT_1.unpack_from(data, position)
            position += _COUNT_1.size
        self._producers.clear()
        for _ in range(count):
            if version == _VERSION:
                producer_id, epoch, timestamp_ms, is_whole, batches = _PRODUCER.unpack_from(data, position)
                position += _PRODUCER.size
            else:
                producer_id, epoch, timestamp_ms, batches = _PRODUCER_1.unpack_from(data, position)
                position += _PRODUCER_1.size
            state = self._producers[producer_id] = _Producer(epoch, timestamp_ms, is_whole)
            for _ in range(batches):
                state.batches.append(StoredBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size


def _last_sequence(header: BatchHeader) -> int:
    # Sequences wrap from 2^31 - 1 to 0.
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


def _is_before(base_sequence: int, last_sequence: int, expected: int) -> bool:
    """Return whether the whole batch is before ``expected``; sequences wrap around."""
    half = SEQUENCE_MODULUS // 2
    return (expected - base_sequence) % SEQUENCE_MODULUS < half and (
        expected - 1 - last_sequence
    ) % SEQUENCE_MODULUS < half
