"""The administration and the heartbeats of share groups (KIP-932, ADR-0044)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS_API,
    DELETE_SHARE_GROUP_OFFSETS_API,
    DESCRIBE_SHARE_GROUP_OFFSETS_API,
    SHARE_GROUP_DESCRIBE_API,
    SHARE_GROUP_HEARTBEAT_API,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    Assignment,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribedGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    Member,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from .....cluster.consumer_group_store import JOINING
from .....errors import SteleError, StorageError, TopicError
from .....groups.share.group import ShareHeartbeat, ShareMember
from .....groups.share_groups import ShareGroupDescription, SharePartitionOffsets
from .....security.acl import DESCRIBE_TOPIC, READ_TOPIC, Action
from .....work_budget import SMALL_VISIT, WorkBudget, in_turns, visited
from ....errors import error_code_of
from ...context import Context, describe_error
from ...guards import groups as group_guards
from ...served import Served, always
from .groups import as_java_address, by_topic_id, described_by

_NO_TOPIC_ID = bytes(16)
_NO_OFFSET = -1
# Partitions have one epoch of their leader here.
_LEADER_EPOCH = 0


async def share_group_heartbeat(
    context: Context, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Join, stay or leave.

    The answer to a join is due when the partitions have a state.
    """
    names = request.subscribed_topic_names
    if request.member_epoch == JOINING:
        # The client may have created the topics, and said where the group begins, at another broker a moment ago.
        with suppress(StorageError):
            await context.broker.cluster.find()
    elif names:
        await context.broker.try_to_find_topics(names)
    try:
        answer = await context.coordinator(request.group_id).shares.heartbeat(
            ShareHeartbeat(
                group=request.group_id,
                member_id=request.member_id,
                epoch=request.member_epoch,
                rack_id=request.rack_id,
                topics=None if names is None else frozenset(names),
                client_id=context.client_id,
                client_host=context.client_host,
            )
        )
    except SteleError as error:
        code, message = describe_error(error)
        return ShareGroupHeartbeatResponse(
            error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
        )
    return ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if answer.assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id.bytes, partitions=numbers)
                for topic_id, numbers in by_topic_id(answer.assigned).items()
            ]
        ),
    )


async def share_group_describe(
    context: Context, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    described = await described_by(
        request.group_ids,
        lambda name: _described(context.coordinator(name).shares.describe(name)),
        DescribedGroup,
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=described)


def _described(group: ShareGroupDescription) -> DescribedGroup:
    def described(member: ShareMember) -> Member:
        return Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=as_java_address(member.client_host),
            subscribed_topic_names=sorted(member.topics),
            assignment=ShareGroupDescribeAssignment(
                topic_partitions=[
                    ShareGroupDescribeTopicPartitions(
                        topic_id=topic_id.bytes, topic_name=group.names[topic_id], partitions=numbers
                    )
                    for topic_id, numbers in by_topic_id(member.assigned).items()
                    if topic_id in group.names
                ]
            ),
        )

    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=[described(member) for member in group.members],
    )


# ── offsets ──


def _may(context: Context, action: Action, topic: str) -> bool:
    return context.access is None or context.access.allows(action, topic)


async def describe_share_group_offsets(
    context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    budget = WorkBudget()
    for asked in {group.group_id: group for group in request.groups}.values():
        await budget.visit()
        try:
            known = await in_turns(context.coordinator(asked.group_id).shares.offsets(asked.group_id))
        except SteleError as error:
            code, message = describe_error(error)
            groups.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=asked.group_id, topics=(), error_code=code, error_message=message
                )
            )
            continue
        await context.broker.refresh((one.topic, one.partition) for one in known)
        groups.append(
            DescribeShareGroupOffsetsResponseGroup(
                group_id=asked.group_id,
                topics=await _offsets(context, asked, known),
                error_code=ErrorCode.NONE,
            )
        )
        await budget.visit(1 + len(known))
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _offsets(
    context: Context, asked: DescribeShareGroupOffsetsRequestGroup, known: Sequence[SharePartitionOffsets]
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    by_topic: dict[str, dict[int, SharePartitionOffsets]] = {}
    async for one in visited(known, SMALL_VISIT):
        by_topic.setdefault(one.topic, {})[one.partition] = one
    if asked.topics is None:
        wanted = {
            topic: list(offsets)
            for topic, offsets in by_topic.items()
            if context.access is None or context.access.sees(DESCRIBE_TOPIC, topic)
        }
    else:
        wanted = {
            topic.topic_name: list(topic.partitions) async for topic in visited(asked.topics, SMALL_VISIT)
        }
    answers: list[DescribeShareGroupOffsetsResponseTopic] = []
    budget = WorkBudget()
    async for topic, partitions in visited(wanted.items(), budget=budget):
        is_seen = _may(context, DESCRIBE_TOPIC, topic)
        code = ErrorCode.NONE if is_seen else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        offsets = by_topic.get(topic, {}) if is_seen else {}
        answers.append(
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic,
                topic_id=next((one.topic_id.bytes for one in offsets.values()), _NO_TOPIC_ID),
                partitions=[
                    _partition_offsets(context, number, offsets.get(number), code)
                    async for number in visited(partitions, budget=budget)
                ],
            )
        )
    return answers


def _partition_offsets(
    context: Context, number: int, known: SharePartitionOffsets | None, code: ErrorCode
) -> DescribeShareGroupOffsetsResponsePartition:
    if known is None:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, start_offset=_NO_OFFSET, leader_epoch=_LEADER_EPOCH, error_code=code
        )
    try:
        end = context.broker.log_state(known.topic, known.partition).high_watermark
    except SteleError as error:
        # Its topic was deleted meanwhile.
        return _partition_offsets(context, number, None, error_code_of(error))
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=known.start_offset,
        leader_epoch=_LEADER_EPOCH,
        lag=max(0, end - known.start_offset - known.finished),
        error_code=code,
    )


async def alter_share_group_offsets(
    context: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    try:
        context.coordinator(request.group_id).shares.check_alterable(request.group_id)
    except SteleError as error:
        code, message = describe_error(error)
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=message, responses=())
    return AlterShareGroupOffsetsResponse(
        error_code=ErrorCode.NONE,
        responses=[
            await _alter_topic(context, request.group_id, topic) async for topic in visited(request.topics)
        ],
    )


async def _alter_topic(
    context: Context, group: str, topic: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []
    budget = WorkBudget()
    is_allowed = _may(context, READ_TOPIC, topic.topic_name)
    for partition in topic.partitions:
        await budget.visit()
        code, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if is_allowed:
            code = ErrorCode.NONE
            try:
                await context.coordinator(group).shares.reset(
                    group, topic.topic_name, partition.partition_index, partition.start_offset
                )
            except SteleError as error:
                code, message = describe_error(error)
        partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index, error_code=code, error_message=message
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=_topic_id(context, topic.topic_name) if is_allowed else _NO_TOPIC_ID,
        partitions=partitions,
    )


def _topic_id(context: Context, topic: str) -> bytes:
    try:
        return context.broker.readable_topic(topic).topic_id.bytes
    except TopicError:
        return _NO_TOPIC_ID


async def delete_share_group_offsets(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    shares = context.coordinator(request.group_id).shares
    try:
        shares.check_empty(request.group_id)
    except SteleError as error:
        code, message = describe_error(error)
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message, responses=())
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
    async for topic in visited(request.topics):
        topic_id, code, message = _NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if _may(context, READ_TOPIC, topic.topic_name):
            code = ErrorCode.NONE
            try:
                topic_id = (await shares.forget(request.group_id, topic.topic_name)).bytes
            except SteleError as error:
                code, message = describe_error(error)
        responses.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=topic_id, error_code=code, error_message=message
            )
        )
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=responses)


ROWS = (
    Served(
        SHARE_GROUP_HEARTBEAT_API,
        share_group_heartbeat,
        group_guards.SHARE_HEARTBEAT,
        finds_topics_itself=True,
    ),
    Served(SHARE_GROUP_DESCRIBE_API, share_group_describe, group_guards.SHARE_DESCRIBE, walks=True),
    Served(
        DESCRIBE_SHARE_GROUP_OFFSETS_API, describe_share_group_offsets, group_guards.SHARE_OFFSETS, walks=True
    ),
    Served(
        ALTER_SHARE_GROUP_OFFSETS_API,
        alter_share_group_offsets,
        group_guards.ALTER_SHARE_OFFSETS,
        changes=True,
        is_barrier=always,
    ),
    Served(
        DELETE_SHARE_GROUP_OFFSETS_API,
        delete_share_group_offsets,
        group_guards.DELETE_SHARE_OFFSETS,
        changes=True,
        is_barrier=always,
    ),
)
