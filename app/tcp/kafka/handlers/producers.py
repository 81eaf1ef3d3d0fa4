"""InitProducerId, DescribeProducers: ids and states of producers."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.transactions import (
    DESCRIBE_PRODUCERS_API,
    INIT_PRODUCER_ID_API,
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from ....errors import InvalidRequest, SteleError
from ....security.acl import READ_TOPIC
from ....transactions.messages import ProducerIdentity
from ....work_budget import WorkBudget
from ..context import Context, describe_error
from ..guards import transactions as transaction_guards
from ..guards.rights import Parts, on_each
from ..served import Served, always
from .cluster import once_each
from .transaction_errors import INIT_PRODUCER_ID, transaction_error_code

_NONE = -1


async def init_producer_id(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new id each time.

    A transactional producer keeps its id and gets a new epoch.
    """
    try:
        producer = await _producer(context, request)
    except SteleError as error:
        code = transaction_error_code(error, INIT_PRODUCER_ID, context.version)
        return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


async def _producer(context: Context, request: InitProducerIdRequest) -> ProducerIdentity:
    expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (expected.producer_id == _NONE) != (expected.epoch == _NONE):
        raise InvalidRequest(
            f"producer {expected.producer_id} with epoch {expected.epoch}; send both, or -1 for both"
        )
    if request.transactional_id is None:
        return ProducerIdentity(*await context.broker.init_producer_id())
    return await context.transactions.init_producer_id(
        request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        expected=None if expected.producer_id == _NONE else expected,
    )


async def describe_producers(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    # Once per partition, because a number is short and the description of a partition is not.
    requested = await once_each((topic.name, topic.partition_indexes) for topic in request.topics)
    budget = WorkBudget()
    topics: list[TopicResponse] = []
    for name, indexes in requested.items():
        partitions: list[PartitionResponse] = []
        for index in indexes:
            described = await _describe(context, name, index)
            partitions.append(described)
            await budget.visit(1 + len(described.active_producers))
        topics.append(TopicResponse(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _describe(context: Context, topic: str, partition: int) -> PartitionResponse:
    try:
        producers = await context.broker.producers(topic, partition)
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
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start_offset,
            )
            for producer in producers
        ],
    )


ROWS = (
    Served(
        INIT_PRODUCER_ID_API,
        init_producer_id,
        transaction_guards.INIT_PRODUCER_ID,
        changes=True,
        is_barrier=always,
    ),
    Served(
        DESCRIBE_PRODUCERS_API,
        describe_producers,
        on_each(
            READ_TOPIC,
            DescribeProducersResponse,
            Parts(
                field="topics",
                name="name",
                answers="topics",
                answer_name="name",
                partitions="partition_indexes",
                answer_partitions="partitions",
                answer_index="partition_index",
            ),
        ),
        walks=True,
    ),
)
