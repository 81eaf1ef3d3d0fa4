"""Operations on consumer groups: members, owners, offsets."""

from __future__ import annotations

from ..bodies import CommitBody, HeartbeatBody, JoinBody, OwnerBody, ResetBody
from .parts import (
    GROUP,
    INTEGER,
    INTEGERS,
    NUMBERS,
    OBJECT,
    PARTITION,
    STRING,
    TOPIC_NAME,
    Operation,
    answers,
    json_content,
    list_of,
    object_of,
    query,
)
from .request_bodies import request_body

GROUP_LAG_HISTORY: Operation = {
    "parameters": [GROUP],
    "responses": answers(
        404,
        503,
        ok=json_content(
            object_of(
                group=STRING,
                interval_ms=INTEGER,
                at=INTEGERS,
                partitions=list_of(topic=STRING, partition=INTEGER, lag=NUMBERS),
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
    "responses": answers(400, 503, ok=OBJECT),
}

GET_GROUP: Operation = {"parameters": [GROUP], "responses": answers(404, 503, ok=OBJECT)}

DELETE_GROUP: Operation = {"parameters": [GROUP], "responses": answers(404, 409, 503, ok_status=204)}

RESET_OFFSETS: Operation = {
    "parameters": [
        GROUP,
        query(
            "dry_run", {"type": "boolean", "default": False}, "report what would change, without changing it"
        ),
    ],
    "requestBody": request_body(ResetBody, {"to": "earliest", "topics": ["orders"]}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}

JOIN_GROUP: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(JoinBody, {"topics": ["orders"], "session_timeout_ms": 10000}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT, ok_status=201),
}

HEARTBEAT: Operation = {
    "parameters": [GROUP, _MEMBER],
    "requestBody": request_body(HeartbeatBody, {"generation": 1}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}

LEAVE_GROUP: Operation = {
    "parameters": [GROUP, _MEMBER],
    "responses": answers(400, 404, 503, ok_status=204),
}

CLAIM: Operation = {
    "parameters": _OWNED,
    "requestBody": request_body(OwnerBody, {"member_id": "http-0b5f", "generation": 1}),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
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
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}

COMMITTED: Operation = {"parameters": _OWNED, "responses": answers(400, 404, 503, ok=OBJECT)}
