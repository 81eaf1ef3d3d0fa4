"""Parameters, bodies and answers that operations share."""

from __future__ import annotations

from typing import Any

from .components import BYTES, STRING, Schema, enum, error_answers, named

Operation = dict[str, Any]
TOPIC_NAME = {
    "name": "topic",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"},
    "example": "orders",
}
GROUP = {
    "name": "group",
    "in": "path",
    "required": True,
    "description": "any text, percent-encoded; encode a slash as %2F",
    "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
    "example": "billing",
}
PARTITION = {
    "name": "partition",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": 2147483647},
    "example": 0,
}


def query(name: str, schema: Schema, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def header(name: str, schema: Schema, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def json_content(schema: Schema, example: object = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def lines_content(example: str | None = None) -> dict[str, Any]:
    """Describe NDJSON: JSON documents, each in a line of its own."""
    content: dict[str, Any] = {"schema": STRING}
    if example is not None:
        content["example"] = example
    return {"application/x-ndjson": content}


EVENTS = {"text/event-stream": {"schema": STRING}}
OCTETS = {"application/octet-stream": {"schema": BYTES}}
ARROW = {"application/vnd.apache.arrow.stream": {"schema": BYTES}}


def answers(*statuses: int, ok: dict[str, Any] | None = None, ok_status: int = 200) -> dict[str, Any]:
    """Describe the successful answer, and a problem for each of ``statuses``."""
    success: dict[str, Any] = {"description": "Success", **({"content": ok} if ok else {})}
    return {str(ok_status): success, **error_answers(*statuses)}


OFFSET_OR_TIME = {"type": "string", "examples": ["earliest", "latest", "42", "-1h", "2026-11-20T10:00Z"]}
CONDITIONS = named(
    "Conditions", {"type": "array", "items": {"type": "string", "maxLength": 1000}, "maxItems": 16}
)
FILTER = [
    query("key", CONDITIONS, "keys that contain this text; =N14228 matches the whole key"),
    query("value", CONDITIONS, "values that contain this text; =TEXT matches the whole value"),
    query(
        "header",
        CONDITIONS,
        "NAME: the header exists; NAME:TEXT: its value contains TEXT; NAME:=TEXT: its value is TEXT",
    ),
    query("json", CONDITIONS, "a path into JSON values that must exist, or a comparison: dep_delay > 60"),
    query(
        "preview",
        {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
        "maximum bytes of each key, value and header; 0 means all",
    ),
]
AS = query(
    "as",
    enum("ValuesAs", "json"),
    "json: show values that are valid JSON as JSON, not as strings",
)
ISOLATION = query(
    "isolation",
    enum("Isolation", "read_committed", "read_uncommitted", default="read_committed"),
    "read_uncommitted: include records of open and aborted transactions",
)
