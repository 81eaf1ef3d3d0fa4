"""Generate request bodies from the structs of ``app.api.bodies``."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from .components import SCHEMAS, Schema, named
from .parts import json_content

_REFERENCE = "#/components/schemas/{name}"


def request_body(
    kind: type[Struct],
    example: object,
    *,
    is_required: bool = True,
    fields: dict[str, Schema] | None = None,
) -> dict[str, Any]:
    """Describe a JSON body that a route decodes as ``kind``.

    ``kind`` and the structs in it become components, without the titles and
    docstrings of the classes. A field that may be left out is shown without null,
    which means the same, unless its ``Meta`` states a ``type``. A default is shown
    where it is a number, or one of an enumeration. ``fields`` replaces the schemas of
    fields that the struct leaves undecoded.
    """
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    for name, definition in definitions.items():
        if name not in SCHEMAS:
            named(name, _object(definition, fields or {} if name == kind.__name__ else {}))
    body: dict[str, Any] = {"content": json_content(reference, example)}
    if is_required:
        body["required"] = True
    return body


def _object(definition: dict[str, Any], fields: dict[str, Schema]) -> Schema:
    properties = {name: _field(schema) for name, schema in definition["properties"].items()} | fields
    shown: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if definition["required"]:
        shown["required"] = definition["required"]
    return shown


def _field(schema: dict[str, Any]) -> Schema:
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
    return _in_place(schema)


def _in_place(schema: dict[str, Any]) -> Schema:
    schema = dict(schema)
    alternatives = [_in_place(alternative) for alternative in schema.pop("anyOf", ())]
    if alternatives and "type" not in schema:
        if all(alternative.keys() == {"type"} for alternative in alternatives):
            schema["type"] = [alternative["type"] for alternative in alternatives]
        else:
            schema["anyOf"] = alternatives
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _in_place(schema[name])
    return _named_already(schema)


def _named_already(schema: Schema) -> Schema:
    """Return a reference to the component that is the same, if there is one."""
    default = {name: schema[name] for name in schema.keys() & {"default"}}
    rest = {name: value for name, value in schema.items() if name not in default}
    if "enum" in rest or "additionalProperties" in rest:
        for name, component in SCHEMAS.items():
            if _comparable(component) == _comparable(rest):
                return {"$ref": _REFERENCE.format(name=name), **default}
    return schema


def _comparable(schema: Schema) -> Schema:
    return {**schema, "enum": sorted(schema["enum"], key=str)} if "enum" in schema else schema
