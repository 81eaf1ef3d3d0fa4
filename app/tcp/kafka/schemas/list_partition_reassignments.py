"""ListPartitionReassignments (api key 46): lists moving partitions (KIP-455).

They move between brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, message

from ..api import Api


@message
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: Sequence[Int32]


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


@message
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


@message
class OngoingTopicReassignment:
    name: str
    partitions: Sequence[OngoingPartitionReassignment]


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]


API = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=(0, 0),
    flexible_since=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
