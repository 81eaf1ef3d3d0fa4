"""OffsetForLeaderEpoch, and the fencing of requests by the epoch they know (KIP-320)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....errors import SteleError
from ...errors import error_code_of
from ..schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from .context import Context

_NO_EPOCH = -1


def check_leader_epoch(broker: Broker, topic: str, partition: int, epoch: int) -> ErrorCode:
    """NONE, or why a request that knows ``epoch`` (-1: none) must look at the metadata again."""
    if epoch == _NO_EPOCH:
        return ErrorCode.NONE
    try:
        current = broker.leader_epoch(topic, partition)
    except SteleError as error:
        return error_code_of(error)
    if epoch < current:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > current else ErrorCode.NONE


async def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        partitions: list[EpochEndOffset] = []
        for one in topic.partitions:
            epoch, end_offset = _NO_EPOCH, -1
            code = check_leader_epoch(context.broker, topic.topic, one.partition, one.current_leader_epoch)
            if not code:
                try:
                    epoch, end_offset = context.broker.epoch_end_offset(
                        topic.topic, one.partition, one.leader_epoch
                    )
                except SteleError as error:
                    code = error_code_of(error)
            partitions.append(
                EpochEndOffset(
                    error_code=code, partition=one.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)
