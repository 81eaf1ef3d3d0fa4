"""Decode stored batches into Arrow RecordBatches.

The columns are those of spark-sql-kafka.

Needs the extra ``arrow``. The CRC of each batch is checked. The records of many batches at
once are found by numpy (``many_records``); otherwise aiokafka's compiled codec decodes them,
in about 0.3 µs each, and numpy and Arrow do whatever can be done for many at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from .arrow_types import Array, DataType, RecordBatch, Schema, np, pa
from .many_records import Records, binary_array, find_records, only
from .record_batch import BatchHeader, RecordView, check_batch, decode_slices, plain_batch, read_header

# Rows per Arrow batch: large enough to make the cost per batch negligible, small enough for
# the CPU cache (measured). A batch of large records is closed earlier, by its bytes.
ROWS_WANTED = 4096
# The most bytes of keys, values and headers in an Arrow batch; a larger record is alone in its batch.
# They are counted decoded, because a stored batch of two kilobytes may hold 64 MiB.
ARROW_BYTES_MAX = 8 * 1024 * 1024
# Records that are looked for at once: each takes some hundred bytes meanwhile.
_RUN_RECORDS_MAX = 200_000
# A lone value of this size or more is not copied.
_LARGE_BYTES = 1024 * 1024
# What Arrow takes for a header beside its name and value: two offsets and the bits of validity.
_HEADER_BYTES = 9
_Headers = list[tuple[str, bytes | None]] | None
# A header, and the batch without compression.
_Batch = tuple[BatchHeader, bytes | memoryview]

CREATE_TIME, LOG_APPEND_TIME = 0, 1
# The largest ms that fit in 64 bits as microseconds.
_TIMESTAMP_MAX_MS = (2**63 - 1) // 1000

HEADERS_ARROW = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW: dict[str, DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_ARROW,
}


@cache
def load_conversions() -> None:
    """Have Arrow import what its first conversion does: pandas, if it is installed, which takes a second."""
    pa.array([])


def arrow_schema_of(columns: Sequence[tuple[str, bool]]) -> Schema:
    """Return the Arrow schema of columns, given as names of ``ARROW`` and nullability."""
    return pa.schema([pa.field(name, ARROW[name], nullable=nullable) for name, nullable in columns])


class Decoder:
    """Decodes batches of one partition into rows with the columns of ``schema``.

    It caches constant columns, so create one per task.
    """

    def __init__(self, *, topic: str, partition: int, schema: Schema) -> None:
        self._topic = topic
        self._partition = partition
        self.schema = schema
        self._wanted = frozenset(schema.names)
        self._constants: dict[str, Array] = {}
        self._gathered = _Gathered(self._wanted)

    def decode(self, batches: bytes | bytearray, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the records with ``start`` <= offset < ``end`` as Arrow batches.

        Raises:
            CorruptBatchError: a CRC does not match, or records do not parse.
        """
        view, run, size, count = memoryview(batches), list[_Batch](), 0, 0
        for header in _data_headers(batches, start, end):
            position = header.position
            plain = (
                plain_batch(batches, header)
                if header.compression
                else view[position : position + header.size]
            )
            size, count = size + len(plain), count + header.record_count
            if run and (size > ARROW_BYTES_MAX or count > _RUN_RECORDS_MAX):
                yield from self._decode_run(run, start, end)
                run, size, count = [], len(plain), header.record_count
            run.append((header, plain))
        yield from self._decode_run(run, start, end)
        rows = self.rest()
        if rows is not None:
            yield rows

    def _decode_run(self, run: Sequence[_Batch], start: int, end: int) -> Iterator[RecordBatch]:
        headers = [header for header, _ in run]
        found = find_records([plain for _, plain in run], headers) if len(run) > 1 else None
        if found is not None:
            rows = self.rest()
            if rows is not None:
                yield rows
            yield self._found(*found, headers, start, end)
            return
        for header, part in run:
            plain = bytes(part)
            for records in decode_slices(plain, read_header(plain), ROWS_WANTED):
                yield from self.add(header, _within(header, records, start, end), len(plain))

    def _found(
        self, data: Any, records: Records, headers: Sequence[BatchHeader], start: int, end: int
    ) -> RecordBatch:
        """Return records of batches with these headers, which have no headers of their own."""
        offsets = np.array([header.base_offset for header in headers])[records.batch] + records.offset_delta
        kept = (offsets >= start) & (offsets < end)
        offsets, records = offsets[kept], only(records, kept)
        count, batch = len(offsets), records.batch
        stamped = np.array([header.is_log_append_time for header in headers])[batch]

        def column(name: str) -> Array:
            match name:
                case "key" | "value":
                    return binary_array(data, records.key if name == "key" else records.value)
                case "offset":
                    return pa.array(offsets)
                case "timestamp":
                    times = np.array([header.base_timestamp for header in headers])[batch]
                    times += records.timestamp_delta
                    largest = np.array([header.max_timestamp for header in headers])
                    return _timestamps(np.where(stamped, largest[batch], times))
                case "timestampType":
                    return pa.array(np.where(stamped, LOG_APPEND_TIME, CREATE_TIME).astype(np.int32))
                case "headers":
                    return pa.nulls(count, HEADERS_ARROW)
                case _:
                    return self._constant(name, self._topic if name == "topic" else self._partition, count)

        return pa.RecordBatch.from_arrays([column(name) for name in self.schema.names], schema=self.schema)

    def add(self, header: BatchHeader, records: Sequence[RecordView], size_max: int) -> Iterator[RecordBatch]:
        """Add records of one stored batch, of at most ``size_max`` decoded bytes.

        Yields the Arrow batches that are full.
        """
        headers: list[_Headers] = []
        if "headers" in self._wanted:
            # Empty lists would take longer than the rest of the record.
            headers = [r.headers or None for r in records]
            size_max += _HEADER_BYTES * sum(map(len, filter(None, headers)))
        if self._gathered.size + size_max > ARROW_BYTES_MAX:
            # Only now, because it takes a call per record.
            first = size = 0
            for index, record in enumerate(records):
                record_size = _size_of(record)
                is_empty = not self._gathered.count and index == first
                if self._gathered.size + size + record_size > ARROW_BYTES_MAX and not is_empty:
                    self._gathered.add(header, records[first:index], headers[first:index], size)
                    yield self._take()
                    first, size = index, 0
                size += record_size
            records, headers, size_max = records[first:], headers[first:], size
        self._gathered.add(header, records, headers, size_max)
        if self._gathered.count >= ROWS_WANTED or self._gathered.size >= ARROW_BYTES_MAX:
            yield self._take()

    def rest(self) -> RecordBatch | None:
        """Return the records since the last Arrow batch; None if there are none."""
        return self._take() if self._gathered.count else None

    def release_memory(self) -> None:
        """Give back what Arrow keeps of freed memory."""
        pa.default_memory_pool().release_unused()

    def _take(self) -> RecordBatch:
        gathered, self._gathered = self._gathered, _Gathered(self._wanted)
        arrays = [self._column(name, gathered) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, gathered: _Gathered) -> Array:
        match name:
            case "key":
                return _binary(gathered.keys)
            case "value":
                return _binary(gathered.values)
            case "offset":
                return pa.array(np.concatenate(gathered.offsets))
            case "timestamp":
                return _timestamps(np.array(gathered.timestamps, np.int64))
            case "timestampType":
                return pa.array(np.concatenate(gathered.timestamp_types))
            case "headers":
                # Null for a record without headers, as in spark-sql-kafka.
                return _header_lists(gathered.headers)
            case "topic":
                return self._constant(name, self._topic, gathered.count)
            case _:
                return self._constant(name, self._partition, gathered.count)

    def _constant(self, name: str, value: str | int, count: int) -> Array:
        made = self._constants.get(name)
        if made is None or len(made) < count:
            made = self._constants[name] = pa.repeat(pa.scalar(value, ARROW[name]), max(count, ROWS_WANTED))
        return made.slice(0, count)


def _binary(values: list[bytes | None]) -> Array:
    alone = values[0] if len(values) == 1 else None
    if alone is None or len(alone) < _LARGE_BYTES:
        return pa.array(values, pa.binary())
    # Without a copy, which holds the interpreter for half a millisecond per MiB.
    offsets = np.array([0, len(alone)], dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(alone)])


class _Gathered:
    """The columns of the next Arrow batch.

    They are filled batch by batch: about a hundred record objects at a time stay in the
    CPU cache and reuse their memory, which is twice as fast as sixteen thousand.
    """

    __slots__ = (
        "_wanted",
        "count",
        "headers",
        "keys",
        "offsets",
        "size",
        "timestamp_types",
        "timestamps",
        "values",
    )

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self.count = 0
        self.size = 0
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[_Headers] = []
        self.timestamps: list[int] = []
        self.offsets: list[Any] = []
        self.timestamp_types: list[Any] = []

    def add(
        self, header: BatchHeader, records: Sequence[RecordView], headers: list[_Headers], size: int
    ) -> None:
        count, wanted = len(records), self._wanted
        if not count:
            return
        self.count += count
        self.size += size
        if "key" in wanted:
            self.keys += [r.key for r in records]
        if "value" in wanted:
            self.values += [r.value for r in records]
        if "headers" in wanted:
            self.headers += headers
        if "timestamp" in wanted:
            stamped = header.max_timestamp if header.is_log_append_time else None
            self.timestamps += [r.timestamp for r in records] if stamped is None else [stamped] * count
        if "timestampType" in wanted:
            kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
            self.timestamp_types.append(np.full(count, kind, np.int32))
        if "offset" in wanted:
            first = records[0].offset
            if records[-1].offset - first == count - 1:
                self.offsets.append(np.arange(first, first + count, dtype=np.int64))
            else:
                # Compaction leaves gaps.
                self.offsets.append(np.fromiter((r.offset for r in records), np.int64, count))


def _size_of(record: RecordView) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + _HEADER_BYTES
    return size


def _header_lists(headers: list[_Headers]) -> Array:
    """Return a column of headers, null for None, without a dictionary per header."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS_ARROW)
    counts = np.fromiter((len(pairs or ()) for pairs in headers), np.int32, len(headers))
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    # An offset that is null makes its list null.
    is_null = np.append(counts == 0, False)
    pairs = list(chain.from_iterable(filter(None, headers)))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.ListArray.from_arrays(
        pa.array(ends, mask=is_null),
        pa.StructArray.from_arrays([names, values], fields=list(HEADERS_ARROW.value_type)),
        type=HEADERS_ARROW,
    )


def _within(header: BatchHeader, records: list[RecordView], start: int, end: int) -> Sequence[RecordView]:
    if header.base_offset >= start and header.next_offset <= end:
        return records
    return [r for r in records if start <= r.offset < end]


def _data_headers(batches: bytes | bytearray, start: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of batches with records in a range, without those of control records; check all."""
    position, size = 0, len(batches)
    while position < size:
        header = check_batch(batches, position)
        position += header.size
        if header.is_control or header.last_offset < start:
            continue
        if header.base_offset >= end:
            break
        yield header


def _timestamps(values: Any) -> Array:
    # A record without a time has -1; a time out of the range of microseconds would overflow.
    np.clip(values, -_TIMESTAMP_MAX_MS, _TIMESTAMP_MAX_MS, out=values)
    values *= 1000
    return pa.array(values).view(ARROW["timestamp"])
