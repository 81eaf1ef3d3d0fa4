"""Consumer groups in the group store that brokers share (KIP-848, ADR-0047)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any
from uuid import UUID

from ...postgres.connector import Connection
from ..consumer_group_store import (
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
from ..sqlite.consumer_groups import decoded_partitions, encoded_partitions


def apply_consumer_change(connection: Connection, change: ConsumerGroupChange) -> None:
    """Apply one change within a transaction."""
    group_id = change.group.encode()
    match change:
        case ConsumerGroupRecord():
            connection.execute(
                "INSERT INTO consumer_groups VALUES (%s, %s)"
                " ON CONFLICT (group_id) DO UPDATE SET record = EXCLUDED.record",
                (group_id, _group_document(change)),
            )
        case ConsumerMemberRecord():
            connection.execute(
                "INSERT INTO consumer_members VALUES (%s, %s, %s)"
                " ON CONFLICT (group_id, member_id) DO UPDATE SET record = EXCLUDED.record",
                (group_id, change.member.member_id.encode(), _member_document(change.member)),
            )
        case DeleteConsumerMember():
            connection.execute(
                "DELETE FROM consumer_members WHERE group_id = %s AND member_id = %s",
                (group_id, change.member_id.encode()),
            )
        case _:
            delete_consumer_group(connection, group_id)


def delete_consumer_group(connection: Connection, group_id: bytes) -> None:
    """Delete a group and its members, if there are any."""
    connection.execute("DELETE FROM consumer_groups WHERE group_id = %s", (group_id,))
    connection.execute("DELETE FROM consumer_members WHERE group_id = %s", (group_id,))


def consumer_groups(connection: Connection, shard: int) -> list[StoredConsumerGroup]:
    """Return all groups with their members."""
    members: defaultdict[bytes, list[ConsumerMember]] = defaultdict(list)
    for group_id, member_id, record in connection.execute(
        "SELECT group_id, member_id, record FROM consumer_members WHERE shard = %s ORDER BY group_id, member_id",
        (shard,),
    ):
        members[group_id].append(_member(member_id.decode(), json.loads(record)))
    return [
        StoredConsumerGroup(
            record=_group(group_id.decode(), json.loads(record)), members=tuple(members[group_id])
        )
        for group_id, record in connection.execute(
            "SELECT group_id, record FROM consumer_groups WHERE shard = %s ORDER BY group_id", (shard,)
        )
    ]


def _group_document(group: ConsumerGroupRecord) -> str:
    return json.dumps(
        {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.assignor,
            "regexes": {regex: sorted(topics) for regex, topics in group.regexes.items()},
            "emptied_at_ms": group.emptied_at_ms,
        }
    )


def _group(group: str, stored: dict[str, Any]) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        group=group,
        epoch=stored["epoch"],
        assignment_epoch=stored["assignment_epoch"],
        assignor=stored["assignor"],
        regexes={regex: frozenset(topics) for regex, topics in stored["regexes"].items()},
        emptied_at_ms=stored["emptied_at_ms"],
    )


def _member_document(member: ConsumerMember) -> str:
    classic = member.classic
    return json.dumps(
        {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "topics": sorted(member.topics),
            "regex": member.regex,
            "assignor": member.assignor,
            "epoch": member.epoch,
            "previous_epoch": member.previous_epoch,
            "state": int(member.state),
            "assigned": encoded_partitions(member.assigned.items()),
            "revoking": encoded_partitions(member.revoking.items()),
            "target": sorted((str(part.topic_id), part.partition) for part in member.target),
            "classic": None
            if classic is None
            else [
                classic.session_timeout_ms,
                [(name, metadata.hex()) for name, metadata in classic.protocols],
                classic.is_managed,
            ],
        }
    )


def _member(member_id: str, stored: dict[str, Any]) -> ConsumerMember:
    classic: tuple[int, list[tuple[str, str]], bool] | None = stored["classic"]
    return ConsumerMember(
        member_id=member_id,
        instance_id=stored["instance_id"],
        rack_id=stored["rack_id"],
        client_id=stored["client_id"],
        client_host=stored["client_host"],
        rebalance_timeout_ms=stored["rebalance_timeout_ms"],
        topics=frozenset(stored["topics"]),
        regex=stored["regex"],
        assignor=stored["assignor"],
        epoch=stored["epoch"],
        previous_epoch=stored["previous_epoch"],
        state=MemberState(stored["state"]),
        assigned=decoded_partitions(stored["assigned"]),
        revoking=decoded_partitions(stored["revoking"]),
        target=frozenset(
            OwnedPartition(UUID(topic_id), partition) for topic_id, partition in stored["target"]
        ),
        classic=None
        if classic is None
        else ClassicMembership(
            session_timeout_ms=classic[0],
            protocols=tuple(MemberProtocol(name, bytes.fromhex(metadata)) for name, metadata in classic[1]),
            is_managed=classic[2],
        ),
    )
