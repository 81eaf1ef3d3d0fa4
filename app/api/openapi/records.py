"""Operations that read and follow records."""

from __future__ import annotations

from .components import INTEGER, NULLABLE_INTEGER, PROBLEM, RECORD, Schema, array, model
from .parts import (
    ARROW,
    AS,
    EVENTS,
    FILTER,
    ISOLATION,
    OCTETS,
    OFFSET_OR_TIME,
    PARTITION,
    TOPIC_NAME,
    Operation,
    answers,
    header,
    json_content,
    lines_content,
    query,
)

_LINE = '{"partition":0,"offset":41,"timestamp":1763664000000,"key":"N14228","value":"{\\"from\\":\\"EWR\\"}","headers":[]}\n'
_EVENTS_EXAMPLE: Schema = {
    "text/event-stream": {**EVENTS["text/event-stream"], "example": f"id: 0:41\ndata: {_LINE}\n"}
}
_MAX_PER_S = query(
    "max_per_s",
    {"type": "integer", "minimum": 0, "maximum": 2147483647, "default": 0},
    "server-sent events: maximum records per second, of which the newest are sent; 0 means no limit",
)
_LAST_EVENT_ID = header("Last-Event-ID", {"type": "string"}, "resume after this event")
READ: Operation = {
    "parameters": [
        TOPIC_NAME,
        PARTITION,
        query("from", OFFSET_OR_TIME, "offset, earliest (default), latest, RFC 3339 time or time ago"),
        query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 1000},
            "maximum number of records",
        ),
        query(
            "max_bytes",
            {"type": "integer", "minimum": 1},
            "maximum bytes of the records, decompressed; of batches as they are stored for application/octet-stream",
        ),
        query("wait_ms", {"type": "integer", "minimum": 0, "maximum": 2000}, "maximum wait for new records"),
        query(
            "min_bytes",
            {"type": "integer", "minimum": 0, "maximum": 2147483647},
            "wait until this many bytes are available",
        ),
        ISOLATION,
        AS,
        query("group", {"type": "string"}, "read as the owner of the partition in this group"),
        query("member_id", {"type": "string"}, "with group: id of the member"),
        query("generation", {"type": "integer", "minimum": 0}, "with group: generation of the member"),
        *(
            {**parameter, "description": f"server-sent events: {parameter['description']}"}
            for parameter in FILTER
        ),
        _MAX_PER_S,
        _LAST_EVENT_ID,
    ],
    "responses": answers(
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
            **json_content(
                model(
                    "RecordPage",
                    optional=("error",),
                    records=array(RECORD),
                    next_offset=INTEGER,
                    high_watermark=INTEGER,
                    last_stable_offset=INTEGER,
                    log_start_offset=INTEGER,
                    error=PROBLEM,
                )
            ),
            **lines_content(_LINE),
            **_EVENTS_EXAMPLE,
            **OCTETS,
            **ARROW,
        },
    ),
}

TAIL: Operation = {
    "parameters": [
        TOPIC_NAME,
        query("from", OFFSET_OR_TIME, "latest (default), earliest, RFC 3339 time or time ago"),
        ISOLATION,
        AS,
        *FILTER,
        _MAX_PER_S,
        _LAST_EVENT_ID,
    ],
    "responses": answers(
        400,
        404,
        406,
        429,
        ok={**lines_content(_LINE), **_EVENTS_EXAMPLE},
    ),
}

OFFSETS: Operation = {
    "parameters": [
        TOPIC_NAME,
        PARTITION,
        query("at", OFFSET_OR_TIME, "latest (default), earliest, RFC 3339 time or time ago"),
        ISOLATION,
    ],
    "responses": answers(
        400,
        404,
        500,
        ok=json_content(
            model(
                "FoundOffset",
                partition=INTEGER,
                offset=INTEGER,
                timestamp=NULLABLE_INTEGER,
                leader_epoch=INTEGER,
            )
        ),
    ),
}
