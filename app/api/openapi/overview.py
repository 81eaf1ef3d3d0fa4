"""Operations that report the state of the broker."""

from __future__ import annotations

from .parts import (
    INTEGER,
    INTEGERS,
    NULLABLE_INTEGER,
    NULLABLE_STRING,
    NUMBERS,
    STRING,
    Operation,
    answers,
    json_content,
    list_of,
    object_of,
    query,
)

_LISTENER = {
    "name": STRING,
    "host": NULLABLE_STRING,
    "port": NULLABLE_INTEGER,
    "connections": INTEGER,
    "connections_opened": INTEGER,
    "bytes_in": INTEGER,
    "bytes_out": INTEGER,
    "bytes_in_per_s": NULLABLE_INTEGER,
    "bytes_out_per_s": NULLABLE_INTEGER,
}

OVERVIEW: Operation = {
    "responses": answers(
        ok=json_content(
            object_of(
                version=STRING,
                cluster_id=STRING,
                broker_id=INTEGER,
                now=INTEGER,
                started_at=INTEGER,
                uptime_ms=INTEGER,
                health=object_of(
                    status={"type": "string", "enum": ["ready", "closing", "failed"]}, reason=NULLABLE_STRING
                ),
                topics=INTEGER,
                partitions=INTEGER,
                groups=INTEGER,
                totals=object_of(records_in=INTEGER, bytes_in=INTEGER, bytes_out=INTEGER),
                rates={
                    "type": ["object", "null"],
                    "description": "null until two samples exist",
                    "properties": {
                        "over_ms": INTEGER,
                        "records_in_per_s": {"type": "number"},
                        "bytes_in_per_s": {"type": "number"},
                        "bytes_out_per_s": {"type": "number"},
                        "syncs_per_s": {"type": "number"},
                    },
                },
                listeners=list_of(**_LISTENER),
                disk=object_of(
                    path=STRING,
                    total_bytes=NULLABLE_INTEGER,
                    free_bytes=NULLABLE_INTEGER,
                    log_bytes=NULLABLE_INTEGER,
                ),
                syncs=object_of(
                    count=INTEGER,
                    at=NULLABLE_INTEGER,
                    p50_ms={"type": ["number", "null"]},
                    p99_ms={"type": ["number", "null"]},
                ),
                compaction=object_of(
                    partitions=INTEGER,
                    due_partitions=INTEGER,
                    dirty_ratio_max={"type": "number"},
                    passes=INTEGER,
                    failures=INTEGER,
                    bytes_read=INTEGER,
                    bytes_written=INTEGER,
                    last_pass_at=NULLABLE_INTEGER,
                    last_pass_took_ms=NULLABLE_INTEGER,
                ),
                process=object_of(resident_bytes=INTEGER),
                verifying={**NULLABLE_STRING, "description": "the partition that is being verified"},
                searches=object_of(
                    active=INTEGER,
                    scanned_records=INTEGER,
                    ended={"type": "object", "additionalProperties": INTEGER},
                ),
            )
        )
    )
}

OVERVIEW_HISTORY: Operation = {
    "parameters": [
        query(
            "points",
            {"type": "integer", "minimum": 1, "maximum": 720, "default": 720},
            "maximum number of points",
        ),
    ],
    "responses": answers(
        400,
        ok=json_content(
            object_of(
                interval_ms=INTEGER,
                at=INTEGERS,
                records_in_per_s=NUMBERS,
                bytes_in_per_s=NUMBERS,
                bytes_out_per_s=NUMBERS,
                sync_p50_ms=NUMBERS,
                sync_p99_ms=NUMBERS,
                log_bytes=INTEGERS,
                free_bytes=NUMBERS,
                listeners=list_of(
                    name=STRING, bytes_in_per_s=NUMBERS, bytes_out_per_s=NUMBERS, connections=INTEGERS
                ),
            )
        ),
    ),
}

CONNECTIONS: Operation = {
    "parameters": [
        query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": 10000, "default": 500},
            "maximum number of connections",
        ),
    ],
    "responses": answers(
        400,
        ok=json_content(
            object_of(
                total=INTEGER,
                connections=list_of(
                    protocol=STRING,
                    peer=STRING,
                    age_ms=INTEGER,
                    client_id=NULLABLE_STRING,
                    client_name=NULLABLE_STRING,
                    client_version=NULLABLE_STRING,
                    tls_version=NULLABLE_STRING,
                    principal=STRING,
                    bytes_in=INTEGER,
                    bytes_out=INTEGER,
                ),
            ),
            {
                "total": 1,
                "connections": [
                    {
                        "protocol": "kafka",
                        "peer": "127.0.0.1:51334",
                        "age_ms": 12000,
                        "client_id": "billing",
                        "client_name": "librdkafka",
                        "client_version": "2.6.1",
                        "tls_version": "TLSv1.3",
                        "principal": "User:CN=billing,O=Example",
                        "bytes_in": 1048576,
                        "bytes_out": 2048,
                    }
                ],
            },
        ),
    ),
}
