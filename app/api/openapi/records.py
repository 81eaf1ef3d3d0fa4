"""Operations that read and follow records."""

from __future__ import annotations

from .parts import (
    AS,
    FILTER,
    ISOLATION,
    OFFSET_OR_TIME,
    PARTITION,
    RECORD,
    TOPIC_NAME,
    Operation,
    answers,
    header,
    json_content,
    query,
)

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
                {
                    "type": "object",
                    "properties": {
                        "records": {"type": "array", "items": RECORD},
                        "next_offset": {"type": "integer"},
                        "high_watermark": {"type": "integer"},
                        "last_stable_offset": {"type": "integer"},
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
        ok={
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
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
