"""AddPartitionsToTxn (api key 24): adds partitions to a transaction.

Since v4 to several (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, Int64, at, message

from ..api import Api


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


API = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=(0, 5),
    flexible_since=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
