"""InitProducerId, DescribeProducers."""

from __future__ import annotations

import logging

from stele.wire.error_codes import ErrorCode

from ....errors import SteleError
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
    """A new id each time: without a transactional id there is nobody whose epoch could be raised."""
    if request.transactional_id is not None:
        logger.info("kafka: %s asks for transactions, which are not served", context.client_host)
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_epoch=_NONE)
    try:
        producer_id, producer_epoch = await context.broker.init_producer_id()
    except SteleError as error:
        return InitProducerIdResponse(error_code=error_code_of(error), producer_epoch=_NONE)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=producer_epoch
    )


def describe_producers(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    # Once each: a number is short, and what is told of a partition is not.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[_describe(context, name, index) for index in partitions],
            )
            for name, partitions in asked.items()
        ]
    )


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
