"""Guards of APIs for groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from stele.wire.kafka.consumer_groups import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse
from stele.wire.kafka.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from stele.wire.kafka.share_groups import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)

from ....security.acl import (
    DELETE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    READ_GROUP,
    READ_TOPIC,
    Action,
    ResourceType,
)
from ....security.authorizer import Access
from ....work_budget import Pace, Steps, mapped
from ..context import Answer, Context
from . import authorized
from .refusals import access_of, code_of, item_type, refused, then
from .rights import (
    PARTITIONS,
    PIECES_OF_CHECK,
    PIECES_OF_REFUSAL,
    Guard,
    Handle,
    Parts,
    on_each,
    on_name,
    only,
    split,
    with_more,
)

_TRANSACTION = 1
_FIRST_FIND_WITH_KEYS = 4
_FIRST_FETCH_WITH_GROUPS = 8


# ── what groups there are ──


def _check_find_coordinator(
    context: Context, request: FindCoordinatorRequest, handle: Handle
) -> Steps[Answer]:
    access = access_of(context)
    action = DESCRIBE_TRANSACTIONAL_ID if request.key_type == _TRANSACTION else DESCRIBE_GROUP
    nowhere = {"node_id": -1, "host": "", "port": -1}
    if context.version < _FIRST_FIND_WITH_KEYS:
        if access.allows(action, request.key):
            return handle(context, request)
        return refused(FindCoordinatorResponse, action, **nowhere)
    allowed, denied = yield from split(
        context, request.coordinator_keys, "", lambda name: access.allows(action, name)
    )
    refusals = yield from mapped(
        lambda key: refused(Coordinator, action, key=key, **nowhere), denied, pieces=PIECES_OF_REFUSAL
    )
    answer = handle(context, replace(request, coordinator_keys=allowed))
    return (yield from then(answer, lambda response: with_more(response, "coordinators", refusals)))


FIND_COORDINATOR = Guard((DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID), _check_find_coordinator)


def _check_list_groups(context: Context, request: ListGroupsRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)

    def seen(response: ListGroupsResponse) -> Steps[ListGroupsResponse]:
        if access.sees(DESCRIBE_CLUSTER):
            return response
        return (
            yield from only(response, "groups", lambda group: access.sees(DESCRIBE_GROUP, group.group_id))
        )

    return (yield from then(handle(context, request), seen))


LIST_GROUPS = Guard((DESCRIBE_GROUP, DESCRIBE_CLUSTER), _check_list_groups)


def on_described_groups(response: type, field: str) -> Guard:
    """Return the guard of an API that describes the groups named in ``field``."""
    parts = Parts(field=field, name="", answers="groups", answer_name="group_id")

    def check(context: Context, request: Any, handle: Handle) -> Steps[Answer]:
        access = access_of(context)
        allowed, denied = yield from split(
            context, getattr(request, field), "", lambda name: access.allows(DESCRIBE_GROUP, name)
        )
        refusals = yield from parts.refuse_all(response, denied, DESCRIBE_GROUP)

        def show(described: Any) -> None:
            if described.authorized_operations != authorized.NOT_ASKED:
                described.authorized_operations = access.operations(ResourceType.GROUP, described.group_id)

        def seen(done: Any) -> Steps[Any]:
            yield from mapped(show, done.groups, pieces=PIECES_OF_REFUSAL)
            return (yield from with_more(done, "groups", refusals))

        return (yield from then(handle(context, replace(request, **{field: allowed})), seen))

    return Guard((DESCRIBE_GROUP,), check)


# ── groups whose partitions the broker assigns ──


def _on_heartbeat(response: type) -> Guard:
    """Topics that are named must all be visible.

    Of a regular expression the handler filters them.
    """

    def check(context: Context, request: Any, handle: Handle) -> Answer | Steps[Answer]:
        if not access_of(context).allows(READ_GROUP, request.group_id):
            return refused(response, READ_GROUP)
        # Most heartbeats name none.
        return (
            check_topics(context, request, handle)
            if request.subscribed_topic_names
            else handle(context, request)
        )

    def check_topics(context: Context, request: Any, handle: Handle) -> Steps[Answer]:
        access, pace = access_of(context), Pace()
        for topic in request.subscribed_topic_names:
            if not access.allows(DESCRIBE_TOPIC, topic):
                return refused(response, DESCRIBE_TOPIC)
            if pace.is_due(PIECES_OF_CHECK):
                yield
        return handle(context, request)

    return Guard((READ_GROUP, DESCRIBE_TOPIC), check)


CONSUMER_HEARTBEAT = _on_heartbeat(ConsumerGroupHeartbeatResponse)
SHARE_HEARTBEAT = _on_heartbeat(ShareGroupHeartbeatResponse)


def _on_description(response: type) -> Guard:
    """A group is described to clients that may see all its topics, as in Kafka."""
    described = on_described_groups(response, "group_ids")
    group = item_type(response, "groups")

    def check(context: Context, request: Any, handle: Handle) -> Steps[Answer]:
        access = access_of(context)

        def seen(done: Any) -> Steps[Any]:
            groups: list[Any] = []
            for one in done.groups:
                groups.append((yield from _seen_group(access, group, one)))
            return replace(done, groups=groups)

        answer = yield from cast("Steps[Answer]", described.check(context, request, handle))
        return (yield from then(answer, seen))

    return Guard((DESCRIBE_GROUP, DESCRIBE_TOPIC), check)


def _seen_group(access: Access, group: type, described: Any) -> Steps[Any]:
    pace = Pace()
    for member in described.members:
        topics = set(member.subscribed_topic_names)
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                topics.update(topic.topic_name for topic in assignment.topic_partitions)
        if not all(access.sees(DESCRIBE_TOPIC, topic) for topic in topics):
            return refused(group, DESCRIBE_TOPIC, group_id=described.group_id)
        if pace.is_due(1 + len(topics)):
            yield
    return described


CONSUMER_DESCRIBE = _on_description(ConsumerGroupDescribeResponse)
SHARE_DESCRIBE = _on_description(ShareGroupDescribeResponse)


# ── share groups: the handlers check the topics ──


def _and_topics(guard: Guard, action: Action) -> Guard:
    return replace(guard, rights=(*guard.rights, action))


SHARE_FETCH = _and_topics(on_name(READ_GROUP, "group_id", ShareFetchResponse), READ_TOPIC)
SHARE_ACKNOWLEDGE = _and_topics(on_name(READ_GROUP, "group_id", ShareAcknowledgeResponse), READ_TOPIC)
SHARE_OFFSETS = _and_topics(
    on_each(
        DESCRIBE_GROUP,
        DescribeShareGroupOffsetsResponse,
        Parts(field="groups", name="group_id", answers="groups", answer_name="group_id"),
    ),
    DESCRIBE_TOPIC,
)
ALTER_SHARE_OFFSETS = _and_topics(on_name(READ_GROUP, "group_id", AlterShareGroupOffsetsResponse), READ_TOPIC)
DELETE_SHARE_OFFSETS = _and_topics(
    on_name(DELETE_GROUP, "group_id", DeleteShareGroupOffsetsResponse), READ_TOPIC
)


# ── offsets ──

_FETCHED = replace(PARTITIONS, partitions="partition_indexes", index="")


def refuse_all(response: type, parts: Parts, topics: Iterable[Any], action: Action) -> Steps[Any]:
    """Return a response that refuses every partition for a right beside the topics."""
    return response(topics=(yield from parts.refuse_all(response, topics, action)))


_check_commit = on_each(READ_TOPIC, OffsetCommitResponse, PARTITIONS).check
_check_delete = on_each(READ_TOPIC, OffsetDeleteResponse, PARTITIONS).check
_check_fetch = on_each(DESCRIBE_TOPIC, OffsetFetchResponse, _FETCHED).check


def _check_offset_commit(
    context: Context, request: OffsetCommitRequest, handle: Handle
) -> Answer | Steps[Answer]:
    if not access_of(context).allows(READ_GROUP, request.group_id):
        return refuse_all(OffsetCommitResponse, PARTITIONS, request.topics, READ_GROUP)
    return _check_commit(context, request, handle)


OFFSET_COMMIT = Guard((READ_GROUP, READ_TOPIC), _check_offset_commit)


def _check_offset_delete(
    context: Context, request: OffsetDeleteRequest, handle: Handle
) -> Answer | Steps[Answer]:
    if not access_of(context).allows(DELETE_GROUP, request.group_id):
        return refused(OffsetDeleteResponse, DELETE_GROUP)
    return _check_delete(context, request, handle)


OFFSET_DELETE = Guard((DELETE_GROUP, READ_TOPIC), _check_offset_delete)


def _check_offset_fetch(context: Context, request: OffsetFetchRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    if context.version < _FIRST_FETCH_WITH_GROUPS:
        return (yield from _check_one_fetch(context, access, request, handle))
    # By group: what to ask the handler for, and what is refused.
    asked: list[OffsetFetchRequestGroup] = []
    refusals: dict[str, list[Any]] = {}
    refused_groups: list[OffsetFetchResponseGroup] = []
    pace = Pace()
    for group in request.groups:
        if pace.is_due(PIECES_OF_CHECK):
            yield
        if not access.allows(DESCRIBE_GROUP, group.group_id):
            refused_groups.append(refused(OffsetFetchResponseGroup, DESCRIBE_GROUP, group_id=group.group_id))
            continue
        if group.topics is None:
            # Of a group that is named twice the last counts.
            refusals.pop(group.group_id, None)
        else:
            allowed, denied = yield from split(
                context, group.topics, "name", lambda name: access.allows(DESCRIBE_TOPIC, name)
            )
            group = replace(group, topics=allowed)
            refusals[group.group_id] = yield from _FETCHED.refuse_all(
                OffsetFetchResponseGroup, denied, DESCRIBE_TOPIC
            )
        asked.append(group)

    def is_seen(topic: OffsetFetchResponseTopics) -> bool:
        return access.sees(DESCRIBE_TOPIC, topic.name)

    def seen(response: OffsetFetchResponse) -> Steps[OffsetFetchResponse]:
        groups: list[OffsetFetchResponseGroup] = []
        pace = Pace()
        for group in response.groups:
            if group.group_id in refusals:
                group = yield from with_more(group, "topics", refusals[group.group_id])
            else:
                group = yield from only(group, "topics", is_seen)
            groups.append(group)
            if pace.is_due(PIECES_OF_REFUSAL):
                yield
        return replace(response, groups=[*groups, *refused_groups])

    return (yield from then(handle(context, replace(request, groups=asked)), seen))


def _check_one_fetch(
    context: Context, access: Access, request: OffsetFetchRequest, handle: Handle
) -> Steps[Answer]:
    if not access.allows(DESCRIBE_GROUP, request.group_id):
        response = yield from refuse_all(OffsetFetchResponse, _FETCHED, request.topics or (), DESCRIBE_GROUP)
        return replace(response, error_code=code_of(DESCRIBE_GROUP))
    if request.topics is None:
        return (
            yield from then(
                handle(context, request),
                lambda response: only(
                    response, "topics", lambda topic: access.sees(DESCRIBE_TOPIC, topic.name)
                ),
            )
        )
    return (yield from cast("Steps[Answer]", _check_fetch(context, request, handle)))


OFFSET_FETCH = Guard((DESCRIBE_GROUP, DESCRIBE_TOPIC), _check_offset_fetch)
