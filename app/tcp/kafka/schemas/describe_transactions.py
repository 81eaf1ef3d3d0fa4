"""DescribeTransactions (api key 65): returns states of transactions (KIP-664).

They are by transactional id.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


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


API = Api(
    key=65,
    name="DescribeTransactions",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
