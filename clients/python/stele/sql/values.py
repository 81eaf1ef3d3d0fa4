"""The values of a topic as columns: those of its schemas, as the Iceberg table of the topic would have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from ..columns.shapes import RECORD, Misfit, check, fitted, merged
from ..columns.values import ValueDecoder, slices
from ..errors import UnknownSchemaError
from ..registry.codecs import parse
from ..registry.definitions import Schema
from ..registry.frames import SchemaKey
from ..schemas.definitions import ParsedSchema
from ..wire import sql_frames as frames
from ..wire.arrow_types import Array, DataType, RecordBatch, np, pa
from .link import Link

_SCHEMAS_MAX = 200
_TYPES: dict[str, DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


@lru_cache(_SCHEMAS_MAX)
def _parsed(kind: Any, text: str, references: tuple[tuple[str, str], ...]) -> ParsedSchema:
    return parse(Schema(text, kind), dict(references))


class Values:
    """Decodes the values of a topic; ``columns`` are a struct of those that the statement sees."""

    def __init__(self, link: Link, index: int, table: frames.Table) -> None:
        self._link = link
        self._index = index
        schemas = table.schemas or []
        self._known: dict[SchemaKey, frames.Schema | None] = {
            key: schema for schema in schemas for key in (schema.id, schema.guid)
        }
        self._decoder = ValueDecoder(lambda: self)
        columns: DataType = pa.struct([])
        if table.has_fields and table.snapshot is not None:
            columns = _columns(table.snapshot)
        for schema in schemas:
            found = self._decoder.columns(schema.id)
            # Values of a schema that does not fit are refused, one by one.
            with suppress(Misfit):
                if found is not None:
                    wider = merged(columns, found)
                    check(wider)
                    columns = wider
        self.columns: DataType = columns

    def decoded(self, rows: RecordBatch) -> Iterator[tuple[RecordBatch, Array, Array]]:
        """Yield some of the rows after the other: their values as a struct, null if they do not fit, and why not.

        Rows have the columns ``value`` and ``headers``. Raises ``Denied``.
        """
        for some in slices(rows):
            yield some, *self._decoded(some)

    def _decoded(self, rows: RecordBatch) -> tuple[Array, Array]:
        groups, refused = self._decoder.decode(rows)
        numbers: list[int] = []
        parts: list[Array] = []
        for group in groups:
            try:
                merged(self.columns, group.values.type)
                parts.append(fitted(group.values, self.columns))
            except (Misfit, pa.ArrowException) as error:
                refused.update(dict.fromkeys(group.numbers, f"its schema does not fit the table: {error}"))
            else:
                numbers += group.numbers
        if len(parts) == 1 and len(numbers) == rows.num_rows:
            return parts[0], pa.nulls(rows.num_rows, pa.string())
        others = sorted(set(range(rows.num_rows)).difference(numbers))
        values = pa.concat_arrays([*parts, pa.nulls(len(others), self.columns)])
        order = np.argsort(np.array([*numbers, *others], np.int64))
        reasons = [refused.get(number) for number in range(rows.num_rows)]
        return values.take(pa.array(order)), pa.array(reasons, pa.string())

    # ── a registry, for the decoder ──

    def schema(self, key: SchemaKey) -> frames.Schema:
        """Raises ``UnknownSchemaError``, ``Denied``."""
        if key not in self._known:
            self._known[key] = self._link.ask(frames.Find(self._index, key), frames.Found).schema
        found = self._known[key]
        if found is None:
            raise UnknownSchemaError("the registry has no such schema", status=404, error_code=40403)
        return found

    def parse(self, schema: frames.Schema) -> ParsedSchema:
        """Raises ``InvalidSchema``."""
        return _parsed(schema.type, schema.text, tuple(schema.references.items()))

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _columns(snapshot: frames.Snapshot) -> DataType:
    """Return the columns of values of a table, from its fields as Iceberg writes them."""
    fields = msgspec.json.decode(snapshot.fields)
    return pa.struct([_field(field) for field in fields if field["name"] != RECORD])


def _field(field: Mapping[str, Any]) -> Any:
    return pa.field(field["name"], _type(field["type"]))


def _type(given: Any) -> DataType:
    if isinstance(given, str):
        if given.startswith("decimal("):
            precision, scale = given[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _TYPES[given]
    match given["type"]:
        case "struct":
            return pa.struct([_field(field) for field in given["fields"]])
        case "list":
            return pa.list_(pa.field("element", _type(given["element"])))
        case _:
            return pa.map_(_type(given["key"]), _type(given["value"]))
