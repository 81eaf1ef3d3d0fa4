"""Operations on records of share groups.

Poll, acknowledge, release, reject, renew.
"""

from __future__ import annotations

from ..bodies import RedriveBody, ShareLockBody, SharePollBody
from .parts import GROUP, OBJECT, Operation, answers
from .request_bodies import request_body

POLL: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        SharePollBody, {"topics": ["orders"], "max_records": 10, "wait_ms": 1000, "from": "earliest"}
    ),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=OBJECT),
}

SETTLE: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        ShareLockBody,
        {"lock": "3f0c…", "records": [{"topic": "orders", "partition": 0, "offset": 42}]},
    ),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}

REDRIVE: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(RedriveBody, {"max_records": 1000}),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=OBJECT),
}
