"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has read.

Each request is atomic for a group: OffsetCommit and OffsetDelete change all their
partitions together, and OffsetFetch returns all offsets of a group as of one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.committed_offsets import (
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OFFSET_FETCH_API,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from .....broker.broker import Broker
from .....errors import GroupNotFound, IllegalGeneration, SteleError
from .....groups.base.messages import CommitRequest, CommittedOffset, OffsetToCommit, Results
from .....work_budget import SMALL_VISIT, Pace, Steps, WorkBudget, at_once, in_turns, visited
from ....errors import error_code_of
from ...context import Context, find_topic
from ...guards import groups as group_guards
from ...served import Served

# Keep the offsets as long as the broker's configuration says.
_DEFAULT_RETENTION = -1
_FIRST_WITH_GROUPS = 8
# KIP-848: OffsetCommit.
_FIRST_WITH_GROUP_NOT_FOUND = 9
# KIP-848: OffsetCommit and OffsetFetch.
_FIRST_WITH_MEMBER_EPOCHS = 9
_FIRST_WITH_TOPIC_IDS = 10
# Of a commit, without a pause: each takes about 3 µs.
_OFFSETS_AT_ONCE = 1000
# The answer for an offset takes about 2 µs.
_PIECES_OF_ANSWER = 2

# One code per partition, in the order of the request; None while the coordinator decides.
_Codes = list[ErrorCode | None]


def is_long_commit(_broker: Broker, request: OffsetCommitRequest) -> bool:
    """Return whether the check of the offsets takes several turns, for which later requests have to wait."""
    if len(request.topics) > _OFFSETS_AT_ONCE:
        return True
    return sum(len(topic.partitions) for topic in request.topics) > _OFFSETS_AT_ONCE


def offset_commit(
    context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[Any, Any, Any]:
    """Commit offsets; the response is due when they are durable."""
    if is_long_commit(context.broker, request):
        return _commit_in_turns(context, request)
    codes, commit = at_once(_to_commit(context, request))
    committing = _commit(context, request, commit)
    if not isinstance(committing, asyncio.Future):
        return at_once(_commit_response(request, codes, committing))

    async def committed() -> OffsetCommitResponse:
        return at_once(_commit_response(request, codes, await _results(committing, commit)))

    return committed()


async def _commit_in_turns(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    codes, commit = await in_turns(_to_commit(context, request))
    commit = await context.coordinator(request.group_id).checked(commit)
    committing = _commit(context, request, commit)
    results = await _results(committing, commit) if isinstance(committing, asyncio.Future) else committing
    return await in_turns(_commit_response(request, codes, results))


def _to_commit(context: Context, request: OffsetCommitRequest) -> Steps[tuple[_Codes, CommitRequest]]:
    codes: _Codes = []
    offsets: list[OffsetToCommit] = []
    pace = Pace()
    retention_ms = None if request.retention_time_ms == _DEFAULT_RETENTION else request.retention_time_ms
    for topic in request.topics:
        name, refused = topic.name, None
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            try:
                name = find_topic(context, None, topic.topic_id).name
            except SteleError as error:
                refused = error_code_of(error)
        for partition in topic.partitions:
            codes.append(refused)
            if refused is None:
                offsets.append(
                    OffsetToCommit(
                        topic=name,
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata,
                        retention_ms=retention_ms,
                    )
                )
            if pace.is_due():
                yield
    commit = CommitRequest(
        group=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        offsets=offsets,
        has_member_epoch=context.version >= _FIRST_WITH_MEMBER_EPOCHS,
    )
    return codes, commit


def _commit(
    context: Context, request: OffsetCommitRequest, commit: CommitRequest
) -> Results | asyncio.Future[Results]:
    """Commit; return the results, or what completes with them."""
    refusal: SteleError
    try:
        return context.coordinator(request.group_id).commit(commit)
    except GroupNotFound as error:
        # Old clients get the error of a past generation; both errors make a member join again.
        is_old = context.version < _FIRST_WITH_GROUP_NOT_FOUND
        refusal = (
            IllegalGeneration(request.group_id, request.generation_id_or_member_epoch, current_generation=0)
            if is_old
            else error
        )
    except SteleError as error:
        refusal = error
    return [*repeat(refusal, len(commit.offsets))]


async def _results(committing: asyncio.Future[Results], commit: CommitRequest) -> Results:
    try:
        return await committing
    except SteleError as error:
        return [*repeat(error, len(commit.offsets))]


def _commit_response(
    request: OffsetCommitRequest, codes: _Codes, results: Sequence[SteleError | None]
) -> Steps[OffsetCommitResponse]:
    decided = (ErrorCode.NONE if result is None else error_code_of(result) for result in results)
    merged = (next(decided) if code is None else code for code in codes)
    pace = Pace()
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(merged)
                )
            )
            if pace.is_due(_PIECES_OF_ANSWER):
                yield
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return OffsetCommitResponse(topics=topics)


async def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    budget = WorkBudget()
    if context.version >= _FIRST_WITH_GROUPS:
        # Once per group, topic and partition, because names are short and what is returned is not.
        requested_groups = {group.group_id: group for group in request.groups}
        groups: list[OffsetFetchResponseGroup] = []
        for group in requested_groups.values():
            groups.append(await _fetch_or_refuse(context, request, group, budget))
            await budget.visit()
        return OffsetFetchResponse(groups=groups)
    try:
        await context.coordinator(request.group_id).settle_ended(request.group_id)
        offsets_of = await _offsets_of(context, request)
    except SteleError as error:
        return await _refused(request, error_code_of(error))
    topics: list[OffsetFetchResponseTopic] = []
    for name, offsets in offsets_of.items():
        partitions: list[OffsetFetchResponsePartition] = []
        for committed in offsets:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=committed.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=_code_of(committed),
                )
            )
            await budget.visit()
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


async def _all_committed(
    context: Context, request: OffsetFetchRequest, group: str
) -> dict[str, list[CommittedOffset]]:
    """Return all offsets of a group by topic, of one moment."""
    by_topic: dict[str, list[CommittedOffset]] = {}
    offsets = await in_turns(
        context.coordinator(group).committed_in_steps(group, require_stable=request.require_stable)
    )
    async for committed in visited(offsets, SMALL_VISIT):
        by_topic.setdefault(committed.topic, []).append(committed)
    return by_topic


async def _committed(
    context: Context, request: OffsetFetchRequest, group: str, topics: Sequence[tuple[str, Collection[int]]]
) -> list[list[CommittedOffset]]:
    """Return the offsets of partitions of each topic, all of one moment."""
    named = [
        (name, partition)
        async for name, partitions in visited(topics, SMALL_VISIT)
        for partition in partitions
    ]
    offsets = iter(
        await in_turns(
            context.coordinator(group).committed_in_steps(group, named, require_stable=request.require_stable)
        )
    )
    return [list(islice(offsets, len(partitions))) async for _, partitions in visited(topics, SMALL_VISIT)]


def _code_of(committed: CommittedOffset) -> ErrorCode:
    return ErrorCode.NONE if committed.error is None else error_code_of(committed.error)


async def _offsets_of(
    context: Context, request: OffsetFetchRequest
) -> Mapping[str, Sequence[CommittedOffset]]:
    """Return the offsets by topic, all of one moment."""
    if request.topics is None:
        return await _all_committed(context, request, request.group_id)
    requested: dict[str, dict[int, None]] = {}
    async for topic in visited(request.topics, SMALL_VISIT):
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    offsets = await _committed(context, request, request.group_id, list(requested.items()))
    return dict(zip(requested, offsets, strict=True))


async def _refused(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    budget = WorkBudget()
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
                    async for partition in visited(topic.partition_indexes, SMALL_VISIT, budget)
                ],
            )
            async for topic in visited(request.topics or (), SMALL_VISIT, budget)
        ],
    )


class _TopicOffsets(NamedTuple):
    """The committed offsets of one topic, or why there are none."""

    name: str
    topic_id: bytes
    offsets: Sequence[CommittedOffset]
    code: ErrorCode


async def _fetch_or_refuse(
    context: Context, request: OffsetFetchRequest, group: OffsetFetchRequestGroup, budget: WorkBudget
) -> OffsetFetchResponseGroup:
    try:
        if context.version >= _FIRST_WITH_MEMBER_EPOCHS:
            consumers = context.coordinator(group.group_id).consumers
            consumers.check_fetch(group.group_id, group.member_id, group.member_epoch)
        await context.coordinator(group.group_id).settle_ended(group.group_id)
        offsets_of = await _group_offsets(context, request, group)
    except SteleError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code_of(error))
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=[await _fetched_topic(topic, budget) for topic in offsets_of]
    )


async def _group_offsets(
    context: Context, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> list[_TopicOffsets]:
    """Return the offsets by topic, all of one moment."""
    topics: list[_TopicOffsets] = []
    if group.topics is None:
        for name, offsets in (await _all_committed(context, request, group.group_id)).items():
            topic_id = (
                context.broker.readable_topic(name).topic_id.bytes
                if context.broker.has_topic(name)
                else bytes(16)
            )
            topics.append(_TopicOffsets(name, topic_id, offsets, ErrorCode.NONE))
        return topics
    requested: dict[tuple[str, bytes], dict[int, None]] = {}
    async for topic in visited(group.topics, SMALL_VISIT):
        requested.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    known: list[tuple[str, Collection[int]]] = []
    async for (name, topic_id), partitions in visited(requested.items(), SMALL_VISIT):
        code = ErrorCode.NONE
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            try:
                name = find_topic(context, None, topic_id).name
            except SteleError as error:
                code = error_code_of(error)
        offsets: list[CommittedOffset] = []
        if code:
            offsets = [CommittedOffset(topic=name, partition=partition) for partition in partitions]
        else:
            known.append((name, partitions))
        topics.append(_TopicOffsets(name, topic_id, offsets, code))
    committed = iter(await _committed(context, request, group.group_id, known))
    return [topic if topic.code else topic._replace(offsets=next(committed)) for topic in topics]


async def _fetched_topic(topic: _TopicOffsets, budget: WorkBudget) -> OffsetFetchResponseTopics:
    partitions: list[OffsetFetchResponsePartitions] = []
    for committed in topic.offsets:
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=committed.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=topic.code or _code_of(committed),
            )
        )
        await budget.visit()
    await budget.visit()
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    budget = WorkBudget()
    refusals: list[SteleError | None] = []
    known: list[tuple[str, int]] = []
    for topic in request.topics:
        for partition in topic.partitions:
            refusals.append(_refusal(context, topic.name, partition.partition_index))
            if refusals[-1] is None:
                known.append((topic.name, partition.partition_index))
            await budget.visit(SMALL_VISIT)
    deleted: Sequence[SteleError | None] = ()
    # As in Kafka, the group is not asked about nothing.
    if known:
        try:
            deleted = await context.coordinator(request.group_id).delete_offsets(request.group_id, known)
        except SteleError as error:
            return OffsetDeleteResponse(error_code=error_code_of(error), topics=())
    decided = iter(deleted)
    results = iter([next(decided) if refusal is None else refusal for refusal in refusals])
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            result = next(results)
            partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.NONE if result is None else error_code_of(result),
                )
            )
            await budget.visit(SMALL_VISIT)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)


def _refusal(context: Context, topic: str, partition: int) -> SteleError | None:
    try:
        context.broker.check_partition(topic, partition)
    except SteleError as error:
        return error
    return None


ROWS = (
    Served(
        OFFSET_COMMIT_API,
        offset_commit,
        group_guards.OFFSET_COMMIT,
        changes=True,
        is_barrier=is_long_commit,
    ),
    Served(OFFSET_FETCH_API, offset_fetch, group_guards.OFFSET_FETCH, walks=True),
    Served(OFFSET_DELETE_API, offset_delete, group_guards.OFFSET_DELETE, changes=True),
)
