"""Operations that read compacted topics by key, and as tables."""

from __future__ import annotations

from .components import RECORD, enum
from .parts import (
    AS,
    EVENTS,
    FILTER,
    OCTETS,
    TOPIC_NAME,
    Operation,
    answers,
    header,
    json_content,
    lines_content,
    query,
)

_PARTITION = query(
    "partition", {"type": "integer", "minimum": 0, "maximum": 2147483647}, "only this partition"
)
_ISOLATION = query(
    "isolation",
    enum("CommittedIsolation", "read_committed", default="read_committed"),
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
        query("encoding", enum("KeyEncoding", "base64"), "base64: the key in the path is base64"),
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
        ok={**json_content(RECORD), **OCTETS},
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
            **lines_content(
                '{"partition":0,"offset":41,"timestamp":1763664000000,"key":"ada",'
                '"value":"{\\"city\\":\\"London\\"}","headers":[]}\n'
                '{"end":{"reason":"end","records":1,"positions":{"0":42}}}\n'
            ),
            **EVENTS,
        },
    ),
}
