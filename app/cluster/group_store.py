"""The interface of the store of groups, committed offsets and transactions.

Methods block (the embedded store syncs a database file): call them in one
thread, one at a time. ``write`` is one transaction; when it returns, its effect
survives a loss of power.

The process that opens the store becomes its coordinator and takes the next
**epoch**. Writes with an older epoch are refused, so a coordinator that was paused
and replaced cannot overwrite the changes of its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

from .consumer_group_store import ConsumerGroupChange, MemberProtocol, StoredConsumerGroup
from .share_group_store import ShareGroupChange, SharePartitionRecord
from .transaction_store import StoredAnswer, StoredTransactions, TransactionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member of a group. Times are in ms; ``protocols`` are in order of preference.

    ``is_managed``: the broker joins, syncs and leads for this member (ADR-0017).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes
    is_managed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """A member has claimed a partition that is assigned to it."""

    group: str
    topic: str
    partition: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group after its last assignment, or after its last member left.

    ``protocol_type`` is None if no member ever joined. ``emptied_at_ms`` (since the
    Unix epoch) is None if the group has members, or never had any.
    """

    group: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    emptied_at_ms: int | None
    members: tuple[MemberRecord, ...]
    owners: tuple[OwnerRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A committed offset. Times are in ms since the Unix epoch.

    ``expires_at_ms`` is None if the broker's retention applies.
    """

    group: str
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None


# Not frozen, because thousands are made in one turn of the loop, and frozen ones take twice as long.
@dataclass(slots=True, kw_only=True)
class PendingOffset:
    """An offset that a transaction commits: it waits for the end of the transaction of its producer.

    A later commit of the same partition in the same group, or a deletion of its offset, drops it.
    """

    producer_id: int
    producer_epoch: int
    record: OffsetRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPendingOffsets:
    """The transaction of a producer ended: its pending offsets are committed, or dropped."""

    producer_id: int
    is_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Delete a group, its offsets, also pending ones, and its share states."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOwner:
    """A partition no longer has an owner."""

    group: str
    topic: str
    partition: int


# Not frozen, as ``PendingOffset``.
@dataclass(slots=True, kw_only=True)
class DeleteOffset:
    """Delete a committed offset, and the pending ones of its partition."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicOffsets:
    """Delete what all groups have in ``topic``, except for the id ``besides``.

    That is offsets and share states.
    """

    topic: str
    besides: UUID | None


# A record means: store it, and replace an earlier one with the same key.
GroupChange: TypeAlias = (
    GroupRecord
    | OwnerRecord
    | OffsetRecord
    | PendingOffset
    | EndPendingOffsets
    | DeleteGroup
    | DeleteOwner
    | DeleteOffset
    | DeleteTopicOffsets
    | ConsumerGroupChange
    | ShareGroupChange
)

StoreChange: TypeAlias = GroupChange | TransactionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroups:
    """The content of the store, and the epoch just taken, which is the largest yet.

    ``pending`` is in the order in which it was written.
    """

    epoch: int
    groups: Sequence[GroupRecord]
    offsets: Sequence[OffsetRecord]
    pending: Sequence[PendingOffset] = ()
    consumer_groups: Sequence[StoredConsumerGroup] = ()
    share_partitions: Sequence[SharePartitionRecord] = ()


class GroupStore(Protocol):
    def open(self) -> StoredGroups:
        """Take the next epoch, and return all groups and offsets.

        Raises:
            GroupStoreFailed: it cannot be read or written.
        """
        ...

    def transactions(self) -> StoredTransactions:
        """Return all transactional ids and outcomes, once the store is open.

        Raises ``GroupStoreFailed``.
        """
        ...

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        """Return the idempotency keys that have an answer, and when it was stored; the oldest first.

        Raises ``GroupStoreFailed``.
        """
        ...

    def answer(self, key: str) -> StoredAnswer | None:
        """Return the answer of an idempotency key. Raises ``GroupStoreFailed``."""
        ...

    def write(self, changes: Sequence[StoreChange]) -> None:
        """Apply all changes in order, or none.

        Raises:
            CoordinatorFenced: another coordinator has opened the store.
            GroupStoreFailed: nothing was changed.
        """
        ...

    def close(self) -> None: ...
