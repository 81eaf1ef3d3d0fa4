"""The types of columns, for schemas of records: what is left of PostgreSQL's once each has a form."""

from __future__ import annotations

from typing import Literal, NamedTuple

# pg_type OIDs, which are the same in every PostgreSQL; all other types are text.
Kind = Literal[
    "array", "boolean", "bytes", "date", "decimal", "double", "float", "int", "json", "long", "text", "timestamp",
    "timestamptz", "uuid",
]  # fmt: skip
_KINDS: dict[int, Kind] = {
    16: "boolean",
    17: "bytes",
    20: "long",
    21: "int",
    23: "int",
    26: "long",
    114: "json",
    700: "float",
    701: "double",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "decimal",
    2950: "uuid",
    3802: "json",
}
_VARHDRSZ = 4


class ColumnType(NamedTuple):
    """A type; ``precision`` and ``scale`` are of a decimal, ``items`` and ``delimiter`` of an array.

    A ``numeric`` without them may be NaN, and have any number of digits: it is text.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    items: ColumnType | None = None
    delimiter: bytes = b","


TEXT = ColumnType("text")


def base_type(type_id: int, modifier: int) -> ColumnType | None:
    """Return the type of an OID and a ``atttypmod``; None if the catalog must say what it is."""
    kind = _KINDS.get(type_id)
    if kind != "decimal":
        return None if kind is None else ColumnType(kind)
    precision, scale = modifier - _VARHDRSZ >> 16, ((modifier - _VARHDRSZ & 0x7FF) ^ 0x400) - 0x400
    # A scale may be negative, or exceed the precision, which decimals elsewhere do not know.
    return ColumnType("decimal", precision, scale) if modifier >= 0 and 0 <= scale <= precision else TEXT
