"""Generate request bodies from the structs of ``app.api.bodies``."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from .parts import json_content

_REF = "#/$defs/{name}"


def request_body(kind: type[Struct], example: object, *, is_required: bool = True) -> dict[str, Any]:
    """Describe a JSON body that a route decodes as ``kind``.

    Nested structs are written in place, without the titles and docstrings of the
    classes. A field that may be left out is shown without null, which means the
    same, unless its ``Meta`` states a ``type``. A default is shown where it is a
    number, or one of an enumeration.
    """
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template=_REF)
    by_reference = {_REF.format(name=name): definition for name, definition in definitions.items()}
    body: dict[str, Any] = {"content": json_content(_in_place(reference, by_reference), example)}
    if is_required:
        body["required"] = True
    return body


def _in_place(schema: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if "$ref" in schema:
        return _object(definitions[schema["$ref"]], definitions)
    schema = dict(schema)
    alternatives = [_in_place(alternative, definitions) for alternative in schema.pop("anyOf", ())]
    if alternatives and "type" not in schema:
        if all(alternative.keys() == {"type"} for alternative in alternatives):
            schema["type"] = [alternative["type"] for alternative in alternatives]
        else:
            schema["anyOf"] = alternatives
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _in_place(schema[name], definitions)
    return schema


def _object(definition: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = {name: _field(schema, definitions) for name, schema in definition["properties"].items()}
    shown = {"type": "object", "properties": properties, "additionalProperties": False}
    if definition["required"]:
        shown["required"] = definition["required"]
    return shown


def _field(schema: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    schema = dict(schema)
    if not isinstance(schema.get("default"), int) and "enum" not in schema:
        schema.pop("default", None)
    if "anyOf" in schema and "type" not in schema:
        others = [alternative for alternative in schema["anyOf"] if alternative != {"type": "null"}]
        if len(others) == 1:
            del schema["anyOf"]
            schema |= others[0]
        else:
            schema["anyOf"] = others
    return _in_place(schema, definitions)
