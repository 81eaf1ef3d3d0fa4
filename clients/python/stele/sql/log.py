"""Read the records of a topic as a table of Arrow batches, while the statement runs.

DuckDB hands a dataset of pyarrow the columns and the conditions that it needs. So only these columns are decoded, and
only the partitions and offsets are read that can have such records; Arrow itself says which, by what it takes a
partition of a dataset to guarantee.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs

from ..wire import sql_frames as frames
from ..wire.arrow import ARROW, Decoder, arrow_schema_of
from ..wire.arrow_types import RecordBatch, pa
from .link import Link

pc: Any = pyarrow.compute
ds: Any = pyarrow.dataset
fs: Any = pyarrow.fs

COLUMNS = ("partition", "offset", "timestamp", "key", "headers", "value")
SCHEMA = arrow_schema_of([(name, True) for name in COLUMNS])
_PARTITION, _OFFSET, _TIMESTAMP = (pc.field(name) for name in ("partition", "offset", "timestamp"))
# A record without a timestamp has this one, and null in its column.
_NO_TIMESTAMP = pa.scalar(-1000, pa.int64()).cast(ARROW["timestamp"])
_TIME_MAX_MS = 2**53
_FORMAT, _FILES = ds.ParquetFileFormat(), fs.LocalFileSystem()


def log_of(link: Link, index: int, table: frames.Table) -> Any:
    """Return the records of a topic as a dataset of pyarrow; ``index`` is the place of ``table`` in the statement."""
    return _Log(link, index, table)


class _Log(ds.InMemoryDataset):
    """The records of one topic that were visible when the statement began.

    A dataset of which DuckDB calls ``scanner``, once for each time that the statement names the topic.
    """

    def __init__(self, link: Link, index: int, table: frames.Table) -> None:
        super().__init__([], schema=SCHEMA)
        self._link = link
        self._index = index
        self._table = table

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scan:  # noqa: A002
        names = list(COLUMNS if columns is None else columns)
        schema = pa.schema([SCHEMA.field(name) for name in names])
        return _Scan(pa.RecordBatchReader.from_batches(schema, self._batches(names, filter)))

    def _batches(self, columns: list[str], condition: Any) -> Iterator[RecordBatch]:
        # The text of a condition names each column that it needs.
        text = "" if condition is None else str(condition)
        decoded = arrow_schema_of([(name, True) for name in COLUMNS if name in columns or name in text])
        for partition, start, end in self._ranges(condition):
            decoder = Decoder(topic=self._table.name, partition=partition, schema=decoded)
            offset = start
            while offset < end:
                request = frames.Fetch(self._index, partition, offset, end)
                fetched = self._link.ask(request, frames.Fetched)
                for batch in decoder.decode(fetched.batches, offset, end):
                    rows = _with_nulls(batch)
                    if condition is not None:
                        rows = rows.filter(condition)
                    if rows.num_rows:
                        yield rows.select(columns)
                offset = fetched.next_offset

    def _ranges(self, condition: Any) -> list[tuple[int, int, int]]:
        """Return the partitions and offsets that can have records for which ``condition`` holds."""
        ranges = [each for each in self._table.partitions if each[1] < each[2]]
        if condition is None or not ranges:
            return ranges
        guarantees = [
            (number == _PARTITION) & (first <= _OFFSET) & (end > _OFFSET) for number, first, end in ranges
        ]
        ranges = [ranges[index] for index in _possible(condition, guarantees)]
        if not ranges:
            return []
        lowest, highest = min(each[1] for each in ranges), max(each[2] for each in ranges)
        low = _first(lowest, highest, lambda offset: bool(_possible(condition, [offset >= _OFFSET])))
        high = _first(low, highest, lambda offset: not _possible(condition, [offset <= _OFFSET]))
        starts = {number: max(first, low) for number, first, _ in ranges}
        if not _possible(condition, [_TIMESTAMP.is_null()]):
            begin_ms = _first(
                -_TIME_MAX_MS, _TIME_MAX_MS, lambda ms: bool(_possible(condition, [_time(ms) >= _TIMESTAMP]))
            )
            # Times before 1970 would be special positions of a look-up.
            if begin_ms > 0:
                request = frames.Seek(self._index, list(starts), begin_ms)
                sought = self._link.ask(request, frames.Sought).offsets
                for number, offset in zip(list(starts), sought, strict=True):
                    starts[number] = high if offset < 0 else max(starts[number], offset)
        return [(number, starts[number], min(end, high)) for number, _, end in ranges]


class _Scan:
    """What DuckDB takes from a scanner."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def to_reader(self) -> Any:
        return self._reader


def _time(ms: int) -> Any:
    return pa.scalar(ms * 1000, pa.int64()).cast(ARROW["timestamp"])


def _with_nulls(rows: RecordBatch) -> RecordBatch:
    index = rows.schema.get_field_index("timestamp")
    if index < 0:
        return rows
    times = rows.column(index)
    missing = pc.equal(times, _NO_TIMESTAMP)
    if not pc.any(missing).as_py():
        return rows
    return rows.set_column(
        index, SCHEMA.field("timestamp"), pc.if_else(missing, pa.scalar(None, times.type), times)
    )


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from ``low`` for which ``holds``, which stays so after it; ``high`` if there is none."""
    return low + bisect_left(range(low, high), True, key=holds)


def _possible(condition: Any, guarantees: list[Any]) -> list[int]:
    """Return for which of ``guarantees`` there can be a record for which ``condition`` holds."""
    fragments = [
        _FORMAT.make_fragment(str(index), _FILES, partition_expression=guarantee)
        for index, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, SCHEMA, _FORMAT, _FILES)
    return [int(fragment.path) for fragment in dataset.get_fragments(condition)]
