"""Topics: create, delete, add partitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Bool, Int8, Int16, Int32, Uuid, at, message
from .api import Api

# ── CreateTopics (api key 19): creates topics.


@message
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: Sequence[Int32]


@message
class CreatableTopicConfig:
    name: str
    value: str | None


@message
class CreatableTopic:
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]


@message
class CreateTopicsRequest:
    topics: Sequence[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


@message
class CreatableTopicConfigs:
    name: str = at("5+", default="")
    value: str | None = at("5+", default="")
    read_only: Bool = at("5+", default=False)
    config_source: Int8 = at("5+", default=-1)
    is_sensitive: Bool = at("5+", default=False)


@message
class CreatableTopicResult:
    name: str
    topic_id: Uuid = at("7+", default=NO_UUID)
    error_code: Int16
    error_message: str | None
    topic_config_error_code: Int16 = at("5+", default=0, tag=0)
    num_partitions: Int32 = at("5+", default=-1)
    replication_factor: Int16 = at("5+", default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = at("5+", default=())


@message
class CreateTopicsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatableTopicResult]


CREATE_TOPICS_API = Api(
    key=19,
    name="CreateTopics",
    versions=(2, 7),
    flexible_since=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)


# ── DeleteTopics (api key 20): deletes topics by name or id.


@message
class DeleteTopicState:
    name: str | None = at("6+", default=None)
    topic_id: Uuid = at("6+", default=NO_UUID)


@message
class DeleteTopicsRequest:
    topics: Sequence[DeleteTopicState] = at("6+", default=())
    topic_names: Sequence[str] = at("0-5", default=())
    timeout_ms: Int32


@message
class DeletableTopicResult:
    name: str | None = at(nullable="6+")
    topic_id: Uuid = at("6+", default=NO_UUID)
    error_code: Int16
    error_message: str | None = at("5+", default=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult]


DELETE_TOPICS_API = Api(
    key=20,
    name="DeleteTopics",
    versions=(1, 6),
    flexible_since=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)


# ── CreatePartitions (api key 37): adds partitions to topics.


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


CREATE_PARTITIONS_API = Api(
    key=37,
    name="CreatePartitions",
    versions=(0, 3),
    flexible_since=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
