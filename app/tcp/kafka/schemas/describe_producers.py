"""DescribeProducers (api key 61): lists the producers of partitions (KIP-664).

They are those that the partitions remember.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


@message
class TopicRequest:
    name: str
    partition_indexes: Sequence[Int32]


@message
class DescribeProducersRequest:
    topics: Sequence[TopicRequest]


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


API = Api(
    key=61,
    name="DescribeProducers",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
)
