"""The embedded group store: one SQLite file, WAL, ``synchronous=FULL`` (ADR-0012).

Apart from the catalog's, so that no commit waits for a topic to be made::

    coordinator        one row: the epoch of the coordinator that opened the file last
    groups             what the last assignment, or the last leaving, made of each group
    members            of those groups, in the order in which they came
    member_protocols   what each member offers, in its order of preference
    owners             which member has claimed which of its partitions
    offsets            committed offsets; a group may have some without standing in groups
    pending_offsets    offsets that open transactions commit (``sqlite_pending_offsets``)

Groups whose partitions the broker assigns have tables of their own (``sqlite_consumer_groups``).
A group is in the tables of one protocol only. The states of share groups are in ``sqlite_share_groups``.
The tables of transactions are in ``sqlite_transactions``.

A commit is in the file when ``write`` returns: SQLite has synced its log. A
crash in the middle leaves the transaction out.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from ...errors import CoordinatorFenced, GroupStoreFailed
from ..consumer_group_store import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    DeleteConsumerGroup,
    DeleteConsumerMember,
)
from ..group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    DeleteTopicOffsets,
    EndPendingOffsets,
    GroupRecord,
    MemberProtocol,
    MemberRecord,
    OffsetRecord,
    OwnerRecord,
    PendingOffset,
    StoreChange,
    StoredGroups,
)
from ..share_group_store import DeleteSharePartitions, SharePartitionRecord
from ..transaction_store import StoredAnswer, StoredTransactions
from .consumer_groups import (
    CREATE_CONSUMER_GROUPS,
    apply_consumer_change,
    consumer_groups,
    delete_consumer_group,
)
from .file import SqliteFailed, SqliteFile
from .pending_offsets import (
    CREATE_PENDING_OFFSETS,
    drop_pending_offsets,
    end_pending_offsets,
    insert_pending_offset,
    pending_offsets,
)
from .share_groups import CREATE_SHARE_PARTITIONS, apply_share_change, share_partitions
from .transactions import (
    CREATE_ANSWERS,
    CREATE_TABLES,
    answer_ages,
    apply_change,
    stored_answer,
    stored_transactions,
)

# One step for each change of the schema, in order; user_version counts those done.
_MIGRATIONS = (
    """
    CREATE TABLE coordinator (number INTEGER PRIMARY KEY CHECK (number = 1), epoch INTEGER NOT NULL);
    INSERT INTO coordinator VALUES (1, 0);
    CREATE TABLE groups (
        group_id TEXT PRIMARY KEY,
        generation INTEGER NOT NULL,
        protocol_type TEXT,
        protocol_name TEXT,
        leader TEXT,
        emptied_at_ms INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE members (
        group_id TEXT NOT NULL,
        place INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        instance_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        session_timeout_ms INTEGER NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, place)
    );
    CREATE TABLE member_protocols (
        group_id TEXT NOT NULL,
        member_place INTEGER NOT NULL,
        place INTEGER NOT NULL,
        name TEXT NOT NULL,
        metadata BLOB NOT NULL,
        PRIMARY KEY (group_id, member_place, place)
    );
    CREATE TABLE offsets (
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        topic_id TEXT NOT NULL,
        offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        committed_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        PRIMARY KEY (group_id, topic, partition)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE members ADD COLUMN is_managed INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE owners (
        group_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        partition INTEGER NOT NULL,
        member_id TEXT NOT NULL,
        PRIMARY KEY (group_id, topic, partition)
    ) WITHOUT ROWID;
    """,
    CREATE_PENDING_OFFSETS,
    CREATE_TABLES,
    CREATE_ANSWERS,
    CREATE_CONSUMER_GROUPS,
    CREATE_SHARE_PARTITIONS,
)


class SqliteGroupStore:
    """Implements ``GroupStore``; calls come one at a time, from whichever thread."""

    def __init__(self, path: Path) -> None:
        """Touches nothing: ``open`` does."""
        self._path = path
        self._opened: SqliteFile | None = None
        self._epoch = 0

    def open(self) -> StoredGroups:
        try:
            with self._translated():
                self._opened = SqliteFile(self._path, _MIGRATIONS)
            with self._transaction() as database:
                # Read under the lock under which the epoch is taken, so no write comes in between.
                database.execute("UPDATE coordinator SET epoch = epoch + 1")
                (self._epoch,) = database.execute("SELECT epoch FROM coordinator").fetchone()
                return StoredGroups(
                    epoch=self._epoch,
                    groups=_groups(database),
                    offsets=_offsets(database),
                    pending=pending_offsets(database),
                    consumer_groups=consumer_groups(database),
                    share_partitions=share_partitions(database),
                )
        except GroupStoreFailed:
            self.close()
            raise

    def transactions(self) -> StoredTransactions:
        with self._transaction() as database:
            return stored_transactions(database)

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        with self._transaction() as database:
            return answer_ages(database)

    def answer(self, key: str) -> StoredAnswer | None:
        with self._transaction() as database:
            return stored_answer(database, key)

    def write(self, changes: Sequence[StoreChange]) -> None:
        with self._transaction() as database:
            (current,) = database.execute("SELECT epoch FROM coordinator").fetchone()
            if current != self._epoch:
                raise CoordinatorFenced(epoch=self._epoch, current_epoch=current)
            for change in changes:
                _apply(database, change)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        assert self._opened is not None
        with self._translated(), self._opened.transaction() as sql:
            yield sql.connection

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except SqliteFailed as error:
            raise GroupStoreFailed(self._path, str(error), is_full=error.is_full) from error
        except sqlite3.IntegrityError as error:
            raise GroupStoreFailed(self._path, str(error)) from error


def _apply(database: sqlite3.Connection, change: StoreChange) -> None:
    match change:
        case OffsetRecord():
            database.execute(
                "INSERT OR REPLACE INTO offsets (group_id, topic, partition, topic_id, offset, leader_epoch,"
                " metadata, committed_at_ms, expires_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    change.group,
                    change.topic,
                    change.partition,
                    str(change.topic_id),
                    change.offset,
                    change.leader_epoch,
                    change.metadata,
                    change.committed_at_ms,
                    change.expires_at_ms,
                ),
            )
            drop_pending_offsets(database, change.group, change.topic, change.partition)
        case PendingOffset():
            insert_pending_offset(database, change)
        case EndPendingOffsets():
            end_pending_offsets(database, change)
        case GroupRecord():
            _delete_group(database, change.group)
            delete_consumer_group(database, change.group)
            _insert_group(database, change)
        case OwnerRecord():
            _insert_owners(database, [change])
        case DeleteOwner():
            database.execute(
                "DELETE FROM owners WHERE group_id = ? AND topic = ? AND partition = ?",
                (change.group, change.topic, change.partition),
            )
        case ConsumerGroupRecord():
            _delete_group(database, change.group)
            apply_consumer_change(database, change)
        case ConsumerMemberRecord() | DeleteConsumerMember() | DeleteConsumerGroup():
            apply_consumer_change(database, change)
        case DeleteGroup():
            _delete_group(database, change.group)
            delete_consumer_group(database, change.group)
            for table in ("offsets", "pending_offsets", "share_partitions"):
                database.execute(f"DELETE FROM {table} WHERE group_id = ?", (change.group,))
        case DeleteOffset():
            database.execute(
                "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?",
                (change.group, change.topic, change.partition),
            )
            drop_pending_offsets(database, change.group, change.topic, change.partition)
        case SharePartitionRecord() | DeleteSharePartitions():
            apply_share_change(database, change)
        case DeleteTopicOffsets():
            for table in ("offsets", "pending_offsets", "share_partitions"):
                database.execute(
                    f"DELETE FROM {table} WHERE topic = ? AND topic_id IS NOT ?",
                    (change.topic, None if change.besides is None else str(change.besides)),
                )
        case _:
            apply_change(database, change)


def _delete_group(database: sqlite3.Connection, group: str) -> None:
    for table in ("groups", "members", "member_protocols", "owners"):
        database.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))


def _insert_group(database: sqlite3.Connection, group: GroupRecord) -> None:
    database.execute(
        "INSERT INTO groups (group_id, generation, protocol_type, protocol_name, leader, emptied_at_ms)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            group.group,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader,
            group.emptied_at_ms,
        ),
    )
    database.executemany(
        "INSERT INTO members (group_id, place, member_id, instance_id, client_id, client_host,"
        " session_timeout_ms, rebalance_timeout_ms, assignment, is_managed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                group.group,
                place,
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.assignment,
                member.is_managed,
            )
            for place, member in enumerate(group.members)
        ],
    )
    database.executemany(
        "INSERT INTO member_protocols (group_id, member_place, place, name, metadata) VALUES (?, ?, ?, ?, ?)",
        [
            (group.group, member_place, place, name, metadata)
            for member_place, member in enumerate(group.members)
            for place, (name, metadata) in enumerate(member.protocols)
        ],
    )
    _insert_owners(database, group.owners)


def _insert_owners(database: sqlite3.Connection, owners: Sequence[OwnerRecord]) -> None:
    database.executemany(
        "INSERT OR REPLACE INTO owners (group_id, topic, partition, member_id) VALUES (?, ?, ?, ?)",
        [(owner.group, owner.topic, owner.partition, owner.member_id) for owner in owners],
    )


def _groups(database: sqlite3.Connection) -> list[GroupRecord]:
    protocols: defaultdict[tuple[str, int], list[MemberProtocol]] = defaultdict(list)
    for group_id, member_place, name, metadata in database.execute(
        "SELECT group_id, member_place, name, metadata FROM member_protocols"
        " ORDER BY group_id, member_place, place"
    ):
        protocols[group_id, member_place].append(MemberProtocol(name, metadata))
    members: defaultdict[str, list[MemberRecord]] = defaultdict(list)
    for (
        group_id,
        place,
        member_id,
        instance_id,
        client_id,
        client_host,
        session,
        rebalance,
        assignment,
        is_managed,
    ) in database.execute(
        "SELECT group_id, place, member_id, instance_id, client_id, client_host, session_timeout_ms,"
        " rebalance_timeout_ms, assignment, is_managed FROM members ORDER BY group_id, place"
    ):
        members[group_id].append(
            MemberRecord(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host=client_host,
                session_timeout_ms=session,
                rebalance_timeout_ms=rebalance,
                protocols=tuple(protocols[group_id, place]),
                assignment=assignment,
                is_managed=bool(is_managed),
            )
        )
    owners: defaultdict[str, list[OwnerRecord]] = defaultdict(list)
    for group_id, topic, partition, member_id in database.execute(
        "SELECT group_id, topic, partition, member_id FROM owners ORDER BY group_id, topic, partition"
    ):
        owners[group_id].append(
            OwnerRecord(group=group_id, topic=topic, partition=partition, member_id=member_id)
        )
    return [
        GroupRecord(
            group=group_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            leader=leader,
            emptied_at_ms=emptied_at_ms,
            members=tuple(members[group_id]),
            owners=tuple(owners[group_id]),
        )
        for group_id, generation, protocol_type, protocol_name, leader, emptied_at_ms in database.execute(
            "SELECT group_id, generation, protocol_type, protocol_name, leader, emptied_at_ms FROM groups"
            " ORDER BY group_id"
        )
    ]


def _offsets(database: sqlite3.Connection) -> list[OffsetRecord]:
    return [
        OffsetRecord(
            group=group_id,
            topic=topic,
            topic_id=UUID(topic_id),
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            committed_at_ms=committed_at_ms,
            expires_at_ms=expires_at_ms,
        )
        for group_id, topic, topic_id, partition, offset, leader_epoch, metadata, committed_at_ms, expires_at_ms in (
            database.execute(
                "SELECT group_id, topic, topic_id, partition, offset, leader_epoch, metadata, committed_at_ms,"
                " expires_at_ms FROM offsets ORDER BY group_id, topic, partition"
            )
        )
    ]
