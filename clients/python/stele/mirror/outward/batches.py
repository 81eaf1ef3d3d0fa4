"""Batches for a Kafka cluster: what is sent for those of this broker, and what cannot have equal offsets. Pure.

Kafka gives offsets itself, in the order in which it appends. It takes one batch per partition and request, whose records
fill its offsets; small batches are therefore joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from ...wire import record_batch as rb
from ...wire.compression import Compression
from ..positions import LeftOut, NotCopyable, Sample

# A batch up to this size is joined with its neighbours, so that a producer of single records does not cost a request each.
_SMALL_BYTES = 32 << 10
JOINED_BYTES_MAX = 256 << 10
# Epochs of batches with equal offsets, one per cluster that they come from. No producer of others gets that far.
_EPOCHS = 1 << 14
_SEQUENCES = 1 << 31
_HEAD = struct.Struct(">qiibI")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CODEC_MASK = 0x07
_HORIZON = 0x40
_SAMPLE_MAX = 20
INSTEAD = "Copy it with --offsets translate instead"


class Run(NamedTuple):
    """Consecutive offsets of this broker, which are consecutive in the target, too."""

    start: int
    records: int


class Outgoing(NamedTuple):
    """One batch to send; ``number_batch`` completes it."""

    batch: bytearray
    records: int
    runs: Sequence[Run]


def epoch_of(cluster_id: str) -> int:
    """Return the epoch of all batches with equal offsets from a cluster.

    By it the target tells apart what two clusters write at the same offsets: it refuses one of them.
    """
    return _EPOCHS | crc32c.crc32c(cluster_id.encode()) % _EPOCHS


def next_sequence(header: rb.BatchHeader) -> int:
    """Return the sequence number that follows a batch: the target takes no other one from its producer."""
    return (header.base_sequence + header.record_count) % _SEQUENCES


def number_batch(batch: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    """Write a producer and a sequence number into a batch."""
    size = len(batch) - rb.LOG_OVERHEAD_BYTES
    struct.pack_into(">h", batch, rb.CRC_START, int.from_bytes(batch[21:23], "big") & _CODEC_MASK)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequence % _SEQUENCES)
    _HEAD.pack_into(batch, 0, 0, size, -1, rb.MAGIC, crc32c.crc32c(memoryview(batch)[rb.CRC_START :]))


def outgoing(
    batches: rb.Buffer,
    position: int,
    left_out: LeftOut,
    *,
    keeps_offsets: bool,
    joined_bytes_max: int = JOINED_BYTES_MAX,
) -> tuple[list[Outgoing], NotCopyable | None]:
    """Return what to send for whole batches that follow ``position``, and why the rest cannot be sent.

    Without equal offsets, the first batch may begin before. Batches are joined up to ``joined_bytes_max``.

    Raises ``NotCopyable`` if records do not parse.
    """
    made: list[Outgoing] = []
    refusal: NotCopyable | None = None
    before = left_out.before if keeps_offsets else max(left_out.before, position)
    small: list[rb.BatchHeader] = []
    for header in rb.iter_headers(batches):
        if keeps_offsets:
            refusal = _inequality(header, position, before)
            position = header.next_offset
            if refusal is not None:
                break
        elif not _has_records(header, before, left_out.aborted):
            continue
        if small and not _joins(small, header, joined_bytes_max):
            made.extend(_joined(batches, small, before))
            small = []
        small.append(header)
    made.extend(_joined(batches, small, before))
    return made, refusal


def _has_records(header: rb.BatchHeader, before: int, aborted: frozenset[int]) -> bool:
    is_left_out = header.base_offset in aborted or header.next_offset <= before
    return not (header.is_control or is_left_out) and header.record_count > 0


def _inequality(header: rb.BatchHeader, position: int, log_start: int) -> NotCopyable | None:
    """Return why Kafka would not give these records their own offsets."""
    if header.is_control or header.is_transactional:
        return NotCopyable(
            f"offset {header.base_offset} is of a transaction, whose end takes an offset that no client can write. {INSTEAD}"
        )
    if header.base_offset == position and header.base_offset >= log_start and _is_whole(header):
        return None
    where = f"offset {position}" if header.base_offset != position else f"an offset from {position} on"
    return NotCopyable(
        f"{where} has no record here any more (deleted or compacted), so Kafka would give it to the next record. {INSTEAD}"
    )


def _is_whole(header: rb.BatchHeader) -> bool:
    return header.record_count == header.last_offset_delta + 1


def _joins(small: Sequence[rb.BatchHeader], header: rb.BatchHeader, bytes_max: int) -> bool:
    size = sum(one.size for one in small)
    return (
        header.size <= _SMALL_BYTES >= small[0].size
        and header.compression == small[0].compression
        and size + header.size <= bytes_max
    )


def _joined(batches: rb.Buffer, headers: Sequence[rb.BatchHeader], before: int) -> list[Outgoing]:
    """Return one batch with the records of all from an offset on, or several if the records cannot be written again."""
    if not headers:
        return []
    first = headers[0]
    if len(headers) == 1 and _is_whole(first) and first.base_offset >= before and _is_plain(first):
        batch = bytearray(batches[first.position : first.position + first.size])
        return [Outgoing(batch, first.record_count, [Run(first.base_offset, first.record_count)])]
    builder = rb.BatchBuilder(compression=Compression(first.compression))
    runs: list[Run] = []
    for header in headers:
        for record in _records(batches, header):
            if record.offset < before:
                continue
            if any("\ufffd" in name for name, _ in record.headers):
                if len(headers) > 1:
                    return [one for each in headers for one in _joined(batches, [each], before)]
                raise NotCopyable(f"offset {record.offset} has a header whose name is not UTF-8")
            builder.append(
                timestamp_ms=record.timestamp, key=record.key, value=record.value, headers=record.headers
            )
            if runs and runs[-1].start + runs[-1].records == record.offset:
                runs[-1] = Run(runs[-1].start, runs[-1].records + 1)
            else:
                runs.append(Run(record.offset, 1))
    return [Outgoing(builder.build(), builder.count, runs)] if runs else []


def _is_plain(header: rb.BatchHeader) -> bool:
    """Return whether the records mean the same with a producer's attributes."""
    return not (header.is_log_append_time or header.attributes & _HORIZON)


def _records(batches: rb.Buffer, header: rb.BatchHeader) -> list[rb.RecordView]:
    try:
        return rb.decode_records(batches, header)
    except rb.CorruptBatchError as error:
        raise NotCopyable(f"records from offset {header.base_offset} on do not parse: {error}") from error


def samples(batch: rb.Buffer, header: rb.BatchHeader) -> Iterator[Sample]:
    """Yield the last records of a batch of the target, with the offsets that they have there."""
    for record in rb.decode_records(batch, header)[-_SAMPLE_MAX:]:
        timestamp = None if header.is_log_append_time else record.timestamp
        yield Sample(record.offset, timestamp, record.key, record.value)
