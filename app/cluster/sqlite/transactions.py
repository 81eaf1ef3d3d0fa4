"""The tables of transactions in the file of the group store (ADR-0029).

::

    transactional_ids      one row per transactional id
    transaction_outcomes   how transactions ended whose markers may not be synced yet
    transaction_answers    answers to requests with an idempotency key, written with the outcome (ADR-0034)

Lists are JSON: they are only ever read and written as a whole.
"""

from __future__ import annotations

import json
import sqlite3
from uuid import UUID

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

CREATE_TABLES = """
    CREATE TABLE transactional_ids (
        transactional_id TEXT PRIMARY KEY,
        producer_id INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        previous_producer_id INTEGER NOT NULL,
        last_epoch INTEGER NOT NULL,
        timeout_ms INTEGER NOT NULL,
        state TEXT NOT NULL,
        started_at_ms INTEGER NOT NULL,
        updated_at_ms INTEGER NOT NULL,
        partitions TEXT NOT NULL,
        groups TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE transaction_outcomes (
        number INTEGER PRIMARY KEY,
        transactional_id TEXT NOT NULL,
        producer_id INTEGER NOT NULL,
        producer_epoch INTEGER NOT NULL,
        is_commit INTEGER NOT NULL,
        partitions TEXT NOT NULL
    );
    """


CREATE_ANSWERS = """
    CREATE TABLE transaction_answers (
        key TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        answer BLOB NOT NULL,
        created_at_ms INTEGER NOT NULL
    );
    """


def apply_change(database: sqlite3.Connection, change: TransactionChange) -> None:
    match change:
        case TransactionRecord():
            database.execute(
                "INSERT OR REPLACE INTO transactional_ids (transactional_id, producer_id, epoch,"
                " previous_producer_id, last_epoch, timeout_ms, state, started_at_ms, updated_at_ms, partitions,"
                " groups) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    change.transactional_id,
                    change.producer_id,
                    change.epoch,
                    change.previous_producer_id,
                    change.last_epoch,
                    change.timeout_ms,
                    change.state,
                    change.started_at_ms,
                    change.updated_at_ms,
                    json.dumps(change.partitions),
                    json.dumps(change.groups),
                ),
            )
        case OutcomeRecord():
            partitions = [
                (outcome.topic, str(outcome.topic_id), outcome.partition, outcome.end_offset)
                for outcome in change.partitions
            ]
            database.execute(
                "INSERT OR REPLACE INTO transaction_outcomes (number, transactional_id, producer_id, producer_epoch,"
                " is_commit, partitions) VALUES (?, ?, ?, ?, ?, ?)",
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
            database.execute(
                "DELETE FROM transactional_ids WHERE transactional_id = ?", (change.transactional_id,)
            )
        case DeleteOutcome():
            database.execute("DELETE FROM transaction_outcomes WHERE number = ?", (change.number,))
        case StoredAnswer():
            database.execute(
                "INSERT OR REPLACE INTO transaction_answers (key, digest, answer, created_at_ms)"
                " VALUES (?, ?, ?, ?)",
                (change.key, change.digest, change.answer, change.created_at_ms),
            )
        case DeleteAnswer():
            database.execute(
                "DELETE FROM transaction_answers WHERE key = ? AND created_at_ms <= ?",
                (change.key, change.created_at_ms),
            )


def answer_ages(database: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the keys of all answers, and when each was stored; the oldest first."""
    return [
        (key, created_at_ms)
        for key, created_at_ms in database.execute(
            "SELECT key, created_at_ms FROM transaction_answers ORDER BY created_at_ms, rowid"
        )
    ]


def stored_answer(database: sqlite3.Connection, key: str) -> StoredAnswer | None:
    for digest, answer, created_at_ms in database.execute(
        "SELECT digest, answer, created_at_ms FROM transaction_answers WHERE key = ?", (key,)
    ):
        return StoredAnswer(key=key, digest=digest, answer=answer, created_at_ms=created_at_ms)
    return None


def stored_transactions(database: sqlite3.Connection) -> StoredTransactions:
    transactions = [
        TransactionRecord(
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            previous_producer_id=previous_producer_id,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=state,
            started_at_ms=started_at_ms,
            updated_at_ms=updated_at_ms,
            partitions=tuple((topic, partition) for topic, partition in json.loads(partitions)),
            groups=tuple(json.loads(groups)),
        )
        for (
            transactional_id,
            producer_id,
            epoch,
            previous_producer_id,
            last_epoch,
            timeout_ms,
            state,
            started_at_ms,
            updated_at_ms,
            partitions,
            groups,
        ) in database.execute(
            "SELECT transactional_id, producer_id, epoch, previous_producer_id, last_epoch, timeout_ms, state,"
            " started_at_ms, updated_at_ms, partitions, groups FROM transactional_ids ORDER BY transactional_id"
        )
    ]
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
        for number, transactional_id, producer_id, producer_epoch, is_commit, partitions in database.execute(
            "SELECT number, transactional_id, producer_id, producer_epoch, is_commit, partitions"
            " FROM transaction_outcomes ORDER BY number"
        )
    ]
    return StoredTransactions(transactions=transactions, outcomes=outcomes)
