"""Guards of APIs for groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
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
from ..context import Answer, Context
from . import authorized
from .refusals import access_of, code_of, item_type, refused, then
from .rights import PARTITIONS, Guard, Handle, Parts, on_each, on_name, split, with_more

_TRANSACTION = 1
_FIRST_FIND_WITH_KEYS = 4
_FIRST_FETCH_WITH_GROUPS = 8


# ── what groups there are ──


def _check_find_coordinator(context: Context, request: FindCoordinatorRequest, handle: Handle) -> Answer:
    access = access_of(context)
    action = DESCRIBE_TRANSACTIONAL_ID if request.key_type == _TRANSACTION else DESCRIBE_GROUP
    nowhere = {"node_id": -1, "host": "", "port": -1}
    if context.version < _FIRST_FIND_WITH_KEYS:
        if access.allows(action, request.key):
            return handle(context, request)
        return refused(FindCoordinatorResponse, action, **nowhere)
    allowed, denied = split(context, request.coordinator_keys, "", lambda name: access.allows(action, name))
    refusals = [refused(Coordinator, action, key=key, **nowhere) for key in denied]
    answer = handle(context, replace(request, coordinator_keys=allowed))
    return then(answer, lambda response: with_more(response, "coordinators", refusals))


FIND_COORDINATOR = Guard((DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID), _check_find_coordinator)


def _check_list_groups(context: Context, request: ListGroupsRequest, handle: Handle) -> Answer:
    access = access_of(context)

    def seen(response: ListGroupsResponse) -> ListGroupsResponse:
        if access.sees(DESCRIBE_CLUSTER):
            return response
        groups = [group for group in response.groups if access.sees(DESCRIBE_GROUP, group.group_id)]
        return replace(response, groups=groups)

    return then(handle(context, request), seen)


LIST_GROUPS = Guard((DESCRIBE_GROUP, DESCRIBE_CLUSTER), _check_list_groups)


def on_described_groups(response: type, field: str) -> Guard:
    """Return the guard of an API that describes the groups named in ``field``."""
    group = item_type(response, "groups")

    def check(context: Context, request: Any, handle: Handle) -> Answer:
        access = access_of(context)
        allowed, denied = split(
            context, getattr(request, field), "", lambda name: access.allows(DESCRIBE_GROUP, name)
        )

        def seen(done: Any) -> Any:
            for described in done.groups:
                if described.authorized_operations != authorized.NOT_ASKED:
                    described.authorized_operations = access.operations(
                        ResourceType.GROUP, described.group_id
                    )
            return with_more(
                done, "groups", [refused(group, DESCRIBE_GROUP, group_id=name) for name in denied]
            )

        return then(handle(context, replace(request, **{field: allowed})), seen)

    return Guard((DESCRIBE_GROUP,), check)


# ── groups whose partitions the broker assigns ──


def _on_heartbeat(response: type) -> Guard:
    """Topics that are named must all be visible.

    Of a regular expression the handler filters them.
    """

    def check(context: Context, request: Any, handle: Handle) -> Answer:
        access = access_of(context)
        if not access.allows(READ_GROUP, request.group_id):
            return refused(response, READ_GROUP)
        if not all(access.allows(DESCRIBE_TOPIC, topic) for topic in request.subscribed_topic_names or ()):
            return refused(response, DESCRIBE_TOPIC)
        return handle(context, request)

    return Guard((READ_GROUP, DESCRIBE_TOPIC), check)


CONSUMER_HEARTBEAT = _on_heartbeat(ConsumerGroupHeartbeatResponse)
SHARE_HEARTBEAT = _on_heartbeat(ShareGroupHeartbeatResponse)


def _on_description(response: type) -> Guard:
    """A group is described to clients that may see all its topics, as in Kafka."""
    described = on_described_groups(response, "group_ids")
    group = item_type(response, "groups")

    def check(context: Context, request: Any, handle: Handle) -> Answer:
        access = access_of(context)

        def seen(done: Any) -> Any:
            return replace(done, groups=[_seen_group(access, group, one) for one in done.groups])

        return then(described.check(context, request, handle), seen)

    return Guard((DESCRIBE_GROUP, DESCRIBE_TOPIC), check)


def _seen_group(access: Access, group: type, described: Any) -> Any:
    topics = {topic for member in described.members for topic in member.subscribed_topic_names}
    for member in described.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                topics.update(topic.topic_name for topic in assignment.topic_partitions)
    if all(access.sees(DESCRIBE_TOPIC, topic) for topic in topics):
        return described
    return refused(group, DESCRIBE_TOPIC, group_id=described.group_id)


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


def refuse_all(response: type, parts: Parts, topics: Iterable[Any], action: Action) -> Any:
    """Return a response that refuses every partition for a right beside the topics."""
    return response(topics=[parts.refuse(response, topic, code_of(action)) for topic in topics])


def _check_offset_commit(context: Context, request: OffsetCommitRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if not access.allows(READ_GROUP, request.group_id):
        return refuse_all(OffsetCommitResponse, PARTITIONS, request.topics, READ_GROUP)
    return _on_read_topics(context, request, handle, OffsetCommitResponse)


def _on_read_topics(context: Context, request: Any, handle: Handle, response: type) -> Answer:
    access = access_of(context)
    allowed, denied = split(context, request.topics, "name", lambda name: access.allows(READ_TOPIC, name))
    if not denied:
        return handle(context, request)
    refusals = [PARTITIONS.refuse(response, topic, code_of(READ_TOPIC)) for topic in denied]
    return then(
        handle(context, replace(request, topics=allowed)),
        lambda done: done if done_failed(done) else with_more(done, "topics", refusals),
    )


def done_failed(response: Any) -> bool:
    """Return whether the request failed as a whole.

    Then its parts have no errors of their own.
    """
    return bool(getattr(response, "error_code", 0))


OFFSET_COMMIT = Guard((READ_GROUP, READ_TOPIC), _check_offset_commit)


def _check_offset_delete(context: Context, request: OffsetDeleteRequest, handle: Handle) -> Answer:
    if not access_of(context).allows(DELETE_GROUP, request.group_id):
        return refused(OffsetDeleteResponse, DELETE_GROUP)
    return _on_read_topics(context, request, handle, OffsetDeleteResponse)


OFFSET_DELETE = Guard((DELETE_GROUP, READ_TOPIC), _check_offset_delete)


def _check_offset_fetch(context: Context, request: OffsetFetchRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if context.version < _FIRST_FETCH_WITH_GROUPS:
        return _check_one_fetch(context, access, request, handle)
    # By group: what to ask the handler for, and what is refused.
    asked: list[OffsetFetchRequestGroup] = []
    refusals: dict[str, list[Any]] = {}
    refused_groups: list[OffsetFetchResponseGroup] = []
    for group in request.groups:
        if not access.allows(DESCRIBE_GROUP, group.group_id):
            refused_groups.append(refused(OffsetFetchResponseGroup, DESCRIBE_GROUP, group_id=group.group_id))
            continue
        if group.topics is not None:
            allowed, denied = split(
                context, group.topics, "name", lambda name: access.allows(DESCRIBE_TOPIC, name)
            )
            group = replace(group, topics=allowed)
            refusals[group.group_id] = [
                _FETCHED.refuse(OffsetFetchResponseGroup, topic, code_of(DESCRIBE_TOPIC)) for topic in denied
            ]
        asked.append(group)

    def seen(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            if group.error_code:
                continue
            denied = refusals.get(group.group_id)
            group.topics = (
                [topic for topic in group.topics if access.sees(DESCRIBE_TOPIC, topic.name)]
                if denied is None
                else [*group.topics, *denied]
            )
        return with_more(response, "groups", refused_groups)

    return then(handle(context, replace(request, groups=asked)), seen)


def _check_one_fetch(context: Context, access: Access, request: OffsetFetchRequest, handle: Handle) -> Answer:
    if not access.allows(DESCRIBE_GROUP, request.group_id):
        response = refuse_all(OffsetFetchResponse, _FETCHED, request.topics or (), DESCRIBE_GROUP)
        return replace(response, error_code=code_of(DESCRIBE_GROUP))
    if request.topics is None:
        return then(
            handle(context, request),
            lambda response: replace(
                response, topics=[one for one in response.topics if access.sees(DESCRIBE_TOPIC, one.name)]
            ),
        )
    allowed, denied = split(context, request.topics, "name", lambda name: access.allows(DESCRIBE_TOPIC, name))
    refusals = [_FETCHED.refuse(OffsetFetchResponse, topic, code_of(DESCRIBE_TOPIC)) for topic in denied]
    return then(
        handle(context, replace(request, topics=allowed)),
        lambda response: response if done_failed(response) else with_more(response, "topics", refusals),
    )


OFFSET_FETCH = Guard((DESCRIBE_GROUP, DESCRIBE_TOPIC), _check_offset_fetch)
