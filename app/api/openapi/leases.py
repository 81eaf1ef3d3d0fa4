"""Operations on leases: polls, and what becomes of their records."""

from __future__ import annotations

from .parts import GROUP, OBJECT, TOPICS, Operation, answers, json_body

_LEASE_MS = {"type": "integer", "minimum": 100, "maximum": 3600000, "default": 30000}
_LEASE = {"lease": {"type": "string", "description": "as the poll gave it"}}
_LEASE_EXAMPLE = {"lease": "WyJiaWxsaW5nIiwi…"}

POLL: Operation = {
    "parameters": [GROUP],
    "requestBody": json_body(
        {
            "topics": TOPICS,
            "max_records": {"type": "integer", "minimum": 1, "maximum": 100000, "default": 500},
            "max_bytes": {"type": "integer", "minimum": 1, "default": 1048576},
            "max_partitions": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "null: a fair share",
            },
            "wait_ms": {"type": "integer", "minimum": 0, "maximum": 2000, "default": 0},
            "lease_ms": _LEASE_MS,
            "from": {"type": "string", "enum": ["earliest", "latest"], "default": "earliest"},
            "poll_id": {
                "type": "string",
                "description": "of your choice: the same again, while its lease holds, gets the same answer",
            },
        },
        {"topics": ["orders"], "max_records": 500, "wait_ms": 1000, "lease_ms": 30000},
        required=["topics"],
    ),
    "responses": answers(400, 404, 409, 413, 415, 500, 503, ok=OBJECT),
}

ACK: Operation = {
    "parameters": [GROUP],
    "requestBody": json_body(_LEASE, _LEASE_EXAMPLE, required=["lease"]),
    "responses": answers(400, 404, 409, 413, 415, 503, 504, ok=OBJECT),
}

NACK: Operation = {
    "parameters": [GROUP],
    "requestBody": json_body(_LEASE, _LEASE_EXAMPLE, required=["lease"]),
    "responses": answers(400, 404, 409, 413, 415, 503, ok_status=204),
}

EXTEND: Operation = {
    "parameters": [GROUP],
    "requestBody": json_body({**_LEASE, "lease_ms": _LEASE_MS}, _LEASE_EXAMPLE, required=["lease"]),
    "responses": answers(400, 404, 409, 413, 415, 503, ok=OBJECT),
}
