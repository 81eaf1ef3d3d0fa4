"""Refuse group protocols and transactions that are not served, with errors that clients do not retry.

If ApiVersions lacks an API, clients assume that the broker is being upgraded, and retry
forever. UNSUPPORTED_VERSION, Apache Kafka's error for a group protocol that is turned
off, is fatal to all clients (ADR-0021).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode

from ..schemas import consumer_group_describe as consumer_schema
from ..schemas import share_group_describe as share_schema
from ..schemas import streams_group_describe as streams_schema
from ..schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ..schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ..schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ..schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ..schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ..schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ..schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from ..schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ..schemas.end_txn import EndTxnRequest, EndTxnResponse
from ..schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ..schemas.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ..schemas.share_fetch import ShareFetchRequest, ShareFetchResponse
from ..schemas.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ..schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..schemas.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ..schemas.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ..schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from .context import Context

logger = logging.getLogger(__name__)

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
_NO_CONSUMER_PROTOCOL = "this broker does not serve group.protocol=consumer; use group.protocol=classic"
_NO_SHARE_GROUPS = "this broker does not serve share groups; use a consumer group"
_NO_STREAMS_PROTOCOL = "this broker does not serve group.protocol=streams; use group.protocol=classic"
_NO_HEARTBEAT_MS = 0
# KIP-890: AddPartitionsToTxn in batches.
_FIRST_WITH_TRANSACTIONS = 4
_TRANSACTION_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def _once_each(groups: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(groups))


# ── groups of the protocol "consumer" (KIP-848) ──


def consumer_group_heartbeat(
    _context: Context, _request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_CONSUMER_PROTOCOL,
        member_epoch=0,
        heartbeat_interval_ms=_NO_HEARTBEAT_MS,
    )


def consumer_group_describe(
    _context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Refuse every group; clients then send DescribeGroups."""
    return ConsumerGroupDescribeResponse(
        groups=[
            consumer_schema.DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_CONSUMER_PROTOCOL,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group in _once_each(request.group_ids)
        ]
    )


# ── share groups (KIP-932) ──


def share_group_heartbeat(
    _context: Context, _request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_SHARE_GROUPS,
        member_epoch=0,
        heartbeat_interval_ms=_NO_HEARTBEAT_MS,
    )


def share_group_describe(_context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[
            share_schema.DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_SHARE_GROUPS,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group in _once_each(request.group_ids)
        ]
    )


def share_fetch(_context: Context, _request: ShareFetchRequest) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_SHARE_GROUPS,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


def share_acknowledge(_context: Context, _request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=(), node_endpoints=()
    )


def describe_share_group_offsets(
    _context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group, topics=(), error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS
            )
            for group in _once_each([group.group_id for group in request.groups])
        ]
    )


def alter_share_group_offsets(
    _context: Context, _request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=()
    )


def delete_share_group_offsets(
    _context: Context, _request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=()
    )


# ── groups of the protocol "streams" (KIP-1071) ──


def streams_group_heartbeat(
    _context: Context, _request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_STREAMS_PROTOCOL,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=_NO_HEARTBEAT_MS,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=(),
        endpoint_information_epoch=0,
    )


def streams_group_describe(
    _context: Context, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[
            streams_schema.DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_STREAMS_PROTOCOL,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                members=(),
            )
            for group in _once_each(request.group_ids)
        ]
    )


# ── transactions: InitProducerId registers no transactional id, so every id is an unknown one ──


def _refusal(transactional_id: str) -> ErrorCode:
    """Return Kafka's error for a transactional id without a producer id, or for an empty one.

    It is also the answer for a partition that does not exist. Kafka reports
    UNKNOWN_TOPIC_OR_PARTITION for that, which producers retry.
    """
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST


def _log_refusal(context: Context) -> None:
    """Log the reason, because these responses have no room for text."""
    logger.info("kafka: %s uses transactions, which are not served", context.client_host)


def add_partitions_to_txn(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    _log_refusal(context)
    if context.version < _FIRST_WITH_TRANSACTIONS:
        code = _refusal(request.v3_and_below_transactional_id)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_not_added(request.v3_and_below_topics, code)
        )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_not_added(transaction.topics, _refusal(transaction.transactional_id)),
            )
            for transaction in request.transactions
        ]
    )


def _not_added(
    topics: Sequence[AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_offsets_to_txn(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    _log_refusal(context)
    return AddOffsetsToTxnResponse(error_code=_refusal(request.transactional_id))


def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    _log_refusal(context)
    return EndTxnResponse(error_code=_refusal(request.transactional_id))


def txn_offset_commit(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Refuse every partition; nothing is committed."""
    _log_refusal(context)
    code = _refusal(request.transactional_id)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# ── transactions: lists are empty ──


def list_transactions(_context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[
            state for state in _once_each(request.state_filters) if state not in _TRANSACTION_STATES
        ],
        transaction_states=(),
    )


def describe_transactions(
    _context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(
                error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=(),
            )
            for name in _once_each(request.transactional_ids)
        ]
    )
