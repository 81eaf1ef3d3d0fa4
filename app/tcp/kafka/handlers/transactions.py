"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

The course of a transaction.

The versions of a request decide which rules hold, and not a feature of the cluster (KIP-890): EndTxn
since v5 raises the epoch of the producer, TxnOffsetCommit since v5 adds the group, Produce since v12
adds partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.transactions import (
    ADD_OFFSETS_TO_TXN_API,
    ADD_PARTITIONS_TO_TXN_API,
    END_TXN_API,
    TXN_OFFSET_COMMIT_API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ....errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionState,
    SteleError,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionFenced,
    UnknownProducerMapping,
)
from ....groups.base.messages import CommitRequest, OffsetToCommit
from ....security.acl import WRITE_TRANSACTIONAL_ID
from ....storage.topic_partition import TopicPartition
from ....transactions.messages import ProducerIdentity
from ....work_budget import SMALL_VISIT, Pace, Steps, WorkBudget, in_turns, visited
from ..context import Context
from ..guards import transactions as transaction_guards
from ..guards.rights import on_name
from ..served import Served, always
from .transaction_errors import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    transaction_error_code,
)

_FIRST_WITH_TRANSACTIONS = 4
_FIRST_WITH_ABORTABLE = 5
_FIRST_THAT_ADDS_GROUP = 5
_FIRST_THAT_RAISES_EPOCH = 5
_NOT_ADDED = "the partition is not in its transaction"


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id must not be empty")


# ── partitions ──


async def add_partitions_to_txn(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction, or verify that they are in it.

    Since v4, a request may name several transactions.
    """
    if context.version < _FIRST_WITH_TRANSACTIONS:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add(context, transaction))
    results: list[AddPartitionsToTxnResult] = []
    budget = WorkBudget()
    for transaction in request.transactions:
        added = await _add(context, transaction)
        results.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=added)
        )
        await budget.visit(1 + sum(len(topic.partitions) for topic in transaction.topics))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    budget = WorkBudget()
    partitions: list[TopicPartition] = []
    for topic in transaction.topics:
        for partition in topic.partitions:
            partitions.append(TopicPartition(topic.name, partition))
            await budget.visit(SMALL_VISIT)
    results: Mapping[TopicPartition, SteleError | None]
    try:
        _check_id(transaction.transactional_id)
        if transaction.verify_only:
            results = await _verify(context, transaction, partitions)
        else:
            producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
            results = await context.transactions.add_partitions(
                transaction.transactional_id, producer, list(dict.fromkeys(partitions))
            )
    except SteleError as error:
        results = dict.fromkeys(partitions, error)
    return await in_turns(_added(context, transaction.topics, results))


async def _verify(
    context: Context, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, SteleError | None]:
    """Return per partition whether it is in the producer's ongoing transaction."""
    transactional_id, producer_id = transaction.transactional_id, transaction.producer_id
    try:
        known = await context.transactions.describe(transactional_id)
    except TransactionalIdNotFound:
        raise UnknownProducerMapping(transactional_id, producer_id=producer_id) from None
    if known.producer_id != producer_id:
        raise UnknownProducerMapping(transactional_id, producer_id=producer_id)
    if known.producer_epoch != transaction.producer_epoch:
        raise TransactionFenced(
            transactional_id, epoch=transaction.producer_epoch, current_epoch=known.producer_epoch
        )
    if known.state.is_preparing:
        raise ConcurrentTransactions(transactional_id)
    added = frozenset(known.partitions)
    missing = (
        TransactionAbortable(transactional_id, _NOT_ADDED)
        if context.version >= _FIRST_WITH_ABORTABLE
        else InvalidTransactionState(transactional_id, _NOT_ADDED)
    )
    return {partition: None if partition in added else missing for partition in partitions}


def _added(
    context: Context,
    topics: Sequence[AddPartitionsToTxnTopic],
    results: Mapping[TopicPartition, SteleError | None],
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    def code(partition: TopicPartition) -> ErrorCode:
        error = results[partition]
        if error is None:
            return ErrorCode.NONE
        return transaction_error_code(error, ADD_PARTITIONS, context.version)

    added: list[AddPartitionsToTxnTopicResult] = []
    pace = Pace()
    for topic in topics:
        partitions: list[AddPartitionsToTxnPartitionResult] = []
        for partition in topic.partitions:
            partitions.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=code(TopicPartition(topic.name, partition)),
                )
            )
            if pace.is_due():
                yield
        added.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return added


# ── offsets ──


async def add_offsets_to_txn(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    try:
        _check_id(request.transactional_id)
        await context.transactions.add_offsets(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            request.group_id,
        )
    except SteleError as error:
        return AddOffsetsToTxnResponse(error_code=transaction_error_code(error, ADD_OFFSETS, context.version))
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


async def txn_offset_commit(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit offsets that take effect if the transaction does."""
    budget = WorkBudget()
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        for partition in topic.partitions:
            offsets.append(
                OffsetToCommit(
                    topic=topic.name,
                    partition=partition.partition_index,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata,
                )
            )
            await budget.visit(SMALL_VISIT)
    results: Sequence[SteleError | None]
    try:
        _check_id(request.transactional_id)
        results = await context.transactions.commit_offsets(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            CommitRequest(
                group=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                offsets=offsets,
            ),
            adds_group=context.version >= _FIRST_THAT_ADDS_GROUP,
        )
    except SteleError as error:
        results = [error] * len(offsets)
    codes = (
        ErrorCode.NONE if result is None else transaction_error_code(result, COMMIT_OFFSETS, context.version)
        for result in results
    )
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(codes)
                    )
                    async for partition in visited(topic.partitions, SMALL_VISIT, budget)
                ],
            )
            async for topic in visited(request.topics, SMALL_VISIT, budget)
        ]
    )


# ── the end ──


async def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    try:
        _check_id(request.transactional_id)
        producer = await context.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=context.version >= _FIRST_THAT_RAISES_EPOCH,
        )
    except SteleError as error:
        return EndTxnResponse(error_code=transaction_error_code(error, END, context.version))
    return EndTxnResponse(
        error_code=ErrorCode.NONE, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


ROWS = (
    Served(
        ADD_PARTITIONS_TO_TXN_API,
        add_partitions_to_txn,
        transaction_guards.ADD_PARTITIONS_TO_TXN,
        changes=True,
        is_barrier=always,
        finds_topics_itself=True,
    ),
    Served(
        ADD_OFFSETS_TO_TXN_API,
        add_offsets_to_txn,
        transaction_guards.ADD_OFFSETS_TO_TXN,
        changes=True,
        is_barrier=always,
    ),
    Served(
        END_TXN_API,
        end_txn,
        on_name(WRITE_TRANSACTIONAL_ID, "transactional_id", EndTxnResponse),
        changes=True,
        is_barrier=always,
    ),
    Served(
        TXN_OFFSET_COMMIT_API,
        txn_offset_commit,
        transaction_guards.TXN_OFFSET_COMMIT,
        changes=True,
        is_barrier=always,
        finds_topics_itself=True,
    ),
)
