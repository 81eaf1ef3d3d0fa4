"""The components of the OpenAPI document: schemas and answers that have a name.

Operations refer to them, so that a generated client has one type for each.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
SCHEMAS: dict[str, Schema] = {}

INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGERS: Schema = {"type": "array", "items": {"type": "integer"}}
STRINGS: Schema = {"type": "array", "items": STRING}
NUMBERS: Schema = {"type": "array", "items": {"type": ["number", "null"]}}
NULLABLE_INTEGER: Schema = {"type": ["integer", "null"]}
NULLABLE_NUMBER: Schema = {"type": ["number", "null"]}
NULLABLE_STRING: Schema = {"type": ["string", "null"]}
INTEGER_BY_NAME: Schema = {"type": "object", "additionalProperties": INTEGER}


def named(name: str, schema: Schema) -> Schema:
    """Add a schema to the document; return the reference to it."""
    assert name not in SCHEMAS, f"two schemas are named {name}"
    SCHEMAS[name] = schema
    return {"$ref": f"#/components/schemas/{name}"}


def model(name: str, /, *, optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Name an object that always has all ``properties`` but the ``optional`` ones."""
    required = [property_name for property_name in properties if property_name not in optional]
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return named(name, schema)


def enum(name: str, *values: str, **keywords: Any) -> Schema:
    return named(name, {"type": "string", "enum": list(values), **keywords})


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(reference: Schema) -> Schema:
    return {"anyOf": [reference, {"type": "null"}]}


DURABILITY = enum("Durability", "replicated", "synced", "appended", "none")
_ERROR: dict[str, Schema] = {
    "type": {"type": "string", "examples": ["/problems/unknown-topic"]},
    "detail": STRING,
    "kafka_code": INTEGER,
    "retriable": BOOLEAN,
}
RECORD_ERROR = model("RecordError", optional=("kafka_code", "retriable"), index=INTEGER, **_ERROR)
PROBLEM = model(
    "Problem",
    optional=("errors",),
    title=STRING,
    status=INTEGER,
    **_ERROR,
    errors={**array(RECORD_ERROR), "description": "the refused records of a request"},
)
CONFIGS = named("Configs", {"type": "object", "additionalProperties": STRING})
CONFIG_CHANGES = named(
    "ConfigChanges",
    {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean", "null"]}},
)
POLL_START = enum("PollStart", "earliest", "latest")
HEADER = model(
    "Header",
    optional=("value", "value_b64"),
    key=STRING,
    value=NULLABLE_STRING,
    value_b64={"type": "string", "contentEncoding": "base64"},
)
_CONTENT: dict[str, Schema] = {
    "key": NULLABLE_STRING,
    "key_b64": {"type": "string", "contentEncoding": "base64"},
    "value": {
        "description": "a string is stored as its text, any other JSON value as compact JSON; null is a tombstone"
    },
    "value_b64": {"type": "string", "contentEncoding": "base64"},
    "headers": array(HEADER),
}
_TIMESTAMP: Schema = {"type": "integer", "description": "ms since the epoch; -1 for none"}
_SHOWN: dict[str, Schema] = {
    "partition": INTEGER,
    "offset": INTEGER,
    "timestamp": _TIMESTAMP,
    **_CONTENT,
    "value": {"description": "text; with as=json the value itself if it is valid JSON"},
}
_NOT_ALWAYS = ("key", "key_b64", "value", "value_b64", "headers")
NEW_RECORD = model(
    "NewRecord",
    optional=("partition", "timestamp", *_CONTENT),
    **_CONTENT,
    timestamp={**_TIMESTAMP, "type": ["integer", "null"]},
    partition={"type": ["integer", "null"], "minimum": 0},
)
TOPIC_RECORD = model(
    "NewTopicRecord",
    optional=("partition", "timestamp", *_CONTENT),
    topic=STRING,
    **_CONTENT,
    timestamp={**_TIMESTAMP, "type": ["integer", "null"]},
    partition={"type": ["integer", "null"], "minimum": 0},
)
RECORD = model(
    "Record",
    optional=(*_NOT_ALWAYS, "value_bytes", "is_cut"),
    **_SHOWN,
    value_bytes={**INTEGER, "description": "with preview: the whole size of the value"},
    is_cut={**BOOLEAN, "description": "with preview: present if anything was cut off"},
)
LEASED_RECORD = model("LeasedRecord", optional=_NOT_ALWAYS, topic=STRING, **_SHOWN)
SHARED_RECORD = model("SharedRecord", optional=_NOT_ALWAYS, topic=STRING, deliveries=INTEGER, **_SHOWN)
TOPIC_PARTITIONS = model("TopicPartitions", topic=STRING, partitions=INTEGERS)
BYTES: Schema = {"type": "string", "format": "binary"}

# Name and description of the answer of each status that reports an error.
_ERRORS = {
    400: ("BadRequest", "The request is invalid; see detail"),
    401: ("Unauthorized", "A login is required, or failed"),
    403: ("Forbidden", "The client may not do this; see detail"),
    404: ("NotFound", "The object does not exist; see detail"),
    406: ("NotAcceptable", "None of the accepted media types is supported"),
    409: ("Conflict", "Conflicts with the current state; see detail"),
    410: ("Gone", "Deleted by retention; log_start_offset is the earliest remaining offset"),
    413: ("TooLarge", "The body is too large"),
    415: ("UnsupportedMediaType", "The media type or the coding of the body is not supported"),
    416: ("PastTheEnd", "Past the end of the log"),
    422: ("IdempotencyKeyReused", "The idempotency key belongs to a request with another body"),
    429: ("TooManyRequests", "Too many requests of this kind; see Retry-After"),
    500: ("CorruptLog", "The stored data is corrupt; continue at next_offset"),
    503: ("Unavailable", "Temporarily unavailable; see Retry-After"),
    504: ("TimedOut", "Not confirmed in time; the request may still take effect"),
    507: ("StorageFull", "No space left on the disk"),
}
_PROBLEM_CONTENT = {"application/problem+json": {"schema": PROBLEM}}
_OTHER = "Error"
RESPONSES: dict[str, Schema] = {
    name: {"description": text, "content": _PROBLEM_CONTENT} for name, text in _ERRORS.values()
} | {_OTHER: {"description": "Any other error", "content": _PROBLEM_CONTENT}}


def error_answers(*statuses: int) -> dict[str, Schema]:
    """Refer to the answer of each of ``statuses``, and to that of all other errors."""
    names = {str(status): _ERRORS[status][0] for status in statuses} | {"default": _OTHER}
    return {status: {"$ref": f"#/components/responses/{name}"} for status, name in names.items()}
