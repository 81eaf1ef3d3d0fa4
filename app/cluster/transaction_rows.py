"""Transactional ids as rows; lists are JSON, because they are only read and written whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .database import text_of
from .transaction_store import TransactionRecord

TRANSACTION_COLUMNS = (
    "transactional_id, producer_id, epoch, previous_producer_id, last_epoch, timeout_ms, state, started_at_ms, "
    "updated_at_ms, partitions, groups"
)


def values_of(record: TransactionRecord) -> tuple[Any, ...]:
    """Return the values of all columns but the first."""
    return (
        record.producer_id,
        record.epoch,
        record.previous_producer_id,
        record.last_epoch,
        record.timeout_ms,
        record.state,
        record.started_at_ms,
        record.updated_at_ms,
        json.dumps(record.partitions),
        json.dumps(record.groups),
    )


def record_of(row: Sequence[Any], *, epochs_may_repeat: bool = False) -> TransactionRecord:
    """Return the record of a row; a negative timeout marks a transaction that may be torn (ADR-0071)."""
    return TransactionRecord(
        transactional_id=text_of(row[0]),
        producer_id=row[1],
        epoch=row[2],
        previous_producer_id=row[3],
        last_epoch=row[4],
        timeout_ms=abs(row[5]),
        state=row[6],
        started_at_ms=row[7],
        updated_at_ms=row[8],
        partitions=tuple((topic, partition) for topic, partition in json.loads(row[9])),
        groups=tuple(json.loads(row[10])),
        may_be_torn=row[5] < 0,
        epochs_may_repeat=epochs_may_repeat,
    )
