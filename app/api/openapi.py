"""What ``/docs`` says beyond the signatures: parameters, bodies and examples, each of which runs as it stands."""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]

DESCRIPTION = """\
One durable log, written and read here with JSON, NDJSON or bytes, and over the binary protocol at the same time.

Every write says how durable it is (`synced`, `appended`, `none`), every read is a plain GET that moves nothing,
every error is an RFC 9457 problem with a stable `type`, a `kafka_code` and `retriable`.
"""

_PROBLEM = {
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

_HEADER = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": {"type": "string"},
        "value": {"type": ["string", "null"]},
        "value_b64": {"type": "string", "contentEncoding": "base64"},
    },
}

_RECORD = {
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
        "headers": {"type": "array", "items": _HEADER},
    },
}

_RESULT = {
    "type": "object",
    "properties": {
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "timestamp": {"type": "integer"},
        "index": {"type": "integer"},
        "error": {"type": "object"},
    },
}

_TOPIC_NAME = {
    "name": "topic",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"},
    "example": "orders",
}
_GROUP = {
    "name": "group",
    "in": "path",
    "required": True,
    "description": "any text, percent-encoded; a slash in it is %2F",
    "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
    "example": "billing",
}
_PARTITION = {
    "name": "partition",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": 2147483647},
    "example": 0,
}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def _json(schema: dict[str, Any], example: object = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def _answers(*statuses: int, ok: dict[str, Any] | None = None, ok_status: int = 200) -> dict[str, Any]:
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
    problem = {"application/problem+json": {"schema": _PROBLEM}}
    answers: dict[str, Any] = {str(ok_status): {"description": "Done", **({"content": ok} if ok else {})}}
    answers.update({str(status): {"description": texts[status], "content": problem} for status in statuses})
    return answers


_OFFSET_OR_TIME = {"type": "string", "examples": ["earliest", "latest", "42", "-1h", "2026-11-20T10:00Z"]}
_AS = _query("as", {"type": "string", "enum": ["json"]}, "json shows values that are JSON as JSON")

_CONDITIONS = {"type": "array", "items": {"type": "string", "maxLength": 1000}, "maxItems": 16}
_FILTER = [
    _query("key", _CONDITIONS, "keys with this in them; =N14228 is the whole key"),
    _query("value", _CONDITIONS, "values with this in them; = before it for the whole value"),
    _query(
        "header", _CONDITIONS, "a header's name; name:text with this in it, name:=text for the whole of it"
    ),
    _query("json", _CONDITIONS, "a path into values that are JSON, alone or compared: dep_delay > 60"),
    _query(
        "preview",
        {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
        "bytes shown of each key, value and header; 0: all",
    ),
]
_NDJSON_EXAMPLE = '{"key":"N14228","value":{"from":"EWR"}}\n{"value":"just text"}\n'
_RESULTS = {
    "type": "object",
    "properties": {
        "records": {"type": "array", "items": _RESULT},
        "durability": {"type": "string", "enum": ["synced", "appended", "none"]},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}
_PRODUCED = {**_json(_RESULTS), "application/x-ndjson": {"schema": {"type": "string"}}}

PRODUCE: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _query(
            "acks", {"type": "string", "enum": ["all", "1", "0", "-1"], "default": "all"}, "when to answer"
        ),
        _query("partition", {"type": "integer", "minimum": 0, "maximum": 2147483647}, "for all records"),
        _header("Producer-Id", {"type": "integer", "minimum": 0}, "idempotent: from POST /v1/producers"),
        _header("Producer-Epoch", {"type": "integer", "minimum": 0}, "idempotent: as given with the id"),
        _header(
            "Producer-Sequence", {"type": "integer", "minimum": 0}, "idempotent: of the first record, from 0"
        ),
        _header("Record-Key", {"type": "string"}, "octet-stream: the record's key"),
        _header("Record-Timestamp", {"type": "integer", "minimum": 0}, "octet-stream: ms since the epoch"),
    ],
    "requestBody": {
        "required": True,
        "content": {
            **_json(
                {
                    "type": "object",
                    "required": ["records"],
                    "additionalProperties": False,
                    "properties": {"records": {"type": "array", "items": _RECORD}},
                },
                {
                    "records": [
                        {"key": "N14228", "value": {"from": "EWR", "to": "IAH"}},
                        {
                            "key": "N24211",
                            "value": "plain text",
                            "headers": [{"key": "source", "value": "docs"}],
                        },
                        {"key": "N619AA", "value_b64": "AP8="},
                    ]
                },
            ),
            "application/x-ndjson": {"schema": {"type": "string"}, "example": _NDJSON_EXAMPLE},
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "any bytes",
            },
        },
    },
    "responses": {
        **_answers(400, 404, 409, 413, 415, 503, 504, 507, ok=_PRODUCED),
        "207": {"description": "Some records were refused: see errors", "content": _PRODUCED},
    },
}

PRODUCERS: Operation = {
    "parameters": [
        _query("name", {"type": "string", "minLength": 1, "maxLength": 500}, "whose records; with version"),
        _query(
            "version",
            {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "of which run: the same again resumes it, a greater one fences it",
        ),
    ],
    "responses": _answers(
        400,
        503,
        ok=_json(
            {
                "type": "object",
                "properties": {
                    "producer_id": {"type": "integer"},
                    "producer_epoch": {"type": "integer"},
                    "is_resumed": {
                        "type": "boolean",
                        "description": "of a named producer: it had begun before",
                    },
                },
            }
        ),
        ok_status=201,
    ),
}
PRODUCER_STATE: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _PARTITION,
        {
            "name": "producer_id",
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "example": 1,
        },
    ],
    "responses": _answers(
        400,
        404,
        ok=_json(
            {
                "type": "object",
                "properties": {
                    "producer_epoch": {"type": "integer"},
                    "last_sequence": {"type": "integer"},
                    "last_offset": {"type": "integer"},
                },
            }
        ),
    ),
}

READ: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _PARTITION,
        _query("from", _OFFSET_OR_TIME, "an offset, earliest (default), latest, RFC 3339 or a time ago"),
        _query(
            "limit", {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 1000}, "records at most"
        ),
        _query("max_bytes", {"type": "integer", "minimum": 1}, "bytes of batches to look at, at most"),
        _query("wait_ms", {"type": "integer", "minimum": 0, "maximum": 2000}, "wait so long for an append"),
        _query("min_bytes", {"type": "integer", "minimum": 0, "maximum": 2147483647}, "… until so many came"),
        _AS,
        _query("group", {"type": "string"}, "read as the owner, in this group"),
        _query("member_id", {"type": "string"}, "… of this member"),
        _query("generation", {"type": "integer", "minimum": 0}, "… in this generation"),
    ],
    "responses": _answers(
        400,
        404,
        406,
        409,
        410,
        416,
        429,
        500,
        503,
        ok={
            **_json(
                {
                    "type": "object",
                    "properties": {
                        "records": {"type": "array", "items": _RECORD},
                        "next_offset": {"type": "integer"},
                        "high_watermark": {"type": "integer"},
                        "log_start_offset": {"type": "integer"},
                    },
                }
            ),
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/event-stream": {"schema": {"type": "string"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
        },
    ),
}

TAIL: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _query("from", _OFFSET_OR_TIME, "latest (default), earliest or a time"),
        _AS,
        *_FILTER,
        _query(
            "max_per_s",
            {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
            "server-sent events: so many a second at most, the newest; 0: all",
        ),
        _header("Last-Event-ID", {"type": "string"}, "resume behind this event"),
    ],
    "responses": _answers(
        400,
        404,
        406,
        429,
        ok={
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    ),
}

OFFSETS: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _PARTITION,
        _query("at", _OFFSET_OR_TIME, "latest (default), earliest, RFC 3339 or a time ago"),
    ],
    "responses": _answers(
        400,
        404,
        500,
        ok=_json(
            {
                "type": "object",
                "properties": {
                    "partition": {"type": "integer"},
                    "offset": {"type": "integer"},
                    "timestamp": {"type": ["integer", "null"]},
                    "leader_epoch": {"type": "integer"},
                },
            }
        ),
    ),
}

_TOPIC_BODY = {
    "content": _json(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "partitions": {"type": ["integer", "null"], "minimum": 1, "maximum": 100},
                "configs": {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
                },
            },
        },
        {"partitions": 3, "configs": {"retention.ms": 86400000}},
    )
}
_TOPIC = _json(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "topic_id": {"type": "string", "format": "uuid"},
            "partition_count": {"type": "integer"},
            "configs": {"type": "object"},
            "effective_configs": {"type": "object"},
            "partitions": {"type": "array", "items": {"type": "object"}},
        },
    }
)

_INTEGERS = {"type": "array", "items": {"type": "integer"}}
_NUMBERS = {"type": "array", "items": {"type": ["number", "null"]}}
_NULLABLE_INTEGER = {"type": ["integer", "null"]}
_NULLABLE_STRING = {"type": ["string", "null"]}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


_INTEGER = {"type": "integer"}
_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}

LIST_TOPICS: Operation = {
    "parameters": [
        _query("search", {"type": "string"}, "names with this in them, in small or capital letters"),
        _query("prefix", {"type": "string"}, "names that begin so"),
        _query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000},
            "of one page; 1000 at most with sizes",
        ),
        _query("page", {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 1}, "from 1 on"),
        _query("after", {"type": "string"}, "next_after of the page before"),
        _query("sizes", {"type": "boolean", "default": False}, "say how much each holds"),
    ],
    "responses": _answers(
        400,
        ok=_json(
            _object(
                topics=_list_of(
                    name=_STRING,
                    topic_id={"type": "string", "format": "uuid"},
                    partition_count=_INTEGER,
                    records=_INTEGER,
                    size_bytes=_INTEGER,
                    storage=_STRING,
                    retention_ms=_INTEGER,
                ),
                next_after=_NULLABLE_STRING,
                total=_INTEGER,
            ),
            {
                "topics": [
                    {
                        "name": "flights",
                        "topic_id": "b4f0c1de-7d3c-4c53-9d0e-5a6f2f3d9b51",
                        "partition_count": 3,
                        "records": 336776,
                        "size_bytes": 61873024,
                        "storage": "disk",
                        "retention_ms": 604800000,
                    }
                ],
                "next_after": None,
                "total": 1,
            },
        ),
    ),
}
_PURGED = {"partition": _INTEGER, "log_start_offset": _INTEGER, "deleted": _INTEGER}
PURGE_TOPIC: Operation = {
    "parameters": [_TOPIC_NAME],
    "responses": _answers(
        400,
        404,
        503,
        507,
        ok=_json(
            _object(topic=_STRING, partitions=_list_of(**_PURGED)),
            {"topic": "orders", "partitions": [{"partition": 0, "log_start_offset": 42, "deleted": 42}]},
        ),
    ),
}
PURGE_PARTITION: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _PARTITION,
        {**_query("before", _OFFSET_OR_TIME, "an offset, latest, RFC 3339 or a time ago"), "required": True},
    ],
    "responses": _answers(
        400,
        404,
        410,
        416,
        500,
        503,
        507,
        ok=_json(
            _object(topic=_STRING, **_PURGED),
            {"topic": "orders", "partition": 0, "log_start_offset": 42, "deleted": 42},
        ),
    ),
}
_SEARCH_FORM = [
    _TOPIC_NAME,
    *_FILTER,
    _query("order", {"type": "string", "enum": ["oldest", "newest"], "default": "oldest"}, "which first"),
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 9223372036854775807},
        "matches at most; with format=events 50 (default) up to 1000000, else all (default)",
    ),
    _query(
        "format",
        {"type": "string", "enum": ["events", "ndjson", "csv"], "default": "events"},
        "see above",
    ),
]
_FOUND = {
    "application/x-ndjson": {
        "schema": {"type": "string"},
        "example": '{"progress":{"offsets":0,"of":336776,"scanned":0,"matched":0,"bytes":0,"too_large":0}}\n'
        '{"record":{"partition":0,"offset":41,"timestamp":1763664000000,"key":"N14228",'
        '"value":"{\\"carrier\\":\\"UA\\"}","headers":[]}}\n'
        '{"end":{"reason":"limit","offsets":42,"of":336776,"scanned":42,"matched":1,"bytes":8192,'
        '"too_large":0,"spans":"0:42-336776","errors":[]}}\n',
    },
    "text/csv": {"schema": {"type": "string"}},
}
SEARCH: Operation = {
    "parameters": [
        *_SEARCH_FORM,
        _query("from", _OFFSET_OR_TIME, "where the search begins; earliest is the default"),
        _query("to", _OFFSET_OR_TIME, "where it ends, before this; latest is the default"),
        _query("partitions", {"type": "string", "examples": ["0,2"]}, "only these"),
        _query("spans", {"type": "string", "examples": ["0:42-100"]}, "of an end: go on behind that search"),
    ],
    "responses": _answers(400, 404, 429, 500, ok=_FOUND),
}
SEARCH_ON: Operation = {
    "parameters": _SEARCH_FORM,
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["spans"],
                    "properties": {"spans": {"type": "string"}},
                    "additionalProperties": False,
                },
                "example": {"spans": "0:42-100,1:0-7"},
            }
        },
    },
    "responses": _answers(400, 404, 413, 415, 429, 500, ok=_FOUND),
}
GET_RECORD: Operation = {
    "parameters": [
        _TOPIC_NAME,
        _PARTITION,
        {
            "name": "offset",
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "example": 0,
        },
        _query("part", {"type": "string", "enum": ["value", "key"]}, "its bytes alone, as a download"),
        _FILTER[-1],
    ],
    "responses": _answers(
        400,
        404,
        410,
        416,
        500,
        ok={
            **_json(_RECORD),
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    ),
}
_VERIFIED = _object(
    topic=_STRING,
    partition=_INTEGER,
    is_good=_BOOLEAN,
    at=_INTEGER,
    took_ms=_INTEGER,
    segments=_INTEGER,
    batches=_INTEGER,
    records=_INTEGER,
    size_bytes=_INTEGER,
    problem_count=_INTEGER,
    problems={"type": "array", "items": _STRING},
)
_VERIFIED_EXAMPLE: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "is_good": True,
    "at": 1763664000000,
    "took_ms": 35,
    "segments": 1,
    "batches": 12,
    "records": 42,
    "size_bytes": 8192,
    "problem_count": 0,
    "problems": [],
}
_SEGMENTS_EXAMPLE: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "storage": "disk",
    "retention_ms": 604800000,
    "retention_bytes": -1,
    "size_bytes": 8192,
    "segments": [
        {
            "base_offset": 0,
            "next_offset": 42,
            "file": "00000000000000000000.log",
            "size_bytes": 8192,
            "index_bytes": 0,
            "created_at": 1763664000000,
            "max_timestamp": 1763664009000,
            "is_sealed": False,
            "is_synced": True,
            "expires_at": 1764268809000,
            "is_over_size": False,
            "damages": [],
        }
    ],
    "verified": _VERIFIED_EXAMPLE,
}
SEGMENTS: Operation = {
    "parameters": [_TOPIC_NAME, _PARTITION],
    "responses": _answers(
        400,
        404,
        503,
        ok=_json(
            _object(
                topic=_STRING,
                partition=_INTEGER,
                storage=_STRING,
                retention_ms=_INTEGER,
                retention_bytes=_INTEGER,
                size_bytes=_INTEGER,
                segments=_list_of(
                    base_offset=_INTEGER,
                    next_offset=_INTEGER,
                    file=_STRING,
                    size_bytes=_INTEGER,
                    index_bytes=_INTEGER,
                    created_at=_INTEGER,
                    max_timestamp=_NULLABLE_INTEGER,
                    is_sealed=_BOOLEAN,
                    is_synced=_BOOLEAN,
                    expires_at=_NULLABLE_INTEGER,
                    is_over_size=_BOOLEAN,
                    damages={"type": "array", "items": _STRING},
                ),
                verified={**_VERIFIED, "type": ["object", "null"]},
            ),
            _SEGMENTS_EXAMPLE,
        ),
    ),
}
VERIFY: Operation = {
    "parameters": [_TOPIC_NAME, _PARTITION],
    "responses": _answers(400, 404, 429, 503, ok=_json(_VERIFIED, _VERIFIED_EXAMPLE)),
}
_DOOR = {
    "name": _STRING,
    "host": _NULLABLE_STRING,
    "port": _NULLABLE_INTEGER,
    "connections": _INTEGER,
    "connections_opened": _INTEGER,
    "bytes_in": _INTEGER,
    "bytes_out": _INTEGER,
    "bytes_in_per_s": _NULLABLE_INTEGER,
    "bytes_out_per_s": _NULLABLE_INTEGER,
}
OVERVIEW: Operation = {
    "responses": _answers(
        ok=_json(
            _object(
                version=_STRING,
                cluster_id=_STRING,
                broker_id=_INTEGER,
                now=_INTEGER,
                started_at=_INTEGER,
                uptime_ms=_INTEGER,
                health=_object(
                    status={"type": "string", "enum": ["ready", "closing", "failed"]}, reason=_NULLABLE_STRING
                ),
                topics=_INTEGER,
                partitions=_INTEGER,
                groups=_INTEGER,
                totals=_object(records_in=_INTEGER, bytes_in=_INTEGER, bytes_out=_INTEGER),
                rates={
                    "type": ["object", "null"],
                    "description": "null until there are two samples",
                    "properties": {
                        "over_ms": _INTEGER,
                        "records_in_per_s": {"type": "number"},
                        "bytes_in_per_s": {"type": "number"},
                        "bytes_out_per_s": {"type": "number"},
                        "syncs_per_s": {"type": "number"},
                    },
                },
                doors=_list_of(**_DOOR),
                disk=_object(
                    path=_STRING,
                    total_bytes=_NULLABLE_INTEGER,
                    free_bytes=_NULLABLE_INTEGER,
                    log_bytes=_NULLABLE_INTEGER,
                ),
                syncs=_object(
                    count=_INTEGER,
                    at=_NULLABLE_INTEGER,
                    p50_ms={"type": ["number", "null"]},
                    p99_ms={"type": ["number", "null"]},
                ),
                process=_object(resident_bytes=_INTEGER),
                verifying={**_NULLABLE_STRING, "description": "the partition whose bytes are being checked"},
                searches=_object(
                    active=_INTEGER,
                    scanned_records=_INTEGER,
                    ended={"type": "object", "additionalProperties": _INTEGER},
                ),
            )
        )
    )
}
OVERVIEW_HISTORY: Operation = {
    "parameters": [
        _query("points", {"type": "integer", "minimum": 1, "maximum": 720, "default": 720}, "at most"),
    ],
    "responses": _answers(
        400,
        ok=_json(
            _object(
                interval_ms=_INTEGER,
                at=_INTEGERS,
                records_in_per_s=_NUMBERS,
                bytes_in_per_s=_NUMBERS,
                bytes_out_per_s=_NUMBERS,
                sync_p50_ms=_NUMBERS,
                sync_p99_ms=_NUMBERS,
                log_bytes=_INTEGERS,
                free_bytes=_NUMBERS,
                doors=_list_of(
                    name=_STRING, bytes_in_per_s=_NUMBERS, bytes_out_per_s=_NUMBERS, connections=_INTEGERS
                ),
            )
        ),
    ),
}
CONNECTIONS: Operation = {
    "parameters": [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 10000, "default": 500}, "at most"),
    ],
    "responses": _answers(
        400,
        ok=_json(
            _object(
                total=_INTEGER,
                connections=_list_of(
                    door=_STRING,
                    peer=_STRING,
                    age_ms=_INTEGER,
                    client_id=_NULLABLE_STRING,
                    client_name=_NULLABLE_STRING,
                    client_version=_NULLABLE_STRING,
                    bytes_in=_INTEGER,
                    bytes_out=_INTEGER,
                ),
            ),
            {
                "total": 1,
                "connections": [
                    {
                        "door": "kafka",
                        "peer": "127.0.0.1:51334",
                        "age_ms": 12000,
                        "client_id": "billing",
                        "client_name": "librdkafka",
                        "client_version": "2.6.1",
                        "bytes_in": 1048576,
                        "bytes_out": 2048,
                    }
                ],
            },
        ),
    ),
}
GROUP_LAG_HISTORY: Operation = {
    "parameters": [_GROUP],
    "responses": _answers(
        404,
        503,
        ok=_json(
            _object(
                group=_STRING,
                interval_ms=_INTEGER,
                at=_INTEGERS,
                partitions=_list_of(topic=_STRING, partition=_INTEGER, lag=_NUMBERS),
            )
        ),
    ),
}
PUT_TOPIC: Operation = {
    "parameters": [_TOPIC_NAME],
    "requestBody": _TOPIC_BODY,
    "responses": {
        **_answers(400, 409, 413, 415, 503, 507, ok=_TOPIC),
        "201": {"description": "Created", "content": _TOPIC},
    },
}
GET_TOPIC: Operation = {"parameters": [_TOPIC_NAME], "responses": _answers(400, 404, ok=_TOPIC)}
PATCH_TOPIC: Operation = {
    "parameters": [_TOPIC_NAME],
    "requestBody": _TOPIC_BODY,
    "responses": _answers(400, 404, 413, 415, 503, ok=_TOPIC),
}
DELETE_TOPIC: Operation = {"parameters": [_TOPIC_NAME], "responses": _answers(400, 404, 503, ok_status=204)}
FLUSH_TOPIC: Operation = {
    "parameters": [_TOPIC_NAME],
    "responses": _answers(400, 404, 503, ok=_json({"type": "object"})),
}
FLUSH: Operation = {"responses": _answers(503, ok=_json({"type": "object"}))}
HEALTH: Operation = {"responses": _answers(ok=_json({"type": "object"}))}
READY: Operation = {"responses": _answers(503, ok=_json({"type": "object"}))}
CLUSTER: Operation = {"responses": _answers(ok=_json({"type": "object"}))}

CDC: Operation = {
    "responses": _answers(
        ok=_json(
            {
                "type": "object",
                "required": ["connectors"],
                "properties": {
                    "connectors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["slot", "state", "restarts"],
                            "properties": {
                                "slot": {"type": "string"},
                                "database": {"type": "string"},
                                "state": {
                                    "enum": [
                                        "starting",
                                        "connecting",
                                        "copying",
                                        "streaming",
                                        "waiting",
                                        "stopped",
                                        "failed",
                                    ]
                                },
                                "confirmed_lsn": {"type": "string"},
                                "lag_bytes": {"type": ["integer", "null"]},
                                "wal_status": {"type": ["string", "null"]},
                                "events": {"type": "integer"},
                                "repeated": {"type": "integer"},
                                "transactions": {"type": "integer"},
                                "notifications": {"type": "integer"},
                                "commit_ms": {"type": "integer"},
                                "failures": {"type": "integer"},
                                "restarts": {"type": "integer"},
                                "last_error": {"type": ["string", "null"]},
                                "tables": {
                                    "type": "object",
                                    "additionalProperties": {
                                        "type": "object",
                                        "properties": {
                                            "copied": {"type": "integer"},
                                            "expected": {"type": "integer"},
                                            "changes": {"type": "integer"},
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        )
    )
}


_MEMBER = {
    "name": "member_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": "http-0b5f",
}
_OWNED = [_GROUP, _TOPIC_NAME, _PARTITION]
_GENERATION = {"type": "integer", "minimum": 0, "maximum": 2147483647}
_TOPICS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_OBJECT = _json({"type": "object"})
_OWNER_BODY = {"member_id": {"type": "string"}, "generation": _GENERATION}


def _body(properties: dict[str, Any], example: object, *, required: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }
    return {"required": True, "content": _json(schema, example)}


LIST_GROUPS: Operation = {
    "parameters": [
        _query("search", {"type": "string"}, "names with this in them, in small or capital letters"),
        _query("page", {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 1}, "from 1 on"),
        _query("prefix", {"type": "string"}, "names that begin so"),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000}, "of one page"),
        _query("after", {"type": "string"}, "next_after of the page before"),
    ],
    "responses": _answers(400, 503, ok=_OBJECT),
}
GET_GROUP: Operation = {"parameters": [_GROUP], "responses": _answers(404, 503, ok=_OBJECT)}
DELETE_GROUP: Operation = {"parameters": [_GROUP], "responses": _answers(404, 409, 503, ok_status=204)}
RESET_OFFSETS: Operation = {
    "parameters": [
        _GROUP,
        _query("dry_run", {"type": "boolean", "default": False}, "only say what would be"),
    ],
    "requestBody": _body(
        {
            "to": {"type": ["string", "integer"], "examples": ["earliest", "latest", 42, "-1h"]},
            "topics": _TOPICS,
            "offsets": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["topic", "partition", "offset"],
                    "properties": {
                        "topic": {"type": "string"},
                        "partition": {"type": "integer", "minimum": 0},
                        "offset": {"type": "integer", "minimum": 0},
                    },
                },
            },
        },
        {"to": "earliest", "topics": ["orders"]},
        required=[],
    ),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT),
}
JOIN_GROUP: Operation = {
    "parameters": [_GROUP],
    "requestBody": _body(
        {
            "topics": _TOPICS,
            "session_timeout_ms": {"type": "integer", "minimum": 6000, "maximum": 1800000, "default": 45000},
            "member_id": {"type": "string"},
            "client_id": {"type": "string"},
        },
        {"topics": ["orders"], "session_timeout_ms": 10000},
        required=["topics"],
    ),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT, ok_status=201),
}
HEARTBEAT: Operation = {
    "parameters": [_GROUP, _MEMBER],
    "requestBody": _body({"generation": _GENERATION}, {"generation": 1}, required=["generation"]),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT),
}
LEAVE_GROUP: Operation = {
    "parameters": [_GROUP, _MEMBER],
    "responses": _answers(400, 404, 503, ok_status=204),
}
CLAIM: Operation = {
    "parameters": _OWNED,
    "requestBody": _body(
        _OWNER_BODY, {"member_id": "http-0b5f", "generation": 1}, required=["member_id", "generation"]
    ),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT),
}
RELEASE: Operation = {
    "parameters": [
        *_OWNED,
        _query("member_id", {"type": "string"}, "in the place of a body"),
        _query("generation", _GENERATION, "in the place of a body"),
    ],
    "responses": _answers(400, 404, 409, 413, 415, 503, ok_status=204),
}
COMMIT: Operation = {
    "parameters": _OWNED,
    "requestBody": _body(
        {
            **_OWNER_BODY,
            "offset": {"type": "integer", "minimum": 0, "description": "of the next record to read"},
            "metadata": {"type": "string"},
        },
        {"member_id": "http-0b5f", "generation": 1, "offset": 42},
        required=["member_id", "generation", "offset"],
    ),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT),
}
COMMITTED: Operation = {"parameters": _OWNED, "responses": _answers(400, 404, 503, ok=_OBJECT)}
_LEASE_MS = {"type": "integer", "minimum": 100, "maximum": 3600000, "default": 30000}
_LEASE = {"lease": {"type": "string", "description": "as the poll gave it"}}
_LEASE_EXAMPLE = {"lease": "WyJiaWxsaW5nIiwi…"}
POLL: Operation = {
    "parameters": [_GROUP],
    "requestBody": _body(
        {
            "topics": _TOPICS,
            "max_records": {"type": "integer", "minimum": 1, "maximum": 100000, "default": 500},
            "max_bytes": {"type": "integer", "minimum": 1, "default": 1048576},
            "max_partitions": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "null: a fair share",
            },
            "wait_ms": {"type": "integer", "minimum": 0, "maximum": 2000, "default": 0},
            "lease_ms": _LEASE_MS,
            "from": {"type": "string", "enum": ["earliest", "latest"], "default": "earliest"},
            "poll_id": {
                "type": "string",
                "description": "of your choice: the same again, while its lease holds, gets the same answer",
            },
        },
        {"topics": ["orders"], "max_records": 500, "wait_ms": 1000, "lease_ms": 30000},
        required=["topics"],
    ),
    "responses": _answers(400, 404, 409, 413, 415, 500, 503, ok=_OBJECT),
}
ACK: Operation = {
    "parameters": [_GROUP],
    "requestBody": _body(_LEASE, _LEASE_EXAMPLE, required=["lease"]),
    "responses": _answers(400, 404, 409, 413, 415, 503, 504, ok=_OBJECT),
}
NACK: Operation = {
    "parameters": [_GROUP],
    "requestBody": _body(_LEASE, _LEASE_EXAMPLE, required=["lease"]),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok_status=204),
}
EXTEND: Operation = {
    "parameters": [_GROUP],
    "requestBody": _body({**_LEASE, "lease_ms": _LEASE_MS}, _LEASE_EXAMPLE, required=["lease"]),
    "responses": _answers(400, 404, 409, 413, 415, 503, ok=_OBJECT),
}
