"""OffsetForLeaderEpoch (KIP-320)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import (
    OFFSET_FOR_LEADER_EPOCH_API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from ....broker.broker import Broker
from ....errors import SteleError
from ....security.acl import DESCRIBE_TOPIC
from ....work_budget import WorkBudget
from ...errors import error_code_of
from ..context import Context
from ..fetching.leader_epochs import NO_EPOCH, check_leader_epoch, find_leader_epochs
from ..guards.rights import Parts, on_each
from ..served import Served


async def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    budget = WorkBudget()
    unavailable = ErrorCode.NONE
    await find_leader_epochs(
        context.broker,
        (
            (topic.topic, partition.partition, partition.current_leader_epoch)
            for topic in request.topics
            for partition in topic.partitions
        ),
    )
    try:
        await context.broker.refresh(
            (topic.topic, partition.partition) for topic in request.topics for partition in topic.partitions
        )
    except SteleError as error:
        unavailable = error_code_of(error)
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        partitions: list[EpochEndOffset] = []
        for partition in topic.partitions:
            partitions.append(_end_offset(context.broker, topic.topic, partition, unavailable))
            await budget.visit()
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_offset(
    broker: Broker, topic: str, partition: OffsetForLeaderPartition, unavailable: ErrorCode
) -> EpochEndOffset:
    epoch, end_offset = NO_EPOCH, -1
    code = check_leader_epoch(broker, topic, partition.partition, partition.current_leader_epoch)
    code = code or unavailable
    if not code:
        try:
            epoch, end_offset = broker.epoch_end_offset(topic, partition.partition, partition.leader_epoch)
        except SteleError as error:
            code = error_code_of(error)
    return EpochEndOffset(
        error_code=code, partition=partition.partition, leader_epoch=epoch, end_offset=end_offset
    )


ROWS = (
    Served(
        OFFSET_FOR_LEADER_EPOCH_API,
        offset_for_leader_epoch,
        on_each(
            DESCRIBE_TOPIC,
            OffsetForLeaderEpochResponse,
            Parts(
                field="topics",
                name="topic",
                answers="topics",
                answer_name="topic",
                partitions="partitions",
                index="partition",
                answer_partitions="partitions",
                answer_index="partition",
            ),
        ),
        walks=True,
    ),
)
