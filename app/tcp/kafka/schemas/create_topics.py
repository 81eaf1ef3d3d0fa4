"""CreateTopics (api key 19): creates topics."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Bool, Int8, Int16, Int32, Uuid, at, message

from ..api import Api


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


API = Api(
    key=19,
    name="CreateTopics",
    versions=(2, 7),
    flexible_since=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)
