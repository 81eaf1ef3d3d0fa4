"""Arrow types of Avro schemas, and values of Avro for columns of these types.

As spark-avro has them, but that

- every column may be null,
- a part of a schema that no type describes is a string with its JSON: a record within itself,
  and one without fields,
- a decimal of more than 38 digits is a string, and so is a ``fixed`` that is a UUID,
- a time with a unit other than the plan's is converted: Avro's own rules would take milliseconds
  for microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import msgspec

from ..registry.codecs import Decode
from ..schemas.avro.logical import PER_SECOND, form_of
from ..schemas.avro.reading import Read, Readers, read_value
from ..schemas.avro.schema import AvroSchema
from ..schemas.avro.types import Type
from ..schemas.definitions import InvalidSchema, ParsedSchema
from ..wire.arrow_types import DataType, pa
from .plans import STRING, TIMESTAMP, Plan, Wanted, chosen_fields, item_of, list_of, map_of, struct_of

_LEAVES: dict[str, DataType] = {
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "double": pa.float64(),
    "enum": STRING,
    "fixed": pa.binary(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "null": STRING,
    "string": STRING,
}
_TIMES: dict[str, DataType] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_DIGITS_MAX = 38


def plan(schema: AvroSchema, wanted: Wanted) -> Plan:
    """Return how values are read as the schema describes them; see ``plans.Plan``."""
    planner = _Planner()
    data_type, root = planner.plan(schema.root, wanted, ())

    def decode_of(writer: ParsedSchema) -> Decode:
        if writer.type != "AVRO":
            raise InvalidSchema(f"it is of type {writer.type}, and the plan of the query has Avro")
        written = cast("AvroSchema", writer)
        read = ArrowReaders(planner.texts).reader(written.root, root)
        return lambda framed: read_value(read, written.written(framed.payload))

    return Plan(data_type, decode_of)


class _Planner:
    """Makes the reader's type, with the wanted fields alone; ``texts`` are the ids of types that become JSON."""

    def __init__(self) -> None:
        self.texts: dict[int, Type] = {}

    def plan(self, type_: Type, wanted: Wanted, above: tuple[Type, ...]) -> tuple[DataType, Type]:
        """Return the Arrow type of a type, and what a reader's schema has for it."""
        match type_.kind:
            case "record" if type_ in above or not type_.fields:
                text = replace(type_)
                self.texts[id(text)] = text
                return STRING, text
            case "record":
                return self._record(type_, wanted, (*above, type_))
            case "array":
                data_type, items = self.plan(type_.content, item_of(wanted), above)
                return list_of(data_type), replace(type_, items=items)
            case "map":
                data_type, items = self.plan(type_.content, item_of(wanted), above)
                return map_of(STRING, data_type), replace(type_, items=items)
            case "union":
                return self._union(type_, wanted, above)
            case _:
                return _leaf(type_), type_

    def _record(self, type_: Type, wanted: Wanted, above: tuple[Type, ...]) -> tuple[DataType, Type]:
        fields = {field.name: field for field in type_.fields}
        planned = [
            (fields[name], self.plan(fields[name].type, inner, above))
            for name, inner in chosen_fields(fields, wanted)
        ]
        struct = struct_of((field.name, data_type) for field, (data_type, _) in planned)
        return struct, replace(type_, fields=[replace(field, type=inner) for field, (_, inner) in planned])

    def _union(self, type_: Type, wanted: Wanted, above: tuple[Type, ...]) -> tuple[DataType, Type]:
        values = _values(type_)
        if len(values) <= 1 or _is_number(values):
            planned = {branch.branch_name: self.plan(branch, wanted, above) for branch in values}
            types = [data_type for data_type, _ in planned.values()] or [STRING]
            data_type = types[0] if len(types) == 1 else max(types, key=lambda one: one.bit_width)
        else:
            inner = dict(chosen_fields({f"member{number}": None for number in range(len(values))}, wanted))
            planned = {
                branch.branch_name: self.plan(branch, inner.get(f"member{number}"), above)
                for number, branch in enumerate(values)
            }
            data_type = struct_of(
                (f"member{number}", planned[branch.branch_name][0])
                for number, branch in enumerate(values)
                if f"member{number}" in inner
            )
        branches = [planned[b.branch_name][1] if b.branch_name in planned else b for b in type_.branches]
        return data_type, replace(type_, branches=branches)


def _values(union: Type) -> list[Type]:
    return [branch for branch in union.branches if branch.kind != "null"]


def _is_number(branches: list[Type]) -> bool:
    """Return whether one type has the values of several branches."""
    kinds = {branch.logical or branch.kind for branch in branches}
    return kinds in ({"int", "long"}, {"float", "double"})


def _leaf(type_: Type) -> DataType:
    if type_.logical == "decimal":
        precision, scale = type_.decimal
        return pa.decimal128(precision, scale) if precision <= _DIGITS_MAX else STRING
    if type_.logical == "uuid":
        return STRING
    return _TIMES.get(type_.logical or "") or _LEAVES[type_.kind]


class ArrowReaders(Readers):
    """Makes the functions that read values as Arrow takes them: dates and times as numbers."""

    def __init__(self, texts: dict[int, Type]) -> None:
        super().__init__()
        self._texts = texts
        self._json = Readers()

    def reader(self, writer: Type, reader: Type) -> Read:
        if id(reader) not in self._texts:
            return super().reader(writer, reader)
        return _then(self._json.reader(writer, reader), lambda value: msgspec.json.encode(value).decode())

    def _leaf(self, writer: Type, reader: Type) -> Read:
        read = super()._leaf(writer, reader)
        if writer.kind != reader.kind and {"decimal", "date"} & {writer.logical, reader.logical}:
            # Avro promotes what is stored: the bytes of a decimal to a string, the days of a date to a long.
            shown = writer.logical or writer.kind, reader.logical or reader.kind
            return _then(
                read, lambda _: _refuse("a {} was written, which is not read as a {}".format(*shown))
            )
        _, _, unit = (reader.logical or "").rpartition("timestamp-")
        if unit not in PER_SECOND:
            return read
        _, _, written = (writer.logical or "").rpartition("timestamp-")
        # Nanoseconds stay a number.
        target, source = 10**9 if unit == "nanos" else 10**6, PER_SECOND.get(written, PER_SECOND[unit])
        return read if target == source else _then(read, lambda units: units * target // source)

    def _show(self, type_: Type) -> Callable[[Any], Any] | None:
        form = form_of(type_)
        if type_.logical == "decimal" and form is not None:
            show = form.show
            return show if type_.decimal[0] > _DIGITS_MAX else lambda value: Decimal(show(value))
        return form.show if type_.kind == "fixed" and type_.logical == "uuid" and form is not None else None

    def _branch(self, writer: Type, branch: Type, union: Type) -> Read:
        read = self.reader(writer, branch)
        values = _values(union)
        if branch.kind == "null" or len(values) == 1 or _is_number(values):
            return read
        name = f"member{next(number for number, value in enumerate(values) if value is branch)}"
        return _then(read, lambda value: {name: value})


def _refuse(reason: str) -> Any:
    raise ValueError(reason)


def _then(read: Read, convert: Callable[[Any], Any]) -> Read:
    def read_then(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[Any, int]:
        value, position = read(data, position, depth, budget)
        return convert(value), position

    return read_then
