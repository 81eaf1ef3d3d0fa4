"""Requests and results of the coordinator, independent of any protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..storage.topic_partition import TopicPartition
from .states import TransactionState

# There is no open transaction.
NOT_STARTED = -1


class ProducerIdentity(NamedTuple):
    """Distinguishes a producer from an earlier one with the same transactional id."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """``started_at_ms`` is as in ``TransactionDescription``."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    started_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """``started_at_ms`` is since the Unix epoch.

    It is ``NOT_STARTED`` if no transaction is open.

    ``partitions`` are those of the open transaction, sorted; while it ends, those without a marker.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTransaction:
    """A transaction of which a partition has batches, but no marker.

    ``transactional_id`` is None if it hangs. ``since_ms`` is when it began; if it hangs, the time of its last batch,
    because nothing else is known. ``holds_back``: it is the oldest of the partition, so the last stable offset is
    ``first_offset``.
    """

    topic_partition: TopicPartition
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    since_ms: int
    holds_back: bool

    @property
    def is_hanging(self) -> bool:
        return self.transactional_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCounts:
    """``open`` counts transactions, ``oldest_ms`` is the age of the oldest.

    It is 0 if none is open.

    ``committed``, ``aborted`` and ``timed_out`` count those that ended since the start; those that timed out
    are aborted too. ``ids`` counts the transactional ids that are known.
    """

    ids: int
    open: int
    oldest_ms: int
    committed: int
    aborted: int
    timed_out: int
