"""How values with a schema are read into columns: what the modules for each type of schema share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..registry.codecs import Decode
from ..schemas.definitions import ParsedSchema
from ..wire.arrow_types import DataType, pa

STRING: DataType = pa.string()
TIMESTAMP: DataType = pa.timestamp("us", tz="UTC")

# The fields that are wanted of a struct, in a tuple what is wanted of the items of a list or the values of a map,
# and None for all there is.
Wanted: TypeAlias = "Mapping[str, Wanted] | tuple[Wanted] | None"


class UnknownFieldError(ValueError):
    """A wanted field that the schema does not have."""


class Plan(NamedTuple):
    """The Arrow type of a column, and how payloads of each writer's schema become its values.

    It is made from one schema, and from the fields that are wanted of it: others are not converted.
    """

    data_type: DataType
    decode_of: Callable[[ParsedSchema], Decode]


def plan_of(parsed: ParsedSchema, wanted: Wanted = None, message: str | None = None) -> Plan:
    """Return the plan of a schema; ``message`` is that of a Protobuf schema which values are.

    Raises:
        UnknownFieldError: a wanted field does not exist.
        InvalidValue: the schema declares no such message.
    """
    schema: Any = parsed
    match parsed.type:
        case "AVRO":
            from . import avro_columns

            return avro_columns.plan(schema, wanted)
        case "JSON":
            from . import json_columns

            return json_columns.plan(schema, wanted)
        case _:
            from . import protobuf_columns

            return protobuf_columns.plan(schema, wanted, message)


def chosen_fields(fields: Iterable[str], wanted: Wanted) -> list[tuple[str, Wanted]]:
    """Return the fields to read, with what is wanted of each; all of them if nothing is said.

    Raises:
        UnknownFieldError: a wanted field does not exist.
    """
    names = list(fields)
    if not isinstance(wanted, Mapping):
        return [(name, None) for name in names]
    for name in wanted:
        if name not in names:
            raise UnknownFieldError(
                f"the schema of the read has a field {name!r}, and the registered one has {', '.join(names)}"
            )
    return list(wanted.items())


def item_of(wanted: Wanted) -> Wanted:
    """Return what is wanted of the items of a list, or of the values of a map."""
    return wanted[0] if isinstance(wanted, tuple) else None


def struct_of(fields: Iterable[tuple[str, DataType]]) -> DataType:
    return pa.struct([pa.field(name, data_type) for name, data_type in fields])


def list_of(item: DataType) -> DataType:
    return pa.list_(pa.field("element", item))


def map_of(key: DataType, value: DataType) -> DataType:
    return pa.map_(key, value)
