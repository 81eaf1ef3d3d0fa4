"""Operations that read compacted topics by key, and as tables."""

from __future__ import annotations

from .parts import AS, FILTER, RECORD, TOPIC_NAME, Operation, answers, header, json_content, query

_PARTITION = query(
    "partition", {"type": "integer", "minimum": 0, "maximum": 2147483647}, "only this partition"
)
_ISOLATION = query(
    "isolation",
    {"type": "string", "enum": ["read_committed"], "default": "read_committed"},
    "keys and tables have only committed records",
)

GET_KEY: Operation = {
    "parameters": [
        TOPIC_NAME,
        {
            "name": "key",
            "in": "path",
            "required": True,
            "description": "percent-encoded; any bytes",
            "schema": {"type": "string"},
            "example": "ada",
        },
        _PARTITION,
        query("encoding", {"type": "string", "enum": ["base64"]}, "base64: the key in the path is base64"),
        _ISOLATION,
        AS,
        FILTER[-1],
    ],
    "responses": answers(
        400,
        404,
        406,
        409,
        500,
        503,
        ok={
            **json_content(RECORD),
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    ),
}

TABLE: Operation = {
    "parameters": [
        TOPIC_NAME,
        _PARTITION,
        _ISOLATION,
        AS,
        FILTER[-1],
        header(
            "Last-Event-ID", {"type": "string"}, "server-sent events: resume the changes after this event"
        ),
    ],
    "responses": answers(
        400,
        404,
        406,
        409,
        429,
        503,
        ok={
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"partition":0,"offset":41,"timestamp":1763664000000,"key":"ada",'
                '"value":"{\\"city\\":\\"London\\"}","headers":[]}\n'
                '{"end":{"reason":"end","records":1,"positions":{"0":42}}}\n',
            },
            "text/event-stream": {"schema": {"type": "string"}},
        },
    ),
}
