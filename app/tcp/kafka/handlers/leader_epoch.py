"""OffsetForLeaderEpoch, and the fencing by known epochs (KIP-320)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....errors import SteleError
from ....security.acl import DESCRIBE_TOPIC
from ....work_budget import WorkBudget
from ...errors import error_code_of
from ..context import Context
from ..guards.rights import Parts, on_each
from ..schemas.offsets import (
    OFFSET_FOR_LEADER_EPOCH_API,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..served import Served

_NO_EPOCH = -1


def check_leader_epoch(broker: Broker, topic: str, partition: int, epoch: int) -> ErrorCode:
    """Return NONE, or the error for a client whose ``epoch`` is not a current one.

    After it, the client requests metadata again.

    -1 means that the client knows no epoch. With several brokers, epochs rise with each change of leaders; what is
    before the history of the database is out of date (ADR-0071). A broker that shows none accepts any: for -1 in
    the metadata librdkafka sends 0.
    """
    if epoch == _NO_EPOCH:
        return ErrorCode.NONE
    try:
        current = broker.leader_epoch(topic, partition)
    except SteleError as error:
        return error_code_of(error)
    if current == _NO_EPOCH:
        return ErrorCode.NONE
    if epoch < broker.oldest_leader_epoch(topic, partition):
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > current else ErrorCode.NONE


async def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    budget = WorkBudget()
    unavailable = ErrorCode.NONE
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
    epoch, end_offset = _NO_EPOCH, -1
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
