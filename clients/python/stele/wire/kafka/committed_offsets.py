"""Committed offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Bool, Int16, Int32, Int64, Uuid, at, message
from .api import Api

# ── OffsetCommit (api key 8): stores the committed offsets of a group.


@message
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = at("6+", default=-1)
    commit_timestamp: Int64 = at("1", default=-1)
    committed_metadata: str | None


@message
class OffsetCommitRequestTopic:
    name: str = at("0-9", default="")
    topic_id: Uuid = at("10+", default=NO_UUID)
    partitions: Sequence[OffsetCommitRequestPartition]


@message
class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: Int32 = at("1+", default=-1)
    member_id: str = at("1+", default="")
    group_instance_id: str | None = at("7+", default=None)
    retention_time_ms: Int64 = at("2-4", default=-1)
    topics: Sequence[OffsetCommitRequestTopic]


@message
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetCommitResponseTopic:
    name: str = at("0-9", default="")
    topic_id: Uuid = at("10+", default=NO_UUID)
    partitions: Sequence[OffsetCommitResponsePartition]


@message
class OffsetCommitResponse:
    throttle_time_ms: Int32 = at("3+", default=0)
    topics: Sequence[OffsetCommitResponseTopic]


OFFSET_COMMIT_API = Api(
    key=8,
    name="OffsetCommit",
    versions=(0, 10),
    flexible_since=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)


# ── OffsetFetch (api key 9): returns the committed offsets of groups.


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


OFFSET_FETCH_API = Api(
    key=9,
    name="OffsetFetch",
    versions=(0, 10),
    flexible_since=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)


# ── OffsetDelete (api key 47): deletes committed offsets of a group (KIP-496).


@message
class OffsetDeleteRequestPartition:
    partition_index: Int32


@message
class OffsetDeleteRequestTopic:
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest:
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetDeleteResponseTopic:
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic]


OFFSET_DELETE_API = Api(
    key=47,
    name="OffsetDelete",
    versions=(0, 0),
    flexible_since=None,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
