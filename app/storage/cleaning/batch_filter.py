"""Filters one batch when its partition is compacted.

A record stays if no later record of the mapped range has its key, and it is not a
tombstone whose time is over. Records after the mapped range stay; records without
a key go. Then, of the batch:

===========================================  ====================================================
all records stay                             the very same bytes
some stay                                    a new body, same codec; the header keeps base offset,
                                             last offset delta, leader epoch, producer id, epoch
                                             and base sequence, so that a retry is recognised and
                                             the offsets after it do not move
none stays, its place must be kept           61 bytes: the header with record count 0, no codec,
                                             base timestamp -1
none stays                                   nothing
===========================================  ====================================================

**Delete horizon** (KIP-534). A tombstone must stay readable for
``delete.retention.ms`` after the first pass that kept it. That pass sets attribute
bit 6 and writes the time at which the tombstone may go into the base timestamp;
the timestamp deltas are rewritten relative to it, so base + delta is still the
time of each record. A batch has one horizon and keeps it.

Layout and rules are those of Apache Kafka's ``MemoryRecords.filterTo`` and
``Cleaner``; ``tests/integration/test_cleaning_against_kafka.py`` compares the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import crc32c
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress

from .dirty_records import GOES, STAYS, TOMBSTONE_STAYS, DirtyRecords
from .key_map import KeyMap
from .record_bounds import read_varint, write_varint
from .record_keys import read_keys

DELETE_HORIZON = 0x40

_CODEC_MASK = 0x07
# Between two slices a cleaner may give up the interpreter.
_RECORDS_PER_SLICE = 500
_INT64_HALF = 1 << 63
_FLAG_OF_VERDICT = bytes(verdict in (STAYS, TOMBSTONE_STAYS) for verdict in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """Facts about a batch before its records are read.

    ``discard``: no record stays, because the batch belongs to an aborted transaction,
    or is a marker whose transaction has left no batch and whose horizon has passed.
    ``keep_place``: without records the header stays, because it has the last
    sequence of an active producer, or the last offset of a segment.
    ``start_horizon``: a marker whose transaction has left no batch; it goes
    ``delete.retention.ms`` from now.
    """

    discard: bool = False
    keep_place: bool = False
    start_horizon: bool = False


PLAIN = Treatment()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """``data`` is empty if nothing is left; ``is_same``: the very bytes that came."""

    data: bytes
    record_count: int
    is_same: bool


class BatchFilter:
    """The rules of one pass.

    ``mapped_end`` is the offset up to which ``keys`` knows all keys. ``now_ms`` and
    ``delete_retention_ms`` date the horizons; those of markers are ``marker_ms_min`` from now at least. ``dirty``
    saves looking keys up that were mapped.
    """

    def __init__(
        self,
        keys: KeyMap,
        *,
        mapped_end: int,
        now_ms: int,
        delete_retention_ms: int,
        marker_ms_min: int = 0,
        dirty: DirtyRecords | None = None,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        """``pause`` is called after every slice of records, at most a millisecond of work."""
        self._keys = keys
        self._dirty = dirty
        self._mapped_end = mapped_end
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._marker_horizon_ms = now_ms + max(delete_retention_ms, marker_ms_min)
        self._pause = pause

    def remains(self, batch: bytes, header: rb.BatchHeader, treatment: Treatment = PLAIN) -> Remains:
        """Filter ``batch``, which fills its buffer and whose CRC was checked.

        At any time it is in memory as it came, decompressed
        (``DECOMPRESSED_BYTES_MAX``) and as it remains.

        Raises:
            CorruptBatchError: its records do not parse (``read_keys``).
        """
        if header.is_control:
            return self._marker(batch, header, treatment)
        if treatment.discard or not header.record_count:
            return _without_records(batch, header, treatment)
        plain: bytes | None = None
        verdicts = None if self._dirty is None else self._dirty.of(header)
        if verdicts is None or header.attributes & DELETE_HORIZON:
            plain = rb.plain_batch(batch, header)
            choice = self._choose(plain, header)
        else:
            choice = _known(verdicts)
        if not choice.count:
            return _without_records(batch, header, treatment)
        starts_horizon = choice.has_tombstone and not header.attributes & DELETE_HORIZON
        if choice.count == header.record_count and not starts_horizon:
            return Remains(data=batch, record_count=choice.count, is_same=True)
        plain = rb.plain_batch(batch, header) if plain is None else plain
        horizon_ms = self._new_horizon_ms if starts_horizon else None
        data = _rebuilt(plain, header, choice, horizon_ms, self._pause)
        return Remains(data=data, record_count=choice.count, is_same=False)

    def _marker(self, batch: bytes, header: rb.BatchHeader, treatment: Treatment) -> Remains:
        """A marker stays whole or goes: several clients fail on an empty control batch."""
        if treatment.discard and not treatment.keep_place:
            return Remains(data=b"", record_count=0, is_same=False)
        count = header.record_count
        if not treatment.start_horizon or header.attributes & DELETE_HORIZON or not count:
            return Remains(data=batch, record_count=count, is_same=True)
        choice = _Choice(flags=b"\1" * count, count=count, has_tombstone=False)
        data = _rebuilt(rb.plain_batch(batch, header), header, choice, self._marker_horizon_ms, self._pause)
        return Remains(data=data, record_count=count, is_same=False)

    def _choose(self, plain: bytes, header: rb.BatchHeader) -> _Choice:
        """Look every key up."""
        mapped_end = self._mapped_end
        # The horizon is the base timestamp.
        is_expired = bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._now_ms
        flags, has_tombstone = bytearray(), False
        for part in read_keys(plain, self._pause):
            last_offsets = self._keys.last_offsets(part.keys)
            for offset, last, has_value in zip(part.offsets, last_offsets, part.has_value, strict=True):
                stays = offset >= mapped_end or (offset >= last and (has_value or not is_expired))
                flags.append(stays)
                if stays and not has_value:
                    has_tombstone = True
            self._pause()
        return _Choice(flags=bytes(flags), count=sum(flags), has_tombstone=has_tombstone)


def with_chosen(
    batch: bytes,
    header: rb.BatchHeader,
    is_chosen: Callable[[int, bool], bool],
    pause: Callable[[], object] = lambda: None,
) -> Remains:
    """Filter ``batch``, which fills its buffer, by ``is_chosen(offset, has_value)``.

    No delete horizon begins. ``pause`` and what is raised: see ``BatchFilter``.
    """
    plain = rb.plain_batch(batch, header)
    flags = bytes(
        is_chosen(offset, has_value)
        for part in read_keys(plain, pause)
        for offset, has_value in zip(part.offsets, part.has_value, strict=True)
    )
    choice = _Choice(flags=flags, count=sum(flags), has_tombstone=False)
    if not choice.count:
        return Remains(data=b"", record_count=0, is_same=False)
    if choice.count == header.record_count:
        return Remains(data=batch, record_count=choice.count, is_same=True)
    data = _rebuilt(plain, header, choice, None, pause)
    return Remains(data=data, record_count=choice.count, is_same=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The records of a batch that are kept.

    ``flags`` has a byte per record, 1 if it is kept; ``count`` are kept.
    """

    flags: bytes
    count: int
    has_tombstone: bool


def _known(verdicts: bytes) -> _Choice:
    return _Choice(
        flags=verdicts.translate(_FLAG_OF_VERDICT),
        count=len(verdicts) - verdicts.count(GOES),
        has_tombstone=TOMBSTONE_STAYS in verdicts,
    )


def _without_records(batch: bytes, header: rb.BatchHeader, treatment: Treatment) -> Remains:
    if not treatment.keep_place:
        return Remains(data=b"", record_count=0, is_same=False)
    if not header.record_count:
        return Remains(data=batch, record_count=0, is_same=True)
    attributes = header.attributes & ~(_CODEC_MASK | DELETE_HORIZON)
    data = _sealed(header, attributes, rb.NO_TIMESTAMP, header.max_timestamp, 0, b"")
    return Remains(data=data, record_count=0, is_same=False)


def _rebuilt(
    plain: bytes,
    header: rb.BatchHeader,
    choice: _Choice,
    horizon_ms: int | None,
    pause: Callable[[], object],
) -> bytes:
    """Build the batch with the chosen records alone, in the codec it had.

    With ``horizon_ms`` it begins a delete horizon.
    ``plain`` is the batch without its compression, whose records parse.
    """
    stamped_ms = header.max_timestamp if header.is_log_append_time else None
    attributes, old_base = header.attributes, header.base_timestamp
    base: int | None = None
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base = horizon_ms
    elif attributes & DELETE_HORIZON:
        base = old_base
    newest_ms = rb.NO_TIMESTAMP
    body, view = bytearray(), memoryview(plain)
    position = rb.HEADER_BYTES
    for number, stays in enumerate(choice.flags, 1):
        if not number % _RECORDS_PER_SLICE:
            pause()
        start = position
        # Lengths of one or two bytes are nearly all there are; a call would take longer than reading them.
        length = plain[position]
        position += 1
        if length > 0x7F:
            more = plain[position]
            if more > 0x7F:
                length, position = read_varint(plain, start)
            else:
                length += (more << 7) - 0x80
                position += 1
        rest = position + 1
        position += length >> 1
        if not stays:
            continue
        old_delta, rest = read_varint(plain, rest)
        old_delta = (old_delta >> 1) ^ -(old_delta & 1)
        time_ms = _wrapped(old_base + old_delta) if stamped_ms is None else stamped_ms
        newest_ms = max(newest_ms, time_ms)
        if base is None:
            # The base timestamp is the time of the first record.
            base = time_ms
        delta = _wrapped(time_ms - base)
        if delta == old_delta:
            body += view[start:position]
        else:
            encoded = write_varint(delta)
            body += write_varint(1 + len(encoded) + position - rest)
            body.append(plain[position - (length >> 1)])
            body += encoded
            body += view[rest:position]
    assert base is not None, "a batch without records is not rebuilt"
    packed = compress(Compression(header.compression), bytes(body))
    return _sealed(header, attributes, base, newest_ms, choice.count, packed)


def _wrapped(number: int) -> int:
    """``number`` as 64 bits have it: a producer may state times at both ends of their range."""
    if -_INT64_HALF <= number < _INT64_HALF:
        return number
    return (number + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF


def _sealed(
    header: rb.BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    body: bytes,
) -> bytes:
    """Build a batch in place of that of ``header``, with a new CRC.

    It has the same offsets, epoch, producer and sequence.
    """
    batch = bytearray(
        rb.HEADER.pack(
            header.base_offset,
            rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES + len(body),
            header.partition_leader_epoch,
            rb.MAGIC,
            0,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            record_count,
        )
    )
    batch += body
    struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[rb.CRC_START :]))
    return bytes(batch)
