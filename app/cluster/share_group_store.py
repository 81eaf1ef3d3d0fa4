"""Stored state of share groups (KIP-932, ADR-0044)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID


class StoredRecords(NamedTuple):
    """Offsets with the same state, both ends included; ``state`` is Kafka's number."""

    first: int
    last: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRecord:
    """The states of one partition in a share group; it replaces those stored before.

    All offsets before ``start_offset`` are final. ``records`` ascend.
    """

    group: str
    topic: str
    topic_id: UUID
    partition: int
    state_epoch: int
    start_offset: int
    records: Sequence[StoredRecords] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSharePartitions:
    """Forget the states of a share group: in one topic, or with None in all topics."""

    group: str
    topic_id: UUID | None


ShareGroupChange: TypeAlias = SharePartitionRecord | DeleteSharePartitions
