"""Decodes, checks and recompresses batches that are not stored as received.

This runs in a thread. A batch keeps its base timestamp, producer id, epoch, sequence
and count. Its codec, size and CRC change, and its newest timestamp is computed from
the records (Apache Kafka, ``LogValidator``).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress

from ...errors import RECORD_ERRORS_MAX, BatchTooLarge, InvalidBatch, RecordError
from ...storage.topic_config import TopicConfig
from .contracts import TopicContract
from .record_keys import KeyCheck, is_checked_in_thread
from .timestamps import TimestampBounds, TimestampCheck, has_earliest, is_suspicious, timestamp_bounds

# The thread releases the interpreter after each slice, so the event loop waits some 50 µs, not 5 ms.
_RECORDS_PER_SLICE, _CHECKED_PER_SLICE = 100, 50
_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CODEC_MASK = 0x07


@dataclass(frozen=True, slots=True)
class PreparedBatches:
    """Whole batches, ready to be appended, and their headers."""

    batches: bytearray | memoryview
    headers: list[rb.BatchHeader]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The requirements of a topic when batches arrived. Sizes are in bytes.

    ``keyed_topic`` is the topic if every record needs a key, otherwise None.
    """

    codec: Compression | None
    level: int | None
    bounds: TimestampBounds | None
    batch_bytes_max: int
    keyed_topic: str | None
    contract: TopicContract | None = None

    def run(self, batches: bytearray | memoryview, headers: Sequence[rb.BatchHeader]) -> PreparedBatches:
        """Check and rewrite ``batches``; to be called in a thread.

        One batch at a time is in memory in three forms: as received, decompressed
        (at most ``DECOMPRESSED_BYTES_MAX``) and as it will be stored.

        Raises:
            InvalidBatch: the records do not parse, or their offsets are not consecutive.
            InvalidTimestamp: the topic does not accept the timestamps of some records.
            MissingKey: the topic is compacted, and some records have no key.
            BrokenContract: some records lack their schemas, or break them.
            UnknownSchemas: the contract must look for schemas; run again with the one that it returns.
            BatchTooLarge: a batch is larger than the topic allows once it is rewritten.
        """
        try:
            out = bytearray().join([self._prepared(batches, header) for header in headers])
            if self.contract is not None:
                self.contract.conclude()
            return PreparedBatches(out, rb.check_produced(out))
        except rb.CorruptBatchError as error:
            raise InvalidBatch(str(error)) from error

    def _prepared(self, batches: bytearray | memoryview, header: rb.BatchHeader) -> bytes | bytearray:
        plain = rb.plain_batch(batches, header)
        max_timestamp = self._check(plain, header)
        codec = Compression(header.compression) if self.codec is None else self.codec
        if codec == header.compression:
            batch = bytearray(memoryview(batches)[header.position : header.position + header.size])
        else:
            batch = bytearray(plain[: rb.HEADER_BYTES])
            batch += compress(codec, plain[rb.HEADER_BYTES :], level=self.level)
            if len(batch) > self.batch_bytes_max:
                raise BatchTooLarge(len(batch), limit=self.batch_bytes_max)
            struct.pack_into(">i", batch, 8, len(batch) - rb.LOG_OVERHEAD_BYTES)
            struct.pack_into(">h", batch, 21, header.attributes & ~_CODEC_MASK | codec)
        struct.pack_into(">q", batch, 35, max_timestamp)
        struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[rb.CRC_START :]))
        return batch

    def _check(self, plain: bytes, header: rb.BatchHeader) -> int:
        """Check every record; return the newest timestamp in ms."""
        timestamps = TimestampCheck(header, self.bounds)
        keys = None if self.keyed_topic is None else KeyCheck(self.keyed_topic)
        contract = None if self.contract is None else self.contract.check()
        misplaced: list[RecordError] = []
        first = 0
        per_slice = _RECORDS_PER_SLICE if contract is None else _CHECKED_PER_SLICE
        for records in rb.decode_slices(plain, rb.read_header(plain), per_slice):
            timestamps.look_at(records, first)
            if keys is not None:
                keys.look_at(records, first)
            if contract is not None:
                contract.look_at(records, first)
            for index, record in enumerate(records, first):
                delta = record.offset - header.base_offset
                if delta != index and len(misplaced) < RECORD_ERRORS_MAX:
                    misplaced.append(RecordError(index, f"its offset delta is {delta}, not {index}"))
            first += len(records)
            if first < header.record_count:
                time.sleep(0)
        if misplaced:
            raise InvalidBatch("the offsets of its records are not consecutive", record_errors=misplaced)
        # As in Kafka, the timestamp of a record without a key is not looked at.
        if keys is not None:
            keys.conclude()
        timestamps.conclude()
        if contract is not None:
            contract.conclude()
        return timestamps.max_timestamp


def target_codec(config: TopicConfig) -> Compression | None:
    """Return the codec that a topic stores batches in; None for the producer's own."""
    return _CODECS.get(config.compression_type)


def needs_preparation(config: TopicConfig, headers: Sequence[rb.BatchHeader], now_ms: int) -> bool:
    """Return whether a thread must compress these batches or look at their records."""
    if has_preparation(config) or config.message_timestamp_type != "CreateTime":
        if config.has_contract:
            return True
        codec = target_codec(config)
        return any(
            (codec is not None and header.compression != codec)
            or is_suspicious(header, config, now_ms)
            or (config.is_compacted and is_checked_in_thread(header))
            for header in headers
        )
    # The same for topics that accept batches as they are; this is on the path of every produce.
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    for header in headers:  # noqa: SIM110 (a generator costs twice as much)
        if header.max_timestamp > latest_ms or header.base_timestamp > latest_ms:
            return True
    return False


def has_preparation(config: TopicConfig) -> bool:
    """Return whether a thread must prepare some batches with acceptable timestamps."""
    return (
        config.compression_type != "producer"
        or config.is_compacted
        or has_earliest(config)
        or config.has_contract
    )


def preparation(topic: str, config: TopicConfig, now_ms: int) -> Preparation:
    """Return the requirements of ``topic`` for batches that arrive at ``now_ms``."""
    codec = target_codec(config)
    return Preparation(
        codec=codec,
        level=_level(config, codec),
        bounds=timestamp_bounds(config, now_ms),
        batch_bytes_max=config.max_message_bytes,
        keyed_topic=topic if config.is_compacted else None,
    )


def _level(config: TopicConfig, codec: Compression | None) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
