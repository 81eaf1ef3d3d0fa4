"""Arrow types of JSON Schemas, and values of JSON for columns of these types.

==================================================  ====================================
an object with properties                           struct of them; others are left out
an object with ``additionalProperties`` alone       map of string to their type
an array with ``items``                             list
``integer``, ``number``, ``string``, ``boolean``    int64, double, string, bool
an ``enum`` or ``const`` of one of these            the same
null and one of these, in ``type`` or ``anyOf``     the same
anything else, as an object within itself           string with its JSON
==================================================  ====================================

A value is read by the schema of the query's plan, whatever it was written with: a property that it
lacks is null, and one of another type cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ..registry.codecs import Decode
from ..schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from ..schemas.json_schema.nodes import Node
from ..schemas.json_schema.schema import JsonSchema
from ..schemas.json_schema.values import NUMBERS, type_of
from ..schemas.json_values import kind_of, parse_float
from ..wire.arrow_types import DataType, pa
from .plans import STRING, Plan, Wanted, chosen_fields, item_of, list_of, map_of, struct_of

Convert = Callable[[Any], Any]

_NULL = frozenset({"null"})
_OBJECT = frozenset({"object"})
_ARRAY = frozenset({"array"})
_NO_NUMBERS = {"NaN", "Infinity", "-Infinity"}


def plan(schema: JsonSchema, wanted: Wanted) -> Plan:
    """Return how values are read as the schema describes them; see ``plans.Plan``."""
    data_type, convert = _plan(schema.root, wanted, ())

    def decode_of(writer: ParsedSchema) -> Decode:
        if writer.type != "JSON":
            raise InvalidSchema(f"it is of type {writer.type}, and the plan of the query has JSON")
        return lambda framed: convert(_parsed(framed.payload))

    return Plan(data_type, decode_of)


def _parsed(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue("", f"it is not JSON: {error}") from None


class Shape(NamedTuple):
    """What the values of a schema are as a column: ``node`` has the keywords of the schema that says it."""

    kind: Literal["object", "map", "array", "leaf", "text"]
    node: Node


def shape_of(node: Node, above: tuple[Node, ...]) -> Shape:
    """Return the shape of the values of a schema, which stands within those ``above``."""
    node = _alone(node)
    words = node.keywords
    types = _types(node)
    if node in above or types is None:
        return Shape("text", node)
    if types == _OBJECT and not words.keys() & {"anyOf", "oneOf", "allOf", "patternProperties"}:
        if words.get("properties"):
            return Shape("object", node)
        rest: Node | None = words.get("additionalProperties")
        if rest is not None and not rest.is_false:
            return Shape("map", node)
    if types == _ARRAY and "items" in words and "prefixItems" not in words:
        return Shape("array", node)
    return Shape("leaf" if types in _LEAVES else "text", node)


def leaf_of(node: Node) -> DataType:
    """Return the Arrow type of a schema with the shape of a leaf."""
    return _LEAVES[_types(node) or frozenset()][0]


def _plan(node: Node, wanted: Wanted, above: tuple[Node, ...]) -> tuple[DataType, Convert]:
    """Return the Arrow type of a schema, and what makes values of it."""
    kind, node = shape_of(node, above)
    words, above = node.keywords, (*above, node)
    match kind:
        case "object":
            return _struct(words["properties"], wanted, above)
        case "map":
            data_type, convert = _plan(words["additionalProperties"], item_of(wanted), above)
            return map_of(STRING, data_type), _map(convert)
        case "array":
            data_type, convert = _plan(words["items"], item_of(wanted), above)
            return list_of(data_type), _array(convert)
        case "leaf":
            return _LEAVES[_types(node) or frozenset()]
        case "text":
            return STRING, _as_text


def _alone(node: Node) -> Node:
    """Return what a schema refers to, or has besides null, if that is all it says."""
    seen: set[int] = set()
    while node.number not in seen:
        seen.add(node.number)
        choices = [
            inner for word in ("$ref", "allOf", "anyOf", "oneOf") for inner in node.keywords.get(word, ())
        ]
        others = [inner for inner in choices if _types(inner) != _NULL]
        if len(others) != 1 or node.keywords.keys() - {"$ref", "allOf", "anyOf", "oneOf", "default"}:
            return node
        node = others[0]
    return node


def _types(node: Node) -> frozenset[str] | None:
    """Return the types that values can have, null apart if there are others; None if the schema does not say."""
    words = node.keywords
    found: frozenset[str] | None = words.get("type")
    if found is None:
        values: list[Any] | None = [words["const"]] if "const" in words else words.get("enum")
        if values:
            found = frozenset(map(type_of, values))
        elif "properties" in words:
            found = frozenset({"object"})
        elif choices := [*words.get("anyOf", ()), *words.get("oneOf", ())]:
            # Numbers that JSON does not have are strings in forms that have them.
            names = {
                name
                for choice in choices
                for name in choice.keywords.get("enum", ())
                if isinstance(name, str)
            }
            others = [c for c in choices if not set(c.keywords.get("enum", [None])) <= _NO_NUMBERS]
            kinds = [_types(choice) for choice in others]
            if names and names <= _NO_NUMBERS and len(others) == 1 and kinds[0] and kinds[0] <= NUMBERS:
                return NUMBERS
            return None
    return found if found is None or found == _NULL else found - _NULL


# ── values ──


def _checked(expected: str, *types: type) -> Convert:
    def check(value: Any) -> Any:
        # A boolean is an integer, too, to Python.
        if value is None or type(value) in types:
            return value
        raise InvalidValue("", f"{expected} is needed, not {kind_of(value)}")

    return check


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        return int(value)
    return _checked_integer(value)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else parse_float(value)
    except ValueError as error:
        raise InvalidValue("", str(error)) from None


def _as_text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


_checked_integer = _checked("an integer", int)
_checked_object = _checked("an object", dict)
_checked_array = _checked("an array", list)

_LEAVES: dict[Iterable[str], tuple[DataType, Convert]] = {
    frozenset({"string"}): (STRING, _checked("a string", str)),
    frozenset({"integer"}): (pa.int64(), _integer),
    frozenset({"fraction"}): (pa.float64(), _number),
    NUMBERS: (pa.float64(), _number),
    frozenset({"boolean"}): (pa.bool_(), _checked("a boolean", bool)),
}


def _struct(
    properties: Mapping[str, Node], wanted: Wanted, above: tuple[Node, ...]
) -> tuple[DataType, Convert]:
    planned = {
        name: _plan(properties[name], inner, above) for name, inner in chosen_fields(properties, wanted)
    }
    converts = [(name, convert) for name, (_, convert) in planned.items()]

    def convert_struct(value: Any) -> Any:
        members = _checked_object(value)
        if members is None:
            return None
        converted: dict[str, Any] = {}
        for name, convert in converts:
            try:
                converted[name] = convert(members.get(name))
            except InvalidValue as error:
                raise error.within(name) from None
        return converted

    return struct_of((name, data_type) for name, (data_type, _) in planned.items()), convert_struct


def _map(convert: Convert) -> Convert:
    def convert_map(value: Any) -> Any:
        members = _checked_object(value)
        return members and {name: convert(inner) for name, inner in members.items()}

    return convert_map


def _array(convert: Convert) -> Convert:
    def convert_array(value: Any) -> Any:
        items = _checked_array(value)
        return items and [convert(item) for item in items]

    return convert_array
