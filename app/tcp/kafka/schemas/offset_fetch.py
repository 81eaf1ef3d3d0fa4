"""OffsetFetch (api key 9): returns the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Bool, Int16, Int32, Int64, Uuid, at, message

from ..api import Api


@message
class OffsetFetchRequestTopic:
    name: str = at("0-7", default="")
    partition_indexes: Sequence[Int32] = at("0-7", default=())


@message
class OffsetFetchRequestTopics:
    name: str = at("8-9", default="")
    topic_id: Uuid = at("10+", default=NO_UUID)
    partition_indexes: Sequence[Int32] = at("8+", default=())


@message
class OffsetFetchRequestGroup:
    group_id: str = at("8+", default="")
    member_id: str | None = at("9+", default=None)
    member_epoch: Int32 = at("9+", default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = at("8+", default=())


@message
class OffsetFetchRequest:
    group_id: str = at("0-7", default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = at("0-7", default=(), nullable="2-7")
    groups: Sequence[OffsetFetchRequestGroup] = at("8+", default=())
    require_stable: Bool = at("7+", default=False)


@message
class OffsetFetchResponsePartition:
    partition_index: Int32 = at("0-7", default=0)
    committed_offset: Int64 = at("0-7", default=0)
    committed_leader_epoch: Int32 = at("5-7", default=-1)
    metadata: str | None = at("0-7", default="")
    error_code: Int16 = at("0-7", default=0)


@message
class OffsetFetchResponseTopic:
    name: str = at("0-7", default="")
    partitions: Sequence[OffsetFetchResponsePartition] = at("0-7", default=())


@message
class OffsetFetchResponsePartitions:
    partition_index: Int32 = at("8+", default=0)
    committed_offset: Int64 = at("8+", default=0)
    committed_leader_epoch: Int32 = at("8+", default=-1)
    metadata: str | None = at("8+", default="")
    error_code: Int16 = at("8+", default=0)


@message
class OffsetFetchResponseTopics:
    name: str = at("8-9", default="")
    topic_id: Uuid = at("10+", default=NO_UUID)
    partitions: Sequence[OffsetFetchResponsePartitions] = at("8+", default=())


@message
class OffsetFetchResponseGroup:
    group_id: str = at("8+", default="")
    topics: Sequence[OffsetFetchResponseTopics] = at("8+", default=())
    error_code: Int16 = at("8+", default=0)


@message
class OffsetFetchResponse:
    throttle_time_ms: Int32 = at("3+", default=0)
    topics: Sequence[OffsetFetchResponseTopic] = at("0-7", default=())
    error_code: Int16 = at("2-7", default=0)
    groups: Sequence[OffsetFetchResponseGroup] = at("8+", default=())


API = Api(
    key=9,
    name="OffsetFetch",
    versions=(0, 10),
    flexible_since=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
