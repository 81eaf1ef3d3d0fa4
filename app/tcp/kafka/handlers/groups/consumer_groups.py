"""ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Groups whose partitions the broker assigns (KIP-848).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from uuid import UUID

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE_API,
    CONSUMER_GROUP_HEARTBEAT_API,
    Assignment,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
    Member,
    TopicPartitionsResult,
)

from .....cluster.consumer_group_store import JOINING, ConsumerMember, OwnedPartition
from .....errors import SteleError
from .....groups.consumer.messages import ConsumerGroupDescription, ConsumerHeartbeat
from .....security.acl import DESCRIBE_TOPIC
from .....work_budget import SMALL_VISIT, WorkBudget, visited
from ...context import Context, describe_error
from ...guards import groups as group_guards
from ...served import Served
from .groups import as_java_address, by_topic_id, described_by

# KIP-1082: before this version the broker makes the ids of members.
_FIRST_WITH_CLIENT_IDS = 1
_UNCHANGED_MS = -1
_CLASSIC, _CONSUMER = 0, 1


async def consumer_group_heartbeat(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join, stay or leave; the response is due when what it says is durable."""
    access = context.access
    try:
        answer = await context.coordinator(request.group_id).consumers.heartbeat(
            await _heartbeat(context, request),
            sees=lambda topic: access is None or access.sees(DESCRIBE_TOPIC, topic),
        )
    except SteleError as error:
        code, message = describe_error(error)
        return ConsumerGroupHeartbeatResponse(
            error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if answer.assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitionsResult(topic_id=topic_id.bytes, partitions=partitions)
                for topic_id, partitions in by_topic_id(answer.assigned).items()
            ]
        ),
    )


async def _heartbeat(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    budget = WorkBudget()
    member_id = request.member_id
    if not member_id and context.version < _FIRST_WITH_CLIENT_IDS and request.member_epoch == JOINING:
        member_id = str(uuid.uuid4())
    return ConsumerHeartbeat(
        group=request.group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=(
            None if request.rebalance_timeout_ms == _UNCHANGED_MS else request.rebalance_timeout_ms
        ),
        topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if request.topic_partitions is None
        else {
            OwnedPartition(topic_id, partition)
            async for topic_id, partitions in visited(
                ((UUID(bytes=topic.topic_id), topic.partitions) for topic in request.topic_partitions),
                SMALL_VISIT,
                budget,
            )
            async for partition in visited(partitions, SMALL_VISIT, budget)
        },
        client_id=context.client_id,
        client_host=context.client_host,
    )


async def consumer_group_describe(
    context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    described = await described_by(
        request.group_ids,
        lambda name: _described(context.coordinator(name).consumers.describe(name)),
        DescribedGroup,
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=described)


def _described(group: ConsumerGroupDescription) -> DescribedGroup:
    def assignment(partitions: Iterable[OwnedPartition]) -> ConsumerGroupDescribeAssignment:
        return ConsumerGroupDescribeAssignment(
            topic_partitions=[
                ConsumerGroupDescribeTopicPartitions(
                    topic_id=topic_id.bytes, topic_name=group.names[topic_id], partitions=numbers
                )
                for topic_id, numbers in by_topic_id(partitions).items()
                if topic_id in group.names
            ]
        )

    def described(member: ConsumerMember) -> Member:
        return Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=as_java_address(member.client_host),
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            assignment=assignment(member.assigned),
            target_assignment=assignment(member.target),
            member_type=_CONSUMER if member.classic is None else _CLASSIC,
        )

    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[described(member) for member in group.members],
    )


ROWS = (
    Served(CONSUMER_GROUP_HEARTBEAT_API, consumer_group_heartbeat, group_guards.CONSUMER_HEARTBEAT),
    Served(CONSUMER_GROUP_DESCRIBE_API, consumer_group_describe, group_guards.CONSUMER_DESCRIBE, walks=True),
)
