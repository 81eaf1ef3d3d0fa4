"""Build batches and partitions in one line."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

import crc32c
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.producing.producer_state import ProducerStates
from app.clock import Clock
from app.storage.engine import PartitionSpec
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


def batch_of(
    values: Sequence[bytes],
    *,
    timestamp_ms: int = 1_000,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    is_transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Return one batch of keyless records, all with the same timestamp."""
    builder = rb.BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence if producer_id >= 0 else -1,
        is_transactional=is_transactional,
        compression=compression,
    )
    for value in values:
        builder.append(timestamp_ms=timestamp_ms, value=value)
    return builder.build()


def batch_of_times(timestamps_ms: Sequence[int]) -> bytearray:
    """Return one batch with a record per timestamp."""
    builder = rb.BatchBuilder()
    for timestamp_ms in timestamps_ms:
        builder.append(timestamp_ms=timestamp_ms, value=str(timestamp_ms).encode())
    return builder.build()


def untimed_first_batch(timestamps_ms: Sequence[int]) -> bytearray:
    """As ``batch_of_times``, where the first may be -1 and the others not, which the codec does not build."""
    base_ms = timestamps_ms[0]
    records = b""
    for delta, timestamp_ms in enumerate(timestamps_ms):
        # Attributes, timestamp delta, offset delta, no key, a value of one byte, no headers.
        body = b"\0" + _varint(timestamp_ms - base_ms) + _varint(delta) + b"\x01\x02x\0"
        records += _varint(len(body)) + body
    fields = (0, rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES + len(records), -1, rb.MAGIC, 0, 0)
    count = len(timestamps_ms)
    head = rb.HEADER.pack(*fields, count - 1, base_ms, max(timestamps_ms), -1, -1, -1, count)
    return bytearray(with_new_crc(head + records))


def _varint(number: int) -> bytes:
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])


def header_of(
    *,
    producer_id: int = 1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    count: int = 1,
    base_offset: int = 0,
) -> rb.BatchHeader:
    """A header as it stands in a log, without the rest of its batch."""
    return rb.BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def with_new_crc(batch: bytes) -> bytes:
    """Return the batch with a new CRC, after a test changed a field."""
    fixed = bytearray(batch)
    struct.pack_into(">I", fixed, 17, crc32c.crc32c(bytes(fixed[rb.CRC_START :])))
    return bytes(fixed)


def spec_of(
    name: TopicPartition,
    *,
    clock: Clock,
    config: TopicConfig | None = None,
    topic_id: UUID | None = None,
    producer_state: ProducerStates | None = None,
) -> PartitionSpec:
    return PartitionSpec(
        topic_partition=name,
        topic_id=topic_id or UUID(int=1),
        config=config or TopicConfig(),
        producer_state=ProducerStates(clock) if producer_state is None else producer_state,
    )
