"""AlterPartitionReassignments (api key 45): moves partitions between brokers.

It also cancels moves (KIP-455).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, at, message

from ..api import Api


@message
class ReassignablePartition:
    partition_index: Int32
    replicas: Sequence[Int32] | None = None


@message
class ReassignableTopic:
    name: str
    partitions: Sequence[ReassignablePartition]


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = at("1+", default=True)
    topics: Sequence[ReassignableTopic]


@message
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None


@message
class ReassignableTopicResponse:
    name: str
    partitions: Sequence[ReassignablePartitionResponse]


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = at("1+", default=True)
    error_code: Int16
    error_message: str | None
    responses: Sequence[ReassignableTopicResponse]


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    versions=(0, 1),
    flexible_since=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)
