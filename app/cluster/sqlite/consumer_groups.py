"""The tables of consumer groups (KIP-848) in the file of the group store.

::

    consumer_groups    the epochs of each group, and what its regular expressions match (JSON)
    consumer_members   members with their epochs; partitions are JSON: topic id to partitions
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ..consumer_group_store import (
    Assigned,
    ClassicMembership,
    ConsumerGroupChange,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerMember,
    MemberProtocol,
    MemberState,
    OwnedPartition,
    StoredConsumerGroup,
)

CREATE_CONSUMER_GROUPS = """
    CREATE TABLE consumer_groups (
        group_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        assignment_epoch INTEGER NOT NULL,
        assignor TEXT NOT NULL,
        regexes TEXT NOT NULL,
        emptied_at_ms INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE consumer_members (
        group_id TEXT NOT NULL,
        member_id TEXT NOT NULL,
        instance_id TEXT,
        rack_id TEXT,
        client_id TEXT NOT NULL,
        client_host TEXT NOT NULL,
        rebalance_timeout_ms INTEGER NOT NULL,
        topics TEXT NOT NULL,
        regex TEXT NOT NULL,
        assignor TEXT,
        epoch INTEGER NOT NULL,
        previous_epoch INTEGER NOT NULL,
        state INTEGER NOT NULL,
        assigned TEXT NOT NULL,
        revoking TEXT NOT NULL,
        target TEXT NOT NULL,
        classic TEXT,
        PRIMARY KEY (group_id, member_id)
    ) WITHOUT ROWID;
    """

_MEMBER_COLUMNS = (
    "group_id, member_id, instance_id, rack_id, client_id, client_host, rebalance_timeout_ms, topics, regex,"
    " assignor, epoch, previous_epoch, state, assigned, revoking, target, classic"
)


def apply_consumer_change(database: sqlite3.Connection, change: ConsumerGroupChange) -> None:
    """Apply one change within a transaction."""
    match change:
        case ConsumerGroupRecord():
            database.execute(
                "INSERT OR REPLACE INTO consumer_groups (group_id, epoch, assignment_epoch, assignor, regexes,"
                " emptied_at_ms) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    change.group,
                    change.epoch,
                    change.assignment_epoch,
                    change.assignor,
                    json.dumps({regex: sorted(topics) for regex, topics in change.regexes.items()}),
                    change.emptied_at_ms,
                ),
            )
        case ConsumerMemberRecord():
            _insert_member(database, change.group, change.member)
        case DeleteConsumerMember():
            database.execute(
                "DELETE FROM consumer_members WHERE group_id = ? AND member_id = ?",
                (change.group, change.member_id),
            )
        case _:
            delete_consumer_group(database, change.group)


def delete_consumer_group(database: sqlite3.Connection, group: str) -> None:
    """Delete a group and its members, if there are any."""
    for table in ("consumer_groups", "consumer_members"):
        database.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))


def consumer_groups(database: sqlite3.Connection) -> list[StoredConsumerGroup]:
    """Return all groups with their members."""
    members: defaultdict[str, list[ConsumerMember]] = defaultdict(list)
    for group, *columns in database.execute(
        f"SELECT {_MEMBER_COLUMNS} FROM consumer_members ORDER BY group_id, member_id"
    ):
        members[group].append(_member(columns))
    return [
        StoredConsumerGroup(
            record=ConsumerGroupRecord(
                group=group,
                epoch=epoch,
                assignment_epoch=assignment_epoch,
                assignor=assignor,
                regexes={regex: frozenset(topics) for regex, topics in json.loads(regexes).items()},
                emptied_at_ms=emptied_at_ms,
            ),
            members=tuple(members[group]),
        )
        for group, epoch, assignment_epoch, assignor, regexes, emptied_at_ms in database.execute(
            "SELECT group_id, epoch, assignment_epoch, assignor, regexes, emptied_at_ms FROM consumer_groups"
            " ORDER BY group_id"
        )
    ]


def _insert_member(database: sqlite3.Connection, group: str, member: ConsumerMember) -> None:
    classic = member.classic
    values = (
        group,
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        json.dumps(sorted(member.topics)),
        member.regex,
        member.assignor,
        member.epoch,
        member.previous_epoch,
        int(member.state),
        encoded_partitions(member.assigned.items()),
        encoded_partitions(member.revoking.items()),
        encoded_partitions((part, None) for part in member.target),
        None
        if classic is None
        else json.dumps(
            {
                "session_timeout_ms": classic.session_timeout_ms,
                "protocols": [[name, metadata.hex()] for name, metadata in classic.protocols],
                "is_managed": classic.is_managed,
            }
        ),
    )
    database.execute(
        f"INSERT OR REPLACE INTO consumer_members ({_MEMBER_COLUMNS})"
        f" VALUES ({', '.join('?' * len(values))})",
        values,
    )


def encoded_partitions(partitions: Iterable[tuple[OwnedPartition, int | None]]) -> str:
    """Encode partitions by topic id: their numbers, each followed by the epoch since which it is held."""
    topics: defaultdict[str, list[int | None]] = defaultdict(list)
    for (topic_id, partition), since in sorted(partitions):
        topics[topic_id.hex] += [partition] if since is None else [partition, since]
    return json.dumps(topics, separators=(",", ":"))


def _member(columns: list[Any]) -> ConsumerMember:
    (
        member_id,
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topics,
        regex,
        assignor,
        epoch,
        previous_epoch,
        state,
        assigned,
        revoking,
        target,
        classic,
    ) = columns
    return ConsumerMember(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        topics=frozenset(json.loads(topics)),
        regex=regex,
        assignor=assignor,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state),
        assigned=decoded_partitions(assigned),
        revoking=decoded_partitions(revoking),
        target=frozenset(
            OwnedPartition(UUID(topic_id), partition)
            for topic_id, partitions in json.loads(target).items()
            for partition in partitions
        ),
        classic=None if classic is None else _classic(json.loads(classic)),
    )


def decoded_partitions(text: str) -> Assigned:
    """Decode partitions that were encoded with epochs."""
    return {
        OwnedPartition(UUID(topic_id), partition): since
        for topic_id, numbers in json.loads(text).items()
        for partition, since in zip(numbers[::2], numbers[1::2], strict=True)
    }


def _classic(stored: dict[str, Any]) -> ClassicMembership:
    return ClassicMembership(
        session_timeout_ms=stored["session_timeout_ms"],
        protocols=tuple(
            MemberProtocol(name, bytes.fromhex(metadata)) for name, metadata in stored["protocols"]
        ),
        is_managed=stored["is_managed"],
    )
