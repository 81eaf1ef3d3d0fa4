"""Parts that operations share: schemas, parameters, bodies and answers."""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "kafka_code", "retriable"],
    "properties": {
        "type": {"type": "string", "examples": ["/problems/unknown-topic"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "kafka_code": {"type": "integer"},
        "retriable": {"type": "boolean"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
HEADER = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": {"type": "string"},
        "value": {"type": ["string", "null"]},
        "value_b64": {"type": "string", "contentEncoding": "base64"},
    },
}
RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "partition": {"type": "integer", "minimum": 0},
        "offset": {"type": "integer", "minimum": 0},
        "timestamp": {"type": "integer", "minimum": 0, "description": "ms since the epoch"},
        "key": {"type": ["string", "null"]},
        "key_b64": {"type": "string", "contentEncoding": "base64"},
        "value": {
            "description": "a string is stored as its text, any other JSON value as compact JSON; null is a tombstone"
        },
        "value_b64": {"type": "string", "contentEncoding": "base64"},
        "headers": {"type": "array", "items": HEADER},
    },
}
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


def query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def json_content(schema: dict[str, Any], example: object = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def answers(*statuses: int, ok: dict[str, Any] | None = None, ok_status: int = 200) -> dict[str, Any]:
    """Describe the successful answer, and a problem for each of ``statuses``."""
    texts = {
        400: "The request is invalid; see detail",
        401: "A login is required, or failed",
        403: "The client may not do this; see detail",
        404: "The object does not exist; see detail",
        406: "None of the accepted media types is supported",
        409: "Conflicts with the current state; see detail",
        410: "Deleted by retention; log_start_offset is the earliest remaining offset",
        413: "The body is too large",
        415: "The media type of the body is not supported",
        416: "Past the end of the log",
        500: "The stored data is corrupt; continue at next_offset",
        422: "The idempotency key belongs to a request with another body",
        429: "Too many requests of this kind; see Retry-After",
        503: "Temporarily unavailable; see Retry-After",
        504: "Not confirmed in time; the request may still take effect",
        507: "No space left on the disk",
    }
    problem = {"application/problem+json": {"schema": PROBLEM}}
    answers: dict[str, Any] = {str(ok_status): {"description": "Success", **({"content": ok} if ok else {})}}
    answers.update({str(status): {"description": texts[status], "content": problem} for status in statuses})
    return answers


OFFSET_OR_TIME = {"type": "string", "examples": ["earliest", "latest", "42", "-1h", "2026-11-20T10:00Z"]}
CONDITIONS = {"type": "array", "items": {"type": "string", "maxLength": 1000}, "maxItems": 16}
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
    {"type": "string", "enum": ["json"]},
    "json: show values that are valid JSON as JSON, not as strings",
)
ISOLATION = query(
    "isolation",
    {"type": "string", "enum": ["read_committed", "read_uncommitted"], "default": "read_committed"},
    "read_uncommitted: include records of open and aborted transactions",
)
INTEGERS = {"type": "array", "items": {"type": "integer"}}
NUMBERS = {"type": "array", "items": {"type": ["number", "null"]}}
NULLABLE_INTEGER = {"type": ["integer", "null"]}
NULLABLE_STRING = {"type": ["string", "null"]}


def object_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def list_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": object_of(**properties)}


INTEGER = {"type": "integer"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}


OBJECT = json_content({"type": "object"})
