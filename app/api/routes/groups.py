"""Serve consumer groups over HTTP: list, describe, lag, resets, deletion (ADR-0017)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.notation import parse_whole

from ...errors import InvalidRequest
from ...groups.base.messages import GroupDescription, GroupListing, MemberDescription
from ...groups.coordinator import GroupCoordinator
from ...groups.lag import PartitionLag, Target, fresh_group_lag, reset_offsets, topics_read
from ...groups.leases.lease import Lease
from ...groups.services import list_groups as list_coordinated
from ...monitor.group_sampler import GroupLag
from ...query.positions import position_at
from ...security.acl import CLUSTER_NAME, DESCRIBE_CLUSTER, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_TOPIC
from ..bodies import ResetBody
from ..encoded_slash import EncodedSlashRoute
from ..forwarding import groups_elsewhere
from ..group_json import by_topic, check_offset, leased_part
from ..json_bodies import json_answer, json_body
from ..openapi import groups as openapi
from ..requests import INT32_MAX, boolean_parameter, integer_parameter
from ..rights import is_seen, require
from ..state import api_state, broker_of, group_of

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)

_PAGE_DEFAULT, _PAGE_MAX = 1000, 10_000
# How many groups of each other broker a page by number may take. Without a bound, one request reads them all.
_MERGED_MAX = 100_000
_UNFINISHED_MAX = 200


def _lists(request: Request) -> Callable[[str], bool]:
    """Return which groups a list has.

    As in Kafka, who may describe the cluster sees all.
    """
    sees_group, sees_cluster = is_seen(request, DESCRIBE_GROUP), is_seen(request, DESCRIBE_CLUSTER)
    return lambda name: sees_cluster(CLUSTER_NAME) or sees_group(name)


@router.get("/v1/groups", openapi_extra=openapi.LIST_GROUPS, summary="List groups")
async def list_groups(request: Request) -> Response:
    """List groups in the order of their names, one page at a time.

    `search` selects names that contain a text, `prefix` names that start with one. Pages are numbered from 1;
    alternatively, `after` continues after the last name of a page. `members` and `lag` are the values of the last
    sample, or null if the group has not been sampled yet. With more than a few thousand groups, a sample covers only
    some of them.

    With several brokers, the list has the groups of all of them. `is_complete` is false while some groups have no
    coordinator, or the broker that coordinates them does not answer; those are missing. Pages by number reach the
    first 100,000 groups; `after` reaches all.
    """
    state = api_state(request)
    limit = integer_parameter(request, "limit", _PAGE_DEFAULT, minimum=1, maximum=_PAGE_MAX)
    number = integer_parameter(request, "page", 1, minimum=1, maximum=INT32_MAX)
    prefix, after = request.query_params.get("prefix", ""), request.query_params.get("after", "")
    wanted = request.query_params.get("search", "").lower()
    is_listed = _lists(request)
    begin, end = (number - 1) * limit, number * limit
    if state.broker.cluster.is_shared and end > _MERGED_MAX:
        raise InvalidRequest(
            f"page {number} ends after {_MERGED_MAX:,} groups, which several brokers do not sort by pages; "
            "continue after the last name of a page (after=NAME)"
        )
    own = [
        group
        for group in list_coordinated(state.groups)
        if is_listed(group.group)
        and group.group.startswith(prefix)
        and group.group > after
        and wanted in group.group.lower()
    ]
    elsewhere = await groups_elsewhere(request, end)
    first = own[:end]
    # A group that has just moved may be in two lists.
    nearest: dict[str, GroupListing | dict[str, Any]] = {one["group"]: one for one in elsewhere.groups}
    nearest |= {one.group: one for one in first}
    total = len(own) + elsewhere.total - (len(elsewhere.groups) + len(first) - len(nearest))
    sampled = state.sampler.groups.lags
    page = [_listed(nearest[name], sampled) for name in sorted(nearest)[begin:end]]
    return json_answer(
        {
            "groups": page,
            "next_after": page[-1]["group"] if page and total > end else None,
            "total": total,
            "is_complete": elsewhere.missing == 0,
        }
    )


def _listed(group: GroupListing | dict[str, Any], sampled: Mapping[str, GroupLag]) -> dict[str, Any]:
    """Return a group as the list has it; another broker has made it already."""
    if isinstance(group, dict):
        return group
    sample = sampled.get(group.group)
    return {
        "group": group.group,
        "state": group.state.value,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "members": None if sample is None else sample.members,
        "lag": None if sample is None else sample.lag,
    }


@router.get(
    "/v1/groups/{group}/lag/history",
    openapi_extra=openapi.GET_GROUP_LAG_HISTORY,
    summary="Get the lag of a group over the last hour",
)
async def get_group_lag_history(request: Request) -> Response:
    """Return the lag of each partition at each sample, newest last.

    It is null where it was not known yet.

    The broker keeps a history for each group that has its own series in `/metrics`, see `STELE_METRICS_GROUPS_MAX`.
    """
    state = api_state(request)
    name = str(request.path_params["group"])
    group_of(request).coordinator.describe(name)
    times, series = state.sampler.groups.history(name)
    sees_topic = is_seen(request, DESCRIBE_TOPIC)
    return json_answer(
        {
            "group": name,
            "interval_ms": state.sampler.interval_ms,
            "at": times,
            "partitions": [
                {"topic": topic, "partition": partition, "lag": lags}
                for topic, partition, lags in series
                if sees_topic(topic)
            ],
        }
    )


@router.get("/v1/groups/{group}", openapi_extra=openapi.GET_GROUP, summary="Describe a group")
async def get_group(request: Request) -> Response:
    """Return the members, the lag of each partition, and the open leases.

    Members have their assigned and owned partitions.

    A group of type `consumer` has its partitions assigned by the broker: `generation` is the group epoch, members have
    an `epoch`, and `target` is what they are about to be assigned. In a group of type `share`, `committed` is the first
    offset that is not finished, `in_flight` counts the records that are locked, and `unfinished` has the first 200 ranges
    of offsets that were delivered and are not finished. Elsewhere these are null.
    """
    groups = group_of(request)
    name = str(request.path_params["group"])
    described = groups.coordinator.describe(name)
    sees_topic = is_seen(request, DESCRIBE_TOPIC)
    all_lags = await fresh_group_lag(broker_of(request), groups.coordinator, name)
    lags = [lag for lag in all_lags if sees_topic(lag.topic)]
    return json_answer(
        {
            "group": described.group,
            "type": described.type,
            "state": described.state.value,
            "generation": described.generation,
            "assignment_epoch": described.assignment_epoch,
            "protocol_type": described.protocol_type,
            "protocol": described.protocol_name,
            "lag": sum(partition.lag for partition in lags),
            "members": [_member(member, sees_topic) for member in described.members],
            "partitions": [_partition(partition) for partition in lags],
            **_shared(groups.coordinator, described, sees_topic),
            "leases": [
                _lease(lease, expires_at_ms, sees_topic)
                for lease, expires_at_ms in groups.leases.leases(name)
            ],
        }
    )


def _member(member: MemberDescription, sees_topic: Callable[[str], bool]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "is_managed": member.is_managed,
        "epoch": member.epoch,
        "regex": member.regex or None,
        "topics": sorted(filter(sees_topic, member.topics)),
        "assignment": by_topic(part for part in member.assigned if sees_topic(part.topic)),
        "target": by_topic(part for part in member.target if sees_topic(part.topic)),
        "owned": by_topic(part for part in member.owned if sees_topic(part.topic)),
    }


def _partition(partition: PartitionLag) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": partition.committed if partition.committed != -1 else None,
        "metadata": partition.metadata,
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "lag": partition.lag,
        "in_flight": partition.in_flight,
        "member_id": partition.member_id,
        "owner": partition.owner,
    }


def _lease(lease: Lease, expires_at_ms: int, sees_topic: Callable[[str], bool]) -> dict[str, Any]:
    return {
        "expires_at": expires_at_ms,
        "partitions": [leased_part(part) for part in lease.partitions if sees_topic(part.topic)],
    }


def _shared(
    coordinator: GroupCoordinator, described: GroupDescription, sees_topic: Callable[[str], bool]
) -> dict[str, Any]:
    """Return what only share groups have."""
    if described.type != "share":
        return {"dead_letter_topic": None, "unfinished": None}
    letters = coordinator.shares.dead_letter_topic(described.group)
    return {
        "dead_letter_topic": letters if letters is not None and sees_topic(letters) else None,
        "unfinished": [
            {
                "topic": records.topic,
                "partition": records.partition,
                "first": records.first,
                "last": records.last,
                "state": records.state.name.lower(),
                "deliveries": records.deliveries,
                "member_id": records.member_id or None,
            }
            for records in coordinator.shares.unfinished(described.group, ranges_max=_UNFINISHED_MAX)
            if sees_topic(records.topic)
        ],
    }


@router.delete(
    "/v1/groups/{group}", status_code=204, openapi_extra=openapi.DELETE_GROUP, summary="Delete a group"
)
async def delete_group(request: Request) -> Response:
    """Delete a group that has no members, and its committed offsets."""
    groups = group_of(request)
    name = str(request.path_params["group"])
    groups.leases.retire(name)
    await groups.coordinator.delete_group(name)
    return Response(status_code=204)


@router.put("/v1/groups/{group}/offsets", openapi_extra=openapi.RESET_OFFSETS, summary="Reset offsets")
async def reset_group_offsets(request: Request) -> Response:
    """Set the offsets at which a group without members continues; `dry_run=true` only reports the change.

    `to` is `earliest`, `latest`, an offset, a time like `2026-11-20T10:00Z` or a time ago like `-1h`.
    """
    broker, groups = broker_of(request), group_of(request)
    name = str(request.path_params["group"])
    is_dry = boolean_parameter(request, "dry_run")
    body = await json_body(request, ResetBody, '{"to": "earliest", "topics": ["orders"]}')
    if (body.to is None) == (body.offsets is None):
        raise InvalidRequest(
            'give either "to" or "offsets"; each of "offsets" has a topic, a partition and an offset'
        )
    named = [*(body.topics or ()), *(one.topic for one in body.offsets or ())]
    # Before they are looked up: otherwise the time of a refusal would tell whether a topic exists.
    require(request, READ_TOPIC, named)
    await broker.try_to_find_topics(named)
    targets = _targets(request, name, body)
    resets = await reset_offsets(broker, groups.coordinator, groups.leases, name, targets, dry_run=is_dry)
    return json_answer(
        {
            "group": name,
            "dry_run": is_dry,
            "offsets": [
                {
                    "topic": reset.topic,
                    "partition": reset.partition,
                    "before": reset.before if reset.before != -1 else None,
                    "after": reset.after,
                    "lag": reset.lag,
                }
                for reset in resets
            ],
        }
    )


def _targets(request: Request, group: str, body: ResetBody) -> list[Target]:
    """Return the partitions to reset; the client may read the topics of ``body``."""
    broker, coordinator = broker_of(request), group_of(request).coordinator
    if body.offsets is not None:
        for target in body.offsets:
            check_offset(target.offset)
        return [
            Target(topic=target.topic, partition=target.partition, offset=target.offset)
            for target in body.offsets
        ]
    text = str(body.to)
    offset = parse_whole(text)
    at = None if offset is not None else position_at(text, broker.now_ms())
    if offset is None and at is None:
        raise InvalidRequest(
            f"to is {text[:60]!r}; give earliest, latest, an offset, a time like 2026-11-20T10:00Z, "
            "or a time ago like -1h (ms, s, m, h, d)"
        )
    topics = body.topics
    if topics is None:
        # Those that the client may read: the others are none of its business.
        reads_topic = is_seen(request, READ_TOPIC)
        topics = sorted(filter(reads_topic, topics_read(coordinator, group)))
        if not topics:
            raise InvalidRequest(
                f'group {group[:200]!r} has no committed offsets; list the topics to reset in "topics"'
            )
    return [
        Target(topic=topic, partition=partition, at=at, offset=offset)
        for topic in topics
        for partition in range(broker.topic(topic).partitions)
    ]
