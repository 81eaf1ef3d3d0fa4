"""ElectLeaders (api key 43): elects the leaders of partitions.

The leader is the preferred replica, or any that lives.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, at, message

from ..api import Api


@message
class TopicPartitions:
    topic: str
    partitions: Sequence[Int32]


@message
class ElectLeadersRequest:
    election_type: Int8 = at("1+", default=0)
    topic_partitions: Sequence[TopicPartitions] | None
    timeout_ms: Int32 = 60000


@message
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: str | None


@message
class ReplicaElectionResult:
    topic: str
    partition_result: Sequence[PartitionResult]


@message
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("1+", default=0)
    replica_election_results: Sequence[ReplicaElectionResult]


API = Api(
    key=43,
    name="ElectLeaders",
    versions=(0, 2),
    flexible_since=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
)
