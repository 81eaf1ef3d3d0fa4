"""CreatePartitions (api key 37): adds partitions to topics."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, message

from ..api import Api


@message
class CreatePartitionsAssignment:
    broker_ids: Sequence[Int32]


@message
class CreatePartitionsTopic:
    name: str
    count: Int32
    assignments: Sequence[CreatePartitionsAssignment] | None


@message
class CreatePartitionsRequest:
    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@message
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16
    error_message: str | None = None


@message
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult]


API = Api(
    key=37,
    name="CreatePartitions",
    versions=(0, 3),
    flexible_since=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
