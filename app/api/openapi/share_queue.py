"""Operations on records of share groups: poll, acknowledge, release, reject, renew."""

from __future__ import annotations

from ..bodies import RedriveBody, ShareLockBody, SharePollBody
from .components import (
    BOOLEAN,
    INTEGER,
    NULLABLE_INTEGER,
    NULLABLE_STRING,
    POLL_START,
    SHARED_RECORD,
    STRING,
    array,
    model,
    nullable,
)
from .parts import GROUP, Operation, answers, json_content
from .request_bodies import request_body

_POLLED = model(
    "SharePolled",
    records=array(SHARED_RECORD),
    lock=NULLABLE_STRING,
    expires_at=NULLABLE_INTEGER,
    expires_in_ms=NULLABLE_INTEGER,
)
_LOCK_EXAMPLE = {"lock": "3f0c…", "records": [{"topic": "orders", "partition": 0, "offset": 42}]}
_LOCK = request_body(ShareLockBody, _LOCK_EXAMPLE)

POLL: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        SharePollBody,
        {"topics": ["orders"], "max_records": 10, "wait_ms": 1000, "from": "earliest"},
        fields={
            "from": {
                **nullable(POLL_START),
                "description": "where a new group begins; null: by its share.auto.offset.reset",
            }
        },
    ),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=json_content(_POLLED)),
}

SETTLE: Operation = {
    "parameters": [GROUP],
    "requestBody": _LOCK,
    "responses": answers(
        400, 404, 409, 413, 415, 503, ok=json_content(model("ShareSettled", records=INTEGER))
    ),
}

RENEW: Operation = {
    "parameters": [GROUP],
    "requestBody": _LOCK,
    "responses": answers(
        400,
        404,
        409,
        413,
        415,
        503,
        ok=json_content(model("ShareRenewed", records=INTEGER, expires_at=INTEGER, expires_in_ms=INTEGER)),
    ),
}

REDRIVE: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(RedriveBody, {"max_records": 1000}),
    "responses": answers(
        400,
        404,
        409,
        413,
        415,
        500,
        503,
        ok=json_content(model("Redriven", topic=STRING, redriven=INTEGER, lost=INTEGER, is_more=BOOLEAN)),
    ),
}
