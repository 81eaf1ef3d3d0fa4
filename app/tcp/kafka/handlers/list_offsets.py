"""ListOffsets: the first offset, the next one, the one of a time, the one of the newest time.

Version 0 lists where segments begin instead, newest first, as consumers before
Kafka 0.10.1 look for a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from ....broker.virtual import MAX_TIMESTAMP
from ....errors import SteleError
from ...errors import error_code_of
from ..schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from .context import Context
from .leader_epoch import check_leader_epoch

# KIP-405, KIP-1005, KIP-1023: with tiers. All of the log is local here, so its local start is its
# start, and nothing was ever moved or waits to be.
_EARLIEST_LOCAL_TIMESTAMP = -4
_LATEST_TIERED_TIMESTAMP = -5
_EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
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
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[await _list(context, topic.name, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _list(context: Context, topic: str, one: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    if context.version < _FIRST_WITH_ONE_OFFSET:
        return await _list_of_old(context, topic, one)
    code = check_leader_epoch(context.broker, topic, one.partition_index, one.current_leader_epoch)
    if one.timestamp < 0 and context.version < _SPECIAL_SINCE.get(one.timestamp, 1 << 15):
        code = code or ErrorCode.UNSUPPORTED_VERSION
    offset, timestamp_ms, epoch = _NONE
    if not code:
        try:
            offset, timestamp_ms, epoch = await _offset_at(context, topic, one.partition_index, one.timestamp)
        except SteleError as error:
            code = error_code_of(error)
    return ListOffsetsPartitionResponse(
        partition_index=one.partition_index,
        error_code=code,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch,
    )


async def _offset_at(context: Context, topic: str, partition: int, at: int) -> tuple[int, int, int]:
    if at == _EARLIEST_LOCAL_TIMESTAMP:
        at = EARLIEST_TIMESTAMP
    elif at in (_LATEST_TIERED_TIMESTAMP, _EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        context.broker.log_state(topic, partition)
        return _NONE
    return await context.broker.list_offset(topic, partition, at)


async def _list_of_old(
    context: Context, topic: str, one: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    code, offsets = ErrorCode.NONE, ()
    try:
        offsets = await _offsets_before(
            context, topic, one.partition_index, one.timestamp, limit=one.max_num_offsets
        )
    except SteleError as error:
        code = error_code_of(error)
    return ListOffsetsPartitionResponse(
        partition_index=one.partition_index, error_code=code, old_style_offsets=offsets
    )


async def _offsets_before(
    context: Context, topic: str, partition: int, at: int, *, limit: int
) -> Sequence[int]:
    """Where segments begin that hold nothing newer than ``at``, and the end of the log, newest first.

    A segment of which no record has a time is as old as it was when it was begun.
    A log in memory has one segment.
    """
    state = context.broker.log_state(topic, partition)
    if at == EARLIEST_TIMESTAMP:
        return [state.log_start_offset][: max(0, limit)]
    segments = await context.broker.segments(topic, partition)
    starts = [
        (max(segment.base_offset, state.log_start_offset), max(segment.max_timestamp, segment.created_ms))
        for segment in segments
    ] or [(state.log_start_offset, context.broker.now_ms())]
    if state.high_watermark > starts[-1][0]:
        starts.append((state.high_watermark, context.broker.now_ms()))
    offsets = [offset for offset, written_ms in starts if at == LATEST_TIMESTAMP or written_ms <= at]
    return list(dict.fromkeys(reversed(offsets)))[: max(0, limit)]
