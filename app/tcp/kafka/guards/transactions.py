"""Guards of APIs for transactional ids, and for the ids of producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WritableTxnMarkerResult,
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
from ....work_budget import Pace, Steps, mapped
from ..context import Answer, Context
from .groups import refuse_all
from .refusals import access_of, code_of, refused, then
from .rights import (
    PARTITIONS,
    PIECES_OF_CHECK,
    PIECES_OF_REFUSAL,
    Guard,
    Handle,
    Parts,
    divided,
    on_each,
    split,
    with_more,
)

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
) -> Steps[AddPartitionsToTxnResult | None]:
    """Return why no partition is added; None if all may be.

    As in Kafka, all are added or none.
    """
    codes: Iterable[int]
    if not access.allows(WRITE_TRANSACTIONAL_ID, transactional_id):
        codes = repeat(code_of(WRITE_TRANSACTIONAL_ID))
    else:
        codes = yield from mapped(
            lambda topic: ErrorCode.NONE if access.allows(WRITE_TOPIC, topic.name) else code_of(WRITE_TOPIC),
            topics,
            pieces=PIECES_OF_CHECK,
        )
        if not any(codes):
            return None
    refusals = yield from _ADDED.refuse(
        AddPartitionsToTxnResult,
        (
            (topic, code or ErrorCode.OPERATION_NOT_ATTEMPTED)
            for topic, code in zip(topics, codes, strict=False)
        ),
    )
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=refusals)


def _check_add_partitions(
    context: Context, request: AddPartitionsToTxnRequest, handle: Handle
) -> Steps[Answer]:
    access = access_of(context)
    if context.version < _FIRST_IN_BATCHES:
        refusal = yield from _refusal(
            access, request.v3_and_below_transactional_id, request.v3_and_below_topics
        )
        if refusal is None:
            return handle(context, request)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refusal.topic_results)
    allowed: list[AddPartitionsToTxnTransaction] = []
    refusals: list[AddPartitionsToTxnResult] = []
    pace = Pace()
    for transaction in request.transactions:
        refusal = yield from _refusal(access, transaction.transactional_id, transaction.topics)
        if refusal is None:
            allowed.append(transaction)
        else:
            refusals.append(refusal)
        if pace.is_due(PIECES_OF_CHECK):
            yield
    answer = handle(context, replace(request, transactions=allowed))
    return (yield from then(answer, lambda done: with_more(done, "results_by_transaction", refusals)))


ADD_PARTITIONS_TO_TXN = Guard((WRITE_TRANSACTIONAL_ID, WRITE_TOPIC), _check_add_partitions)


def _check_add_offsets(context: Context, request: AddOffsetsToTxnRequest, handle: Handle) -> Answer:
    access = access_of(context)
    if not access.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return refused(AddOffsetsToTxnResponse, WRITE_TRANSACTIONAL_ID)
    if not access.allows(READ_GROUP, request.group_id):
        return refused(AddOffsetsToTxnResponse, READ_GROUP)
    return handle(context, request)


ADD_OFFSETS_TO_TXN = Guard((WRITE_TRANSACTIONAL_ID, READ_GROUP), _check_add_offsets)


_check_topics = on_each(READ_TOPIC, TxnOffsetCommitResponse, PARTITIONS).check


def _check_txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest, handle: Handle
) -> Answer | Steps[Answer]:
    access = access_of(context)
    if not access.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(TxnOffsetCommitResponse, PARTITIONS, request.topics, WRITE_TRANSACTIONAL_ID)
    if not access.allows(READ_GROUP, request.group_id):
        return refuse_all(TxnOffsetCommitResponse, PARTITIONS, request.topics, READ_GROUP)
    return _check_topics(context, request, handle)


TXN_OFFSET_COMMIT = Guard((WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC), _check_txn_offset_commit)


_DESCRIBED = Parts(
    field="transactional_ids", name="", answers="transaction_states", answer_name="transactional_id"
)


def _check_describe(context: Context, request: DescribeTransactionsRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    allowed, denied = yield from split(
        context, request.transactional_ids, "", lambda name: access.allows(DESCRIBE_TRANSACTIONAL_ID, name)
    )
    refusals = yield from _DESCRIBED.refuse_all(
        DescribeTransactionsResponse, denied, DESCRIBE_TRANSACTIONAL_ID
    )

    def seen(response: DescribeTransactionsResponse) -> Steps[Any]:
        pace = Pace()
        for state in response.transaction_states:
            state.topics, _ = yield from divided(
                state.topics, lambda topic: access.sees(DESCRIBE_TOPIC, topic.topic)
            )
            if pace.is_due(PIECES_OF_CHECK):
                yield
        return (yield from with_more(response, "transaction_states", refusals))

    return (yield from then(handle(context, replace(request, transactional_ids=allowed)), seen))


DESCRIBE_TRANSACTIONS = Guard((DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC), _check_describe)


# The handler leaves out ids that the client may not see, before it matches a pattern with them.
LIST_TRANSACTIONS = Guard(
    (DESCRIBE_TRANSACTIONAL_ID,), lambda context, request, handle: handle(context, request)
)


_MARKED = replace(PARTITIONS, partitions="partition_indexes", index="")


def _check_markers(context: Context, request: WriteTxnMarkersRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    # Administrators abort, brokers write markers.
    if access.sees(ALTER_CLUSTER) or access.allows(CLUSTER_ACTION_CLUSTER):
        return handle(context, request)
    markers: list[WritableTxnMarkerResult] = []
    pace = Pace()
    for marker in request.markers:
        topics = yield from _MARKED.refuse_all(WritableTxnMarkerResult, marker.topics, CLUSTER_ACTION_CLUSTER)
        markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        if pace.is_due(PIECES_OF_REFUSAL):
            yield
    return WriteTxnMarkersResponse(markers=markers)


WRITE_TXN_MARKERS = Guard((ALTER_CLUSTER, CLUSTER_ACTION_CLUSTER), _check_markers)
