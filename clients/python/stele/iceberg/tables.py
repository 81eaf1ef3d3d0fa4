"""Tables of the catalog: what a snapshot says of its offsets, and commits that depend on it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    ResolveError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import pyarrow as iceberg_arrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from sqlalchemy.exc import DBAPIError

from ..columns.shapes import RECORD, Misfit, plain
from ..wire.arrow_types import DataType, pa
from .errors import CommitConflict, IcebergError
from .options import CATALOG_NAME, WriterOptions

logger: logging.Logger = logging.getLogger("stele.iceberg")

_iceberg: Any = iceberg_arrow

NAMESPACE = "stele"
OFFSETS = "stele.offsets"
TOPIC_ID = "stele.topic-id"
# What the rows of a table are: key_value, value_schema, or errors.
ROWS = "stele.rows"
ERRORS_SUFFIX = "_errors"
# A catalog in PostgreSQL has 255 characters for a name, with what is added to it.
_NAME_MAX = 230

Rows = Literal["key_value", "value_schema", "errors"]

_PROPERTIES = {
    "format-version": "2",
    "write.target-file-size-bytes": str(128 * 1024 * 1024),
    # A commit that lost a race would be wrong: its rows may be in the other one.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


def open_catalog(options: WriterOptions) -> SqlCatalog:
    """Open the catalog; make it, and the namespace, if they are not there yet.

    Raises:
        IcebergError: the warehouse cannot be used.
    """
    properties = options.catalog_properties()
    try:
        catalog = SqlCatalog(CATALOG_NAME, **properties)
    except DBAPIError:
        # Another process has made its tables meanwhile.
        catalog = SqlCatalog(CATALOG_NAME, **properties)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(NAMESPACE)
    return catalog


def made_by_writer(table: Table) -> Snapshot | None:
    """Return the newest snapshot that says which offsets it has; None if the table has none.

    A later one without them rewrote files, and has the same records.

    Raises:
        IcebergError: there are snapshots, and none of them says so.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    while snapshot is not None:
        if snapshot.summary is not None and snapshot.summary.get(OFFSETS) is not None:
            return snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    raise IcebergError(
        f"no snapshot of table {table.name()[-1]} says which offsets it has, so that it cannot be continued: the snapshots "
        "of the writer were removed; rename or drop the table"
    )


def positions_of(table: Table) -> dict[int, int]:
    """Return the next offset of each partition of the topic that the newest snapshot has. Raises as above."""
    snapshot = made_by_writer(table)
    if snapshot is None or snapshot.summary is None:
        return {}
    offsets: dict[str, int] = json.loads(snapshot.summary[OFFSETS] or "{}")
    return {int(partition): offset for partition, offset in offsets.items()}


def count_of(table: Table) -> int:
    """Return how many rows the newest snapshot has."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKind:
    """The rows of a table, its first columns, and its partitions."""

    rows: Rows
    schema: Schema
    partitions: PartitionSpec

    def table_of(self, topic: str) -> str:
        return topic + ERRORS_SUFFIX if self.rows == "errors" else topic


def _fields(*names: str) -> list[NestedField]:
    """Return columns of a record; their ids are 1 and so on, those of headers are beyond."""
    header = StructType(
        NestedField(22, "key", StringType(), required=False),
        NestedField(23, "value", BinaryType(), required=False),
    )
    types: dict[str, IcebergType] = {
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestamptzType(),
        "timestamp_type": IntegerType(),
        "headers": ListType(element_id=21, element=header, element_required=False),
        "key": BinaryType(),
        "value": BinaryType(),
        "reason": StringType(),
    }
    return [NestedField(id_, name, types[name], required=False) for id_, name in enumerate(names, 1)]


def _by_day(name: str) -> PartitionSpec:
    # The time is the third column of a record.
    return PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=DayTransform(), name=name))


_RECORD = ("partition", "offset", "timestamp", "timestamp_type", "headers", "key")
KEY_VALUE = TableKind(
    rows="key_value", schema=Schema(*_fields(*_RECORD, "value")), partitions=_by_day("timestamp_day")
)
# The fields of values become columns when a value first has them.
VALUE_SCHEMA = TableKind(
    rows="value_schema",
    schema=Schema(NestedField(30, "_record", StructType(*_fields(*_RECORD)), required=False)),
    partitions=_by_day("_record_day"),
)
ERRORS = TableKind(
    rows="errors", schema=Schema(*_fields(*_RECORD, "value", "reason")), partitions=PartitionSpec()
)


class Tables:
    """The tables of topics in one catalog."""

    def __init__(self, catalog: SqlCatalog, warehouse_url: str) -> None:
        self._catalog = catalog
        self._warehouse_url = warehouse_url

    def find(self, topic: str, topic_id: str, kind: TableKind) -> Table | None:
        """Return the table of a topic; None if there is none, or one of an earlier topic of this name.

        An earlier one is renamed: it keeps the rows of the topic that was deleted.

        Raises:
            IcebergError: the table of this name has other rows.
        """
        name = kind.table_of(topic)
        if len(topic) > _NAME_MAX:
            raise IcebergError(
                f"the name of topic {topic} is longer than a table's can be: {_NAME_MAX} characters"
            )
        try:
            table = self._catalog.load_table((NAMESPACE, name))
        except NoSuchTableError:
            return None
        rows = table.properties.get(ROWS)
        if rows != kind.rows:
            raise IcebergError(
                f"table {name} has rows of the kind {rows or 'of another program'}, not {kind.rows}: rename or drop it, or set "
                "stele.iceberg.mode to what it was"
            )
        known = table.properties.get(TOPIC_ID, "")
        if known != topic_id:
            self._set_aside(name, known)
            return None
        return table

    def _set_aside(self, name: str, topic_id: str) -> None:
        """Rename the table of a topic that was deleted."""
        aside = f"{name}_replaced_{topic_id[:8]}"
        try:
            self._catalog.rename_table((NAMESPACE, name), (NAMESPACE, aside))
        except TableAlreadyExistsError as error:
            raise IcebergError(
                f"table {name} has the rows of an earlier topic of this name, and its new name {aside} is taken: rename or "
                "drop one of them"
            ) from error
        except NoSuchTableError:
            # Another process has renamed it.
            return
        logger.warning(
            "topic %s was deleted and created again: the table of the earlier one is %s.%s now",
            name,
            NAMESPACE,
            aside,
        )

    def open(self, topic: str, topic_id: str, kind: TableKind) -> Table:
        """Return the table of a topic; make it if there is none. Raises as ``find``."""
        table = self.find(topic, topic_id, kind)
        if table is not None:
            return table
        name = kind.table_of(topic)
        try:
            return self._catalog.create_table(
                (NAMESPACE, name),
                kind.schema,
                location=f"{self._warehouse_url}/{NAMESPACE}/{name}-{topic_id[:8]}",
                partition_spec=kind.partitions,
                properties={**_PROPERTIES, ROWS: kind.rows, TOPIC_ID: topic_id},
            )
        except TableAlreadyExistsError:
            # Another process has made it.
            return self._catalog.load_table((NAMESPACE, name))

    def evolve(self, table: Table, columns: DataType) -> None:
        """Give a table the columns of values, those of a struct of Arrow.

        Raises:
            Misfit: Iceberg does not allow it.
            CommitConflict: another process has changed the table.
        """
        try:
            with table.update_schema() as update:
                update.union_by_name(pa.schema(list(columns)))
                # The columns of values first.
                update.move_after(RECORD, columns[columns.num_fields - 1].name)
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error
        except (ResolveError, ValidationError, TypeError, ValueError) as error:
            raise Misfit(str(error)) from error

    def commit(
        self,
        table: Table,
        files: Sequence[DataFile],
        *,
        parent_id: int | None,
        positions: Mapping[int, int],
        topic_id: str,
    ) -> Table:
        """Append files as a snapshot with the next offset of each partition.

        Raises:
            CommitConflict: the newest snapshot is not ``parent_id`` any more; the files may be deleted.
            Exception: the outcome is unknown.
        """
        snapshot = table.current_snapshot()
        if (None if snapshot is None else snapshot.snapshot_id) != parent_id:
            raise CommitConflict(f"table {table.name()[-1]} has got another snapshot meanwhile")
        summary = {
            OFFSETS: json.dumps({str(partition): positions[partition] for partition in sorted(positions)}),
            TOPIC_ID: topic_id,
        }
        try:
            # It depends on the newest snapshot that ``table`` knows: the one that was read from.
            with (
                table.transaction() as transaction,
                transaction.update_snapshot(snapshot_properties=summary).merge_append() as append,
            ):
                for file in files:
                    append.append_data_file(file)
        except CommitFailedException as error:
            raise CommitConflict(str(error)) from error
        return table


def plain_struct(table: Table) -> DataType:
    """Return the columns of a table as a struct of Arrow."""
    schema: Any = _iceberg.schema_to_pyarrow(table.schema(), include_field_ids=False)
    return plain(pa.struct([schema.field(index) for index in range(len(schema.names))]))
