"""Idempotent producers: each batch once, in order (KIP-98, without transactions).

A producer numbers its records per partition. For each producer id the partition
remembers the epoch and the last five batches, as many as a client may have in
flight, so that a retry of any of them is answered with the offsets it was given
the first time.

Snapshot, big-endian (kept beside the log, see ``storage.log``)::

    version:2 = 1   crc32c:4 of all behind it   complete:1   count:4
    then for each producer:
      producer id:8  producer epoch:2  timestamp ms:8  batches:1
      then for each batch, oldest first:  base sequence:4  last sequence:4  base offset:8
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

_HEAD = struct.Struct(">hIbi")
_PRODUCER = struct.Struct(">qhqb")
_BATCH = struct.Struct(">iiq")
_VERSION = 1


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
    """A producer as an operator sees it; ``last_timestamp_ms`` is when it was last heard.

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
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerStates:
    """The producers of one partition. Implements ``storage.engine.BatchLedger``."""

    def __init__(self, clock: Clock, *, is_complete: bool = True) -> None:
        self._clock = clock
        self._producers: dict[int, _Producer] = {}
        # False once a producer may have been forgotten: then an unknown one may be an old one.
        self._is_complete = is_complete

    def __len__(self) -> int:
        return len(self._producers)

    def view(self, producer_id: int) -> ProducerView | None:
        """One producer, as it stands."""
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
        """All producers, as they stand."""
        return [view for producer_id in self._producers if (view := self.view(producer_id)) is not None]

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """May this batch be appended now?

        Returns the stored batch when it is a retry of one that is remembered.

        Raises:
            ProducerFenced: its epoch is older than the producer's.
            OutOfOrderSequence: a batch before it is missing.
            DuplicateSequence: it is stored, but too long ago to say where.
        """
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidBatch("an idempotent batch needs a producer epoch and a base sequence")
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # A new one begins at 0; one that was forgotten goes on where it was (KIP-360).
            if header.base_sequence and self._is_complete:
                raise OutOfOrderSequence(
                    producer_id=header.producer_id, sequence=header.base_sequence, expected=0
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
        if (expected - header.base_sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2:
            raise DuplicateSequence(producer_id=header.producer_id, sequence=header.base_sequence)
        raise OutOfOrderSequence(
            producer_id=header.producer_id, sequence=header.base_sequence, expected=expected
        )

    def apply(self, header: BatchHeader) -> None:
        if not header.has_producer_id or header.base_sequence < 0:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch, 0)
        # The broker's clock: records may carry times of years ago.
        producer.timestamp_ms = self._clock.now_ms()
        producer.batches.append(StoredBatch(header.base_sequence, _last_sequence(header), header.base_offset))

    def expire(self, before_ms: int) -> None:
        """Forget producers that have been silent since."""
        for producer_id in [p for p, state in self._producers.items() if state.timestamp_ms < before_ms]:
            del self._producers[producer_id]
            self._is_complete = False

    def clear(self) -> None:
        self._producers.clear()
        self._is_complete = False

    def snapshot(self) -> bytes:
        parts = [struct.pack(">bi", self._is_complete, len(self._producers))]
        for producer_id, state in self._producers.items():
            parts.append(_PRODUCER.pack(producer_id, state.epoch, state.timestamp_ms, len(state.batches)))
            parts += (_BATCH.pack(*batch) for batch in state.batches)
        body = b"".join(parts)
        return struct.pack(">hI", _VERSION, crc32c.crc32c(body)) + body

    def restore(self, data: bytes) -> None:
        """Raises ``ValueError`` if ``data`` is not a snapshot."""
        if len(data) < _HEAD.size:
            raise ValueError("it is cut short")
        version, crc, is_complete, count = _HEAD.unpack_from(data)
        if version != _VERSION or crc32c.crc32c(data[6:]) != crc:
            raise ValueError("its version or CRC does not match")
        self._producers.clear()
        self._is_complete = bool(is_complete)
        position = _HEAD.size
        for _ in range(count):
            producer_id, epoch, timestamp_ms, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            state = self._producers[producer_id] = _Producer(epoch, timestamp_ms)
            for _ in range(batches):
                state.batches.append(StoredBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size


def _last_sequence(header: BatchHeader) -> int:
    # Sequences wrap from 2^31 - 1 to 0.
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
