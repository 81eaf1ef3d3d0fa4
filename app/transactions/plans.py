"""Plans of a transaction machine for others to carry out: what to store, and how to end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ..cluster.transaction_store import TransactionRecord
from ..storage.topic_partition import TopicPartition
from .messages import ProducerIdentity


class Moment(NamedTuple):
    """The time of a request: since the Unix epoch, and of a clock that never goes back."""

    wall_ms: int
    monotonic_ms: int


class Pending(Enum):
    """Changes that are being stored."""

    BEGIN = auto()
    ADD = auto()
    # The producer gets its next epoch, or the id expires.
    CHANGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Store ``record``, call ``store``, then answer with the producer of ``record``."""

    record: TransactionRecord

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.record.producer_id, self.record.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPlan:
    """End the transaction: store ``record``, append markers, then answer with ``next_producer``.

    ``producer`` is whose batches are committed or aborted; the markers have ``marker_epoch``.
    """

    is_commit: bool
    producer: ProducerIdentity
    marker_epoch: int
    partitions: frozenset[TopicPartition]
    record: TransactionRecord

    @property
    def next_producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.record.producer_id, self.record.epoch)
