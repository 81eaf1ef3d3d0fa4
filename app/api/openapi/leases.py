"""Operations on leases: poll, acknowledge, give back, extend."""

from __future__ import annotations

from ..bodies import ExtendBody, LeaseBody, PollBody
from .parts import GROUP, OBJECT, Operation, answers
from .request_bodies import request_body

_LEASE_EXAMPLE = {"lease": "WyJiaWxsaW5nIiwi…"}

POLL: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        PollBody, {"topics": ["orders"], "max_records": 500, "wait_ms": 1000, "lease_ms": 30000}
    ),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=OBJECT),
}

ACK: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(LeaseBody, _LEASE_EXAMPLE),
    "responses": answers(400, 404, 409, 413, 415, 503, 504, ok=OBJECT),
}

NACK: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(LeaseBody, _LEASE_EXAMPLE),
    "responses": answers(400, 404, 409, 413, 415, 503, ok_status=204),
}

EXTEND: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(ExtendBody, _LEASE_EXAMPLE),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}
