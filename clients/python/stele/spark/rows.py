"""Rows of a sink from Arrow, with spark-sql-kafka's columns and ``timestamp``."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..wire.arrow_types import Array, RecordBatch, pa
from .options import OptionError
from .schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RecordHeaders = list[tuple[str, bytes | None]]

_TYPES: dict[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": (COLUMNS["headers"].simpleString(),),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
# Columns of a read that a write ignores, so that a DataFrame that was read can be written.
_IGNORED = ("offset", "timestampType")


class RowError(ValueError):
    """A row that cannot be a record."""


class SinkRow(NamedTuple):
    """A row to write; ``timestamp_ms`` is the current time if the row has none."""

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


def require_columns(schema: StructType, *, has_topic: bool, encoded: Container[str] = ()) -> None:
    """Raise ``OptionError`` if a column is missing, unknown, or of another type; those that are ``encoded`` have any."""
    for field in schema.fields:
        types = _TYPES.get(field.name)
        if types is None:
            if field.name in _IGNORED:
                continue
            raise OptionError(
                f"a record has no column {field.name!r}; there are {', '.join(_TYPES)}: "
                "put what you have into value, for example select(to_json(struct('*')).alias('value'))"
            )
        actual = field.dataType.simpleString()
        if actual not in types and field.name not in encoded:
            raise OptionError(
                f"column {field.name} is {actual}, and must be {' or '.join(types)}; cast it in a select"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("there is no column value; select(to_json(struct('*')).alias('value')) makes one")
    if not has_topic and "topic" not in schema.fieldNames():
        raise OptionError("say where to write: the option topic, or a column topic")


class SinkRows:
    """Converts Arrow batches to rows; the option ``topic`` overrides the column.

    ``encoders`` make bytes of the columns that have a schema.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        encoders: Mapping[str, Callable[[Array], list[bytes | None]]] | None = None,
    ) -> None:
        self._topic = topic
        self._encoders = encoders or {}

    @staticmethod
    def has_timestamps(batch: RecordBatch) -> bool:
        return "timestamp" in batch.schema.names

    def of(self, batch: RecordBatch) -> Iterator[SinkRow]:
        count = batch.num_rows
        names = batch.schema.names

        def column(name: str, kind: Any = None) -> list[Any]:
            if name not in names:
                return [None] * count
            values = batch.column(names.index(name))
            if name in self._encoders:
                return self._encoders[name](values)
            return (values if kind is None else values.cast(kind)).to_pylist()

        topics: list[Any] = column("topic") if self._topic is None else [self._topic] * count
        now_ms = time.time_ns() // 1_000_000
        times = column("timestamp")
        if "timestamp" in names:
            times = batch.column(names.index("timestamp")).cast(pa.int64()).to_pylist()
        rows = zip(
            topics,
            column("partition"),
            times,
            column("key", pa.binary()),
            column("value", pa.binary()),
            column("headers"),
            strict=True,
        )
        for topic, partition, micros, key, value, headers in rows:
            if topic is None:
                raise RowError(
                    "a row has no topic: its column topic is null; fill it, or set the option topic"
                )
            if micros is None and "timestamp" in names:
                raise RowError(
                    "a row has no timestamp: fill the column, or leave it out to have the time of writing"
                )
            yield SinkRow(
                topic,
                partition,
                now_ms if micros is None else micros // 1000,
                key,
                value,
                _headers(headers) if headers else [],
            )


def _headers(given: list[dict[str, Any] | None]) -> RecordHeaders:
    """Convert the headers of a row. Raises ``RowError`` for one without a key."""
    headers: RecordHeaders = []
    for header in given:
        if header is None or header["key"] is None:
            raise RowError("a row has a header whose key is null; give it a key, or leave the header out")
        headers.append((header["key"], header["value"]))
    return headers
