"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has read."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from stele.wire.error_codes import ErrorCode

from ....errors import GroupNotFound, IllegalGeneration, SteleError
from ....groups.messages import CommitRequest, CommittedOffset, OffsetToCommit
from ...errors import error_code_of
from ..schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ..schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from .context import Context, find_topic

# The request's word for "as long as the broker keeps them".
_DEFAULT_RETENTION = -1
_FIRST_WITH_GROUPS = 8
# KIP-848: OffsetCommit.
_FIRST_WITH_GROUP_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10


def offset_commit(
    context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[Any, Any, Any]:
    """Answered when the offsets are durable."""
    # One code a partition, in the order of the request; None while the coordinator decides.
    codes: list[ErrorCode | None] = []
    offsets: list[OffsetToCommit] = []
    retention_ms = None if request.retention_time_ms == _DEFAULT_RETENTION else request.retention_time_ms
    for topic in request.topics:
        name, refused = topic.name, None
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            try:
                name = find_topic(context, None, topic.topic_id).name
            except SteleError as error:
                refused = error_code_of(error)
        for one in topic.partitions:
            codes.append(refused)
            if refused is None:
                offsets.append(
                    OffsetToCommit(
                        topic=name,
                        partition=one.partition_index,
                        offset=one.committed_offset,
                        leader_epoch=one.committed_leader_epoch,
                        metadata=one.committed_metadata,
                        retention_ms=retention_ms,
                    )
                )
    try:
        committing = context.groups.commit(
            CommitRequest(
                group=request.group_id,
                generation=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                offsets=offsets,
            )
        )
    except GroupNotFound as error:
        # To old clients it is a generation that has passed: both make a member join again.
        is_old = context.version < _FIRST_WITH_GROUP_NOT_FOUND
        refusal = (
            IllegalGeneration(request.group_id, request.generation_id_or_member_epoch, current_generation=0)
            if is_old
            else error
        )
        return _commit_response(request, codes, [refusal] * len(offsets))
    except SteleError as error:
        return _commit_response(request, codes, [error] * len(offsets))

    async def committed() -> OffsetCommitResponse:
        try:
            results: Sequence[SteleError | None] = await committing
        except SteleError as error:
            results = [error] * len(offsets)
        return _commit_response(request, codes, results)

    return committed()


def _commit_response(
    request: OffsetCommitRequest, codes: Sequence[ErrorCode | None], results: Sequence[SteleError | None]
) -> OffsetCommitResponse:
    decided = (ErrorCode.NONE if result is None else error_code_of(result) for result in results)
    merged = iter([next(decided) if code is None else code for code in codes])
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=next(merged)
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= _FIRST_WITH_GROUPS:
        # Once each, as topics and partitions below: names are short, and what is told of them is not.
        asked_groups = {group.group_id: group for group in request.groups}
        return OffsetFetchResponse(groups=[_fetch_or_refuse(context, one) for one in asked_groups.values()])
    try:
        return _fetch_offsets(context, request)
    except SteleError as error:
        return _refused(request, error_code_of(error))


def _fetch_offsets(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if request.topics is None:
        found = _by_topic(context.groups.committed(request.group_id, None))
    else:
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        found = {
            name: context.groups.committed(request.group_id, [(name, partition) for partition in partitions])
            for name, partitions in asked.items()
        }
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition,
                        committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch,
                        metadata=one.metadata,
                        error_code=ErrorCode.NONE,
                    )
                    for one in offsets
                ],
            )
            for name, offsets in found.items()
        ]
    )


def _by_topic(offsets: Sequence[CommittedOffset]) -> dict[str, list[CommittedOffset]]:
    found: dict[str, list[CommittedOffset]] = {}
    for one in offsets:
        found.setdefault(one.topic, []).append(one)
    return found


def _refused(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=-1,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=code,
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _fetch_or_refuse(context: Context, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        return _fetch_group(context, group)
    except SteleError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code_of(error))


def _fetch_group(context: Context, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    topics: list[OffsetFetchResponseTopics] = []
    if group.topics is None:
        for name, offsets in _by_topic(context.groups.committed(group.group_id, None)).items():
            topic_id = (
                context.broker.topic(name).topic_id.bytes if context.broker.has_topic(name) else bytes(16)
            )
            topics.append(_fetched_topic(name, topic_id, offsets, ErrorCode.NONE))
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
    asked: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in group.topics:
        asked.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    for (name, topic_id), partitions in asked.items():
        code = ErrorCode.NONE
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            try:
                name = find_topic(context, None, topic_id).name
            except SteleError as error:
                code = error_code_of(error)
        if code:
            offsets = [CommittedOffset(topic=name, partition=one) for one in partitions]
        else:
            offsets = context.groups.committed(group.group_id, [(name, one) for one in partitions])
        topics.append(_fetched_topic(name, topic_id, offsets, code))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _fetched_topic(
    name: str, topic_id: bytes, offsets: Sequence[CommittedOffset], code: ErrorCode
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=one.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=code,
            )
            for one in offsets
        ],
    )


async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    try:
        results = iter(await context.groups.delete_offsets(request.group_id, asked))
    except SteleError as error:
        return OffsetDeleteResponse(error_code=error_code_of(error), topics=())
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetDeleteResponsePartition] = []
        for one in topic.partitions:
            result = next(results)
            partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=one.partition_index,
                    error_code=ErrorCode.NONE if result is None else error_code_of(result),
                )
            )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
