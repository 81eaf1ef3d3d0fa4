"""Read the records of a topic as a table of Arrow batches, while the statement runs; values are decoded if needed.

DuckDB hands a dataset of pyarrow the columns and the conditions that it needs. So only these columns are decoded, and
only the partitions and offsets are read that can have such records; Arrow itself says which, by what it takes a
partition of a dataset to guarantee.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from ..wire import sql_frames as frames
from ..wire.arrow import ARROW, Decoder, arrow_schema_of
from ..wire.arrow_types import RecordBatch, Schema, pa
from .files import BrokerFile, is_local, path_of
from .link import Link
from .manifests import DataFile

if TYPE_CHECKING:
    from .values import Values

pc: Any = pyarrow.compute
ds: Any = pyarrow.dataset
fs: Any = pyarrow.fs
pq: Any = pyarrow.parquet

COLUMNS = ("partition", "offset", "timestamp", "key", "headers", "value")
SCHEMA = arrow_schema_of([(name, True) for name in COLUMNS])
_PARTITION, _OFFSET, _TIMESTAMP = (pc.field(name) for name in ("partition", "offset", "timestamp"))
# A record without a timestamp has this one, and null in its column.
_NO_TIMESTAMP = pa.scalar(-1000, pa.int64()).cast(ARROW["timestamp"])
_TIME_MAX_MS = 2**53
_FORMAT, _FILES = ds.ParquetFileFormat(), fs.LocalFileSystem()


# The names of columns of values, which no column of a record has.
_FIELD, ERROR = "field ", "error"
_FILE_ROWS = 4096


def field_name(name: str) -> str:
    """Return the name by which a log has a column of its values."""
    return _FIELD + name


def log_of(
    link: Link,
    index: int,
    table: frames.Table,
    values: Values | None = None,
    files: Sequence[DataFile] = (),
    errors: Sequence[DataFile] = (),
) -> Any:
    """Return the records of a topic as a dataset of pyarrow; ``index`` is the place of ``table`` in the statement.

    With ``values`` it has their columns, too, and those of ``files`` and ``errors``, in which values are bytes.
    """
    return _Log(link, index, table, values, files, errors)


class _Log(ds.InMemoryDataset):
    """The records of one topic that were visible when the statement began.

    A dataset of which DuckDB calls ``scanner``, once for each time that the statement names the topic.
    """

    def __init__(
        self,
        link: Link,
        index: int,
        table: frames.Table,
        values: Values | None,
        files: Sequence[DataFile],
        errors: Sequence[DataFile],
    ) -> None:
        schema = SCHEMA
        if values is not None:
            fields = [pa.field(field_name(field.name), field.type) for field in values.columns]
            schema = pa.schema([*SCHEMA, *fields, pa.field(ERROR, pa.string())])
        super().__init__([], schema=schema)
        self._link = link
        self._index = index
        self._table = table
        self._values = values
        self._files = files
        self._errors = errors

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scan:  # noqa: A002
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return _Scan(pa.RecordBatchReader.from_batches(schema, self._batches(names, filter)))

    def _batches(self, columns: list[str], condition: Any) -> Iterator[RecordBatch]:
        # The text of a condition names each column that it needs.
        text = "" if condition is None else str(condition)
        needed = {name for name in self.schema.names if name in columns or name in text}
        is_decoded = not needed.issubset(COLUMNS)
        stored = [name for name in COLUMNS if name in needed or (is_decoded and name in ("value", "headers"))]
        for rows in chain(self._from_files(stored, condition), self._from_log(stored, condition)):
            for found in self._with_values(rows) if is_decoded else (rows,):
                if condition is not None:
                    found = found.filter(condition)
                if found.num_rows:
                    yield found.select(columns)

    def _from_log(self, columns: list[str], condition: Any) -> Iterator[RecordBatch]:
        decoded = arrow_schema_of([(name, True) for name in columns])
        for partition, start, end in self._ranges(condition):
            decoder = Decoder(topic=self._table.name, partition=partition, schema=decoded)
            offset = start
            while offset < end:
                request = frames.Fetch(self._index, partition, offset, end)
                fetched = self._link.ask(request, frames.Fetched)
                yield from map(_with_nulls, decoder.decode(fetched.batches, offset, end))
                offset = fetched.next_offset

    def _from_files(self, columns: list[str], condition: Any) -> Iterator[RecordBatch]:
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        for file in self._files:
            yield from self._rows(file, schema, condition)
        if self._errors and self._table.snapshot is not None:
            # Errors are committed before the records beside them: they may be ahead.
            ends = self._table.snapshot.offsets
            names = dict.fromkeys(("partition", "offset", *columns))
            placed = pa.schema([SCHEMA.field(name) for name in names])
            for file in self._errors:
                for rows in self._rows(file, placed, None):
                    places = zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
                    is_before = [offset < ends.get(partition, 0) for partition, offset in places]
                    yield rows.filter(pa.array(is_before)).select(columns)

    def _rows(self, file: DataFile, schema: Schema, condition: Any) -> Iterator[RecordBatch]:
        source = path_of(file) if is_local(file) else BrokerFile(self._link, self._index, file)
        with pq.ParquetFile(source) as opened:
            numbers = range(opened.num_row_groups)
            if condition is not None:
                groups = [_guarantee(opened.metadata.row_group(number)) for number in numbers]
                numbers = _possible(condition, groups, self.schema)
            for rows in opened.iter_batches(_FILE_ROWS, row_groups=list(numbers), columns=schema.names):
                yield rows.select(schema.names).cast(schema)

    def _with_values(self, rows: RecordBatch) -> Iterator[RecordBatch]:
        assert self._values is not None
        names = [field_name(field.name) for field in self._values.columns]
        for some, values, reasons in self._values.decoded(rows):
            fields = [pc.struct_field(values, index) for index in range(len(names))]
            yield pa.RecordBatch.from_arrays(
                [*some.columns, *fields, reasons], names=[*some.schema.names, *names, ERROR]
            )

    def _ranges(self, condition: Any) -> list[tuple[int, int, int]]:
        """Return the partitions and offsets that can have records for which ``condition`` holds."""
        ranges = [each for each in self._table.partitions if each[1] < each[2]]
        if condition is None or not ranges:
            return ranges
        guarantees = [
            (number == _PARTITION) & (first <= _OFFSET) & (end > _OFFSET) for number, first, end in ranges
        ]
        ranges = [ranges[index] for index in _possible(condition, guarantees, self.schema)]
        if not ranges:
            return []
        lowest, highest = min(each[1] for each in ranges), max(each[2] for each in ranges)
        low = _first(lowest, highest, lambda offset: self._can_have(condition, offset >= _OFFSET))
        high = _first(low, highest, lambda offset: not self._can_have(condition, offset <= _OFFSET))
        starts = {number: max(first, low) for number, first, _ in ranges}
        if not self._can_have(condition, _TIMESTAMP.is_null()):
            begin_ms = _first(
                -_TIME_MAX_MS, _TIME_MAX_MS, lambda ms: self._can_have(condition, _time(ms) >= _TIMESTAMP)
            )
            # Times before 1970 would be special positions of a look-up.
            if begin_ms > 0:
                request = frames.Seek(self._index, list(starts), begin_ms)
                sought = self._link.ask(request, frames.Sought).offsets
                for number, offset in zip(list(starts), sought, strict=True):
                    starts[number] = high if offset < 0 else max(starts[number], offset)
        return [(number, starts[number], min(end, high)) for number, _, end in ranges]

    def _can_have(self, condition: Any, guarantee: Any) -> bool:
        return bool(_possible(condition, [guarantee], self.schema))


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


def _guarantee(group: Any) -> Any:
    """Return what all rows of a row group have in common, by its statistics."""
    found = _PARTITION.is_valid()
    for number in range(group.num_columns):
        column = group.column(number)
        field = {"partition": _PARTITION, "offset": _OFFSET, "timestamp": _TIMESTAMP}.get(
            column.path_in_schema
        )
        known = None if field is None else column.statistics
        if known is not None and known.has_min_max and not known.null_count:
            low, high = (
                pa.scalar(each, SCHEMA.field(column.path_in_schema).type) for each in (known.min, known.max)
            )
            found = found & (low <= field) & (high >= field)
    return found


def _possible(condition: Any, guarantees: list[Any], schema: Schema) -> list[int]:
    """Return for which of ``guarantees`` there can be a record for which ``condition`` holds."""
    fragments = [
        _FORMAT.make_fragment(str(index), _FILES, partition_expression=guarantee)
        for index, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, _FILES)
    return [int(fragment.path) for fragment in dataset.get_fragments(condition)]
