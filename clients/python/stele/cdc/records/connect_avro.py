"""Schemas of Kafka Connect → Avro, as Confluent's converter writes them, and values in JSON → Avro. No I/O.

Names get ``_`` in place of characters that Avro's do not have, as Debezium's ``…name.adjustment.mode=avro`` makes them.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from .avro_values import NULL, PRESENT, binary, long
from .debezium_types import Schema

Encode = Callable[[Any], bytes]

_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_]|^[0-9]", re.ASCII)
_LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
# What the converter takes for a decimal whose number of digits is not declared.
_PRECISION = 64
_TYPES = {
    "boolean": "boolean",
    "bytes": "bytes",
    "double": "double",
    "float": "float",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "string": "string",
}


def _name(text: str) -> str:
    return _NOT_OF_NAMES.sub("_", text) or "_"


def avro_schema(schema: Schema) -> str:
    """Return a schema of Connect as one of Avro. Raises ValueError: two fields would have the same name."""
    return msgspec.json.encode(_plain(schema, set())).decode()


def _field(schema: Schema, known: set[str]) -> dict[str, Any]:
    name, avro = _name(schema["field"]), _plain(schema, known)
    if not schema["optional"]:
        return {"name": name, "type": avro}
    default = schema.get("default")
    # The first branch is that of the default.
    return {"name": name, "type": ["null", avro] if default is None else [avro, "null"], "default": default}


def _plain(schema: Schema, known: set[str]) -> Any:
    """Return the type without null; a record that is ``known`` by its name alone."""
    kind = schema["type"]
    more = {
        name: schema[part]
        for name, part in (
            ("connect.version", "version"),
            ("connect.parameters", "parameters"),
            ("connect.default", "default"),
            ("connect.name", "name"),
            ("connect.doc", "doc"),
        )
        if schema.get(part) is not None
    }
    if kind == "struct":
        return _record(schema, more, known)
    if kind == "array":
        items = schema["items"]
        item = _plain(items, known)
        return {"type": "array", "items": ["null", item] if items["optional"] else item, **more}
    if kind == "int16":
        more["connect.type"] = kind
    if logical := _LOGICAL.get(schema.get("name", "")):
        more["logicalType"] = logical
    if schema.get("name") == _DECIMAL:
        parameters = schema["parameters"]
        more |= {
            "logicalType": "decimal",
            "precision": int(parameters.get("connect.decimal.precision", _PRECISION)),
            "scale": int(parameters["scale"]),
        }
    return {"type": _TYPES[kind], **more} if more else _TYPES[kind]


def _record(schema: Schema, more: dict[str, Any], known: set[str]) -> Any:
    *namespace, name = (_name(part) for part in schema["name"].split("."))
    full = ".".join((*namespace, name))
    if full in known:
        return full
    known.add(full)
    fields = [_field(field, known) for field in schema["fields"]]
    names = [field["name"] for field in fields]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"columns have the same name in Avro, {min(twice)}; rename one of them")
    space = {"namespace": ".".join(namespace)} if namespace else {}
    return {"type": "record", "name": name, **space, "fields": fields, **more}


def encoder_of(schema: Schema) -> Encode:
    """Return what encodes values that are as the JSON converter has them, without a null at the top."""
    match schema["type"]:
        case "struct":
            fields = [(field["field"], _nullable(field)) for field in schema["fields"]]
            return lambda value: b"".join([encode(value[name]) for name, encode in fields])
        case "array":
            item = _nullable(schema["items"])
            return lambda value: _block([item(each) for each in value])
        case "boolean":
            return lambda value: b"\x01" if value else b"\x00"
        case "bytes":
            return lambda value: binary(base64.b64decode(value))
        case "string":
            return lambda value: binary(value.encode())
        # Not a number, and infinities, are strings.
        case "float":
            return lambda value: struct.pack("<f", float(value))
        case "double":
            return lambda value: struct.pack("<d", float(value))
        case _:
            return long


def _block(items: list[bytes]) -> bytes:
    return long(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _nullable(schema: Schema) -> Encode:
    encode = encoder_of(schema)
    if not schema["optional"]:
        return encode
    null, present = (NULL, PRESENT) if schema.get("default") is None else (PRESENT, NULL)
    return lambda value: null if value is None else present + encode(value)
