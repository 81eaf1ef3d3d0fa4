"""Producers and transactions."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int8, Int16, Int32, Int64, at, message
from .api import Api

# ── InitProducerId (api key 22): assigns an id to an idempotent producer.


@message
class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = at("3+", default=-1)
    producer_epoch: Int16 = at("3+", default=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16


INIT_PRODUCER_ID_API = Api(
    key=22,
    name="InitProducerId",
    versions=(0, 5),
    flexible_since=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)


# ── AddPartitionsToTxn (api key 24): adds partitions to a transaction.
#
# Since v4 to several (KIP-890).


@message
class AddPartitionsToTxnTopic:
    name: str
    partitions: Sequence[Int32]


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: Sequence[AddPartitionsToTxnTopic]


@message
class AddPartitionsToTxnRequest:
    transactions: Sequence[AddPartitionsToTxnTransaction] = at("4+", default=())
    v3_and_below_transactional_id: str = at("0-3", default="")
    v3_and_below_producer_id: Int64 = at("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = at("0-3", default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = at("0-3", default=())


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@message
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


@message
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("4+", default=0)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = at("4+", default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = at("0-3", default=())


ADD_PARTITIONS_TO_TXN_API = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=(0, 5),
    flexible_since=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)


# ── AddOffsetsToTxn (api key 25): adds a group's offsets to a transaction.
#
# KIP-98.


@message
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16


ADD_OFFSETS_TO_TXN_API = Api(
    key=25,
    name="AddOffsetsToTxn",
    versions=(0, 4),
    flexible_since=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)


# ── EndTxn (api key 26): commits or aborts a transaction (KIP-98).


@message
class EndTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = at("5+", default=-1)
    producer_epoch: Int16 = at("5+", default=-1)


END_TXN_API = Api(
    key=26,
    name="EndTxn",
    versions=(0, 5),
    flexible_since=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)


# ── TxnOffsetCommit (api key 28): commits offsets with a transaction.
#
# They are those of a group (KIP-98, KIP-447).


@message
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = at("2+", default=-1)
    committed_metadata: str | None


@message
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]


@message
class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = at("3+", default=-1)
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic]


@message
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class TxnOffsetCommitResponseTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic]


TXN_OFFSET_COMMIT_API = Api(
    key=28,
    name="TxnOffsetCommit",
    versions=(0, 5),
    flexible_since=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)


# ── WriteTxnMarkers (api key 27): ends transactions in partitions.
#
# Administrators abort hanging ones (KIP-664).


@message
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: Sequence[Int32]


@message
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = at("2+", default=0)


@message
class WriteTxnMarkersRequest:
    markers: Sequence[WritableTxnMarker]


@message
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class WritableTxnMarkerTopicResult:
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


@message
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: Sequence[WritableTxnMarkerTopicResult]


@message
class WriteTxnMarkersResponse:
    markers: Sequence[WritableTxnMarkerResult]


WRITE_TXN_MARKERS_API = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=(1, 2),
    flexible_since=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)


# ── DescribeTransactions (api key 65): returns states of transactions (KIP-664).
#
# They are by transactional id.


@message
class DescribeTransactionsRequest:
    transactional_ids: Sequence[str]


@message
class TopicData:
    topic: str
    partitions: Sequence[Int32]


@message
class TransactionState:
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Sequence[TopicData]


@message
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[TransactionState]


DESCRIBE_TRANSACTIONS_API = Api(
    key=65,
    name="DescribeTransactions",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)


# ── ListTransactions (api key 66): lists transactional ids and states (KIP-664).


@message
class ListTransactionsRequest:
    state_filters: Sequence[str]
    producer_id_filters: Sequence[Int64]
    duration_filter: Int64 = at("1+", default=-1)
    transactional_id_pattern: str | None = at("2+", default=None)


@message
class ListedTransactionState:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListedTransactionState]


LIST_TRANSACTIONS_API = Api(
    key=66,
    name="ListTransactions",
    versions=(0, 2),
    flexible_since=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)


# ── DescribeProducers (api key 61): lists the producers of partitions (KIP-664).
#
# They are those that the partitions remember.


@message
class DescribeProducersTopic:
    name: str
    partition_indexes: Sequence[Int32]


@message
class DescribeProducersRequest:
    topics: Sequence[DescribeProducersTopic]


@message
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@message
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    active_producers: Sequence[ProducerState]


@message
class TopicResponse:
    name: str
    partitions: Sequence[PartitionResponse]


@message
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse]


DESCRIBE_PRODUCERS_API = Api(
    key=61,
    name="DescribeProducers",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
