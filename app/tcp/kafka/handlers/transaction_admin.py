"""DescribeTransactions, ListTransactions, WriteTxnMarkers.

What administrators see and abort (KIP-664).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.transactions import (
    DESCRIBE_TRANSACTIONS_API,
    LIST_TRANSACTIONS_API,
    WRITE_TXN_MARKERS_API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicData,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from stele.wire.kafka.transactions import TransactionState as DescribedTransaction

from ....errors import CoordinatorFenced, InvalidRequest, SteleError
from ....linear_regex import InvalidPattern, LinearRegex
from ....security.acl import DESCRIBE_TRANSACTIONAL_ID
from ....security.audit import Peer, log_change
from ....storage.topic_partition import TopicPartition
from ....transactions.messages import TransactionDescription
from ....transactions.states import TransactionState
from ....work_budget import SMALL_VISIT, WorkBudget, by_key, visited
from ...errors import error_code_of
from ..context import Context
from ..guards import transactions as transaction_guards
from ..served import Served, always

_NONE = -1
_STATES = frozenset(state.value for state in TransactionState)
# States of Kafka that no transaction has here; tools may ask for them.
_KNOWN_STATES = _STATES | {"Dead", "PrepareEpochFence"}


async def describe_transactions(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    budget = WorkBudget()
    described: list[DescribedTransaction] = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        state = await _describe(context, transactional_id)
        described.append(state)
        await budget.visit(1 + sum(len(topic.partitions) for topic in state.topics))
    return DescribeTransactionsResponse(transaction_states=described)


async def _describe(context: Context, transactional_id: str) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        found = await context.transactions.describe(transactional_id)
    except SteleError as error:
        return DescribedTransaction(
            error_code=error_code_of(error),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_at_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_by_topic(found),
    )


def _by_topic(found: TransactionDescription) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        topics.setdefault(topic, []).append(partition)
    return [TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


async def list_transactions(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List transactional ids that the client may see.

    Each filter of the request must match.
    """
    states_named, _ = await by_key(request.state_filters, str)
    unknown = [state for state in states_named if state not in _KNOWN_STATES]
    known = [state for state in states_named if state in _STATES]
    try:
        pattern = LinearRegex(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except InvalidPattern:
        return _listed(ErrorCode.INVALID_REGULAR_EXPRESSION, (), unknown)
    if request.state_filters and not known:
        return _listed(ErrorCode.NONE, (), unknown)
    try:
        found = await context.transactions.list(
            states=known,
            producer_ids=frozenset(request.producer_id_filters),
            min_duration_ms=max(_NONE, request.duration_filter),
        )
    except SteleError as error:
        return _listed(error_code_of(error), (), unknown)
    budget, access = WorkBudget(), context.access
    states: dict[str, ListedTransactionState] = {}
    for transaction in found:
        await budget.visit()
        if access is None or access.sees(DESCRIBE_TRANSACTIONAL_ID, transaction.transactional_id):
            states[transaction.transactional_id] = ListedTransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.value,
            )
    try:
        matching = states if pattern is None else await pattern.matching(states)
    except InvalidPattern:
        return _listed(ErrorCode.INVALID_REGULAR_EXPRESSION, (), unknown)
    return _listed(ErrorCode.NONE, [states[name] for name in matching], unknown)


def _listed(
    code: ErrorCode, states: Sequence[ListedTransactionState], unknown: Sequence[str]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=unknown, transaction_states=states)


async def write_txn_markers(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Abort what producers have open in partitions; only the coordinator commits."""
    budget = WorkBudget()
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition,
                                error_code=await _abort(
                                    context, marker, TopicPartition(topic.name, partition)
                                ),
                            )
                            async for partition in visited(topic.partition_indexes, budget=budget)
                        ],
                    )
                    async for topic in visited(marker.topics, SMALL_VISIT, budget)
                ],
            )
            async for marker in visited(request.markers, SMALL_VISIT, budget)
        ]
    )


async def _abort(context: Context, marker: WritableTxnMarker, topic_partition: TopicPartition) -> ErrorCode:
    if marker.transaction_result:
        return ErrorCode.INVALID_REQUEST
    try:
        await context.transactions.abort_partition(
            topic_partition,
            producer_id=marker.producer_id,
            epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except CoordinatorFenced:
        # Of transactions, and not of groups.
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    except SteleError as error:
        return error_code_of(error)
    log_change(
        Peer("kafka", context.peer, context.client_host),
        principal=str(context.principal),
        operation="abort-transaction",
        resource=f"Topic:{topic_partition.topic} partition {topic_partition.partition}, producer {marker.producer_id}",
    )
    return ErrorCode.NONE


ROWS = (
    Served(
        WRITE_TXN_MARKERS_API,
        write_txn_markers,
        transaction_guards.WRITE_TXN_MARKERS,
        changes=True,
        is_barrier=always,
    ),
    Served(
        DESCRIBE_TRANSACTIONS_API, describe_transactions, transaction_guards.DESCRIBE_TRANSACTIONS, walks=True
    ),
    Served(LIST_TRANSACTIONS_API, list_transactions, transaction_guards.LIST_TRANSACTIONS, walks=True),
)
