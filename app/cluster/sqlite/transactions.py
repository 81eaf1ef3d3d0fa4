"""The tables of transactions in the file of the group store (ADR-0029).

::

    transactional_ids      one row per transactional id
    transaction_outcomes   how transactions ended whose markers may not be synced yet
    transaction_answers    answers to requests with an idempotency key, written with the outcome (ADR-0034)

Lists are JSON: they are only ever read and written as a whole.
"""

from __future__ import annotations

import json
from uuid import UUID

from ..database import SqlTransaction, upsert
from ..transaction_rows import TRANSACTION_COLUMNS, record_of, values_of
from ..transaction_store import (
    DeleteAnswer,
    DeleteOutcome,
    DeleteTransaction,
    OutcomePartition,
    OutcomeRecord,
    StoredAnswer,
    StoredTransactions,
    TransactionChange,
    TransactionRecord,
)

_OUTCOME_COLUMNS = "transactional_id, producer_id, producer_epoch, is_commit, partitions"
_INSERT_ID = upsert(
    "transactional_ids", "transactional_id", TRANSACTION_COLUMNS.removeprefix("transactional_id, ")
)
_INSERT_OUTCOME = upsert("transaction_outcomes", "number", _OUTCOME_COLUMNS)
# An answer that takes the place of another is the newest of its time.
_INSERT_ANSWER = (
    "INSERT OR REPLACE INTO transaction_answers (key, digest, answer, created_at_ms) VALUES (%s, %s, %s, %s)"
)


def apply_change(sql: SqlTransaction, change: TransactionChange) -> None:
    match change:
        case TransactionRecord():
            sql.execute(_INSERT_ID, (change.transactional_id, *values_of(change)))
        case OutcomeRecord():
            partitions = [
                (outcome.topic, str(outcome.topic_id), outcome.partition, outcome.end_offset)
                for outcome in change.partitions
            ]
            sql.execute(
                _INSERT_OUTCOME,
                (
                    change.number,
                    change.transactional_id,
                    change.producer_id,
                    change.producer_epoch,
                    change.is_commit,
                    json.dumps(partitions),
                ),
            )
        case DeleteTransaction():
            sql.execute(
                "DELETE FROM transactional_ids WHERE transactional_id = %s", (change.transactional_id,)
            )
        case DeleteOutcome():
            sql.execute("DELETE FROM transaction_outcomes WHERE number = %s", (change.number,))
        case StoredAnswer():
            sql.execute(_INSERT_ANSWER, (change.key, change.digest, change.answer, change.created_at_ms))
        case DeleteAnswer():
            sql.execute(
                "DELETE FROM transaction_answers WHERE key = %s AND created_at_ms <= %s",
                (change.key, change.created_at_ms),
            )


def answer_ages(sql: SqlTransaction) -> list[tuple[str, int]]:
    """Return the keys of all answers, and when each was stored; the oldest first."""
    rows = sql.execute("SELECT key, created_at_ms FROM transaction_answers ORDER BY created_at_ms, rowid")
    return [(key, created_at_ms) for key, created_at_ms in rows]


def stored_answer(sql: SqlTransaction, key: str) -> StoredAnswer | None:
    for digest, answer, created_at_ms in sql.execute(
        "SELECT digest, answer, created_at_ms FROM transaction_answers WHERE key = %s", (key,)
    ):
        return StoredAnswer(key=key, digest=digest, answer=answer, created_at_ms=created_at_ms)
    return None


def stored_transactions(sql: SqlTransaction) -> StoredTransactions:
    ids = sql.execute(f"SELECT {TRANSACTION_COLUMNS} FROM transactional_ids ORDER BY transactional_id")
    outcomes = [
        OutcomeRecord(
            number=number,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_commit=bool(is_commit),
            partitions=tuple(
                OutcomePartition(
                    topic=topic, topic_id=UUID(topic_id), partition=partition, end_offset=end_offset
                )
                for topic, topic_id, partition, end_offset in json.loads(partitions)
            ),
        )
        for number, transactional_id, producer_id, producer_epoch, is_commit, partitions in sql.execute(
            f"SELECT number, {_OUTCOME_COLUMNS} FROM transaction_outcomes ORDER BY number"
        )
    ]
    return StoredTransactions(transactions=[record_of(row) for row in ids], outcomes=outcomes)
