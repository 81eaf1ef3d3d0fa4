"""Operations on leases: poll, acknowledge, give back, extend."""

from __future__ import annotations

from ..bodies import ExtendBody, LeaseBody, PollBody
from .components import INTEGER, LEASED_RECORD, NULLABLE_INTEGER, NULLABLE_STRING, STRING, array, model
from .parts import GROUP, Operation, answers, json_content
from .request_bodies import request_body

_LEASE_EXAMPLE = {"lease": "WyJiaWxsaW5nIiwi…"}

LEASED_PART = model(
    "LeasedPartition",
    topic=STRING,
    partition=INTEGER,
    offset=INTEGER,
    next_offset=INTEGER,
    deliveries=INTEGER,
)
_SKIPPED = model("SkippedRange", topic=STRING, partition=INTEGER, offset=INTEGER, next_offset=INTEGER)
_POLLED = model(
    "Polled",
    records=array(LEASED_RECORD),
    lease=NULLABLE_STRING,
    expires_at=NULLABLE_INTEGER,
    partitions=array(LEASED_PART),
    skipped=array(_SKIPPED),
)
_COMMITTED = model("CommittedPartition", topic=STRING, partition=INTEGER, offset=INTEGER)

POLL: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        PollBody, {"topics": ["orders"], "max_records": 500, "wait_ms": 1000, "lease_ms": 30000}
    ),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=json_content(_POLLED)),
}

ACK: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(LeaseBody, _LEASE_EXAMPLE),
    "responses": answers(
        400, 404, 409, 413, 415, 503, 504, ok=json_content(model("Acknowledged", committed=array(_COMMITTED)))
    ),
}

NACK: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(LeaseBody, _LEASE_EXAMPLE),
    "responses": answers(400, 404, 409, 413, 415, 503, ok_status=204),
}

EXTEND: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(ExtendBody, _LEASE_EXAMPLE),
    "responses": answers(
        400, 404, 409, 413, 415, 503, ok=json_content(model("Extended", expires_at=INTEGER))
    ),
}
