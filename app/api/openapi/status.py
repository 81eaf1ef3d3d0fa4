"""Operations on health and the cluster."""

from __future__ import annotations

from .parts import (
    INTEGER,
    NULLABLE_INTEGER,
    NULLABLE_STRING,
    STRING,
    Operation,
    answers,
    json_content,
    list_of,
    object_of,
)

HEALTH: Operation = {"responses": answers(ok=json_content({"type": "object"}))}

READY: Operation = {"responses": answers(503, 507, ok=json_content({"type": "object"}))}

_BROKER = {
    "id": INTEGER,
    "host": NULLABLE_STRING,
    "rack": NULLABLE_STRING,
    "started_at": {
        **INTEGER,
        "description": "when it joined, in ms: at its start, or when it came back after it had counted as dead",
    },
    "incarnation": {**STRING, "description": "changes with each start"},
    "http_port": INTEGER,
    "binary_port": INTEGER,
    "kafka_port": INTEGER,
}
_SURVEYED = {
    **_BROKER,
    "status": {"type": "string", "enum": ["live", "dead"]},
    "heartbeat_age_ms": INTEGER,
    "endpoints": {"type": "object", "additionalProperties": object_of(host=STRING, port=INTEGER)},
    "version": NULLABLE_STRING,
    "process": {
        "type": ["object", "null"],
        "properties": {"host": STRING, "id": INTEGER, "resident_bytes": INTEGER},
    },
    "rates": {
        "type": ["object", "null"],
        "properties": {
            "records_in_per_s": {"type": "number"},
            "bytes_in_per_s": {"type": "number"},
            "bytes_out_per_s": {"type": "number"},
        },
    },
    "totals": {
        "type": ["object", "null"],
        "properties": {"records_in": INTEGER, "bytes_in": INTEGER, "bytes_out": INTEGER},
    },
    "connections": {"type": ["object", "null"], "additionalProperties": INTEGER},
}
_SURVEY = object_of(
    age_ms={**NULLABLE_INTEGER, "description": "null until the first survey has ended"},
    problem={**NULLABLE_STRING, "description": "why there is no younger survey"},
    brokers={**list_of(**_SURVEYED), "type": ["array", "null"]},
    log_bytes=NULLABLE_INTEGER,
    metadata_bytes=NULLABLE_INTEGER,
    objects={
        **list_of(
            store={"type": "string", "enum": ["objects", "inline"]},
            state={"type": "string", "enum": ["committed", "dead", "fenced"]},
            count=INTEGER,
            bytes=INTEGER,
        ),
        "type": ["array", "null"],
    },
    objects_age_ms=NULLABLE_INTEGER,
    merge_backlog={
        **object_of(partitions=INTEGER, bytes=INTEGER, oldest_ms=NULLABLE_INTEGER),
        "type": ["object", "null"],
    },
    sweep_backlog={
        **object_of(
            suspects=INTEGER, deletable_objects=INTEGER, deletable_bytes=INTEGER, silent_uploaders=INTEGER
        ),
        "type": ["object", "null"],
    },
    postgres=object_of(
        errors=INTEGER,
        round_trips=INTEGER,
        p50_ms={"type": ["number", "null"]},
        p99_ms={"type": ["number", "null"]},
        max_ms={"type": ["number", "null"]},
    ),
)

CLUSTER: Operation = {
    "responses": answers(
        ok=json_content(
            object_of(
                cluster_id=STRING,
                version=STRING,
                broker_id=INTEGER,
                is_shared={"type": "boolean", "description": "whether there may be other brokers"},
                brokers=list_of(
                    **{
                        name: _BROKER[name]
                        for name in ("id", "host", "rack", "http_port", "binary_port", "kafka_port")
                    }
                ),
                leases={
                    "type": "object",
                    "additionalProperties": object_of(
                        broker_id=INTEGER, incarnation=STRING, epoch=INTEGER, expires_in_ms=INTEGER
                    ),
                },
                topics=INTEGER,
                partitions=INTEGER,
                survey={**_SURVEY, "type": ["object", "null"]},
            )
        )
    )
}
