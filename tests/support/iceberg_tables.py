"""Iceberg tables as the process of a topic makes them: small, with the offsets of each snapshot in its summary."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import uuid4

import pyarrow as pa
import pyiceberg.io.pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.transforms import DayTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, TimestamptzType
from stele.iceberg.tables import OFFSETS, TOPIC_ID

DAY = datetime(2026, 11, 30, tzinfo=UTC)
IDS = {TOPIC_ID: "0b5f1a52-7a0e-4e9a-9d8e-2f1f6d2f0c11"}
_SCHEMA = Schema(
    NestedField(1, "partition", IntegerType(), required=False),
    NestedField(2, "offset", LongType(), required=False),
    NestedField(3, "timestamp", TimestamptzType(), required=False),
    NestedField(4, "value", BinaryType(), required=False),
)
_SPEC = PartitionSpec(PartitionField(3, 1000, DayTransform(), "timestamp_day"))
_arrow: Any = pyiceberg.io.pyarrow
_pa: Any = pa
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class HookedCatalog(SqlCatalog):
    """A catalog in which something happens right before or in the middle of a commit, once."""

    # Of the class, because pyiceberg writes metadata without an instance.
    before_commit: ClassVar[list[Callable[[], object]]] = []
    in_commit: ClassVar[list[Callable[[], object]]] = []

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        while self.before_commit:
            self.before_commit.pop()()
        step()
        committed = super().commit_table(table, requirements, updates)
        step()
        return committed

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        SqlCatalog._write_metadata(metadata, io, metadata_path)
        while HookedCatalog.in_commit:
            HookedCatalog.in_commit.pop()()


def catalog_in(folder: Path, kind: type[SqlCatalog] = SqlCatalog, /, **properties: str) -> SqlCatalog:
    warehouse = {"warehouse": f"file://{folder}/warehouse", **properties}
    catalog = kind("stele", uri=f"sqlite:///{folder}/catalog.sqlite", **warehouse)
    catalog.create_namespace_if_not_exists("stele")
    return catalog


def make_table(catalog: SqlCatalog, name: str = "orders", **properties: str) -> Table:
    return catalog.create_table(f"stele.{name}", _SCHEMA, partition_spec=_SPEC, properties=properties)


def append(
    table: Table,
    count: int,
    *,
    days: Sequence[datetime | None] = (DAY,),
    partition: int = 0,
    files: int = 1,
    **columns: Any,
) -> None:
    """Add the next ``count`` records of a partition in one snapshot, by turns on each of ``days``.

    Each day has ``files``. ``columns`` are the values of others than those of ``_SCHEMA``, by name.
    """
    table.refresh()
    offsets = offsets_of(table)
    begin = offsets.get(str(partition), 0)
    schema = _arrow.schema_to_pyarrow(table.schema(), include_field_ids=False)
    parts: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for number in range(count):
        day = days[number % len(days)]
        row = {
            "partition": partition,
            "offset": begin + number,
            "timestamp": day and day + timedelta(microseconds=number),
            "value": b"value %d" % (begin + number),
            **columns,
        }
        parts.setdefault((number % len(days), number % files), []).append(row)
    tasks = [
        WriteTask(
            uuid4(),
            number,
            table.schema(),
            _pa.Table.from_pylist(rows, schema=schema).to_batches(),
            partition_key=PartitionKey(
                [PartitionFieldValue(table.spec().fields[0], (day := days[place]) and (day - _EPOCH).days)],
                table.spec(),
                table.schema(),
            ),
        )
        for number, ((place, _), rows) in enumerate(parts.items())
    ]
    summary = {OFFSETS: json.dumps({**offsets, str(partition): begin + count}), **IDS}
    commit(table, summary, list(write_file(table.io, table.metadata, iter(tasks))))


def commit(table: Table, summary: dict[str, str], files: Iterable[DataFile] = ()) -> None:
    """Add files in one snapshot."""
    with (
        table.transaction() as transaction,
        transaction.update_snapshot(snapshot_properties=summary).fast_append() as added,
    ):
        for file in files:
            added.append_data_file(file)


def offsets_of(table: Table) -> dict[str, int]:
    """Return the offsets in the summary of the current snapshot."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return {}
    return json.loads(snapshot.summary.additional_properties[OFFSETS])


def scanned(table: Table, **given: Any) -> Any:
    """Return what a scan with these parameters finds, as an Arrow table."""
    return cast("Any", table.scan(**given)).to_arrow()


def rows_of(table: Table, snapshot_id: int | None = None) -> list[tuple[int, int]]:
    """Return partition and offset of all rows of a snapshot, sorted."""
    found = scanned(table, snapshot_id=snapshot_id, selected_fields=("partition", "offset"))
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def assert_whole(table: Table) -> None:
    """Check that each offset before those in the summary is in the table exactly once."""
    expected = [(int(name), offset) for name, end in offsets_of(table).items() for offset in range(end)]
    assert rows_of(table) == sorted(expected)


def files_of(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


# ── processes that die ──

# Of a process that is not to die, less than 0.
_steps_left = 0


def step() -> None:
    """Count a step of this process, and kill it at its last one."""
    global _steps_left
    _steps_left -= 1
    if not _steps_left:
        os.kill(os.getpid(), signal.SIGKILL)


def die_after(steps: int) -> None:
    global _steps_left
    _steps_left = steps


class DyingFileIO(PyArrowFileIO):
    """Files of which each use is a step."""

    def new_input(self, location: str) -> PyArrowFile:
        step()
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        step()
        return super().new_output(location)

    def delete(self, location: Any) -> None:
        step()
        super().delete(location)
