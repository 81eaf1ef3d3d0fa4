"""Operations of transactions: a whole one in one request, or one over several requests."""

from __future__ import annotations

from ..bodies import SettleBody, TransactionBody
from .components import DURABILITY, INTEGER, STRING, TOPIC_RECORD, array, model
from .parts import Operation, answers, header, json_content, query
from .request_bodies import request_body

_ID = {
    "name": "transactional_id",
    "in": "path",
    "required": True,
    "description": "any text, percent-encoded; encode a slash as %2F",
    "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
    "example": "job-7",
}
_PRODUCER = [
    header("Producer-Id", {"type": "integer", "minimum": 0}, "required: the id that begin returned"),
    header(
        "Producer-Epoch",
        {"type": "integer", "minimum": 0},
        "required: the epoch that the last begin, commit or abort returned",
    ),
]
_RECEIPTS = array(
    model("TransactionReceipt", topic=STRING, partition=INTEGER, offset=INTEGER, timestamp=INTEGER)
)
_IDENTITY = json_content(
    model("TransactionalProducer", transactional_id=STRING, producer_id=INTEGER, producer_epoch=INTEGER),
    {"transactional_id": "job-7", "producer_id": 4000, "producer_epoch": 1},
)
_RECORDS_EXAMPLE = [
    {"topic": "orders", "key": "N14228", "value": {"from": "EWR"}},
    {"topic": "audit", "value": "order N14228"},
]
_OFFSETS_EXAMPLE = [{"group": "billing", "topic": "orders", "partition": 0, "offset": 1}]


TRANSACT: Operation = {
    "parameters": [
        header(
            "Idempotency-Key",
            {"type": "string", "minLength": 1, "maxLength": 255},
            "chosen by the client: a repeated request gets the first answer",
        )
    ],
    "requestBody": request_body(
        TransactionBody,
        {"records": _RECORDS_EXAMPLE, "offsets": _OFFSETS_EXAMPLE},
        fields={"records": array(TOPIC_RECORD)},
    ),
    "responses": answers(
        400,
        404,
        409,
        413,
        415,
        422,
        503,
        504,
        507,
        ok=json_content(model("Transacted", records=_RECEIPTS, durability=DURABILITY)),
    ),
}

BEGIN: Operation = {
    "parameters": [
        _ID,
        query(
            "timeout_ms",
            {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 60000},
            "the broker aborts a transaction that is open for longer",
        ),
    ],
    "responses": answers(400, 409, 503, ok=_IDENTITY),
}

RECORDS: Operation = {
    "parameters": [_ID, *_PRODUCER],
    "requestBody": {
        "required": True,
        "content": json_content(
            model("TransactionRecords", records=array(TOPIC_RECORD)),
            {"records": _RECORDS_EXAMPLE},
        ),
    },
    "responses": answers(
        400,
        404,
        409,
        413,
        415,
        503,
        504,
        507,
        ok=json_content(model("TransactionReceipts", records=_RECEIPTS)),
    ),
}

SETTLE: Operation = {
    "parameters": [_ID, *_PRODUCER],
    "requestBody": request_body(SettleBody, {"offsets": _OFFSETS_EXAMPLE}),
    "responses": answers(400, 404, 409, 413, 415, 503, 504, ok_status=204),
}

END: Operation = {"parameters": [_ID, *_PRODUCER], "responses": answers(400, 409, 503, 507, ok=_IDENTITY)}
