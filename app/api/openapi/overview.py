"""Operations that report the state of the broker."""

from __future__ import annotations

from .components import (
    INTEGER,
    INTEGER_BY_NAME,
    INTEGERS,
    NULLABLE_INTEGER,
    NULLABLE_NUMBER,
    NULLABLE_STRING,
    NUMBER,
    NUMBERS,
    STRING,
    array,
    enum,
    model,
    named,
    nullable,
)
from .parts import Operation, answers, json_content, query

COUNTS = named("Counts", INTEGER_BY_NAME)
TOTALS = model("Totals", records_in=INTEGER, bytes_in=INTEGER, bytes_out=INTEGER)
_LISTENER = model(
    "Listener",
    name=STRING,
    host=NULLABLE_STRING,
    port=NULLABLE_INTEGER,
    connections=INTEGER,
    connections_opened=INTEGER,
    bytes_in=INTEGER,
    bytes_out=INTEGER,
    bytes_in_per_s=NULLABLE_INTEGER,
    bytes_out_per_s=NULLABLE_INTEGER,
)

GET_OVERVIEW: Operation = {
    "responses": answers(
        ok=json_content(
            model(
                "Overview",
                version=STRING,
                cluster_id=STRING,
                broker_id=INTEGER,
                now=INTEGER,
                started_at=INTEGER,
                uptime_ms=INTEGER,
                health=model(
                    "Health",
                    status=enum("HealthStatus", "ready", "closing", "failed"),
                    reason=NULLABLE_STRING,
                ),
                topics=INTEGER,
                partitions=INTEGER,
                groups=INTEGER,
                totals=TOTALS,
                rates={
                    **nullable(
                        model(
                            "Rates",
                            over_ms=INTEGER,
                            records_in_per_s=NUMBER,
                            bytes_in_per_s=NUMBER,
                            bytes_out_per_s=NUMBER,
                            syncs_per_s=NUMBER,
                        )
                    ),
                    "description": "null until two samples exist",
                },
                listeners=array(_LISTENER),
                disk=model(
                    "Disk",
                    path=STRING,
                    total_bytes=NULLABLE_INTEGER,
                    free_bytes=NULLABLE_INTEGER,
                    log_bytes=NULLABLE_INTEGER,
                ),
                syncs=model(
                    "Syncs",
                    count=INTEGER,
                    at=NULLABLE_INTEGER,
                    p50_ms=NULLABLE_NUMBER,
                    p99_ms=NULLABLE_NUMBER,
                ),
                compaction=model(
                    "Compaction",
                    partitions=INTEGER,
                    due_partitions=INTEGER,
                    dirty_ratio_max=NUMBER,
                    passes=INTEGER,
                    failures=INTEGER,
                    bytes_read=INTEGER,
                    bytes_written=INTEGER,
                    last_pass_at=NULLABLE_INTEGER,
                    last_pass_took_ms=NULLABLE_INTEGER,
                ),
                process=model("Process", resident_bytes=INTEGER),
                verifying={**NULLABLE_STRING, "description": "the partition that is being verified"},
                searches=model(
                    "Searches",
                    active=INTEGER,
                    scanned_records=INTEGER,
                    ended=COUNTS,
                ),
            )
        )
    )
}

GET_OVERVIEW_HISTORY: Operation = {
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
            model(
                "OverviewHistory",
                interval_ms=INTEGER,
                at=INTEGERS,
                records_in_per_s=NUMBERS,
                bytes_in_per_s=NUMBERS,
                bytes_out_per_s=NUMBERS,
                sync_p50_ms=NUMBERS,
                sync_p99_ms=NUMBERS,
                log_bytes=INTEGERS,
                free_bytes=NUMBERS,
                listeners=array(
                    model(
                        "ListenerHistory",
                        name=STRING,
                        bytes_in_per_s=NUMBERS,
                        bytes_out_per_s=NUMBERS,
                        connections=INTEGERS,
                    )
                ),
            )
        ),
    ),
}

LIST_CONNECTIONS: Operation = {
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
            model(
                "ConnectionList",
                total=INTEGER,
                connections=array(
                    model(
                        "Connection",
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
                    )
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
