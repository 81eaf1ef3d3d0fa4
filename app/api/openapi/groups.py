"""Operations on consumer groups: members, owners, offsets."""

from __future__ import annotations

from ..bodies import CommitBody, HeartbeatBody, JoinBody, OwnerBody, ResetBody
from .components import (
    BOOLEAN,
    INTEGER,
    INTEGERS,
    NULLABLE_INTEGER,
    NULLABLE_STRING,
    NUMBERS,
    STRING,
    STRINGS,
    TOPIC_PARTITIONS,
    array,
    model,
)
from .leases import LEASED_PART
from .parts import GROUP, PARTITION, TOPIC_NAME, Operation, answers, json_content, query
from .request_bodies import request_body

_LISTED_GROUP = model(
    "ListedGroup",
    group=STRING,
    state=STRING,
    type=STRING,
    protocol_type=STRING,
    members=NULLABLE_INTEGER,
    lag=NULLABLE_INTEGER,
)
_GROUP_MEMBER = model(
    "GroupMember",
    member_id=STRING,
    instance_id=NULLABLE_STRING,
    client_id=STRING,
    client_host=STRING,
    is_managed=BOOLEAN,
    epoch=NULLABLE_INTEGER,
    regex=NULLABLE_STRING,
    topics=STRINGS,
    assignment=array(TOPIC_PARTITIONS),
    target=array(TOPIC_PARTITIONS),
    owned=array(TOPIC_PARTITIONS),
)
_GROUP_PARTITION = model(
    "GroupPartition",
    topic=STRING,
    partition=INTEGER,
    committed=NULLABLE_INTEGER,
    metadata=NULLABLE_STRING,
    log_start_offset=INTEGER,
    high_watermark=INTEGER,
    lag=INTEGER,
    in_flight=NULLABLE_INTEGER,
    member_id=NULLABLE_STRING,
    owner=NULLABLE_STRING,
)
_UNFINISHED = model(
    "UnfinishedRange",
    topic=STRING,
    partition=INTEGER,
    first=INTEGER,
    last=INTEGER,
    state=STRING,
    deliveries=INTEGER,
    member_id=NULLABLE_STRING,
)
_GROUP = model(
    "Group",
    group=STRING,
    type=STRING,
    state=STRING,
    generation=INTEGER,
    assignment_epoch=NULLABLE_INTEGER,
    protocol_type=STRING,
    protocol=NULLABLE_STRING,
    lag=INTEGER,
    members=array(_GROUP_MEMBER),
    partitions=array(_GROUP_PARTITION),
    dead_letter_topic=NULLABLE_STRING,
    unfinished={**array(_UNFINISHED), "type": ["array", "null"]},
    leases=array(model("OpenLease", expires_at=INTEGER, partitions=array(LEASED_PART))),
)
_RESET = model(
    "OffsetReset",
    topic=STRING,
    partition=INTEGER,
    before=NULLABLE_INTEGER,
    after=INTEGER,
    lag=INTEGER,
)
_MEMBERSHIP = model(
    "Membership",
    member_id=STRING,
    generation=INTEGER,
    assignment=array(TOPIC_PARTITIONS),
    rebalancing=BOOLEAN,
)
_OWNERSHIP = model("Ownership", topic=STRING, partition=INTEGER, owner=STRING, generation=INTEGER)
_OFFSET = {"topic": STRING, "partition": INTEGER, "offset": INTEGER, "metadata": NULLABLE_STRING}

GET_GROUP_LAG_HISTORY: Operation = {
    "parameters": [GROUP],
    "responses": answers(
        404,
        503,
        ok=json_content(
            model(
                "GroupLagHistory",
                group=STRING,
                interval_ms=INTEGER,
                at=INTEGERS,
                partitions=array(model("PartitionLagHistory", topic=STRING, partition=INTEGER, lag=NUMBERS)),
            )
        ),
    ),
}
_MEMBER = {
    "name": "member_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": "http-0b5f",
}
_OWNED = [GROUP, TOPIC_NAME, PARTITION]
_GENERATION = {"type": "integer", "minimum": 0, "maximum": 2147483647}

LIST_GROUPS: Operation = {
    "parameters": [
        query("search", {"type": "string"}, "only names that contain this text, ignoring case"),
        query(
            "page",
            {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 1},
            "page number, from 1",
        ),
        query("prefix", {"type": "string"}, "only names that start with this text"),
        query(
            "limit", {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000}, "groups per page"
        ),
        query("after", {"type": "string"}, "next_after of the previous page"),
    ],
    "responses": answers(
        400,
        503,
        ok=json_content(
            model(
                "GroupList",
                groups=array(_LISTED_GROUP),
                next_after=NULLABLE_STRING,
                total=INTEGER,
                is_complete=BOOLEAN,
            )
        ),
    ),
}

GET_GROUP: Operation = {"parameters": [GROUP], "responses": answers(404, 503, ok=json_content(_GROUP))}

DELETE_GROUP: Operation = {"parameters": [GROUP], "responses": answers(404, 409, 503, ok_status=204)}

RESET_OFFSETS: Operation = {
    "parameters": [
        GROUP,
        query(
            "dry_run", {"type": "boolean", "default": False}, "report what would change, without changing it"
        ),
    ],
    "requestBody": request_body(ResetBody, {"to": "earliest", "topics": ["orders"]}),
    "responses": answers(
        400,
        404,
        409,
        413,
        415,
        503,
        ok=json_content(model("OffsetResets", group=STRING, dry_run=BOOLEAN, offsets=array(_RESET))),
    ),
}

JOIN_GROUP: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(JoinBody, {"topics": ["orders"], "session_timeout_ms": 10000}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=json_content(_MEMBERSHIP), ok_status=201),
}

HEARTBEAT: Operation = {
    "parameters": [GROUP, _MEMBER],
    "requestBody": request_body(HeartbeatBody, {"generation": 1}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=json_content(_MEMBERSHIP)),
}

LEAVE_GROUP: Operation = {
    "parameters": [GROUP, _MEMBER],
    "responses": answers(400, 404, 503, ok_status=204),
}

CLAIM: Operation = {
    "parameters": _OWNED,
    "requestBody": request_body(OwnerBody, {"member_id": "http-0b5f", "generation": 1}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=json_content(_OWNERSHIP)),
}

RELEASE: Operation = {
    "parameters": [
        *_OWNED,
        query("member_id", {"type": "string"}, "instead of a body"),
        query("generation", _GENERATION, "instead of a body"),
    ],
    "responses": answers(400, 404, 409, 413, 415, 503, ok_status=204),
}

COMMIT: Operation = {
    "parameters": _OWNED,
    "requestBody": request_body(CommitBody, {"member_id": "http-0b5f", "generation": 1, "offset": 42}),
    "responses": answers(
        400, 404, 409, 413, 415, 503, ok=json_content(model("CommittedOffset", optional=(), **_OFFSET))
    ),
}

COMMITTED: Operation = {
    "parameters": _OWNED,
    "responses": answers(
        400,
        404,
        503,
        ok=json_content(model("GroupOffset", optional=(), **{**_OFFSET, "offset": NULLABLE_INTEGER})),
    ),
}
