"""Operations on transactions for operators."""

from __future__ import annotations

from .components import (
    BOOLEAN,
    INTEGER,
    NULLABLE_INTEGER,
    NULLABLE_STRING,
    STRING,
    array,
    enum,
    model,
)
from .parts import PARTITION, TOPIC_NAME, Operation, answers, json_content, query

_STATE = enum(
    "TransactionState",
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
_TRANSACTIONAL_ID = {
    "name": "transactional_id",
    "in": "path",
    "required": True,
    "description": "any text, percent-encoded; encode a slash as %2F",
    "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
    "example": "billing-1",
}
_PRODUCER_ID = {
    "name": "producer_id",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
    "example": 4000,
}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000}
_OPEN = array(
    model(
        "OpenTransaction",
        topic=STRING,
        partition=INTEGER,
        transactional_id=NULLABLE_STRING,
        producer_id=INTEGER,
        producer_epoch=INTEGER,
        first_offset=INTEGER,
        since=INTEGER,
        hanging=BOOLEAN,
        holds_back=BOOLEAN,
    )
)

LIST_TRANSACTIONS: Operation = {
    "parameters": [
        {
            **query("state", {"type": "array", "items": _STATE}, "only ids in one of these states"),
            "style": "form",
            "explode": False,
        },
        query(
            "min_duration_ms",
            {"type": "integer", "minimum": -1, "maximum": 9223372036854775807, "default": -1},
            "only transactions that have been open for longer than this; -1: all ids",
        ),
        query(
            "pattern",
            {"type": "string", "maxLength": 1000},
            "only ids that match this regular expression as a whole",
        ),
        query("search", {"type": "string"}, "only ids that contain this text, ignoring case"),
        query(
            "order",
            enum("TransactionOrder", "id", "oldest", default="id"),
            "oldest: the transaction that has been open for longest first",
        ),
        query(
            "page",
            {"type": "integer", "minimum": 1, "maximum": 2147483647, "default": 1},
            "page number, from 1",
        ),
        query("limit", _LIMIT, "ids per page"),
        query("after", {"type": "string"}, "next_after of the previous page"),
    ],
    "responses": answers(
        400,
        503,
        ok=json_content(
            model(
                "TransactionList",
                now=INTEGER,
                open=INTEGER,
                transactions=array(
                    model(
                        "ListedTransaction",
                        transactional_id=STRING,
                        state=_STATE,
                        producer_id=INTEGER,
                        started_at=NULLABLE_INTEGER,
                    )
                ),
                next_after=NULLABLE_STRING,
                total=INTEGER,
            )
        ),
    ),
}

GET_TRANSACTION: Operation = {
    "parameters": [_TRANSACTIONAL_ID],
    "responses": answers(
        400,
        404,
        503,
        ok=json_content(
            model(
                "Transaction",
                transactional_id=STRING,
                state=_STATE,
                producer_id=INTEGER,
                producer_epoch=INTEGER,
                timeout_ms=INTEGER,
                now=INTEGER,
                started_at=NULLABLE_INTEGER,
                partitions=array(
                    model(
                        "TransactionPartition",
                        topic=STRING,
                        partition=INTEGER,
                        first_offset=NULLABLE_INTEGER,
                        holds_back=BOOLEAN,
                    )
                ),
            )
        ),
    ),
}

ABORT_TRANSACTION: Operation = {
    "parameters": [_TRANSACTIONAL_ID],
    "responses": answers(400, 404, 409, 503, 507, ok_status=204),
}

LIST_OPEN_TRANSACTIONS: Operation = {
    "parameters": [
        query("hanging", {"type": "boolean", "default": False}, "only those that no coordinator knows"),
        query("topic", {"type": "string"}, "only those in partitions of this topic"),
        query("limit", _LIMIT, "rows at most"),
    ],
    "responses": answers(
        400,
        404,
        503,
        ok=json_content(model("OpenTransactionList", now=INTEGER, transactions=_OPEN, total=INTEGER)),
    ),
}

LIST_PARTITION_TRANSACTIONS: Operation = {
    "parameters": [TOPIC_NAME, PARTITION],
    "responses": answers(
        404,
        503,
        ok=json_content(
            model(
                "PartitionTransactionList",
                now=INTEGER,
                last_stable_offset=INTEGER,
                high_watermark=INTEGER,
                transactions=_OPEN,
            )
        ),
    ),
}

ABORT_PARTITION_TRANSACTION: Operation = {
    "parameters": [TOPIC_NAME, PARTITION, _PRODUCER_ID],
    "responses": answers(404, 409, 503, 507, ok_status=204),
}
