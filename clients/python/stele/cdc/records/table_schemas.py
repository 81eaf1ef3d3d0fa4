"""Schemas of the records of a table, in Avro and JSON Schema. No I/O.

Every column may be null: PostgreSQL sends neither the other columns of a deleted key nor large values that an
update does not change. So columns may be added and dropped at any compatibility level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from ..decoding.column_types import ColumnType
from ..errors import CdcError

Json = dict[str, Any]

_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_]|^[0-9]", re.ASCII)
_DRAFT = "http://json-schema.org/draft-07/schema#"
_NUMBERS = ["NaN", "Infinity", "-Infinity"]


class Field(NamedTuple):
    """A column; ``dimensions`` are those that one of an array type declares."""

    name: str
    type: ColumnType
    dimensions: int = 1


def avro_name(name: str) -> str:
    """Return a name of Avro; a character that these do not have is ``_u`` and its code, as in ``a_u0020b``."""
    return _NOT_OF_NAMES.sub(lambda match: f"_u{ord(match[0]):04x}", name) or "_"


# ── Avro ──

_AVRO: dict[str, str | Json] = {
    "boolean": "boolean",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "double": "double",
    "float": "float",
    "int": "int",
    "long": "long",
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}


def avro_schema(topic: str, table: str, fields: Sequence[Field], *, is_row_only: bool) -> str:
    """Return the Avro schema of the records of a table.

    Raises:
        CdcError: two columns would have the same name.
    """
    namespace = ".".join(map(avro_name, topic.split(".")))
    row: Json = {"type": "record", "name": "Row", "fields": [_avro_field(field) for field in fields]}
    names = [field["name"] for field in row["fields"]]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CdcError(f"columns of {table} have the same name in Avro, {min(twice)}; rename one of them")
    if is_row_only:
        return _text({**row, "namespace": namespace})
    source: Json = {
        "type": "record",
        "name": "Source",
        "fields": [
            {"name": "lsn", "type": "long"},
            {"name": "txid", "type": ["null", "long"]},
            {"name": "ts_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "schema", "type": "string"},
            {"name": "table", "type": "string"},
        ],
    }
    envelope: Json = {
        "type": "record",
        "name": "Envelope",
        "namespace": namespace,
        "fields": [
            {"name": "op", "type": "string"},
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Row"], "default": None},
            {
                "name": "unchanged",
                "type": ["null", {"type": "array", "items": "string"}],
                "default": None,
            },
            {"name": "source", "type": source},
        ],
    }
    return _text(envelope)


def _avro_field(field: Field) -> Json:
    name = avro_name(field.name)
    doc = {} if name == field.name else {"doc": field.name}
    return {"name": name, "type": ["null", _avro_type(field.type, field.dimensions)], "default": None, **doc}


def _avro_type(type_: ColumnType, dimensions: int) -> str | Json:
    if type_.kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if type_.items is None:
        return _AVRO.get(type_.kind, "string")
    array: Json = {"type": "array", "items": ["null", _avro_type(type_.items, 1)]}
    for _ in range(dimensions - 1):
        array = {"type": "array", "items": array}
    return array


def changed_meanings(latest: Any, text: str, *, is_row_only: bool) -> list[str]:
    """Return the columns whose stored numbers or bytes mean something else than in the ``latest`` version.

    Avro promotes what is stored, such as the bytes of a decimal to a string and the days of a date to a
    long, so that registries take such a change, and readers get other values.
    """
    before, now = (
        _meanings(schema, is_row_only=is_row_only) for schema in (latest, msgspec.json.decode(text))
    )
    return [name for name, meaning in now.items() if name in before and before[name] != meaning]


def _meanings(schema: Any, *, is_row_only: bool) -> dict[str, Any]:
    """Return the logical type of each column; none if the schema was not made here."""
    try:
        row = schema if is_row_only else schema["fields"][1]["type"][1]
        return {field["name"]: _meaning(field["type"][1]) for field in row["fields"]}
    except (KeyError, IndexError, TypeError):
        return {}


def _meaning(schema: Any) -> Any:
    if isinstance(schema, list):
        return _meaning(cast("list[Any]", schema)[-1])
    if not isinstance(schema, dict):
        return None
    members = cast("Json", schema)
    if "items" in members:
        return [_meaning(members["items"])]
    logical = members.get("logicalType")
    # A UUID is a string in any case, and whether scales and digits change is for the registry to say.
    return None if logical == "uuid" else logical


# ── JSON Schema ──


def json_schema(topic: str, fields: Sequence[Field], latest: Mapping[str, Any], *, is_row_only: bool) -> str:
    """Return the JSON Schema of the records of a table.

    It is closed, because otherwise no column could be added, so columns of the ``latest`` version stay in it.
    """
    known = dict(_columns(latest, is_row_only=is_row_only))
    row: Json = {
        "type": "object",
        "properties": known | {field.name: _json_type(field.type) for field in fields},
        "additionalProperties": False,
    }
    if is_row_only:
        return _text({"$schema": _DRAFT, "title": topic, **row})
    schema: Json = {
        "$schema": _DRAFT,
        "title": topic,
        "type": "object",
        "properties": {
            "op": {"type": "string"},
            "before": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Row"}]},
            "after": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Row"}]},
            "unchanged": {"type": "array", "items": {"type": "string"}},
            "source": {
                "type": "object",
                "properties": {
                    "lsn": {"type": "integer"},
                    "txid": {"type": ["integer", "null"]},
                    "ts_ms": {"type": "integer"},
                    "schema": {"type": "string"},
                    "table": {"type": "string"},
                },
                "required": ["lsn", "txid", "ts_ms", "schema", "table"],
                "additionalProperties": False,
            },
        },
        "required": ["op", "before", "after", "source"],
        "additionalProperties": False,
        "definitions": {"Row": row},
    }
    return _text(schema)


def _columns(schema: Any, *, is_row_only: bool) -> Mapping[str, Any]:
    """Return the columns of a version of the schema; none if it was not made here."""
    try:
        row = schema if is_row_only else schema["definitions"]["Row"]
        return cast("Mapping[str, Any]", row["properties"])
    except (KeyError, TypeError):
        return {}


def _json_type(type_: ColumnType) -> Json:
    match type_.kind:
        case "json":
            return {}
        case "float" | "double":
            return {"anyOf": [{"type": ["number", "null"]}, {"enum": _NUMBERS}]}
        case "bytes":
            return {"type": ["string", "null"], "contentEncoding": "base64"}
        case "int" | "long":
            return {"type": ["integer", "null"]}
        case "boolean" | "array":
            return {"type": [type_.kind, "null"]}
        case _:
            return {"type": ["string", "null"]}


def _text(schema: Json) -> str:
    return msgspec.json.encode(schema).decode()
