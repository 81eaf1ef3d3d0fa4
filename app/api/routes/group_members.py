"""Serve members of consumer groups over HTTP: join, claim, commit, leave (ADR-0017)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import InvalidRequest
from ...groups.base.messages import LeavingMember, ManagedJoin, Membership, OffsetToCommit
from ...groups.consumer.ownership import Claimant
from ...security.acl import READ_TOPIC
from ..bodies import CommitBody, HeartbeatBody, JoinBody, OwnerBody
from ..encoded_slash import EncodedSlashRoute
from ..group_json import by_topic, check_offset
from ..json_bodies import client_host, json_answer, json_body
from ..openapi import groups as openapi
from ..requests import integer_parameter, path_integer
from ..rights import is_seen, require
from ..state import broker_of, group_of, groups_of

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)


# ── members ──


def _membership(request: Request, membership: Membership) -> dict[str, Any]:
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


@router.post(
    "/v1/groups/{group}/members", status_code=201, openapi_extra=openapi.JOIN_GROUP, summary="Join a group"
)
async def join_group(request: Request) -> Response:
    """Join a group, or change the topics of the member with `member_id`.

    The answer comes with the next generation.

    The broker divides the partitions evenly among these members and those that use the Kafka protocol. It removes a
    member that sends no heartbeat within `session_timeout_ms`. Claim a partition before you read it.
    """
    body = await json_body(request, JoinBody, '{"topics": ["orders"], "session_timeout_ms": 10000}')
    require(request, READ_TOPIC, body.topics)
    await broker_of(request).find_topics(body.topics)
    membership = await group_of(request).coordinator.join_managed(
        ManagedJoin(
            group=str(request.path_params["group"]),
            topics=body.topics,
            member_id=body.member_id,
            client_id=body.client_id,
            client_host=client_host(request),
            session_timeout_ms=body.session_timeout_ms,
        )
    )
    return json_answer(_membership(request, membership), 201)


@router.post(
    "/v1/groups/{group}/members/{member_id}/heartbeat",
    openapi_extra=openapi.HEARTBEAT,
    summary="Send a heartbeat",
)
async def heartbeat(request: Request) -> Response:
    """Stay in the group, and get the current assignment.

    A higher generation means that a rebalance has taken place.

    While members that use the Kafka protocol rejoin, `rebalancing` is true, and the generation and the assignment are
    the previous ones.
    """
    body = await json_body(request, HeartbeatBody, '{"generation": 1}')
    coordinator = group_of(request).coordinator
    group, member_id = str(request.path_params["group"]), str(request.path_params["member_id"])
    await coordinator.settled(group)
    membership = coordinator.membership(group, member_id, generation=body.generation)
    return json_answer(_membership(request, membership))


@router.delete(
    "/v1/groups/{group}/members/{member_id}",
    status_code=204,
    openapi_extra=openapi.LEAVE_GROUP,
    summary="Leave a group",
)
async def leave_group(request: Request) -> Response:
    """Leave the group.

    The broker assigns the partitions of the member to the others at once.
    """
    member = LeavingMember(member_id=str(request.path_params["member_id"]))
    coordinator, group = group_of(request).coordinator, str(request.path_params["group"])
    (error,) = coordinator.leave(group, [member])
    if error is not None:
        raise error
    await coordinator.settled(group)
    return Response(status_code=204)


# ── ownership ──


def _claimant(request: Request, member_id: str, generation: int) -> Claimant:
    return Claimant(
        group=str(request.path_params["group"]),
        member_id=member_id,
        generation=generation,
        topic=str(request.path_params["topic"]),
        partition=path_integer(request, "partition"),
    )


_OWNER_EXAMPLE = '{"member_id": "…", "generation": 1}'


@router.put(
    "/v1/groups/{group}/partitions/{topic}/{partition}/owner",
    openapi_extra=openapi.CLAIM,
    summary="Claim a partition",
)
async def claim_partition(request: Request) -> Response:
    """Become the owner of a partition assigned in the current generation.

    The member keeps the ownership over a rebalance if the partition remains assigned to it.
    """
    body = await json_body(request, OwnerBody, _OWNER_EXAMPLE)
    claimant = _claimant(request, body.member_id, body.generation)
    await group_of(request).coordinator.claim(claimant)
    return json_answer(
        {
            "topic": claimant.topic,
            "partition": claimant.partition,
            "owner": claimant.member_id,
            "generation": claimant.generation,
        }
    )


@router.delete(
    "/v1/groups/{group}/partitions/{topic}/{partition}/owner",
    status_code=204,
    openapi_extra=openapi.RELEASE,
    summary="Release a partition",
)
async def release_partition(request: Request) -> Response:
    """Give up the ownership of a partition.

    Send `member_id` and `generation` in the body or in the query.
    """
    member_id = request.query_params.get("member_id")
    if member_id is None:
        body = await json_body(request, OwnerBody, _OWNER_EXAMPLE)
    else:
        body = OwnerBody(member_id, integer_parameter(request, "generation", -1))
    await group_of(request).coordinator.release(_claimant(request, body.member_id, body.generation))
    return Response(status_code=204)


@router.put(
    "/v1/groups/{group}/partitions/{topic}/{partition}/offset",
    openapi_extra=openapi.COMMIT,
    summary="Commit an offset",
)
async def commit_offset(request: Request) -> Response:
    """Commit the offset of the next record to read, as the owner of the partition.

    The owner must be a member of the current generation.

    The commit is durable when the answer arrives.
    """
    body = await json_body(request, CommitBody, '{"member_id": "…", "generation": 1, "offset": 42}')
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
    return json_answer(
        {
            "topic": claimant.topic,
            "partition": claimant.partition,
            "offset": body.offset,
            "metadata": body.metadata,
        }
    )


@router.get(
    "/v1/groups/{group}/partitions/{topic}/{partition}/offset",
    openapi_extra=openapi.COMMITTED,
    summary="Get a committed offset",
)
async def get_committed_offset(request: Request) -> Response:
    """Return the offset at which the group continues, or null without a commit."""
    topic = str(request.path_params["topic"])
    partition = path_integer(request, "partition")
    broker_of(request).log_state(topic, partition)
    coordinator = group_of(request).coordinator
    await coordinator.settle_ended(str(request.path_params["group"]))
    (stored,) = coordinator.committed(str(request.path_params["group"]), [(topic, partition)])
    return json_answer(
        {
            "topic": topic,
            "partition": partition,
            "offset": stored.offset if stored.offset != -1 else None,
            "metadata": stored.metadata,
        }
    )


def owner_check(request: Request, topic: str, partition: int) -> Claimant | None:
    """Return the member that reads as the owner, or None if the read names no group.

    The caller checks the ownership again before it answers, because a read may wait.

    Raises:
        InvalidRequest: ``member_id`` or ``generation`` is missing.
        SteleError: whatever ``GroupCoordinator.check_owner`` raises.
    """
    group = request.query_params.get("group")
    if group is None:
        return None
    member_id = request.query_params.get("member_id")
    if member_id is None or "generation" not in request.query_params:
        raise InvalidRequest("to read as the owner, give group, member_id and generation")
    claimant = Claimant(
        group=group,
        member_id=member_id,
        generation=integer_parameter(request, "generation", -1),
        topic=topic,
        partition=partition,
    )
    groups_of(request).of(claimant.group).coordinator.check_owner(claimant)
    return claimant
