"""Serve consumer groups over HTTP: list, describe, lag, resets, deletion (ADR-0017)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast

from msgspec import Struct
from starlette.requests import Request
from stele.wire.notation import parse_whole

from ...errors import InvalidRequest
from ...groups.base.messages import GroupDescription, GroupListing, MemberDescription
from ...groups.coordinator import GroupCoordinator
from ...groups.lag import PartitionLag, Target, fresh_group_lag, reset_offsets, topics_read
from ...groups.leases.lease import Lease
from ...groups.services import listings
from ...monitor.group_sampler import GroupLag
from ...query.positions import position_at
from ...security.acl import CLUSTER_NAME, DESCRIBE_CLUSTER, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_TOPIC
from ...work_budget import visited
from ..forwarding import groups_elsewhere
from ..group_json import (
    LeasedPartitionJson,
    Offset,
    TopicPartitions,
    Topics,
    by_topic,
    check_offset,
    leased_part,
)
from ..json_bodies import LIST_BYTES_MAX, JsonBody
from ..parameters import AFTER, GROUP, PAGE, PREFIX, SEARCH_NAMES, Flag, Number
from ..records.json_types import InPartition
from ..rights import is_seen, require
from ..routing import Routes
from ..schemas import Shown
from ..state import api_state, broker_of, group_of

route = Routes("groups", errors=(503,))


class ListedGroup(TypedDict):
    group: str
    state: str
    type: str
    protocol_type: str
    members: int | None
    lag: int | None


class GroupList(TypedDict):
    groups: list[ListedGroup]
    next_after: str | None
    total: int
    is_complete: bool


class PartitionLagHistory(InPartition):
    lag: Sequence[float | None]


class GroupLagHistory(TypedDict):
    group: str
    interval_ms: int
    at: list[int]
    partitions: list[PartitionLagHistory]


class GroupMember(TypedDict):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    is_managed: bool
    epoch: int | None
    regex: str | None
    topics: list[str]
    assignment: list[TopicPartitions]
    target: list[TopicPartitions]
    owned: list[TopicPartitions]


class GroupPartition(InPartition):
    committed: int | None
    metadata: str | None
    log_start_offset: int
    high_watermark: int
    lag: int
    in_flight: int | None
    member_id: str | None
    owner: str | None


class UnfinishedRange(InPartition):
    first: int
    last: int
    state: str
    deliveries: int
    member_id: str | None


class OpenLease(TypedDict):
    expires_at: int
    partitions: list[LeasedPartitionJson]


class Group(TypedDict):
    group: str
    type: str
    state: str
    generation: int
    assignment_epoch: int | None
    protocol_type: str
    protocol: str | None
    lag: int
    members: list[GroupMember]
    partitions: list[GroupPartition]
    dead_letter_topic: str | None
    unfinished: list[UnfinishedRange] | None
    leases: list[OpenLease]


class OffsetReset(InPartition):
    before: int | None
    after: int
    lag: int


class OffsetResets(TypedDict):
    group: str
    dry_run: bool
    offsets: list[OffsetReset]


class OffsetBody(Struct, forbid_unknown_fields=True):
    """The new offset of one partition."""

    topic: str
    partition: Annotated[int, Shown(minimum=0)]
    offset: Offset
    metadata: Annotated[str | None, Shown("what the clients of the group keep beside the offset")] = None


class ResetBody(Struct, forbid_unknown_fields=True):
    """``to`` for all partitions of ``topics``, or ``offsets`` for single partitions.

    Without ``topics`` the reset covers the topics in which the group has committed.
    """

    to: Annotated[str | int | None, Shown(examples=["earliest", "latest", 42, "-1h"])] = None
    topics: Topics | None = None
    offsets: list[OffsetBody] | None = None


_RESET = JsonBody(ResetBody, '{"to": "earliest", "topics": ["orders"]}', bytes_max=LIST_BYTES_MAX)
_DRY_RUN = Flag("dry_run", "report what would change, without changing it")
_LIMIT = Number("limit", "groups per page", 1000, minimum=1, maximum=10_000)

# How many groups of each other broker a page by number may take. Without a bound, one request reads them all.
_MERGED_MAX = 100_000
_UNFINISHED_MAX = 200


def _lists(request: Request) -> Callable[[str], bool]:
    """Return which groups a list has.

    As in Kafka, who may describe the cluster sees all.
    """
    sees_group, sees_cluster = is_seen(request, DESCRIBE_GROUP), is_seen(request, DESCRIBE_CLUSTER)
    return lambda name: sees_cluster(CLUSTER_NAME) or sees_group(name)


@route("GET /v1/groups", "List groups", SEARCH_NAMES, PAGE, PREFIX, _LIMIT, AFTER)
async def list_groups(request: Request) -> GroupList:
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
    limit, number = _LIMIT.read(request), PAGE.read(request)
    prefix, after = PREFIX.read(request), AFTER.read(request)
    wanted = SEARCH_NAMES.read(request).lower()
    is_listed = _lists(request)
    begin, end = (number - 1) * limit, number * limit
    if state.broker.cluster.is_shared and end > _MERGED_MAX:
        raise InvalidRequest(
            f"page {number} ends after {_MERGED_MAX:,} groups, which several brokers do not sort by pages; "
            "continue after the last name of a page (after=NAME)"
        )
    own = [
        group
        async for group in visited(listings(state.groups))
        if is_listed(group.group)
        and group.group.startswith(prefix)
        and group.group > after
        and wanted in group.group.lower()
    ]
    elsewhere = await groups_elsewhere(request, end)
    first = own[:end]
    # A group that has just moved may be in two lists.
    nearest: dict[str, GroupListing | dict[str, Any]] = {
        listed["group"]: listed for listed in elsewhere.groups
    }
    nearest |= {listed.group: listed for listed in first}
    total = len(own) + elsewhere.total - (len(elsewhere.groups) + len(first) - len(nearest))
    sampled = state.sampler.groups.lags
    page = [_listed(nearest[name], sampled) async for name in visited(sorted(nearest)[begin:end])]
    return {
        "groups": page,
        "next_after": page[-1]["group"] if page and total > end else None,
        "total": total,
        "is_complete": elsewhere.missing == 0,
    }


def _listed(group: GroupListing | dict[str, Any], sampled: Mapping[str, GroupLag]) -> ListedGroup:
    """Return a group as the list has it; another broker has made it already."""
    if isinstance(group, dict):
        return cast("ListedGroup", group)
    sample = sampled.get(group.group)
    return {
        "group": group.group,
        "state": group.state.value,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "members": None if sample is None else sample.members,
        "lag": None if sample is None else sample.lag,
    }


@route("GET /v1/groups/{group}/lag/history", "Get the lag of a group over the last hour", errors=(404,))
async def get_group_lag_history(request: Request) -> GroupLagHistory:
    """Return the lag of each partition at each sample, newest last.

    It is null where it was not known yet.

    The broker keeps a history for each group that has its own series in `/metrics`, see `STELE_METRICS_GROUPS_MAX`.
    """
    state = api_state(request)
    name = GROUP.read(request)
    group_of(request).coordinator.describe(name)
    times, series = state.sampler.groups.history(name)
    sees_topic = is_seen(request, DESCRIBE_TOPIC)
    return {
        "group": name,
        "interval_ms": state.sampler.interval_ms,
        "at": times,
        "partitions": [
            {"topic": topic, "partition": partition, "lag": lags}
            for topic, partition, lags in series
            if sees_topic(topic)
        ],
    }


@route("GET /v1/groups/{group}", "Describe a group", errors=(404,))
async def get_group(request: Request) -> Group:
    """Return the members, the lag of each partition, and the open leases.

    Members have their assigned and owned partitions.

    A group of type `consumer` has its partitions assigned by the broker: `generation` is the group epoch, members have
    an `epoch`, and `target` is what they are about to be assigned. In a group of type `share`, `committed` is the first
    offset that is not finished, `in_flight` counts the records that are locked, and `unfinished` has the first 200 ranges
    of offsets that were delivered and are not finished. Elsewhere these are null.
    """
    groups = group_of(request)
    name = GROUP.read(request)
    described = groups.coordinator.describe(name)
    sees_topic = is_seen(request, DESCRIBE_TOPIC)
    all_lags = await fresh_group_lag(broker_of(request), groups.coordinator, name)
    lags = [lag for lag in all_lags if sees_topic(lag.topic)]
    dead_letters, unfinished = _shared(groups.coordinator, described, sees_topic)
    return {
        "group": described.group,
        "type": described.type,
        "state": described.state.value,
        "generation": described.generation,
        "assignment_epoch": described.assignment_epoch,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol_name,
        "lag": sum(partition.lag for partition in lags),
        "members": [_member(member, sees_topic) async for member in visited(described.members)],
        "partitions": [_partition(partition) async for partition in visited(lags)],
        "dead_letter_topic": dead_letters,
        "unfinished": unfinished,
        "leases": [
            _lease(lease, expires_at_ms, sees_topic) for lease, expires_at_ms in groups.leases.leases(name)
        ],
    }


def _member(member: MemberDescription, sees_topic: Callable[[str], bool]) -> GroupMember:
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


def _partition(partition: PartitionLag) -> GroupPartition:
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


def _lease(lease: Lease, expires_at_ms: int, sees_topic: Callable[[str], bool]) -> OpenLease:
    return {
        "expires_at": expires_at_ms,
        "partitions": [leased_part(part) for part in lease.partitions if sees_topic(part.topic)],
    }


def _shared(
    coordinator: GroupCoordinator, described: GroupDescription, sees_topic: Callable[[str], bool]
) -> tuple[str | None, list[UnfinishedRange] | None]:
    """Return the dead-letter topic and the unfinished ranges, which only share groups have."""
    if described.type != "share":
        return None, None
    letters = coordinator.shares.dead_letter_topic(described.group)
    return (
        letters if letters is not None and sees_topic(letters) else None,
        [
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
    )


@route("DELETE /v1/groups/{group}", "Delete a group", errors=(404, 409))
async def delete_group(request: Request) -> None:
    """Delete a group that has no members, and its committed offsets."""
    groups = group_of(request)
    name = GROUP.read(request)
    groups.leases.retire(name)
    await groups.coordinator.delete_group(name)


@route("PUT /v1/groups/{group}/offsets", "Reset offsets", _DRY_RUN, body=_RESET, errors=(404, 409))
async def reset_group_offsets(request: Request) -> OffsetResets:
    """Set the offsets at which a group without members continues; `dry_run=true` only reports the change.

    `to` is `earliest`, `latest`, an offset, a time like `2026-11-20T10:00Z` or a time ago like `-1h`.
    """
    broker, groups = broker_of(request), group_of(request)
    name = GROUP.read(request)
    is_dry = _DRY_RUN.read(request)
    body = await _RESET.read(request)
    if (body.to is None) == (body.offsets is None):
        raise InvalidRequest(
            'give either "to" or "offsets"; each of "offsets" has a topic, a partition and an offset'
        )
    named = [*(body.topics or ()), *(offset.topic for offset in body.offsets or ())]
    # Before they are looked up: otherwise the time of a refusal would tell whether a topic exists.
    require(request, READ_TOPIC, named)
    await broker.try_to_find_topics(named)
    targets = await _targets(request, name, body)
    resets = await reset_offsets(broker, groups.coordinator, groups.leases, name, targets, dry_run=is_dry)
    return {
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


async def _targets(request: Request, group: str, body: ResetBody) -> list[Target]:
    """Return the partitions to reset; the client may read the topics of ``body``."""
    broker, coordinator = broker_of(request), group_of(request).coordinator
    if body.offsets is not None:
        for target in body.offsets:
            check_offset(target.offset)
        return [
            Target(
                topic=target.topic, partition=target.partition, offset=target.offset, metadata=target.metadata
            )
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
        topics = sorted(filter(reads_topic, await topics_read(coordinator, group)))
        if not topics:
            raise InvalidRequest(
                f'group {group[:200]!r} has no committed offsets; list the topics to reset in "topics"'
            )
    if len(set(topics)) < len(topics):
        raise InvalidRequest("a topic is named twice; name each once")
    return [
        Target(topic=topic, partition=partition, at=at, offset=offset)
        for topic in topics
        for partition in range(broker.readable_topic(topic).partitions)
    ]
