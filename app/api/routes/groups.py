"""Consumer groups over HTTP: membership and ownership, lag and resets (ADR-0017)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import InvalidRequest
from ...groups.lag import Target, group_lag, reset_offsets
from ...query.positions import parse_time
from ..bodies import ResetBody
from ..encoded_slash import EncodedSlashRoute
from ..group_json import by_topic, check_offset
from ..json_bodies import json_answer, json_body
from ..openapi import groups as openapi
from ..requests import INT32_MAX, integer_parameter
from ..state import api_state, broker_of, groups_of

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)

_PAGE_DEFAULT, _PAGE_MAX = 1000, 10_000


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
                    "assignment": by_topic(member.assigned),
                    "owned": by_topic(member.owned),
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
            check_offset(one.offset)
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
