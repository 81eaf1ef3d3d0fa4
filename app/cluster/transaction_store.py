"""Stored state of transactions in the group store.

The rows share the file, so an outcome and the offsets that are committed with it are one
transaction of the store (ADR-0029).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transactional id. Times are in ms since the Unix epoch.

    ``previous_producer_id`` and ``last_epoch`` are what a retry may still name, -1 if nothing.
    ``started_at_ms`` is -1 if no transaction is open. ``partitions`` (topic, number) and ``groups``
    are those of the open transaction; partitions that a produce request added may be missing, because
    their logs show them. ``may_be_torn``: the database may have lost a part of the open transaction;
    ``epochs_may_repeat``: it may have given out later epochs of the producer id, and forgotten that (ADR-0071).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    previous_producer_id: int
    last_epoch: int
    timeout_ms: int
    state: str
    started_at_ms: int
    updated_at_ms: int
    partitions: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()
    may_be_torn: bool = False
    epochs_may_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePartition:
    """A partition that a transaction wrote to.

    The transaction began before ``end_offset``.
    """

    topic: str
    topic_id: UUID
    partition: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """The outcome of a transaction, kept until its markers are synced.

    ``number`` ascends. ``producer_epoch`` is that of the markers.
    """

    number: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[OutcomePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTransaction:
    """Forget a transactional id; outcomes stay."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOutcome:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The answer to a committed request with an idempotency key.

    It comes with the digest of the body of that request.
    """

    key: str
    digest: bytes
    answer: bytes
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAnswer:
    """Forget the answer of a key, unless it was stored again after ``created_at_ms``."""

    key: str
    created_at_ms: int


# A record means: store it, and replace an earlier one with the same key.
TransactionChange: TypeAlias = (
    TransactionRecord | OutcomeRecord | DeleteTransaction | DeleteOutcome | StoredAnswer | DeleteAnswer
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransactions:
    """All transactional ids, and the outcomes by ascending number."""

    transactions: Sequence[TransactionRecord]
    outcomes: Sequence[OutcomeRecord]
