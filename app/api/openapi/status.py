"""Operations on health and the cluster."""

from __future__ import annotations

from .components import (
    BOOLEAN,
    INTEGER,
    NULLABLE_INTEGER,
    NULLABLE_NUMBER,
    NULLABLE_STRING,
    NUMBER,
    STRING,
    array,
    enum,
    model,
    named,
    nullable,
)
from .overview import COUNTS, TOTALS
from .parts import Operation, answers, json_content

HEALTHZ: Operation = {
    "security": [],
    "responses": answers(ok=json_content(model("Liveness", status=enum("AliveStatus", "alive")))),
}

READYZ: Operation = {
    "security": [],
    "responses": answers(503, 507, ok=json_content(model("Readiness", status=enum("ReadyStatus", "ready")))),
}

METRICS: Operation = {"responses": answers(ok={"text/plain": {"schema": STRING}})}

_PORTS = {"http_port": INTEGER, "binary_port": INTEGER, "kafka_port": INTEGER}
_JOINED = {
    "started_at": {
        **INTEGER,
        "description": "when it joined, in ms: at its start, or when it came back after it had counted as dead",
    },
    "incarnation": {**STRING, "description": "changes with each start"},
}
_BROKER = model(
    "Broker",
    optional=(*_JOINED, *_PORTS),
    id=INTEGER,
    host=NULLABLE_STRING,
    rack=NULLABLE_STRING,
    **_JOINED,
    **_PORTS,
)
_ENDPOINTS = named(
    "Endpoints",
    {"type": "object", "additionalProperties": model("Endpoint", host=STRING, port=INTEGER)},
)
_SURVEYED = model(
    "SurveyedBroker",
    optional=tuple(_PORTS),
    id=INTEGER,
    host=NULLABLE_STRING,
    rack=NULLABLE_STRING,
    **_JOINED,
    **_PORTS,
    status=enum("BrokerStatus", "live", "dead"),
    heartbeat_age_ms=INTEGER,
    endpoints=_ENDPOINTS,
    version=NULLABLE_STRING,
    process=nullable(model("BrokerProcess", host=STRING, id=INTEGER, resident_bytes=INTEGER)),
    rates=nullable(
        model("BrokerRates", records_in_per_s=NUMBER, bytes_in_per_s=NUMBER, bytes_out_per_s=NUMBER)
    ),
    totals=nullable(TOTALS),
    connections=nullable(COUNTS),
)
_OBJECTS = model(
    "StoredObjects",
    store=enum("ObjectStore", "objects", "inline"),
    state=enum("ObjectState", "committed", "dead", "fenced"),
    count=INTEGER,
    bytes=INTEGER,
)
_SURVEY = model(
    "Survey",
    age_ms={**NULLABLE_INTEGER, "description": "null until the first survey has ended"},
    problem={**NULLABLE_STRING, "description": "why there is no younger survey"},
    brokers={**array(_SURVEYED), "type": ["array", "null"]},
    log_bytes=NULLABLE_INTEGER,
    metadata_bytes=NULLABLE_INTEGER,
    objects={**array(_OBJECTS), "type": ["array", "null"]},
    objects_age_ms=NULLABLE_INTEGER,
    merge_backlog=nullable(
        model("MergeBacklog", partitions=INTEGER, bytes=INTEGER, oldest_ms=NULLABLE_INTEGER)
    ),
    sweep_backlog=nullable(
        model(
            "SweepBacklog",
            suspects=INTEGER,
            deletable_objects=INTEGER,
            deletable_bytes=INTEGER,
            silent_uploaders=INTEGER,
        )
    ),
    postgres=model(
        "PostgresTimes",
        errors=INTEGER,
        round_trips=INTEGER,
        p50_ms=NULLABLE_NUMBER,
        p99_ms=NULLABLE_NUMBER,
        max_ms=NULLABLE_NUMBER,
    ),
)
_LEASES = named(
    "Leases",
    {
        "type": "object",
        "additionalProperties": model(
            "BrokerLease",
            broker_id=INTEGER,
            incarnation=STRING,
            epoch=INTEGER,
            expires_in_ms=INTEGER,
        ),
    },
)

GET_CLUSTER: Operation = {
    "responses": answers(
        ok=json_content(
            model(
                "Cluster",
                cluster_id=STRING,
                version=STRING,
                broker_id=INTEGER,
                is_shared={**BOOLEAN, "description": "whether there may be other brokers"},
                brokers=array(_BROKER),
                leases=_LEASES,
                topics=INTEGER,
                partitions=INTEGER,
                survey=nullable(_SURVEY),
            )
        )
    )
}
