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
RECORD = {
    "type": "object",
    "properties": {
        "partition": {"type": "integer", "minimum": 0},
        "offset": {"type": "integer", "minimum": 0},
        "timestamp": {"type": "integer", "minimum": 0, "description": "ms since the epoch"},
        "key": {"type": ["string", "null"]},
        "key_b64": {"type": "string", "contentEncoding": "base64"},
        "value": {
            "description": "a string is stored as its text, other JSON as compact JSON; null: a tombstone"
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
    "description": "any text, percent-encoded; a slash in it is %2F",
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
    """The good answer, and a problem for each of ``statuses``."""
    texts = {
        400: "The request makes no sense; see detail",
        404: "No such topic or partition",
        406: "None of the accepted media types is served",
        409: "In conflict with what is there",
        410: "Deleted by retention; log_start_offset is the earliest that is left",
        413: "Too large",
        415: "A media type that is not taken",
        416: "Behind the end of the log",
        500: "What is stored there is corrupt; next_offset says where to go on",
        429: "Too many at once; see Retry-After",
        503: "Not now; see Retry-After",
        504: "Not confirmed in time; it may still happen",
        507: "No space left",
    }
    problem = {"application/problem+json": {"schema": PROBLEM}}
    answers: dict[str, Any] = {str(ok_status): {"description": "Done", **({"content": ok} if ok else {})}}
    answers.update({str(status): {"description": texts[status], "content": problem} for status in statuses})
    return answers


OFFSET_OR_TIME = {"type": "string", "examples": ["earliest", "latest", "42", "-1h", "2026-11-20T10:00Z"]}
CONDITIONS = {"type": "array", "items": {"type": "string", "maxLength": 1000}, "maxItems": 16}
FILTER = [
    query("key", CONDITIONS, "keys with this in them; =N14228 is the whole key"),
    query("value", CONDITIONS, "values with this in them; = before it for the whole value"),
    query("header", CONDITIONS, "a header's name; name:text with this in it, name:=text for the whole of it"),
    query("json", CONDITIONS, "a path into values that are JSON, alone or compared: dep_delay > 60"),
    query(
        "preview",
        {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
        "bytes shown of each key, value and header; 0: all",
    ),
]
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
