"""Operations on the segments of a partition."""

from __future__ import annotations

from typing import Any

from .components import (
    BOOLEAN,
    INTEGER,
    NULLABLE_INTEGER,
    NULLABLE_NUMBER,
    NULLABLE_STRING,
    STRING,
    STRINGS,
    array,
    model,
    nullable,
)
from .parts import PARTITION, TOPIC_NAME, Operation, answers, json_content

_VERIFIED = model(
    "Verification",
    topic=STRING,
    partition=INTEGER,
    is_good=BOOLEAN,
    at=INTEGER,
    took_ms=INTEGER,
    segments=INTEGER,
    batches=INTEGER,
    records=INTEGER,
    size_bytes=INTEGER,
    problem_count=INTEGER,
    problems=STRINGS,
)
_SEGMENT = model(
    "Segment",
    base_offset=INTEGER,
    next_offset=INTEGER,
    file=STRING,
    size_bytes=INTEGER,
    index_bytes=INTEGER,
    created_at=INTEGER,
    max_timestamp=NULLABLE_INTEGER,
    is_sealed=BOOLEAN,
    is_synced=BOOLEAN,
    expires_at=NULLABLE_INTEGER,
    is_over_size=BOOLEAN,
    corrupt_ranges=STRINGS,
)
_VERIFIED_EXAMPLE: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "is_good": True,
    "at": 1763664000000,
    "took_ms": 35,
    "segments": 1,
    "batches": 12,
    "records": 42,
    "size_bytes": 8192,
    "problem_count": 0,
    "problems": [],
}
_SEGMENTS_EXAMPLE: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "storage": "disk",
    "retention_ms": 604800000,
    "retention_bytes": -1,
    "cleanup_policy": "delete",
    "dirty_ratio": None,
    "cleaner": None,
    "size_bytes": 8192,
    "segments": [
        {
            "base_offset": 0,
            "next_offset": 42,
            "file": "00000000000000000000.log",
            "size_bytes": 8192,
            "index_bytes": 0,
            "created_at": 1763664000000,
            "max_timestamp": 1763664009000,
            "is_sealed": False,
            "is_synced": True,
            "expires_at": 1764268809000,
            "is_over_size": False,
            "corrupt_ranges": [],
        }
    ],
    "verified": _VERIFIED_EXAMPLE,
}

SEGMENTS: Operation = {
    "parameters": [TOPIC_NAME, PARTITION],
    "responses": answers(
        400,
        404,
        503,
        ok=json_content(
            model(
                "SegmentList",
                topic=STRING,
                partition=INTEGER,
                storage=STRING,
                retention_ms=INTEGER,
                retention_bytes=INTEGER,
                cleanup_policy=STRING,
                dirty_ratio=NULLABLE_NUMBER,
                cleaner=NULLABLE_STRING,
                size_bytes=INTEGER,
                segments=array(_SEGMENT),
                verified=nullable(_VERIFIED),
            ),
            _SEGMENTS_EXAMPLE,
        ),
    ),
}

VERIFY: Operation = {
    "parameters": [TOPIC_NAME, PARTITION],
    "responses": answers(400, 404, 429, 503, ok=json_content(_VERIFIED, _VERIFIED_EXAMPLE)),
}
