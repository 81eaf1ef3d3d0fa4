"""The tables of groups, committed offsets and share states: one set of statements for both engines.

::

    groups                  classic groups with their members, as JSON; a group is in one of the first two tables only
    consumer_groups         groups whose partitions the broker assigns (KIP-848), as JSON
    consumer_members        their members, as JSON
    group_owners            which member has claimed which of its partitions
    group_offsets           committed offsets; a group may have some without being in another table
    group_pending_offsets   offsets that open transactions commit
    share_partitions        the states of a partition in a share group (KIP-932): its start offset, and as JSON the
                            ranges after it as [first, last, state, delivery count]

A group, a member and the ranges of a partition are only read and written whole; owners and offsets change one by one.

``number`` of a pending offset counts up with each write and is never used again, so rows of one partition are ordered
by the time of their writing. That decides which offset is the last one when transactions of several producers have
committed the same partition of a group.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar, LiteralString

from .consumer_group_store import (
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerGroup,
    DeleteConsumerMember,
    StoredConsumerGroup,
)
from .database import Rows, SqlTransaction, insert, replacing, text_of, upsert, uuid_of
from .group_documents import (
    decoded_consumer_group,
    decoded_consumer_member,
    decoded_group,
    encoded_consumer_group,
    encoded_consumer_member,
    encoded_group,
)
from .group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    DeleteTopicOffsets,
    EndPendingOffsets,
    GroupRecord,
    OffsetRecord,
    OwnerRecord,
    PendingOffset,
    StoreChange,
    StoredGroups,
)
from .share_group_store import DeleteSharePartitions, SharePartitionRecord, StoredRecords
from .transaction_store import TransactionChange

_PARTITION = "group_id, topic, part"
_OFFSET = "topic_id, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms"
PENDING_COLUMNS = f"producer_id, producer_epoch, {_PARTITION}, {_OFFSET}"
_SHARE_STATES = "topic, state_epoch, start_offset, records"

_INSERT_OFFSET = upsert("group_offsets", _PARTITION, _OFFSET)
_INSERT_OWNER = upsert("group_owners", _PARTITION, "member_id")
_INSERT_CONSUMER_GROUP = upsert("consumer_groups", "group_id", "record")
_INSERT_CONSUMER_MEMBER = upsert("consumer_members", "group_id, member_id", "record")
_INSERT_SHARE_PARTITION = upsert("share_partitions", "group_id, topic_id, part", _SHARE_STATES)
_COMMIT_PENDING = f"""
    INSERT INTO group_offsets ({_PARTITION}, {_OFFSET})
    SELECT {_PARTITION}, {_OFFSET} FROM group_pending_offsets WHERE producer_id = %s AND shard = %s
    {replacing(_PARTITION, _OFFSET)}
"""


class GroupTables(ABC):
    """The tables of the groups of ``shard``, within a transaction; what differs between the engines is abstract."""

    # Drops pending offsets that are older than one of a producer (its id, and the shard) for the same partition.
    drop_earlier: ClassVar[LiteralString]

    def __init__(self, sql: SqlTransaction, shard: int = 0) -> None:
        self._sql = sql
        self.shard = shard

    # ── reading ──

    def stored(self, epoch: int) -> StoredGroups:
        """Return what the tables have; ``epoch`` is that of the coordinator."""
        return StoredGroups(
            epoch=epoch,
            groups=self._groups(),
            offsets=[
                _offset_of(row) for row in self._rows("group_offsets", f"{_PARTITION}, {_OFFSET}", _PARTITION)
            ],
            pending=[
                PendingOffset(producer_id=row[0], producer_epoch=row[1], record=_offset_of(row[2:]))
                for row in self._rows("group_pending_offsets", PENDING_COLUMNS, "number")
            ],
            consumer_groups=self._consumer_groups(),
            share_partitions=[
                SharePartitionRecord(
                    group=text_of(group_id),
                    topic_id=uuid_of(topic_id),
                    partition=part,
                    topic=topic,
                    state_epoch=state_epoch,
                    start_offset=start_offset,
                    records=tuple(StoredRecords(*stored) for stored in json.loads(records)),
                )
                for group_id, topic_id, part, topic, state_epoch, start_offset, records in self._rows(
                    "share_partitions",
                    f"group_id, topic_id, part, {_SHARE_STATES}",
                    "group_id, topic_id, part",
                )
            ],
        )

    def _rows(self, table: LiteralString, columns: LiteralString, order: LiteralString) -> Rows:
        return self._sql.execute(
            f"SELECT {columns} FROM {table} WHERE shard = %s ORDER BY {order}", (self.shard,)
        )

    def _groups(self) -> list[GroupRecord]:
        owners: defaultdict[str, list[OwnerRecord]] = defaultdict(list)
        for group_id, topic, part, member_id in self._rows(
            "group_owners", f"{_PARTITION}, member_id", _PARTITION
        ):
            group = text_of(group_id)
            owners[group].append(
                OwnerRecord(group=group, topic=topic, partition=part, member_id=text_of(member_id))
            )
        groups = [
            (text_of(group_id), record)
            for group_id, record in self._rows("groups", "group_id, record", "group_id")
        ]
        return [decoded_group(group, record, owners[group]) for group, record in groups]

    def _consumer_groups(self) -> list[StoredConsumerGroup]:
        members: defaultdict[str | bytes, list[ConsumerMember]] = defaultdict(list)
        for group_id, member_id, record in self._rows(
            "consumer_members", "group_id, member_id, record", "group_id, member_id"
        ):
            members[group_id].append(decoded_consumer_member(text_of(member_id), record))
        return [
            StoredConsumerGroup(
                record=decoded_consumer_group(text_of(group_id), record), members=tuple(members[group_id])
            )
            for group_id, record in self._rows("consumer_groups", "group_id, record", "group_id")
        ]

    # ── changes ──

    def apply(self, changes: Sequence[StoreChange]) -> None:
        """Apply changes in order."""
        # Most changes are commits; those of one kind between others travel together.
        for kind, alike in groupby(changes, type):
            if kind is OffsetRecord:
                self._insert_offsets([change for change in alike if isinstance(change, OffsetRecord)])
            elif kind is PendingOffset:
                self._insert_pending([change for change in alike if isinstance(change, PendingOffset)])
            else:
                for change in alike:
                    self._apply(change)

    def _apply(self, change: StoreChange) -> None:
        sql = self._sql
        match change:
            case GroupRecord():
                group_id = sql.name(change.group)
                self._delete_rows(group_id, "groups", "group_owners", "consumer_groups", "consumer_members")
                sql.execute(insert("groups", "group_id, record"), (group_id, encoded_group(change)))
                sql.executemany(_INSERT_OWNER, [self._owner_row(owner) for owner in change.owners])
            case OwnerRecord():
                sql.execute(_INSERT_OWNER, self._owner_row(change))
            case DeleteOwner():
                sql.execute(
                    "DELETE FROM group_owners WHERE group_id = %s AND topic = %s AND part = %s",
                    (sql.name(change.group), change.topic, change.partition),
                )
            case ConsumerGroupRecord():
                group_id = sql.name(change.group)
                self._delete_group(group_id)
                self._delete_rows(group_id, "group_owners")
                sql.execute(_INSERT_CONSUMER_GROUP, (group_id, encoded_consumer_group(change)))
            case ConsumerMemberRecord():
                sql.execute(
                    _INSERT_CONSUMER_MEMBER,
                    (
                        sql.name(change.group),
                        sql.name(change.member.member_id),
                        encoded_consumer_member(change.member),
                    ),
                )
            case DeleteConsumerMember():
                sql.execute(
                    "DELETE FROM consumer_members WHERE group_id = %s AND member_id = %s",
                    (sql.name(change.group), sql.name(change.member_id)),
                )
            case DeleteConsumerGroup():
                self._delete_rows(sql.name(change.group), "consumer_groups", "consumer_members")
            case DeleteGroup():
                group_id = sql.name(change.group)
                # The group itself after its offsets, as readers get it.
                self._delete_offsets("group_id = %s", (group_id,))
                self._delete_group(group_id)
                self._delete_rows(
                    group_id,
                    *("group_owners", "consumer_groups", "consumer_members"),
                    *("group_pending_offsets", "share_partitions"),
                )
            case DeleteOffset():
                self._delete_offsets(
                    "group_id = %s AND topic = %s AND part = %s",
                    (sql.name(change.group), change.topic, change.partition),
                )
                self._drop_pending([(change.group, change.topic, change.partition)])
            case DeleteTopicOffsets():
                self._delete_topic_offsets(change)
            case EndPendingOffsets():
                self._end_pending(change)
            case SharePartitionRecord():
                sql.execute(
                    _INSERT_SHARE_PARTITION,
                    (
                        sql.name(change.group),
                        change.topic_id,
                        change.partition,
                        change.topic,
                        change.state_epoch,
                        change.start_offset,
                        json.dumps(change.records, separators=(",", ":")),
                    ),
                )
            case DeleteSharePartitions(topic_id=None):
                self._delete_rows(sql.name(change.group), "share_partitions")
            case DeleteSharePartitions():
                sql.execute(
                    "DELETE FROM share_partitions WHERE group_id = %s AND topic_id = %s",
                    (sql.name(change.group), change.topic_id),
                )
            case OffsetRecord() | PendingOffset():
                raise AssertionError("apply has written it")
            case _:
                self._apply_transaction(change)

    def _delete_rows(self, group_id: str | bytes, *tables: LiteralString) -> None:
        for table in tables:
            self._sql.execute(f"DELETE FROM {table} WHERE group_id = %s", (group_id,))

    def _delete_topic_offsets(self, change: DeleteTopicOffsets) -> None:
        """Delete them in this shard; the coordinators of the others do so in theirs."""
        condition = "topic = %s AND topic_id IS DISTINCT FROM %s AND shard = %s"
        values = (change.topic, change.besides, self.shard)
        self._delete_offsets(condition, values)
        for table in ("group_pending_offsets", "share_partitions"):
            self._sql.execute(f"DELETE FROM {table} WHERE {condition}", values)

    def _insert_offsets(self, offsets: Sequence[OffsetRecord]) -> None:
        self._sql.executemany(_INSERT_OFFSET, [self._offset_row(record) for record in offsets])
        self._drop_pending([(offset.group, offset.topic, offset.partition) for offset in offsets])

    def _end_pending(self, end: EndPendingOffsets) -> None:
        """Drop the pending offsets of a producer; commit them first if its transaction is committed.

        A committed one drops those that other producers wrote for the same partition before it.
        """
        values = (end.producer_id, self.shard)
        if end.is_committed:
            self._sql.execute(_COMMIT_PENDING, values)
            self._sql.execute(self.drop_earlier, values)
        self._sql.execute("DELETE FROM group_pending_offsets WHERE producer_id = %s AND shard = %s", values)

    def _owner_row(self, owner: OwnerRecord) -> tuple[Any, ...]:
        return (self._sql.name(owner.group), owner.topic, owner.partition, self._sql.name(owner.member_id))

    def _offset_row(self, record: OffsetRecord) -> tuple[Any, ...]:
        return (
            self._sql.name(record.group),
            record.topic,
            record.partition,
            record.topic_id,
            record.offset,
            record.leader_epoch,
            self._sql.name(record.metadata),
            record.committed_at_ms,
            record.expires_at_ms,
        )

    def _pending_row(self, pending: PendingOffset) -> tuple[Any, ...]:
        return (pending.producer_id, pending.producer_epoch, *self._offset_row(pending.record))

    # ── what differs ──

    @abstractmethod
    def _insert_pending(self, pending: Sequence[PendingOffset]) -> None:
        """Store pending offsets in order: each gets the next number."""

    @abstractmethod
    def _drop_pending(self, keys: Sequence[tuple[str, str, int]]) -> None:
        """Drop all pending offsets of partitions (group, topic, number).

        Their committed offsets were replaced or deleted.
        """

    @abstractmethod
    def _delete_offsets(self, condition: LiteralString, values: Sequence[Any]) -> None:
        """Delete the committed offsets that ``condition`` names."""

    @abstractmethod
    def _delete_group(self, group_id: str | bytes) -> None:
        """Delete the record of a classic group."""

    @abstractmethod
    def _apply_transaction(self, change: TransactionChange) -> None:
        """Apply a change of the tables of transactions, where they belong to the store of groups."""


def _offset_of(row: tuple[Any, ...]) -> OffsetRecord:
    group_id, topic, part, topic_id, offset, leader_epoch, metadata, committed_at_ms, expires_at_ms = row
    return OffsetRecord(
        group=text_of(group_id),
        topic=topic,
        topic_id=uuid_of(topic_id),
        partition=part,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=text_of(metadata),
        committed_at_ms=committed_at_ms,
        expires_at_ms=expires_at_ms,
    )
