"""Parquet files of a table, one or more per day, and local files that survive a power failure."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow.parquet as parquet
from pyiceberg.io import OutputFile
from pyiceberg.io import pyarrow as iceberg_arrow
from pyiceberg.io.pyarrow import (
    PyArrowFile,
    PyArrowFileIO,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from ..columns.shapes import fitted
from ..wire.arrow_types import Array, DataType, RecordBatch, np, pa

# Arrow bytes of a row group: readers hold one of each file.
_ROW_GROUP_BYTES = 32 * 1024 * 1024
# Arrow bytes that wait for their row groups, of all days of a table.
_WAITING_BYTES_MAX = 64 * 1024 * 1024
# Files that are written at once; the one that got no rows for longest ends before another begins.
_OPEN_MAX = 16
# Of the columns of a record: a dictionary of offsets, times and values is only work.
_WITH_DICTIONARY = ["partition", "timestamp_type", "key", "headers.list.element.key", "reason"]
_DAY_US = 24 * 3600 * 1_000_000
_EPOCH = date(1970, 1, 1)
_pq: Any = parquet
_iceberg: Any = iceberg_arrow


class _SyncedStream(io.BufferedWriter):
    """A file that is on the disk, with its name, once it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(io.FileIO(path, "wb"), 1024 * 1024)

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            _sync_directory(self._path.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _make_directory(path: Path) -> None:
    """Make a directory and those above it, each with a synced name."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        if not overwrite and path.exists():
            raise FileExistsError(f"{path} exists already")
        _make_directory(path.parent)
        return _SyncedStream(path)


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's files. A local one is synced before it is closed, because a catalog names it at once."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        file_system = cast("Any", self.fs_by_scheme(scheme, netloc))  # pyright: ignore[reportUnknownMemberType]
        return _SyncedFile(fs=file_system, location=location, path=path)


class _DayFile:
    """The file of a day that is being written, and its rows that wait; ``file`` is None before the first row group."""

    __slots__ = ("output", "path", "rows", "stream", "waiting", "writer")

    def __init__(self) -> None:
        self.rows: list[RecordBatch] = []
        self.waiting = 0
        self.path = ""
        self.output: OutputFile | None = None
        self.stream: Any = None
        self.writer: Any = None


class DayFiles:
    """Writes rows of one table as files of the target size, none of which has rows of two days.

    ``times`` returns the column that decides about the day; without it the table has no partitions. Rows are kept
    until a row group is full, of all days together at most some MiB.
    """

    def __init__(self, table: Table, times: Callable[[RecordBatch], Array] | None) -> None:
        self.is_kept: bool = False
        self._times = times
        self._target_bytes = int(table.properties["write.target-file-size-bytes"])
        # By day, that which got rows last at the end.
        self._open: dict[int | None, _DayFile] = {}
        self._waiting = 0
        self._done: list[DataFile] = []
        self._begun: list[str] = []
        self.use(table)

    def add(self, rows: RecordBatch) -> None:
        """Add rows, whose columns are those of the table."""
        if not rows.num_rows:
            return
        for day, some in self._by_day(rows):
            open_file = self._open.pop(day, None) or _DayFile()
            self._open[day] = open_file
            open_file.rows.append(some)
            open_file.waiting += some.nbytes
            self._waiting += some.nbytes
            if open_file.waiting >= _ROW_GROUP_BYTES:
                self._write(day)
        while self._waiting > _WAITING_BYTES_MAX:
            self._write(max(self._open, key=lambda day: self._open[day].waiting))

    def use(self, table: Table) -> None:
        """End all files, and begin others with the columns that the table has now."""
        self._end_all()
        self._table = table
        self._schema = sanitize_column_names(table.schema())
        self._arrow = _iceberg.schema_to_pyarrow(self._schema)

    def finish(self) -> list[DataFile]:
        """Write what waits, close all files and return them."""
        self._end_all()
        done, self._done = self._done, []
        return done

    def _end_all(self) -> None:
        for day in list(self._open):
            self._write(day)
            self._end(day)

    def discard(self) -> None:
        """Delete all files, if no snapshot names them."""
        if self.is_kept:
            return
        for open_file in self._open.values():
            if open_file.stream is not None:
                with suppress(OSError):
                    open_file.stream.close()
        for path in self._begun:
            with suppress(OSError):
                self._table.io.delete(path)

    def _by_day(self, rows: RecordBatch) -> Iterator[tuple[int | None, RecordBatch]]:
        if self._times is None:
            yield None, rows
            return
        times = self._times(rows)
        is_null = times.is_null().to_numpy(zero_copy_only=False)
        micros = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        days = np.floor_divide(micros, _DAY_US)
        if not is_null.any() and days[0] == days[-1] and (days == days[0]).all():
            yield int(days[0]), rows
            return
        for day in np.unique(days[~is_null]):
            yield int(day), rows.filter(pa.array((days == day) & ~is_null))
        if is_null.any():
            yield None, rows.filter(pa.array(is_null))

    def _write(self, day: int | None) -> None:
        """Write the rows of a day that wait as a row group."""
        open_file = self._open[day]
        if not open_file.rows:
            return
        rows = pa.Table.from_batches(open_file.rows)
        columns = [self._stored(rows.column(field.name), target.type) for field, target in self._columns()]
        open_file.rows, self._waiting = [], self._waiting - open_file.waiting
        open_file.waiting = 0
        writer = open_file.writer or self._begin(day, open_file)
        writer.write_table(pa.Table.from_arrays(columns, schema=self._arrow), row_group_size=rows.num_rows)
        if open_file.stream.tell() >= self._target_bytes:
            self._end(day)

    def _stored(self, column: Array, wanted: DataType) -> Array:
        if self._schema == self._table.schema():
            return column.cast(wanted)
        # Names that Avro does not allow are other ones in files. A cast would not find them, and make null of them.
        chunks = [fitted(pa.concat_arrays([chunk]), wanted, by_name=False) for chunk in column.chunks]
        return pa.chunked_array(chunks, wanted)

    def _columns(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._table.schema().fields, self._arrow, strict=True)

    def _begin(self, day: int | None, open_file: _DayFile) -> Any:
        begun = [other for other, file in self._open.items() if file.writer is not None]
        if len(begun) >= _OPEN_MAX:
            self._write(begun[0])
            self._end(begun[0])
        name = f"{uuid4()}.parquet"
        directory = "" if self._times is None else f"{self._table.spec().fields[0].name}={_shown(day)}/"
        open_file.path = f"{self._table.location()}/data/{directory}{name}"
        self._begun.append(open_file.path)
        open_file.output = self._table.io.new_output(open_file.path)
        open_file.stream = open_file.output.create(overwrite=True)
        open_file.writer = _pq.ParquetWriter(
            open_file.stream,
            schema=self._arrow,
            compression="zstd",
            use_dictionary=_WITH_DICTIONARY if "offset" in self._arrow.names else True,
            store_decimal_as_integer=True,
        )
        return open_file.writer

    def _end(self, day: int | None) -> None:
        """Close the file of a day, if it was begun."""
        open_file = self._open.pop(day, None)
        if open_file is None or open_file.writer is None:
            return
        open_file.writer.close()
        size = open_file.stream.tell()
        open_file.stream.close()
        statistics: Any = _iceberg.data_file_statistics_from_parquet_metadata(
            parquet_metadata=open_file.writer.writer.metadata,
            stats_columns=compute_statistics_plan(self._schema, self._table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(self._schema),
        )
        self._done.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=open_file.path,
                file_format=FileFormat.PARQUET,
                partition=Record() if self._times is None else Record(day),
                file_size_in_bytes=size,
                sort_order_id=None,
                spec_id=self._table.metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )


def _shown(day: int | None) -> str:
    return "null" if day is None else (_EPOCH + timedelta(days=day)).isoformat()
