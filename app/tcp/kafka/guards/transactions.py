"""Guards of APIs for transactional ids, and for the ids of producers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionState,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ....security.acl import (
    ALTER_CLUSTER,
    CLUSTER_ACTION_CLUSTER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE_CLUSTER,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ....security.authorizer import Access
from ..context import Answer, Context
from .groups import refuse_all
from .refusals import access_of, code_of, refused, then
from .rights import PARTITIONS, Guard, Handle, Parts, split, with_more

_FIRST_IN_BATCHES = 4
_ADDED = Parts(
    field="topics",
    name="name",
    answers="topic_results",
    answer_name="name",
    partitions="partitions",
    answer_partitions="results_by_partition",
    answer_index="partition_index",
)


def _check_init_producer_id(context: Context, request: InitProducerIdRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if request.transactional_id is not None:
        if access.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
            return handle(context, request)
        return refused(InitProducerIdResponse, WRITE_TRANSACTIONAL_ID, producer_epoch=-1)
    if access.may_write_somewhere():
        return handle(context, request)
    return refused(InitProducerIdResponse, IDEMPOTENT_WRITE_CLUSTER, producer_epoch=-1)


INIT_PRODUCER_ID = Guard(
    (WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC), _check_init_producer_id
)


def _refusal(
    access: Access, transactional_id: str, topics: Sequence[AddPartitionsToTxnTopic]
) -> AddPartitionsToTxnResult | None:
    """Return why no partition is added; None if all may be.

    As in Kafka, all are added or none.
    """
    if not access.allows(WRITE_TRANSACTIONAL_ID, transactional_id):
        codes = [code_of(WRITE_TRANSACTIONAL_ID)] * len(topics)
    else:
        is_allowed = [access.allows(WRITE_TOPIC, topic.name) for topic in topics]
        if all(is_allowed):
            return None
        codes = [
            ErrorCode.OPERATION_NOT_ATTEMPTED if allowed else code_of(WRITE_TOPIC) for allowed in is_allowed
        ]
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            _ADDED.refuse(AddPartitionsToTxnResult, topic, code)
            for topic, code in zip(topics, codes, strict=True)
        ],
    )


def _check_add_partitions(context: Context, request: AddPartitionsToTxnRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if context.version < _FIRST_IN_BATCHES:
        refusal = _refusal(access, request.v3_and_below_transactional_id, request.v3_and_below_topics)
        if refusal is None:
            return handle(context, request)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refusal.topic_results)
    allowed: list[AddPartitionsToTxnTransaction] = []
    refusals: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        refusal = _refusal(access, transaction.transactional_id, transaction.topics)
        if refusal is None:
            allowed.append(transaction)
        else:
            refusals.append(refusal)
    return then(
        handle(context, replace(request, transactions=allowed)),
        lambda response: with_more(response, "results_by_transaction", refusals),
    )


ADD_PARTITIONS_TO_TXN = Guard((WRITE_TRANSACTIONAL_ID, WRITE_TOPIC), _check_add_partitions)


def _check_add_offsets(context: Context, request: AddOffsetsToTxnRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if not access.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return refused(AddOffsetsToTxnResponse, WRITE_TRANSACTIONAL_ID)
    if not access.allows(READ_GROUP, request.group_id):
        return refused(AddOffsetsToTxnResponse, READ_GROUP)
    return handle(context, request)


ADD_OFFSETS_TO_TXN = Guard((WRITE_TRANSACTIONAL_ID, READ_GROUP), _check_add_offsets)


def _check_txn_offset_commit(context: Context, request: TxnOffsetCommitRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if not access.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(TxnOffsetCommitResponse, PARTITIONS, request.topics, WRITE_TRANSACTIONAL_ID)
    if not access.allows(READ_GROUP, request.group_id):
        return refuse_all(TxnOffsetCommitResponse, PARTITIONS, request.topics, READ_GROUP)
    allowed, denied = split(context, request.topics, "name", lambda name: access.allows(READ_TOPIC, name))
    if not denied:
        return handle(context, request)
    refusals = [PARTITIONS.refuse(TxnOffsetCommitResponse, topic, code_of(READ_TOPIC)) for topic in denied]
    return then(
        handle(context, replace(request, topics=allowed)),
        lambda response: with_more(response, "topics", refusals),
    )


TXN_OFFSET_COMMIT = Guard((WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC), _check_txn_offset_commit)


def _check_describe(context: Context, request: DescribeTransactionsRequest, handle: Handle) -> Answer:
    access = access_of(context)
    allowed, denied = split(
        context, request.transactional_ids, "", lambda name: access.allows(DESCRIBE_TRANSACTIONAL_ID, name)
    )
    refusals = [
        refused(TransactionState, DESCRIBE_TRANSACTIONAL_ID, transactional_id=name) for name in denied
    ]

    def seen(response: DescribeTransactionsResponse) -> Any:
        for state in response.transaction_states:
            state.topics = [topic for topic in state.topics if access.sees(DESCRIBE_TOPIC, topic.topic)]
        return with_more(response, "transaction_states", refusals)

    return then(handle(context, replace(request, transactional_ids=allowed)), seen)


DESCRIBE_TRANSACTIONS = Guard((DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC), _check_describe)


# The handler leaves out ids that the client may not see, before it matches a pattern with them.
LIST_TRANSACTIONS = Guard(
    (DESCRIBE_TRANSACTIONAL_ID,), lambda context, request, handle: handle(context, request)
)


def _check_markers(context: Context, request: WriteTxnMarkersRequest, handle: Handle) -> Answer:
    access = access_of(context)
    # Administrators abort, brokers write markers.
    if access.sees(ALTER_CLUSTER) or access.allows(CLUSTER_ACTION_CLUSTER):
        return handle(context, request)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            refused(
                                WritableTxnMarkerPartitionResult,
                                CLUSTER_ACTION_CLUSTER,
                                partition_index=partition,
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


WRITE_TXN_MARKERS = Guard((ALTER_CLUSTER, CLUSTER_ACTION_CLUSTER), _check_markers)
