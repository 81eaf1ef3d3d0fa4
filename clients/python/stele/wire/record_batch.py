"""RecordBatch v2, the format of records in memory, on the wire and on disk.

Byte table (big-endian; Apache Kafka protocol guide, "Record Batch"; ADR-0002)::

    at  size field                    covered by the CRC
     0     8 base offset              no   (the broker writes it)
     8     4 batch length             no   (bytes after this field)
    12     4 partition leader epoch   no   (the broker writes it)
    16     1 magic = 2                no
    17     4 CRC-32C                  no
    21     2 attributes               yes  bits 0–2 codec, 3 log-append time, 4 transactional, 5 control
    23     4 last offset delta        yes
    27     8 base timestamp, ms       yes
    35     8 max timestamp, ms        yes
    43     8 producer id              yes  (-1: none)
    51     2 producer epoch           yes
    53     4 base sequence            yes
    57     4 record count             yes
    61     … records                  yes

A batch is valid if its magic is 2, its length covers the header, the CRC-32C of bytes
21…end matches, and ``last offset delta == record count - 1``. The first 21 bytes are
outside the CRC, so a broker assigns offsets by writing 12 of them in place, without
touching the records.

aiokafka's compiled codec decodes records. It is imported with the first record that is
decoded or built, so a process that only moves bytes never loads it.

It is one file, because it is one format: header, records and the checks of both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, cast

import crc32c

from .compression import Compression, DecompressionError, compress, decompress_after, decompressed_size_max
from .header_names import lenient_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61

# base offset + batch length: the bytes that locate the next batch
LOG_OVERHEAD_BYTES = 12
CRC_START = 21
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
# Base and largest timestamp, in ms.
_TIMESTAMPS = struct.Struct(">qq")
_TIMESTAMPS_START = 27
_COMPRESSION_MASK = 0x07
_CODEC_MAX = int(Compression.ZSTD)
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
# The other bits are the broker's: bit 6 marks a timestamp for the removal of tombstones.
_PRODUCER_ATTRIBUTES = 0x3F

Headers = Sequence[tuple[str, bytes | None]]
# Records decoded at a time in a search for one.
_RECORDS_PER_SLICE = 1000


class CorruptBatchError(ValueError):
    """The bytes are not a valid batch; ``position`` counts from the start of the buffer."""

    def __init__(self, reason: str, *, position: int = 0) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class TruncatedBatchError(CorruptBatchError):
    """The buffer ends before the batch does."""


class CrcMismatchError(CorruptBatchError):
    """The CRC of a batch does not match."""


class RecordView(Protocol):
    """A decoded record.

    ``timestamp`` is in ms since the epoch; ``value`` None is a tombstone.
    """

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


@dataclass(slots=True)
class BatchHeader:
    """The 61 bytes before the records, and their position in a buffer or file.

    ``position`` is the first byte of the batch, ``size`` the size of the whole batch in
    bytes. Timestamps are ms since the epoch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int = 0

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The number of the codec; see ``Compression``."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at ``position``; check its fields, but not its CRC.

    Raises:
        TruncatedBatchError: fewer than 61 bytes are left.
        CorruptBatchError: magic, length or counts are invalid.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise TruncatedBatchError("the batch header is cut short", position=position)
    header = BatchHeader(*HEADER.unpack_from(buffer, position), position=position)
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic byte is {header.magic}, not {MAGIC}", position=position)
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptBatchError(f"batch length is {header.batch_length}", position=position)
    if header.record_count < 0 or header.last_offset_delta < 0 or header.base_offset < 0:
        raise CorruptBatchError("a count or an offset is negative", position=position)
    return header


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read a batch header; check that the batch is complete and its CRC-32C.

    Raises:
        TruncatedBatchError: the buffer ends inside the batch.
        CrcMismatchError: the CRC does not match.
        CorruptBatchError: the header is invalid.
    """
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise TruncatedBatchError("the batch is cut short", position=position)
    actual = crc32c.crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise CrcMismatchError(
            f"CRC-32C is {actual:#010x}, the batch says {header.crc:#010x}", position=position
        )
    return header


def check_produced(buffer: Buffer) -> list[BatchHeader]:
    """Check batches of a producer, which must fill ``buffer`` exactly; return headers.

    Raises:
        CorruptBatchError: there is no batch, or one is incomplete, corrupt, empty, of an
            unknown codec, or has offsets with gaps.
    """
    headers = _single_sound_batch(buffer)
    if headers:
        return headers
    position, end = 0, len(buffer)
    while position < end:
        header = check_batch(buffer, position)
        if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
            raise CorruptBatchError(
                f"{header.record_count} records do not fill last offset delta {header.last_offset_delta}",
                position=position,
            )
        # The smallest record has 7 bytes; a false count would let a reader over-allocate.
        if header.compression == 0 and header.record_count * 7 > header.size - HEADER_BYTES:
            raise CorruptBatchError(
                f"{header.record_count} records do not fit in {header.size} bytes", position=position
            )
        if header.attributes & ~_PRODUCER_ATTRIBUTES:
            raise CorruptBatchError(
                f"attributes are {header.attributes:#06x}; a producer has bits 0 to 5 only", position=position
            )
        if header.compression > Compression.ZSTD:
            raise CorruptBatchError(f"codec {header.compression} does not exist", position=position)
        headers.append(header)
        position += header.size
    if not headers:
        raise CorruptBatchError("there is no batch")
    return headers


def _single_sound_batch(buffer: Buffer) -> list[BatchHeader]:
    """Return the header of the one batch that fills ``buffer``.

    Nothing if it is anything else, or unsound.

    It is what nearly every request has: all conditions of ``check_produced`` in one pass, without an error.
    """
    size = len(buffer)
    if size < HEADER_BYTES:
        return []
    fields = HEADER.unpack_from(buffer)
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = fields
    if (
        length + LOG_OVERHEAD_BYTES != size
        or magic != MAGIC
        or base_offset < 0
        or count < 1
        or last_delta != count - 1
        or attributes & ~_PRODUCER_ATTRIBUTES
        or attributes & _COMPRESSION_MASK > _CODEC_MAX
        or (not attributes & _COMPRESSION_MASK and count * 7 > size - HEADER_BYTES)
        or crc32c.crc32c(memoryview(buffer)[CRC_START:]) != crc
    ):
        return []
    return [BatchHeader(*fields)]


def assign_offsets(batch: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; they are outside the CRC."""
    _OFFSET.pack_into(batch, position, base_offset)
    _EPOCH.pack_into(batch, position + LOG_OVERHEAD_BYTES, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, header: BatchHeader, timestamp_ms: int) -> None:
    """Set the broker's timestamp in place and update the CRC."""
    _set_times(batch, header, header.attributes | _LOG_APPEND_TIME, timestamp_ms)


def settle_create_time(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Correct contradictory timestamps of a producer in place and update the CRC.

    - The max timestamp is at least the base timestamp, the time of the first record.
    - librdkafka sends base timestamp -1 and max timestamp 0 for records without a time;
      the max timestamp becomes -1, as other clients send it.
    - The bit for log-append time is cleared, because only the broker sets it.

    A max timestamp that is merely wrong is kept (``docs/formats/segment.md``).
    """
    base_timestamp, max_timestamp = header.base_timestamp, header.max_timestamp
    if 0 <= base_timestamp <= max_timestamp and not header.attributes & _LOG_APPEND_TIME:
        return
    newest = max(max_timestamp, base_timestamp)
    if base_timestamp < 0 and newest <= 0:
        newest = NO_TIMESTAMP
    if newest != max_timestamp or header.is_log_append_time:
        _set_times(batch, header, header.attributes & ~_LOG_APPEND_TIME, newest)


def _set_times(
    batch: bytearray | memoryview, header: BatchHeader, attributes: int, max_timestamp: int
) -> None:
    start = header.position
    struct.pack_into(">h", batch, start + 21, attributes)
    struct.pack_into(">q", batch, start + 35, max_timestamp)
    header.attributes, header.max_timestamp = attributes, max_timestamp
    header.crc = crc32c.crc32c(memoryview(batch)[start + CRC_START : start + header.size])
    _CRC.pack_into(batch, start + 17, header.crc)


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the headers of complete batches from ``position``; skip a truncated last one.

    Raises:
        CorruptBatchError: a header is invalid.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if position + header.size > end:
            return
        yield header
        position += header.size


def last_position(buffer: Buffer) -> int:
    """Return where the last batch of ``buffer`` begins, by the lengths alone; -1 if there is none.

    Raises:
        CorruptBatchError: a length is invalid.
    """
    position, end, last = 0, len(buffer) - HEADER_BYTES, -1
    length_at = _LENGTH.unpack_from
    while position <= end:
        last = position
        (length,) = length_at(buffer, position + 8)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise CorruptBatchError(f"batch length is {length}", position=position)
        position += LOG_OVERHEAD_BYTES + length
    return last


@cache
def load_codec() -> Any:
    """Import aiokafka's compiled codec, which has no type information.

    The first batch that is built or decoded does it, which takes 0.1 s; a program whose event loop must not wait calls
    it before.
    """
    from aiokafka.record import _crecords

    return _crecords


# The compiled builder rejects records past its size limit; the topic's limit is the real one.
_NO_LIMIT = 1 << 30


class BatchBuilder:
    """Builds one batch of records.

    Offsets are relative to the base offset, which the broker assigns. ``size`` is the
    uncompressed size so far, in bytes. Control batches are for the broker (``control_record``).
    """

    __slots__ = ("_append", "_builder", "_codec", "_is_control", "_shift_ms", "count")

    def __init__(
        self,
        *,
        compression: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        self._codec = compression
        self._is_control = is_control
        self._builder = load_codec().DefaultRecordBatchBuilder(
            2, 0, is_transactional, producer_id, producer_epoch, base_sequence, _NO_LIMIT
        )
        self._append = self._builder.append
        self._shift_ms = 0
        self.count: int = 0

    def append(
        self,
        *,
        timestamp_ms: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        offset_delta: int | None = None,
    ) -> None:
        """Append a record; ``offset_delta`` is for compacted batches, whose offsets have gaps."""
        delta = self.count if offset_delta is None else offset_delta
        if not self.count:
            self._shift_ms = _shift_ms(timestamp_ms)
        self._append(
            delta,
            timestamp_ms + self._shift_ms,
            key,
            value,
            headers if type(headers) is list else list(headers),
        )
        self.count += 1

    @property
    def size(self) -> int:
        return cast("int", self._builder.size())

    def build(self) -> bytearray:
        """Build the batch with base offset 0, leader epoch -1 and its CRC.

        Raises:
            ValueError: no record was appended.
        """
        if not self.count:
            raise ValueError("a batch needs at least one record")
        batch: bytearray = self._builder.build()
        if self._shift_ms:
            _shift_back(batch, self._shift_ms)
        if self._codec is not Compression.NONE:
            batch = _compressed(batch, self._codec)
        if self._is_control:
            _add_attributes(batch, _CONTROL)
        return batch


def _shift_ms(first_timestamp_ms: int) -> int:
    """Return what to add to the timestamps while the compiled builder has them.

    The builder takes -1, which a record without a timestamp has, for "no first timestamp yet".
    """
    return 1 if first_timestamp_ms == -1 else 0


def _shift_back(batch: bytearray, shift_ms: int) -> None:
    """Subtract ``shift_ms`` from the timestamps of an uncompressed batch.

    Those of its records are relative to that of the header.
    """
    first, largest = _TIMESTAMPS.unpack_from(batch, _TIMESTAMPS_START)
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_START, first - shift_ms, largest - shift_ms)
    _add_attributes(batch, 0)


def _compressed(batch: bytearray, codec: Compression) -> bytearray:
    body = compress(codec, bytes(memoryview(batch)[HEADER_BYTES:]))
    out = bytearray(batch[:HEADER_BYTES])
    out += body
    struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD_BYTES)
    _add_attributes(out, codec)
    return out


def _add_attributes(batch: bytearray, bits: int) -> None:
    """Set ``bits`` in the attributes, and the CRC that covers them."""
    struct.pack_into(">h", batch, CRC_START, int.from_bytes(batch[21:23], "big") | bits)
    _CRC.pack_into(batch, 17, crc32c.crc32c(memoryview(batch)[CRC_START:]))


def build_values(values: Iterable[bytes], timestamp_ms: int) -> bytearray:
    """Build a batch of values without keys: the hot path of the simple binary produce."""
    no_headers: list[tuple[str, bytes | None]] = []
    return build_rows([(timestamp_ms, None, value, no_headers) for value in values])


Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def build_rows(
    rows: Sequence[Row],
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Build an uncompressed batch of rows ``(timestamp in ms, key, value, headers)``.

    It does less work per record than ``BatchBuilder``.
    """
    builder = load_codec().DefaultRecordBatchBuilder(
        2, 0, is_transactional, producer_id, producer_epoch, base_sequence, _NO_LIMIT
    )
    append = builder.append
    if rows and rows[0][0] == -1:
        shift_ms = _shift_ms(-1)
        for index, (timestamp_ms, key, value, headers) in enumerate(rows):
            append(index, timestamp_ms + shift_ms, key, value, headers)
        batch = cast("bytearray", builder.build())
        _shift_back(batch, shift_ms)
        return batch
    for index, (timestamp_ms, key, value, headers) in enumerate(rows):
        append(index, timestamp_ms, key, value, headers)
    return cast("bytearray", builder.build())


def decode_records(batch: Buffer, header: BatchHeader | None = None) -> list[RecordView]:
    """Decode all records of the batch at ``header.position`` (or at byte 0).

    It does *not* check the CRC (``check_batch`` does), but it checks the records.

    Raises:
        CorruptBatchError: records do not parse, or their number differs from the header.
    """
    header = header or read_header(batch)
    return [
        record for records in decode_slices(batch, header, header.record_count or 1) for record in records
    ]


def first_record(batch: Buffer, *, from_offset: int = 0, timestamp_ms: int) -> RecordView | None:
    """Find the first record of the batch at byte 0 at or after an offset and a time.

    It decodes in slices, because a small batch may hold millions of records.

    Raises:
        CorruptBatchError: as for ``decode_records``, for the records before it.
    """
    for records in decode_slices(batch, read_header(batch), _RECORDS_PER_SLICE):
        for record in records:
            if record.offset >= from_offset and record.timestamp >= timestamp_ms:
                return record
    return None


def decode_slices(batch: Buffer, header: BatchHeader, size: int) -> Iterator[list[RecordView]]:
    """Decode as ``decode_records``, but yield lists of at most ``size`` records."""
    raw, start = plain_batch(batch, header), header.position
    left = header.record_count
    try:
        # The codec's iterator may be started only once, but islice would start it each time.
        records: Iterator[RecordView] = chain(
            cast("Iterator[RecordView]", load_codec().DefaultRecordBatch(raw))
        )
        while True:
            try:
                part = list(islice(records, size))
            except UnicodeDecodeError:
                records = lenient_records(
                    bytes(raw),
                    HEADER_BYTES,
                    range(header.record_count - left, header.record_count),
                    base_offset=header.base_offset,
                    base_timestamp=header.base_timestamp,
                    append_time=header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None,
                )
                part = cast("list[RecordView]", list(islice(records, size)))
            if not part:
                break
            left -= len(part)
            yield part
    except CorruptBatchError:
        raise
    except Exception as error:  # the compiled codec raises half a dozen unrelated types
        raise CorruptBatchError(f"records do not parse: {error}", position=start) from error
    if left:
        raise CorruptBatchError(
            f"{header.record_count - left} records where the header says {header.record_count}",
            position=start,
        )


def plain_size_max(batch: Buffer, header: BatchHeader) -> int:
    """Return an upper bound of the decompressed size of a batch, in bytes.

    Nothing is decompressed; see ``decompressed_size_max``.
    """
    if not header.compression:
        return header.size
    start = header.position + HEADER_BYTES
    body = memoryview(batch)[start : header.position + header.size]
    try:
        return HEADER_BYTES + decompressed_size_max(Compression(header.compression), body)
    except ValueError:
        # There is no such codec.
        return header.size


def plain_batch(batch: Buffer, header: BatchHeader) -> bytes:
    """Return the batch at ``header.position`` decompressed, with its CRC unchanged; ``batch`` itself if it is that.

    Raises:
        CorruptBatchError: the body is invalid for its codec.
    """
    if type(batch) is not memoryview and header.size == len(batch) and not header.compression:
        # It may be a bytearray that nothing writes any more: a copy of a large one takes long.
        return cast("bytes", batch)
    start, end = header.position, header.position + header.size
    view = memoryview(batch)
    if not header.compression:
        return bytes(view[start:end])
    head = bytearray(view[start : start + HEADER_BYTES])
    struct.pack_into(">h", head, 21, header.attributes & ~_COMPRESSION_MASK)
    try:
        plain = decompress_after(
            head, Compression(header.compression), bytes(view[start + HEADER_BYTES : end])
        )
    except (DecompressionError, ValueError) as error:
        raise CorruptBatchError(str(error), position=header.position) from error
    if header.record_count * 7 > len(plain) - HEADER_BYTES:
        raise CorruptBatchError("more records than the body can hold", position=header.position)
    struct.pack_into(">i", plain, 8, len(plain) - LOG_OVERHEAD_BYTES)
    return cast("bytes", plain)
