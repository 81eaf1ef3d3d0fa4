"""Operations on topics."""

from __future__ import annotations

from ..bodies import TopicBody
from .components import (
    CONFIGS,
    DURABILITY,
    INTEGER,
    NULLABLE_NUMBER,
    NULLABLE_STRING,
    STRING,
    array,
    enum,
    model,
    nullable,
)
from .parts import (
    OFFSET_OR_TIME,
    PARTITION,
    TOPIC_NAME,
    Operation,
    answers,
    json_content,
    query,
)
from .request_bodies import request_body

_TOPIC_BODY = request_body(
    TopicBody, {"partitions": 3, "configs": {"retention.ms": 86400000}}, is_required=False
)
_UUID = {"type": "string", "format": "uuid"}
_HELD_BACK = model(
    "HeldBackBy",
    transactional_id=NULLABLE_STRING,
    producer_id=INTEGER,
    since=INTEGER,
)
_PARTITION_STATE = model(
    "PartitionState",
    partition=INTEGER,
    log_start_offset=INTEGER,
    last_stable_offset=INTEGER,
    held_back_by=nullable(_HELD_BACK),
    high_watermark=INTEGER,
    synced_offset=INTEGER,
    leader_epoch=INTEGER,
    size_bytes=INTEGER,
    segments=INTEGER,
    dirty_ratio=NULLABLE_NUMBER,
    cleaner=NULLABLE_STRING,
)
_TOPIC = json_content(
    model(
        "Topic",
        name=STRING,
        topic_id=_UUID,
        partition_count=INTEGER,
        configs=CONFIGS,
        effective_configs=CONFIGS,
        partitions=array(_PARTITION_STATE),
    )
)
_SIZES = {"records": INTEGER, "size_bytes": INTEGER, "storage": STRING, "retention_ms": INTEGER}
_LISTED_TOPIC = model(
    "ListedTopic", optional=tuple(_SIZES), name=STRING, topic_id=_UUID, partition_count=INTEGER, **_SIZES
)

LIST_TOPICS: Operation = {
    "parameters": [
        query("search", {"type": "string"}, "only names that contain this text, ignoring case"),
        query("prefix", {"type": "string"}, "only names that start with this text"),
        query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000},
            "topics per page; at most 1000 with sizes",
        ),
        query(
            "page",
            {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 1},
            "page number, from 1",
        ),
        query("after", {"type": "string"}, "next_after of the previous page"),
        query(
            "sizes",
            {"type": "boolean", "default": False},
            "include records, size, storage and retention of each topic",
        ),
        query(
            "order",
            enum("TopicOrder", "name", "records", "size", default="name"),
            "records, size: largest first",
        ),
        query("internal", {"type": "boolean", "default": True}, "include topics whose names begin with __"),
    ],
    "responses": answers(
        400,
        ok=json_content(
            model("TopicList", topics=array(_LISTED_TOPIC), next_after=NULLABLE_STRING, total=INTEGER),
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
_PURGED = {"partition": INTEGER, "log_start_offset": INTEGER, "deleted": INTEGER}

PURGE_TOPIC: Operation = {
    "parameters": [TOPIC_NAME],
    "responses": answers(
        400,
        404,
        503,
        507,
        ok=json_content(
            model(
                "PurgedTopic",
                topic=STRING,
                partitions=array(model("PurgedPartition", optional=(), **_PURGED)),
            ),
            {"topic": "orders", "partitions": [{"partition": 0, "log_start_offset": 42, "deleted": 42}]},
        ),
    ),
}

PURGE_PARTITION: Operation = {
    "parameters": [
        TOPIC_NAME,
        PARTITION,
        {**query("before", OFFSET_OR_TIME, "offset, latest, RFC 3339 time or time ago"), "required": True},
    ],
    "responses": answers(
        400,
        404,
        410,
        416,
        500,
        503,
        507,
        ok=json_content(
            model("PurgedRecords", optional=(), topic=STRING, **_PURGED),
            {"topic": "orders", "partition": 0, "log_start_offset": 42, "deleted": 42},
        ),
    ),
}

CREATE_TOPIC: Operation = {
    "parameters": [TOPIC_NAME],
    "requestBody": _TOPIC_BODY,
    "responses": {
        **answers(400, 409, 413, 415, 503, 507, ok=_TOPIC),
        "201": {"description": "Created", "content": _TOPIC},
    },
}

GET_TOPIC: Operation = {"parameters": [TOPIC_NAME], "responses": answers(400, 404, ok=_TOPIC)}

ALTER_TOPIC: Operation = {
    "parameters": [TOPIC_NAME],
    "requestBody": _TOPIC_BODY,
    "responses": answers(400, 404, 413, 415, 503, 507, ok=_TOPIC),
}

DELETE_TOPIC: Operation = {"parameters": [TOPIC_NAME], "responses": answers(400, 404, 503, ok_status=204)}

FLUSH_TOPIC: Operation = {
    "parameters": [TOPIC_NAME],
    "responses": answers(
        400, 404, 503, 507, ok=json_content(model("FlushedTopic", topic=STRING, durability=DURABILITY))
    ),
}

FLUSH: Operation = {"responses": answers(503, 507, ok=json_content(model("Flushed", durability=DURABILITY)))}
