"""Serve members of consumer groups over HTTP: join, claim, commit, leave (ADR-0017)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Struct
from starlette.requests import Request

from ...errors import InvalidRequest
from ...groups.base.messages import NO_MEMBER, LeavingMember, ManagedJoin, Membership, OffsetToCommit
from ...groups.consumer.ownership import Claimant
from ...security.acl import READ_TOPIC
from ..group_json import Generation, Offset, TopicPartitions, Topics, by_topic, check_offset
from ..json_bodies import JsonBody, client_host
from ..parameters import GROUP, MEMBER_ID, PARTITION, TOPIC, Number, Text
from ..records.json_types import InPartition
from ..requests import INT32_MAX
from ..rights import is_seen, require
from ..routing import Routes
from ..schemas import Shown
from ..state import broker_of, group_of, groups_of

route = Routes("groups", errors=(404, 503))


class MembershipJson(TypedDict):
    member_id: str
    generation: int
    assignment: list[TopicPartitions]
    rebalancing: bool


class Ownership(InPartition):
    owner: str
    generation: int


class CommittedOffset(InPartition):
    offset: int
    metadata: str | None


class GroupOffset(InPartition):
    offset: int | None
    metadata: str | None


class JoinBody(Struct, forbid_unknown_fields=True):
    """A join of a group, or with ``member_id`` a change of that member's topics."""

    topics: Topics
    session_timeout_ms: Annotated[int, Shown(minimum=6000, maximum=1_800_000)] = 45_000
    member_id: str = NO_MEMBER
    client_id: str = "http"


class HeartbeatBody(Struct, forbid_unknown_fields=True):
    """A heartbeat of a member that knows the assignment of ``generation``."""

    generation: Generation


class OwnerBody(Struct, forbid_unknown_fields=True):
    """The member that claims or releases a partition."""

    member_id: str
    generation: Generation


class CommitBody(Struct, forbid_unknown_fields=True):
    """An offset that the owner of a partition commits."""

    member_id: str
    generation: Generation
    offset: Annotated[Offset, Shown("of the next record to read")]
    metadata: str = ""


_JOIN = JsonBody(JoinBody, '{"topics": ["orders"], "session_timeout_ms": 10000}')
_HEARTBEAT = JsonBody(HeartbeatBody, '{"generation": 1}')
_OWNER = JsonBody(OwnerBody, '{"member_id": "http-0b5f", "generation": 1}')
_COMMIT = JsonBody(CommitBody, '{"member_id": "http-0b5f", "generation": 1, "offset": 42}')
_MEMBER = Text("member_id", "instead of a body")
_GENERATION = Number("generation", "instead of a body", shown_maximum=INT32_MAX)
# Of a read as the owner of a partition.
OWNER = (
    Text("group", "read as the owner of the partition in this group"),
    Text("member_id", "with group: id of the member"),
    Number("generation", "with group: generation of the member", shown_maximum=INT32_MAX),
)


# ── members ──


def _membership(request: Request, membership: Membership) -> MembershipJson:
    """Encode a membership without topics that the client may not read.

    The member may be another client's.
    """
    reads_topic = is_seen(request, READ_TOPIC)
    return {
        "member_id": membership.member_id,
        "generation": membership.generation,
        "assignment": by_topic(part for part in membership.assigned if reads_topic(part.topic)),
        "rebalancing": membership.is_rebalancing,
    }


@route("POST /v1/groups/{group}/members", "Join a group", body=_JOIN, errors=(409,), status=201)
async def join_group(request: Request) -> MembershipJson:
    """Join a group, or change the topics of the member with `member_id`.

    The answer comes with the next generation.

    The broker divides the partitions evenly among these members and those that use the Kafka protocol. It removes a
    member that sends no heartbeat within `session_timeout_ms`. Claim a partition before you read it.
    """
    body = await _JOIN.read(request)
    require(request, READ_TOPIC, body.topics)
    await broker_of(request).find_topics(body.topics)
    membership = await group_of(request).coordinator.join_managed(
        ManagedJoin(
            group=GROUP.read(request),
            topics=body.topics,
            member_id=body.member_id,
            client_id=body.client_id,
            client_host=client_host(request),
            session_timeout_ms=body.session_timeout_ms,
        )
    )
    return _membership(request, membership)


@route(
    "POST /v1/groups/{group}/members/{member_id}/heartbeat",
    "Send a heartbeat",
    body=_HEARTBEAT,
    errors=(409,),
)
async def heartbeat(request: Request) -> MembershipJson:
    """Stay in the group, and get the current assignment.

    A higher generation means that a rebalance has taken place.

    While members that use the Kafka protocol rejoin, `rebalancing` is true, and the generation and the assignment are
    the previous ones.
    """
    body = await _HEARTBEAT.read(request)
    coordinator = group_of(request).coordinator
    group, member_id = GROUP.read(request), MEMBER_ID.read(request)
    await coordinator.settled(group)
    membership = coordinator.membership(group, member_id, generation=body.generation)
    return _membership(request, membership)


@route("DELETE /v1/groups/{group}/members/{member_id}", "Leave a group", errors=(400,))
async def leave_group(request: Request) -> None:
    """Leave the group.

    The broker assigns the partitions of the member to the others at once.
    """
    member = LeavingMember(member_id=MEMBER_ID.read(request))
    coordinator, group = group_of(request).coordinator, GROUP.read(request)
    (error,) = coordinator.leave(group, [member])
    if error is not None:
        raise error
    await coordinator.settled(group)


# ── ownership ──


def _claimant(request: Request, member_id: str, generation: int) -> Claimant:
    return Claimant(
        group=GROUP.read(request),
        member_id=member_id,
        generation=generation,
        topic=TOPIC.read(request),
        partition=PARTITION.number(request),
    )


@route(
    "PUT /v1/groups/{group}/partitions/{topic}/{partition}/owner",
    "Claim a partition",
    body=_OWNER,
    errors=(409,),
)
async def claim_partition(request: Request) -> Ownership:
    """Become the owner of a partition assigned in the current generation.

    The member keeps the ownership over a rebalance if the partition remains assigned to it.
    """
    body = await _OWNER.read(request)
    claimant = _claimant(request, body.member_id, body.generation)
    await group_of(request).coordinator.claim(claimant)
    return {
        "topic": claimant.topic,
        "partition": claimant.partition,
        "owner": claimant.member_id,
        "generation": claimant.generation,
    }


@route(
    "DELETE /v1/groups/{group}/partitions/{topic}/{partition}/owner",
    "Release a partition",
    _MEMBER,
    _GENERATION,
    errors=(409, 413, 415),
)
async def release_partition(request: Request) -> None:
    """Give up the ownership of a partition.

    Send `member_id` and `generation` in the body or in the query.
    """
    member_id = _MEMBER.given(request)
    if member_id is None:
        body = await _OWNER.read(request)
    else:
        body = OwnerBody(member_id, _GENERATION.read(request, -1))
    await group_of(request).coordinator.release(_claimant(request, body.member_id, body.generation))


@route(
    "PUT /v1/groups/{group}/partitions/{topic}/{partition}/offset",
    "Commit an offset",
    body=_COMMIT,
    errors=(409,),
)
async def commit_offset(request: Request) -> CommittedOffset:
    """Commit the offset of the next record to read, as the owner of the partition.

    The owner must be a member of the current generation.

    The commit is durable when the answer arrives.
    """
    body = await _COMMIT.read(request)
    claimant = _claimant(request, body.member_id, body.generation)
    await broker_of(request).refresh([(claimant.topic, claimant.partition)])
    end = broker_of(request).log_state(claimant.topic, claimant.partition).high_watermark
    check_offset(body.offset)
    if body.offset > end:
        raise InvalidRequest(
            f"offset {body.offset} is past the end of {claimant.topic}-{claimant.partition}; commit {end} at most"
        )
    offset = OffsetToCommit(
        topic=claimant.topic, partition=claimant.partition, offset=body.offset, metadata=body.metadata
    )
    (error,) = await group_of(request).coordinator.commit_owned(claimant, offset)
    if error is not None:
        raise error
    return {
        "topic": claimant.topic,
        "partition": claimant.partition,
        "offset": body.offset,
        "metadata": body.metadata,
    }


@route(
    "GET /v1/groups/{group}/partitions/{topic}/{partition}/offset", "Get a committed offset", errors=(400,)
)
async def get_committed_offset(request: Request) -> GroupOffset:
    """Return the offset at which the group continues, or null without a commit."""
    topic = TOPIC.read(request)
    partition = PARTITION.number(request)
    broker_of(request).log_state(topic, partition)
    coordinator = group_of(request).coordinator
    await coordinator.settle_ended(GROUP.read(request))
    (stored,) = coordinator.committed(GROUP.read(request), [(topic, partition)])
    return {
        "topic": topic,
        "partition": partition,
        "offset": stored.offset if stored.offset != -1 else None,
        "metadata": stored.metadata,
    }


def owner_check(request: Request, topic: str, partition: int) -> Claimant | None:
    """Return the member that reads as the owner, or None if the read names no group.

    The caller checks the ownership again before it answers, because a read may wait.

    Raises:
        InvalidRequest: ``member_id`` or ``generation`` is missing.
        SteleError: whatever ``GroupCoordinator.check_owner`` raises.
    """
    in_group, of_member, of_generation = OWNER
    group = in_group.given(request)
    if group is None:
        return None
    member_id = of_member.given(request)
    if member_id is None or not of_generation.is_given(request):
        raise InvalidRequest("to read as the owner, give group, member_id and generation")
    claimant = Claimant(
        group=group,
        member_id=member_id,
        generation=of_generation.read(request),
        topic=topic,
        partition=partition,
    )
    groups_of(request).of(claimant.group).coordinator.check_owner(claimant)
    return claimant
