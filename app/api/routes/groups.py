"""Consumer groups over HTTP: membership and ownership, lag and resets (ADR-0017)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...errors import InvalidRequest
from ...groups.consumer_protocol import AssignedPartition
from ...groups.lag import Target, group_lag, reset_offsets
from ...groups.messages import NO_MEMBER, LeavingMember, ManagedJoin, Membership, OffsetToCommit
from ...groups.ownership import Claimant
from ...query.positions import parse_time
from ..encoded_slash import EncodedSlashRoute
from ..json_bodies import client_host, json_answer, json_body
from ..openapi import groups as openapi
from ..requests import (
    INT32_MAX,
    INT64_MAX,
    integer_parameter,
    path_integer,
)
from ..state import api_state, broker_of, groups_of

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)

SESSION_TIMEOUT_MS = 45_000
_PAGE_DEFAULT, _PAGE_MAX = 1000, 10_000


class JoinBody(Struct, forbid_unknown_fields=True):
    topics: list[str]
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    member_id: str = NO_MEMBER
    client_id: str = "http"


class HeartbeatBody(Struct, forbid_unknown_fields=True):
    generation: int


class OwnerBody(Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int


class CommitBody(Struct, forbid_unknown_fields=True):
    member_id: str
    generation: int
    offset: int
    metadata: str = ""


class OffsetBody(Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int


class ResetBody(Struct, forbid_unknown_fields=True):
    """``to`` for all partitions of ``topics`` (those that the group has committed in), or ``offsets`` one by one."""

    to: str | int | None = None
    topics: list[str] | None = None
    offsets: list[OffsetBody] | None = None


# ── looking ──


@router.get("/v1/groups", openapi_extra=openapi.LIST_GROUPS, summary="List groups")
async def list_groups(request: Request) -> Response:
    """Groups by name, a page at a time.

    `search` finds a text anywhere in a name, `prefix` at its beginning. `page` counts from 1; or `after` goes on
    behind the last name of a page. `members` and `lag` are those of the last sample, null for a group without one;
    where there are more than some thousand groups, a sample takes them in turn.
    """
    state = api_state(request)
    limit = integer_parameter(request, "limit", _PAGE_DEFAULT, minimum=1, maximum=_PAGE_MAX)
    number = integer_parameter(request, "page", 1, minimum=1, maximum=INT32_MAX)
    prefix, after = request.query_params.get("prefix", ""), request.query_params.get("after", "")
    wanted = request.query_params.get("search", "").lower()
    found = [
        group
        for group in state.groups.coordinator.list_groups()
        if group.group.startswith(prefix) and group.group > after and wanted in group.group.lower()
    ]
    begin = (number - 1) * limit
    page = found[begin : begin + limit]
    sampled = state.sampler.groups.lags
    return json_answer(
        {
            "groups": [
                {
                    "group": one.group,
                    "state": one.state.value,
                    "protocol_type": one.protocol_type,
                    "members": sampled[one.group].members if one.group in sampled else None,
                    "lag": sampled[one.group].lag if one.group in sampled else None,
                }
                for one in page
            ],
            "next_after": page[-1].group if len(found) > begin + limit else None,
            "total": len(found),
        }
    )


@router.get(
    "/v1/groups/{group}/lag/history",
    openapi_extra=openapi.GROUP_LAG_HISTORY,
    summary="See a group's lag over the last hour",
)
async def lag_history(request: Request) -> Response:
    """The lag of each partition at each sample, the newest last; null where it was not known yet.

    It is kept for groups that have series of their own in `/metrics`: all, unless there are many.
    """
    state = api_state(request)
    name = str(request.path_params["group"])
    state.groups.coordinator.describe(name)
    times, series = state.sampler.groups.history(name)
    return json_answer(
        {
            "group": name,
            "interval_ms": state.sampler.interval_ms,
            "at": times,
            "partitions": [
                {"topic": topic, "partition": partition, "lag": lags} for topic, partition, lags in series
            ],
        }
    )


@router.get("/v1/groups/{group}", openapi_extra=openapi.GET_GROUP, summary="Describe a group")
async def get_group(request: Request) -> Response:
    """Its members with what they are assigned and own, the lag of each partition, and the leases in force."""
    groups = groups_of(request)
    name = str(request.path_params["group"])
    described = groups.coordinator.describe(name)
    lags = group_lag(broker_of(request), groups.coordinator, name)
    return json_answer(
        {
            "group": described.group,
            "state": described.state.value,
            "generation": described.generation,
            "protocol_type": described.protocol_type,
            "protocol": described.protocol_name,
            "lag": sum(one.lag for one in lags),
            "members": [
                {
                    "member_id": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "is_managed": member.is_managed,
                    "topics": sorted(member.topics),
                    "assignment": _by_topic(member.assigned),
                    "owned": _by_topic(member.owned),
                }
                for member in described.members
            ],
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "committed": one.committed if one.committed != -1 else None,
                    "metadata": one.metadata,
                    "log_start_offset": one.log_start_offset,
                    "high_watermark": one.high_watermark,
                    "lag": one.lag,
                    "member_id": one.member_id,
                    "owner": one.owner,
                }
                for one in lags
            ],
            "leases": [
                {
                    "expires_at": expires_at_ms,
                    "partitions": [
                        {
                            "topic": part.topic,
                            "partition": part.partition,
                            "offset": part.offset,
                            "next_offset": part.next_offset,
                            "deliveries": part.deliveries,
                        }
                        for part in lease.partitions
                    ],
                }
                for lease, expires_at_ms in groups.leases.leases(name)
            ],
        }
    )


def _by_topic(parts: Iterable[AssignedPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(parts):
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]


@router.delete(
    "/v1/groups/{group}", status_code=204, openapi_extra=openapi.DELETE_GROUP, summary="Delete a group"
)
async def delete_group(request: Request) -> Response:
    """Delete a group that has no members, with its offsets."""
    groups = groups_of(request)
    name = str(request.path_params["group"])
    groups.leases.retire(name)
    await groups.coordinator.delete_group(name)
    return Response(status_code=204)


@router.put("/v1/groups/{group}/offsets", openapi_extra=openapi.RESET_OFFSETS, summary="Reset offsets")
async def put_offsets(request: Request) -> Response:
    """Set where a group without members goes on; with `dry_run=true` only say what would be.

    `to` is `earliest`, `latest`, an offset, a time like `2026-11-20T10:00Z` or a time ago like `-1h`.
    """
    broker, groups = broker_of(request), groups_of(request)
    name = str(request.path_params["group"])
    dry_run = request.query_params.get("dry_run", "false").lower()
    if dry_run not in ("true", "false", "1", "0", ""):
        raise InvalidRequest(f"dry_run is {dry_run[:40]!r}; it must be true or false")
    body = await json_body(request, ResetBody, '{"to": "earliest", "topics": ["orders"]}')
    if (body.to is None) == (body.offsets is None):
        raise InvalidRequest(
            'give "to", or "offsets" with a topic, partition and offset each; one of the two'
        )
    is_dry = dry_run not in ("false", "0")
    resets = await reset_offsets(
        broker, groups.coordinator, groups.leases, name, _targets(request, name, body), dry_run=is_dry
    )
    return json_answer(
        {
            "group": name,
            "dry_run": is_dry,
            "offsets": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "before": one.before if one.before != -1 else None,
                    "after": one.after,
                    "lag": one.lag,
                }
                for one in resets
            ],
        }
    )


def _targets(request: Request, group: str, body: ResetBody) -> list[Target]:
    broker, coordinator = broker_of(request), groups_of(request).coordinator
    if body.offsets is not None:
        for one in body.offsets:
            _check_offset(one.offset)
        return [Target(topic=one.topic, partition=one.partition, offset=one.offset) for one in body.offsets]
    text = str(body.to)
    offset = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    at = None if offset is not None else parse_time(text, broker.now_ms())
    if offset is None and at is None:
        raise InvalidRequest(
            f"to is {text[:60]!r}; it must be earliest, latest, an offset, a time like 2026-11-20T10:00Z, "
            "or a time ago like -1h (ms, s, m, h, d)"
        )
    topics = body.topics
    if topics is None:
        topics = sorted({one.topic for one in coordinator.committed(group)})
        if not topics:
            raise InvalidRequest(
                f"group {group[:200]!r} has committed nothing; say which topics to set it on"
            )
    return [
        Target(topic=topic, partition=partition, at=at, offset=offset)
        for topic in topics
        for partition in range(broker.topic(topic).partitions)
    ]


def _check_offset(offset: int) -> None:
    if not 0 <= offset <= INT64_MAX:
        raise InvalidRequest(f"offset is {offset}; it is the number of the next record to read, from 0 on")


# ── members ──


def _membership(membership: Membership) -> dict[str, Any]:
    return {
        "member_id": membership.member_id,
        "generation": membership.generation,
        "assignment": _by_topic(membership.assigned),
        "rebalancing": membership.is_rebalancing,
    }


@router.post(
    "/v1/groups/{group}/members", status_code=201, openapi_extra=openapi.JOIN_GROUP, summary="Join a group"
)
async def join(request: Request) -> Response:
    """Join a group, or with a `member_id` change its topics. The answer comes with the next generation.

    The broker divides the partitions evenly; members of the Kafka listener share them. A member that sends no
    heartbeat for `session_timeout_ms` is gone. Claim a partition before you read it.
    """
    body = await json_body(request, JoinBody, '{"topics": ["orders"], "session_timeout_ms": 10000}')
    membership = await groups_of(request).coordinator.join_managed(
        ManagedJoin(
            group=str(request.path_params["group"]),
            topics=body.topics,
            member_id=body.member_id,
            client_id=body.client_id,
            client_host=client_host(request),
            session_timeout_ms=body.session_timeout_ms,
        )
    )
    return json_answer(_membership(membership), 201)


@router.post(
    "/v1/groups/{group}/members/{member_id}/heartbeat",
    openapi_extra=openapi.HEARTBEAT,
    summary="Stay in a group",
)
async def heartbeat(request: Request) -> Response:
    """Stay, and hear what is assigned: a higher generation than one's own says that there was a rebalance.

    While members of the Kafka listener rejoin, `rebalancing` is true, and the generation and its assignment are the
    last ones.
    """
    body = await json_body(request, HeartbeatBody, '{"generation": 1}')
    coordinator = groups_of(request).coordinator
    group, member_id = str(request.path_params["group"]), str(request.path_params["member_id"])
    await coordinator.settled(group)
    membership = coordinator.membership(group, member_id, generation=body.generation)
    return json_answer(_membership(membership))


@router.delete(
    "/v1/groups/{group}/members/{member_id}",
    status_code=204,
    openapi_extra=openapi.LEAVE_GROUP,
    summary="Leave a group",
)
async def leave(request: Request) -> Response:
    """Leave; the others get its partitions at once."""
    member = LeavingMember(member_id=str(request.path_params["member_id"]))
    coordinator, group = groups_of(request).coordinator, str(request.path_params["group"])
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
async def claim(request: Request) -> Response:
    """Become the owner of a partition that is assigned to the member in the current generation.

    The owner stays it over a rebalance if the partition is still assigned to it.
    """
    body = await json_body(request, OwnerBody, _OWNER_EXAMPLE)
    claimant = _claimant(request, body.member_id, body.generation)
    await groups_of(request).coordinator.claim(claimant)
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
async def release(request: Request) -> Response:
    """Give a partition back; `member_id` and `generation` in the body or the query."""
    member_id = request.query_params.get("member_id")
    if member_id is None:
        body = await json_body(request, OwnerBody, _OWNER_EXAMPLE)
    else:
        body = OwnerBody(member_id, integer_parameter(request, "generation", -1))
    await groups_of(request).coordinator.release(_claimant(request, body.member_id, body.generation))
    return Response(status_code=204)


@router.put(
    "/v1/groups/{group}/partitions/{topic}/{partition}/offset",
    openapi_extra=openapi.COMMIT,
    summary="Commit an offset",
)
async def commit(request: Request) -> Response:
    """Commit the offset of the next record to read, as the owner in the current generation. Durable when answered."""
    body = await json_body(request, CommitBody, '{"member_id": "…", "generation": 1, "offset": 42}')
    claimant = _claimant(request, body.member_id, body.generation)
    end = broker_of(request).log_state(claimant.topic, claimant.partition).high_watermark
    _check_offset(body.offset)
    if body.offset > end:
        raise InvalidRequest(
            f"offset {body.offset} cannot be committed: {claimant.topic}-{claimant.partition} ends at {end}"
        )
    offset = OffsetToCommit(
        topic=claimant.topic, partition=claimant.partition, offset=body.offset, metadata=body.metadata
    )
    (error,) = await groups_of(request).coordinator.commit_owned(claimant, offset)
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
    summary="See a committed offset",
)
async def committed(request: Request) -> Response:
    """The offset from which the group reads on; null if it has committed none."""
    topic = str(request.path_params["topic"])
    partition = path_integer(request, "partition")
    broker_of(request).log_state(topic, partition)
    coordinator = groups_of(request).coordinator
    (one,) = coordinator.committed(str(request.path_params["group"]), [(topic, partition)])
    return json_answer(
        {
            "topic": topic,
            "partition": partition,
            "offset": one.offset if one.offset != -1 else None,
            "metadata": one.metadata,
        }
    )


def owner_check(request: Request, topic: str, partition: int) -> Claimant | None:
    """Who reads as the owner, by the query of a read: checked now, and to be checked again before the answer.

    Raises what ``GroupCoordinator.check_owner`` raises.
    """
    group = request.query_params.get("group")
    if group is None:
        return None
    member_id = request.query_params.get("member_id")
    if member_id is None or "generation" not in request.query_params:
        raise InvalidRequest("to read as the owner give group, member_id and generation")
    claimant = Claimant(
        group=group,
        member_id=member_id,
        generation=integer_parameter(request, "generation", -1),
        topic=topic,
        partition=partition,
    )
    groups_of(request).coordinator.check_owner(claimant)
    return claimant
