"""Groups and their members as JSON, as the stores keep them: ASCII, with bytes in Base64 or hexadecimal."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .consumer_group_store import (
    Assigned,
    ClassicMembership,
    ConsumerGroupRecord,
    ConsumerMember,
    MemberProtocol,
    MemberState,
    OwnedPartition,
)
from .group_store import GroupRecord, MemberRecord, OwnerRecord

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def _fields(record: type[DataclassInstance], stored: dict[str, Any], **decoded: object) -> dict[str, Any]:
    """Return the fields of ``record``; a later release may have stored more."""
    known = {**stored, **decoded}
    return {field.name: known[field.name] for field in fields(record) if field.name in known}


def encoded_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ── groups of the classic protocol ──


def encoded_group(group: GroupRecord) -> str:
    """Encode a group without its owners, which change one by one."""
    head = json.dumps(
        {
            "generation": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol_name,
            "leader": group.leader,
            "emptied_at_ms": group.emptied_at_ms,
        }
    )
    # One by one, because no other thread runs while one call encodes.
    members = ", ".join(map(_encoded_member, group.members))
    return f'{head[:-1]}, "members": [{members}]}}'


def _encoded_member(member: MemberRecord) -> str:
    return json.dumps(
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "protocols": [[name, encoded_bytes(metadata)] for name, metadata in member.protocols],
            "assignment": encoded_bytes(member.assignment),
            "is_managed": member.is_managed,
        }
    )


def decoded_group(group: str, document: str, owners: Sequence[OwnerRecord]) -> GroupRecord:
    stored = json.loads(document)
    members = tuple(_decoded_member(member) for member in stored["members"])
    return GroupRecord(**_fields(GroupRecord, stored, group=group, members=members, owners=tuple(owners)))


def _decoded_member(stored: dict[str, Any]) -> MemberRecord:
    protocols = tuple(
        MemberProtocol(name, base64.b64decode(metadata)) for name, metadata in stored["protocols"]
    )
    assignment = base64.b64decode(stored["assignment"])
    return MemberRecord(**_fields(MemberRecord, stored, protocols=protocols, assignment=assignment))


# ── consumer groups (KIP-848) ──


def encoded_consumer_group(group: ConsumerGroupRecord) -> str:
    return json.dumps(
        {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.assignor,
            "regexes": {regex: sorted(topics) for regex, topics in group.regexes.items()},
            "emptied_at_ms": group.emptied_at_ms,
        }
    )


def decoded_consumer_group(group: str, document: str) -> ConsumerGroupRecord:
    stored = json.loads(document)
    regexes = {regex: frozenset(topics) for regex, topics in stored["regexes"].items()}
    return ConsumerGroupRecord(**_fields(ConsumerGroupRecord, stored, group=group, regexes=regexes))


def encoded_consumer_member(member: ConsumerMember) -> str:
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
            "assigned": _encoded_partitions(member.assigned.items()),
            "revoking": _encoded_partitions(member.revoking.items()),
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


def decoded_consumer_member(member_id: str, document: str) -> ConsumerMember:
    stored = json.loads(document)
    decoded = _fields(
        ConsumerMember,
        stored,
        member_id=member_id,
        topics=frozenset(stored["topics"]),
        state=MemberState(stored["state"]),
        assigned=_decoded_partitions(stored["assigned"]),
        revoking=_decoded_partitions(stored["revoking"]),
        target=frozenset(OwnedPartition(UUID(topic_id), number) for topic_id, number in stored["target"]),
        classic=_decoded_classic(stored["classic"]),
    )
    return ConsumerMember(**decoded)


def _decoded_classic(stored: tuple[int, list[tuple[str, str]], bool] | None) -> ClassicMembership | None:
    if stored is None:
        return None
    session_timeout_ms, protocols, is_managed = stored
    return ClassicMembership(
        session_timeout_ms=session_timeout_ms,
        protocols=tuple(MemberProtocol(name, bytes.fromhex(metadata)) for name, metadata in protocols),
        is_managed=is_managed,
    )


def _encoded_partitions(partitions: Iterable[tuple[OwnedPartition, int]]) -> str:
    """Encode partitions by topic id: their numbers, each followed by the epoch since which it is held."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for (topic_id, partition), since in sorted(partitions):
        topics[topic_id.hex] += [partition, since]
    return json.dumps(topics, separators=(",", ":"))


def _decoded_partitions(text: str) -> Assigned:
    return {
        OwnedPartition(UUID(topic_id), partition): since
        for topic_id, numbers in json.loads(text).items()
        for partition, since in zip(numbers[::2], numbers[1::2], strict=True)
    }
