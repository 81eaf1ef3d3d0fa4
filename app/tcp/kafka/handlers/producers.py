"""InitProducerId, DescribeProducers: producer ids, and the producers that a partition remembers."""

from __future__ import annotations

import logging

from stele.wire.error_codes import ErrorCode

from ....errors import SteleError
from ....work_budget import WorkBudget
from ...errors import error_code_of
from ..schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ..schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .context import Context, describe_error

logger = logging.getLogger(__name__)

_NONE = -1


async def init_producer_id(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new id each time; only a transactional producer would keep its id."""
    if request.transactional_id is not None:
        logger.info("kafka: %s uses transactions, which are not served", context.client_host)
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_epoch=_NONE)
    try:
        producer_id, producer_epoch = await context.broker.init_producer_id()
    except SteleError as error:
        return InitProducerIdResponse(error_code=error_code_of(error), producer_epoch=_NONE)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=producer_epoch
    )


async def describe_producers(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    # Once per partition, because a number is short and the description of a partition is not.
    requested: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    budget = WorkBudget()
    topics: list[TopicResponse] = []
    for name, indexes in requested.items():
        partitions: list[PartitionResponse] = []
        for index in indexes:
            described = _describe(context, name, index)
            partitions.append(described)
            await budget.visit(1 + len(described.active_producers))
        topics.append(TopicResponse(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(context: Context, topic: str, partition: int) -> PartitionResponse:
    try:
        producers = context.broker.producers(topic, partition)
    except SteleError as error:
        code, message = describe_error(error)
        return PartitionResponse(
            partition_index=partition, error_code=code, error_message=message, active_producers=()
        )
    return PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=_NONE,
            )
            for producer in producers
        ],
    )
