"""Batches as they lie in the log → Arrow RecordBatches, where the rows are needed: in the executors.

Each batch's CRC is checked and its records are decoded by aiokafka's compiled codec,
at about a third of a microsecond each; everything that can be made for many records
at once is made by numpy or Arrow. A broker that encoded Arrow would be one process
that pays for all readers; here each reader pays for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..wire.record_batch import BatchHeader, RecordView, check_batch, decode_records
from .arrow import Array, RecordBatch, Schema, np, pa
from .schema import ARROW, HEADERS_ARROW

# Rows of one Arrow batch: large enough that nothing is paid per batch, small enough that
# a few of them fit into the memory of a small executor. A batch of the log is never cut.
ROWS_WANTED = 16_384

CREATE_TIME, LOG_APPEND_TIME = 0, 1
# ms that still fit as microseconds.
_TIMESTAMP_MAX_MS = (2**63 - 1) // 1000


class Decoder:
    """Makes rows of one partition; ``columns`` are names of ``schema.COLUMNS``.

    Holds what is the same for every row, so it is made once for each task.
    """

    def __init__(self, *, topic: str, partition: int, schema: Schema) -> None:
        self._topic = topic
        self._partition = partition
        self._schema = schema
        self._constants: dict[str, Array] = {}

    def decode(self, batches: bytes, start: int, end: int) -> Iterator[RecordBatch]:
        """Rows of the records from offset ``start`` on and before ``end``.

        Raises:
            CorruptBatchError: a CRC does not match, or records do not parse.
        """
        gathered = _Gathered()
        position, size = 0, len(batches)
        while position < size:
            header = check_batch(batches, position)
            position += header.size
            if header.is_control or header.last_offset < start:
                continue
            if header.base_offset >= end:
                break
            gathered.add(header, _within(header, decode_records(batches, header), start, end))
            if gathered.count >= ROWS_WANTED:
                yield self._rows(gathered)
                gathered = _Gathered()
        if gathered.count:
            yield self._rows(gathered)

    def _rows(self, gathered: _Gathered) -> RecordBatch:
        arrays = [self._column(name, gathered) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, gathered: _Gathered) -> Array:
        records = gathered.records
        match name:
            case "key":
                return pa.array([r.key for r in records], pa.binary())
            case "value":
                return pa.array([r.value for r in records], pa.binary())
            case "offset":
                return pa.array(np.concatenate(gathered.offsets))
            case "timestamp":
                return _timestamps(gathered)
            case "timestampType":
                return pa.array(np.concatenate(gathered.timestamp_types))
            case "headers":
                return _headers(records)
            case "topic":
                return self._constant(name, self._topic, gathered.count)
            case _:
                return self._constant(name, self._partition, gathered.count)

    def _constant(self, name: str, value: str | int, count: int) -> Array:
        made = self._constants.get(name)
        if made is None or len(made) < count:
            made = self._constants[name] = pa.repeat(pa.scalar(value, ARROW[name]), max(count, ROWS_WANTED))
        return made.slice(0, count)


class _Gathered:
    """The records of the next Arrow batch, and what is known of them batch by batch."""

    __slots__ = ("count", "offsets", "records", "stamps", "timestamp_types")

    def __init__(self) -> None:
        self.count = 0
        self.records: list[RecordView] = []
        self.offsets: list[Any] = []
        self.timestamp_types: list[Any] = []
        # Where the broker has stamped a whole batch: (first row, row after the last, ms).
        self.stamps: list[tuple[int, int, int]] = []

    def add(self, header: BatchHeader, records: Sequence[RecordView]) -> None:
        count = len(records)
        if not count:
            return
        first = records[0].offset
        if records[-1].offset - first == count - 1:
            offsets = np.arange(first, first + count, dtype=np.int64)
        else:
            # Compaction leaves holes.
            offsets = np.fromiter((r.offset for r in records), np.int64, count)
        self.offsets.append(offsets)
        kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        self.timestamp_types.append(np.full(count, kind, np.int32))
        if header.is_log_append_time:
            self.stamps.append((self.count, self.count + count, header.max_timestamp))
        self.records += records
        self.count += count


def _within(header: BatchHeader, records: list[RecordView], start: int, end: int) -> Sequence[RecordView]:
    if header.base_offset >= start and header.next_offset <= end:
        return records
    return [r for r in records if start <= r.offset < end]


def _timestamps(gathered: _Gathered) -> Array:
    values = np.fromiter((r.timestamp for r in gathered.records), np.int64, gathered.count)
    for first, after, timestamp_ms in gathered.stamps:
        values[first:after] = timestamp_ms
    # A record without a time has -1; one that no calendar holds would wrap round.
    np.clip(values, -1, _TIMESTAMP_MAX_MS, out=values)
    values *= 1000
    return pa.array(values).view(ARROW["timestamp"])


def _headers(records: Sequence[RecordView]) -> Array:
    # Most records have none, and then the column is null, as in spark-sql-kafka.
    return pa.array(
        [[{"key": key, "value": value} for key, value in r.headers] if r.headers else None for r in records],
        HEADERS_ARROW,
    )
