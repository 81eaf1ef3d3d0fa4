"""Operations that append records."""

from __future__ import annotations

from .components import BOOLEAN, DURABILITY, INTEGER, NEW_RECORD, PROBLEM, RECORD_ERROR, array, enum, model
from .parts import PARTITION, TOPIC_NAME, Operation, answers, header, json_content, lines_content, query

_RESULT = model(
    "ProduceResult",
    optional=("partition", "offset", "timestamp", "index", "error"),
    partition=INTEGER,
    offset=INTEGER,
    timestamp=INTEGER,
    index={**INTEGER, "description": "with error: the number of the record in the request, from 0"},
    error=PROBLEM,
)
_NDJSON_EXAMPLE = '{"key":"N14228","value":{"from":"EWR"}}\n{"value":"just text"}\n'
_PRODUCED = {
    **json_content(
        model(
            "Produced",
            optional=("errors",),
            records=array(_RESULT),
            durability=DURABILITY,
            errors=array(RECORD_ERROR),
        )
    ),
    **lines_content('{"partition":0,"offset":42,"timestamp":1763664000000}\n'),
}

PRODUCE: Operation = {
    "parameters": [
        TOPIC_NAME,
        query(
            "acks",
            enum("Acks", "all", "1", "0", "-1", default="all"),
            "when to answer: all after the sync, 1 after the append, 0 at once",
        ),
        query(
            "partition", {"type": "integer", "minimum": 0, "maximum": 2147483647}, "partition of all records"
        ),
        header(
            "Producer-Id",
            {"type": "integer", "minimum": 0},
            "idempotent produce: the id from POST /v1/producers",
        ),
        header(
            "Producer-Epoch",
            {"type": "integer", "minimum": 0},
            "idempotent produce: the epoch that came with the id",
        ),
        header(
            "Producer-Sequence",
            {"type": "integer", "minimum": 0},
            "idempotent produce: the sequence of the first record, from 0",
        ),
        header("Record-Key", {"type": "string"}, "octet-stream: key of the record"),
        header(
            "Record-Key-B64",
            {"type": "string", "contentEncoding": "base64"},
            "octet-stream: key of the record, in base64",
        ),
        header(
            "Record-Timestamp",
            {"type": "integer"},
            "octet-stream: timestamp in ms since 1970-01-01 UTC, or -1 for none",
        ),
    ],
    "requestBody": {
        "required": True,
        "content": {
            **json_content(
                model("ProduceBody", records=array(NEW_RECORD)),
                {
                    "records": [
                        {"key": "N14228", "value": {"from": "EWR", "to": "IAH"}},
                        {
                            "key": "N24211",
                            "value": "plain text",
                            "headers": [{"key": "source", "value": "docs"}],
                        },
                        {"key": "N619AA", "value_b64": "AP8="},
                    ]
                },
            ),
            **lines_content(_NDJSON_EXAMPLE),
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "any bytes",
            },
        },
    },
    "responses": {
        **answers(400, 404, 409, 413, 415, 503, 504, 507, ok=_PRODUCED),
        "207": {"description": "Some records were refused; see errors", "content": _PRODUCED},
    },
}

PRODUCERS: Operation = {
    "parameters": [
        query(
            "name",
            {"type": "string", "minLength": 1, "maxLength": 500},
            "name of the producer; needs version",
        ),
        query(
            "version",
            {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "version of the run: the same version resumes the run, a greater one fences it",
        ),
    ],
    "responses": answers(
        400,
        503,
        ok=json_content(
            model(
                "ProducerId",
                optional=("is_resumed",),
                producer_id=INTEGER,
                producer_epoch=INTEGER,
                is_resumed={
                    **BOOLEAN,
                    "description": "named producers only: true if this version has been started before",
                },
            )
        ),
        ok_status=201,
    ),
}

PRODUCER_STATE: Operation = {
    "parameters": [
        TOPIC_NAME,
        PARTITION,
        {
            "name": "producer_id",
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "example": 1,
        },
    ],
    "responses": answers(
        400,
        404,
        ok=json_content(
            model("ProducerState", producer_epoch=INTEGER, last_sequence=INTEGER, last_offset=INTEGER)
        ),
    ),
}
