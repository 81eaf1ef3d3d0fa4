"""ListOffsets: the first and the next offset, and offsets by time.

Version 0 lists the first offsets of segments instead, newest first, as consumers
before Kafka 0.10.1 search for a time.

With READ_COMMITTED the log ends at its last stable offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.offsets import (
    LIST_OFFSETS_API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.record_batch import NO_TIMESTAMP

from ....broker.virtual import MAX_TIMESTAMP
from ....concurrency import several
from ....errors import SteleError
from ....security.acl import DESCRIBE_TOPIC
from ....work_budget import SMALL_VISIT, visited
from ...errors import error_code_of
from ..context import Context
from ..fetching.leader_epochs import check_leader_epoch, find_leader_epochs
from ..guards.rights import PARTITIONS, on_each
from ..served import Served

# KIP-405, KIP-1005, KIP-1023: offsets of tiered storage. The last two have no answer without it.
_EARLIEST_LOCAL_TIMESTAMP = -4
_LATEST_TIERED_TIMESTAMP = -5
_EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
_OF_TIERS = (_EARLIEST_LOCAL_TIMESTAMP, _LATEST_TIERED_TIMESTAMP, _EARLIEST_PENDING_UPLOAD_TIMESTAMP)
_SPECIAL_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL_TIMESTAMP: 8,
    _LATEST_TIERED_TIMESTAMP: 9,
    _EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_NONE = (-1, -1, -1)
_FIRST_WITH_ONE_OFFSET = 1


async def list_offsets(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    is_committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    unavailable = ErrorCode.NONE
    named = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    await find_leader_epochs(
        context.broker,
        ((topic, partition.partition_index, partition.current_leader_epoch) for topic, partition in named),
    )
    try:
        await context.broker.refresh((topic, partition.partition_index) for topic, partition in named)
    except SteleError as error:
        unavailable = error_code_of(error)
    answers = iter(await several(lambda one: _list(context, one[0], one[1], isolation, unavailable), named))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=list(islice(answers, len(topic.partitions))))
            async for topic in visited(request.topics, SMALL_VISIT)
        ]
    )


async def _list(
    context: Context,
    topic: str,
    partition: ListOffsetsPartition,
    isolation: IsolationLevel,
    unavailable: ErrorCode,
) -> ListOffsetsPartitionResponse:
    if context.version < _FIRST_WITH_ONE_OFFSET:
        return await _list_segments(context, topic, partition, unavailable)
    index, at = partition.partition_index, partition.timestamp
    code = check_leader_epoch(context.broker, topic, index, partition.current_leader_epoch)
    if at < 0 and context.version < _SPECIAL_SINCE.get(at, 1 << 15):
        code = code or ErrorCode.UNSUPPORTED_VERSION
    code = code or unavailable
    offset, timestamp_ms, epoch = _NONE
    if not code:
        try:
            offset, timestamp_ms, epoch = await _offset_at(context, topic, index, at, isolation)
        except SteleError as error:
            code = error_code_of(error)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=code,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch,
    )


async def _offset_at(
    context: Context, topic: str, partition: int, at: int, isolation: IsolationLevel
) -> tuple[int, int, int]:
    if at in _OF_TIERS:
        local_start, tiered_end = context.broker.tiers(topic, partition)
        if at == _EARLIEST_LOCAL_TIMESTAMP:
            offset = local_start
        elif tiered_end < 0:
            return _NONE
        else:
            offset = tiered_end - 1 if at == _LATEST_TIERED_TIMESTAMP else tiered_end
        return offset, NO_TIMESTAMP, context.broker.leader_epoch(topic, partition)
    return await context.broker.list_offset(topic, partition, at, isolation=isolation, is_refreshed=True)


async def _list_segments(
    context: Context, topic: str, partition: ListOffsetsPartition, unavailable: ErrorCode
) -> ListOffsetsPartitionResponse:
    index = partition.partition_index
    code, offsets = unavailable, ()
    try:
        if not code:
            offsets = await _offsets_before(
                context, topic, index, partition.timestamp, limit=partition.max_num_offsets
            )
    except SteleError as error:
        code = error_code_of(error)
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code, old_style_offsets=offsets)


async def _offsets_before(
    context: Context, topic: str, partition: int, at: int, *, limit: int
) -> Sequence[int]:
    """Return first offsets of segments without records after ``at``, and the end.

    The newest stands first. A segment whose records have no timestamps counts with the
    time of its creation. A log in memory counts as one segment.
    """
    state = context.broker.log_state(topic, partition)
    if at == EARLIEST_TIMESTAMP:
        return [state.log_start_offset][: max(0, limit)]
    segments = await context.broker.storage.segments(topic, partition)
    starts = [
        (max(segment.base_offset, state.log_start_offset), max(segment.max_timestamp, segment.created_ms))
        for segment in segments
    ] or [(state.log_start_offset, context.broker.now_ms())]
    if state.high_watermark > starts[-1][0]:
        starts.append((state.high_watermark, context.broker.now_ms()))
    offsets = [offset for offset, written_ms in starts if at == LATEST_TIMESTAMP or written_ms <= at]
    return list(dict.fromkeys(reversed(offsets)))[: max(0, limit)]


ROWS = (
    Served(
        LIST_OFFSETS_API, list_offsets, on_each(DESCRIBE_TOPIC, ListOffsetsResponse, PARTITIONS), walks=True
    ),
)
