"""Read from a request how the keys and values of its records are encoded."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request
from stele.wire.notation import INT64_MAX, parse_whole

from ..errors import InvalidRequest
from ..registry.encoding import SchemaName
from .parameters import Choice, Text
from .records.encoding import RecordEncoding
from .state import api_state

ENCODE: Choice[Literal["json", "raw"]] = Choice(
    "encode",
    "ValueCoding",
    ("json", "raw"),
    "raw: store the text of JSON also if the topic has a subject in the schema registry",
    default="json",
)
_AN_ID_OR_SUBJECT = "the id of a schema, or a subject whose latest one is meant"
SCHEMA = Text("schema", f"encode values with this schema: {_AN_ID_OR_SUBJECT}")
KEY_SCHEMA = Text("key_schema", f"encode keys with this schema: {_AN_ID_OR_SUBJECT}")


def encoding_of(request: Request) -> RecordEncoding:
    """Return what the query asks for: ``encode``, and the schemas that it names. Raises ``InvalidRequest``."""
    key, value = KEY_SCHEMA.given(request), SCHEMA.given(request)
    if (key is None and value is None) or ENCODE.read(request) == "json":
        return plain_encoding_of(request, key=_named(key), value=_named(value))
    raise InvalidRequest("encode=raw stores records as they are; give no schema with it")


def plain_encoding_of(request: Request, **names: SchemaName | None) -> RecordEncoding:
    """Return what a query asks for that names no schema; ``names`` are those of a request that does."""
    schemas = None if ENCODE.read(request) == "raw" else api_state(request).schemas
    return RecordEncoding(schemas, **names)


def _named(text: str | None) -> SchemaName | None:
    """Return what a parameter of the query names."""
    if text is None:
        return None
    schema_id = parse_whole(text, INT64_MAX)
    return SchemaName(subject=text) if schema_id is None else SchemaName(id=schema_id)
