"""Avro schemas as a graph of types: named types that use each other, or themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import json_values

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")
# No value of JSON.
NO_DEFAULT: Any = object()

JsonKind = Literal["null", "boolean", "number", "string", "array", "object"]


@dataclass(slots=True, eq=False, repr=False)
class Field:
    """A field of a record; ``default`` is in Avro's own JSON form of defaults."""

    name: str
    type: Type
    doc: str | None
    default: Any
    order: str
    aliases: Sequence[str]
    attributes: Mapping[str, Any]


@dataclass(slots=True, eq=False, repr=False)
class Type:
    """A type; which attributes it has depends on its kind. A name is always the full name.

    ``attributes`` are those that Avro's specification gives no meaning for this kind, with those of logical
    types among them, as they were written.
    """

    kind: str
    attributes: Mapping[str, Any]
    logical: str | None = None
    name: str = ""
    doc: str | None = None
    aliases: Sequence[str] = ()
    fields: Sequence[Field] = ()
    is_error: bool = False
    branches: Sequence[Type] = ()
    items: Type | None = None  # the values of a map, too
    symbols: Sequence[str] = ()
    default: str | None = None
    size: int = 0

    @property
    def branch_name(self) -> str:
        """The name by which a union knows it."""
        return self.name or self.kind

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def content(self) -> Type:
        """The type of the items of an array, or of the values of a map."""
        assert self.items is not None
        return self.items

    @property
    def other_symbol(self) -> str | None:
        """The symbol that an enum has for one that it does not know; the default of a registered one may be none."""
        return self.default if self.default in self.symbols else None

    @property
    def decimal(self) -> tuple[int, int]:
        """Precision and scale of a decimal."""
        return self.attributes["precision"], self.attributes.get("scale", 0)


# ── logical types ──

_TIMES = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    *(
        ("long", f"{prefix}timestamp-{unit}")
        for prefix in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    ),
}


def logical_type(kind: str, size: int, attributes: Mapping[str, Any]) -> str | None:
    """Return the logical type that these attributes give a type; None without one that is known and valid.

    As the specification asks for, one that is unknown or invalid is ignored.
    """
    name = attributes.get("logicalType")
    if not isinstance(name, str):
        return None
    valid = (kind, name) in _TIMES
    match name:
        case "decimal":
            precision, scale = attributes.get("precision"), attributes.get("scale", 0)
            most = json_values.DECIMAL_DIGITS_MAX
            if kind == "fixed":
                most = min(most, len(str(1 << (8 * min(size, most) - 1))) - 1 if size else 0)
            valid = (
                kind in ("bytes", "fixed")
                and type(precision) is int
                and type(scale) is int
                and 0 <= scale <= precision
                and 0 < precision <= most
            )
        case "uuid":
            valid = kind == "string" or (kind == "fixed" and size == 16)
        case "duration":
            valid = kind == "fixed" and size == 12
        case _:
            pass
    return name if valid else None


# ── the JSON form of unions ──


def json_kinds(type_: Type) -> frozenset[JsonKind]:
    """Return the kinds of JSON values that values of a type can be."""
    match type_.kind:
        case "null":
            return frozenset({"null"})
        case "boolean":
            return frozenset({"boolean"})
        case "int" | "long":
            return frozenset({"number", "string"} if type_.logical else {"number"})
        case "float" | "double":
            return frozenset({"number", "string"})
        case "array":
            return frozenset({"array"})
        case "map" | "record":
            return frozenset({"object"})
        case _:
            return frozenset({"string"})


def is_plain(union: Type) -> bool:
    """Return whether the JSON kind of a value says which branch of a union it belongs to."""
    kinds = [kind for branch in union.branches for kind in json_kinds(branch)]
    return len(kinds) == len(set(kinds))
