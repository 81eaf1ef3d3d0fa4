"""The PostgreSQL store of one shard of the shared groups (ADR-0047, ADR-0053).

Only the broker with the lease on the shard writes. Every transaction locks the row of the lease and compares its epoch:
a broker that lost the lease cannot write, and its successor begins to read when the last write is over. A
group with its members is one row of JSON; owners and offsets change one by one.

Pending offsets of transactions are rows of their own (``postgres_pending_offsets``). Transactional ids and their
answers belong to no shard: ``postgres_transactions`` has them.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from ...errors import CoordinatorFenced, CoordinatorNotAvailable, InvalidRequest
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.session import PostgresSession
from ..consumer_group_store import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    DeleteConsumerGroup,
    DeleteConsumerMember,
    MemberProtocol,
)
from ..group_shards import lease_of_shard
from ..group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    DeleteTopicOffsets,
    EndPendingOffsets,
    GroupRecord,
    MemberRecord,
    OffsetRecord,
    OwnerRecord,
    PendingOffset,
    StoreChange,
    StoredGroups,
)
from ..share_group_store import DeleteSharePartitions, SharePartitionRecord
from ..transaction_store import StoredAnswer, StoredTransactions
from .consumer_groups import apply_consumer_change, consumer_groups, delete_consumer_group
from .group_deletions import Deletion, delete_group_record, delete_offsets, deletions, forget_deletions
from .pending_offsets import (
    drop_pending_offsets,
    end_pending_offsets,
    ended_producers,
    insert_pending_offsets,
    lock_ongoing,
    pending_offsets,
)
from .share_groups import apply_share_change, share_partitions

_T = TypeVar("_T")

_INSERT_OFFSET = """
    INSERT INTO group_offsets (group_id, topic, part, topic_id, committed_offset, leader_epoch, metadata,
        committed_at_ms, expires_at_ms)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (group_id, topic, part) DO UPDATE SET topic_id = EXCLUDED.topic_id,
        committed_offset = EXCLUDED.committed_offset, leader_epoch = EXCLUDED.leader_epoch,
        metadata = EXCLUDED.metadata, committed_at_ms = EXCLUDED.committed_at_ms,
        expires_at_ms = EXCLUDED.expires_at_ms
"""
_INSERT_OWNER = """
    INSERT INTO group_owners (group_id, topic, part, member_id) VALUES (%s, %s, %s, %s)
    ON CONFLICT (group_id, topic, part) DO UPDATE SET member_id = EXCLUDED.member_id
"""


class PostgresGroupStore:
    """Implements ``GroupStore`` for the holder of the lease on a shard; ``take`` comes before ``open``.

    The session is the caller's, who closes it; several shards may share it.
    """

    def __init__(self, session: PostgresSession, *, shard: int, incarnation: UUID) -> None:
        self._session = session
        self._shard = shard
        self._lease = lease_of_shard(shard)
        self._incarnation = incarnation
        self._epoch = 0

    def take(self, epoch: int) -> None:
        """Note the epoch of the lease that this broker has."""
        self._epoch = epoch

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        epoch = self._epoch

        def fenced(connection: Connection) -> _T:
            row = connection.execute(
                "SELECT epoch, incarnation FROM leases WHERE name = %s FOR KEY SHARE", (self._lease,)
            ).fetchone()
            if row is None or (row[0], row[1]) != (epoch, self._incarnation):
                raise CoordinatorFenced(epoch=epoch, current_epoch=0 if row is None else row[0])
            return work(connection)

        try:
            return self._session.run(fenced)
        except PostgresUnavailable as error:
            raise CoordinatorNotAvailable(str(error)) from error

    def open(self) -> StoredGroups:
        def work(connection: Connection) -> StoredGroups:
            forget_deletions(connection, self._shard)
            owners: defaultdict[bytes, list[OwnerRecord]] = defaultdict(list)
            for group_id, topic, part, member_id in connection.execute(
                "SELECT group_id, topic, part, member_id FROM group_owners WHERE shard = %s"
                " ORDER BY group_id, topic, part",
                (self._shard,),
            ):
                owners[group_id].append(
                    OwnerRecord(
                        group=group_id.decode(), topic=topic, partition=part, member_id=member_id.decode()
                    )
                )
            groups = [
                _group(group_id.decode(), json.loads(record), owners[group_id])
                for group_id, record in connection.execute(
                    "SELECT group_id, record FROM groups WHERE shard = %s ORDER BY group_id", (self._shard,)
                )
            ]
            rows = connection.execute(
                "SELECT group_id, topic, topic_id, part, committed_offset, leader_epoch, metadata,"
                " committed_at_ms, expires_at_ms FROM group_offsets WHERE shard = %s ORDER BY group_id, topic, part",
                (self._shard,),
            ).fetchall()
            return StoredGroups(
                epoch=self._epoch,
                groups=groups,
                offsets=[_offset(*row) for row in rows],
                pending=pending_offsets(connection, self._shard),
                consumer_groups=consumer_groups(connection, self._shard),
                share_partitions=share_partitions(connection, self._shard),
            )

        return self._run(work)

    def transactions(self) -> StoredTransactions:
        return StoredTransactions(transactions=(), outcomes=())

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        return ()

    def answer(self, key: str) -> StoredAnswer | None:
        return None

    def write(self, changes: Sequence[StoreChange]) -> None:
        def work(connection: Connection) -> None:
            ongoing = lock_ongoing(connection, changes)
            # Most changes are commits; those of one kind between others travel together.
            for kind, group in groupby(changes, type):
                if kind is OffsetRecord:
                    _insert_offsets(connection, [one for one in group if isinstance(one, OffsetRecord)])
                elif kind is PendingOffset:
                    pending = [one for one in group if isinstance(one, PendingOffset)]
                    insert_pending_offsets(
                        connection,
                        [one for one in pending if (one.producer_id, one.producer_epoch) in ongoing],
                    )
                else:
                    for change in group:
                        self._apply(connection, change)
                if kind in (DeleteGroup, DeleteOffset, DeleteTopicOffsets):
                    forget_deletions(connection, self._shard)

        self._run(work)

    def _apply(self, connection: Connection, change: StoreChange) -> None:
        if isinstance(change, DeleteTopicOffsets):
            self._delete_topic_offsets(connection, change)
        elif isinstance(change, EndPendingOffsets):
            end_pending_offsets(connection, change, self._shard)
        else:
            _apply(connection, change)

    def _delete_topic_offsets(self, connection: Connection, change: DeleteTopicOffsets) -> None:
        """Delete them in this shard; the coordinators of the others do so in theirs."""
        delete_offsets(
            connection,
            "topic = %s AND topic_id IS DISTINCT FROM %s AND shard = %s",
            (change.topic, change.besides, self._shard),
        )
        for table in ("group_pending_offsets", "share_partitions"):
            connection.execute(
                f"DELETE FROM {table} WHERE topic = %s AND topic_id IS DISTINCT FROM %s AND shard = %s",
                (change.topic, change.besides, self._shard),
            )

    def deletions(self) -> Sequence[Deletion]:
        """Return the deletions of the last day, the oldest first."""
        return self._run(lambda connection: deletions(connection, self._shard))

    def ended_producers(self, asked: Sequence[tuple[int, int]]) -> Sequence[tuple[int, bool]]:
        """See ``app.groups.ended_elsewhere``."""
        return self._run(lambda connection: ended_producers(connection, asked, self._shard))

    def close(self) -> None:
        """Leave the session open: other shards may use it."""


def write_groups(connection: Connection, changes: Sequence[StoreChange]) -> None:
    """Store changes without a lease, into a database that no broker uses yet."""
    for change in changes:
        if isinstance(change, OffsetRecord):
            _insert_offsets(connection, [change])
        else:
            _apply(connection, change)


def _insert_offsets(connection: Connection, offsets: Sequence[OffsetRecord]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            _INSERT_OFFSET,
            [
                (
                    record.group.encode(),
                    record.topic,
                    record.partition,
                    record.topic_id,
                    record.offset,
                    record.leader_epoch,
                    record.metadata.encode(),
                    record.committed_at_ms,
                    record.expires_at_ms,
                )
                for record in offsets
            ],
        )
    drop_pending_offsets(connection, [(one.group, one.topic, one.partition) for one in offsets])


def _apply(connection: Connection, change: StoreChange) -> None:
    match change:
        case GroupRecord():
            group_id = change.group.encode()
            _delete_group(connection, group_id)
            delete_consumer_group(connection, group_id)
            connection.execute("INSERT INTO groups VALUES (%s, %s)", (group_id, _document(change)))
            for owner in change.owners:
                _insert_owner(connection, owner)
        case ConsumerGroupRecord():
            delete_group_record(connection, change.group.encode())
            _delete_group(connection, change.group.encode())
            apply_consumer_change(connection, change)
        case ConsumerMemberRecord() | DeleteConsumerMember() | DeleteConsumerGroup():
            apply_consumer_change(connection, change)
        case OwnerRecord():
            _insert_owner(connection, change)
        case DeleteOwner():
            connection.execute(
                "DELETE FROM group_owners WHERE group_id = %s AND topic = %s AND part = %s",
                (change.group.encode(), change.topic, change.partition),
            )
        case DeleteGroup():
            group_id = change.group.encode()
            # The group itself last, as readers get it.
            delete_offsets(connection, "group_id = %s", (group_id,))
            delete_group_record(connection, group_id)
            _delete_group(connection, group_id)
            delete_consumer_group(connection, group_id)
            connection.execute("DELETE FROM group_pending_offsets WHERE group_id = %s", (group_id,))
            apply_share_change(connection, DeleteSharePartitions(group=change.group, topic_id=None))
        case SharePartitionRecord() | DeleteSharePartitions():
            apply_share_change(connection, change)
        case DeleteOffset():
            delete_offsets(
                connection,
                "group_id = %s AND topic = %s AND part = %s",
                (change.group.encode(), change.topic, change.partition),
            )
            drop_pending_offsets(connection, [(change.group, change.topic, change.partition)])
        case _:
            raise InvalidRequest(
                "shared storage does not support this yet; use a broker with storage=embedded"
            )


def _delete_group(connection: Connection, group_id: bytes) -> None:
    connection.execute("DELETE FROM groups WHERE group_id = %s", (group_id,))
    connection.execute("DELETE FROM group_owners WHERE group_id = %s", (group_id,))


def _insert_owner(connection: Connection, owner: OwnerRecord) -> None:
    connection.execute(
        _INSERT_OWNER, (owner.group.encode(), owner.topic, owner.partition, owner.member_id.encode())
    )


def _offset(
    group_id: bytes,
    topic: str,
    topic_id: UUID,
    part: int,
    committed_offset: int,
    leader_epoch: int,
    metadata: bytes,
    committed_at_ms: int,
    expires_at_ms: int | None,
) -> OffsetRecord:
    return OffsetRecord(
        group=group_id.decode(),
        topic=topic,
        topic_id=topic_id,
        partition=part,
        offset=committed_offset,
        leader_epoch=leader_epoch,
        metadata=metadata.decode(),
        committed_at_ms=committed_at_ms,
        expires_at_ms=expires_at_ms,
    )


# ── a group as JSON: ASCII, with bytes in Base64 ──


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _document(group: GroupRecord) -> str:
    return json.dumps(
        {
            "generation": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol_name,
            "leader": group.leader,
            "emptied_at_ms": group.emptied_at_ms,
            "members": [
                {
                    "member_id": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "session_timeout_ms": member.session_timeout_ms,
                    "rebalance_timeout_ms": member.rebalance_timeout_ms,
                    "protocols": [[name, _text(metadata)] for name, metadata in member.protocols],
                    "assignment": _text(member.assignment),
                    "is_managed": member.is_managed,
                }
                for member in group.members
            ],
        }
    )


def _group(group_id: str, stored: dict[str, Any], owners: Sequence[OwnerRecord]) -> GroupRecord:
    members = [
        MemberRecord(
            member_id=member["member_id"],
            instance_id=member["instance_id"],
            client_id=member["client_id"],
            client_host=member["client_host"],
            session_timeout_ms=member["session_timeout_ms"],
            rebalance_timeout_ms=member["rebalance_timeout_ms"],
            protocols=tuple(
                MemberProtocol(name, base64.b64decode(metadata)) for name, metadata in member["protocols"]
            ),
            assignment=base64.b64decode(member["assignment"]),
            is_managed=member["is_managed"],
        )
        for member in stored["members"]
    ]
    return GroupRecord(
        group=group_id,
        generation=stored["generation"],
        protocol_type=stored["protocol_type"],
        protocol_name=stored["protocol_name"],
        leader=stored["leader"],
        emptied_at_ms=stored["emptied_at_ms"],
        members=tuple(members),
        owners=tuple(owners),
    )
