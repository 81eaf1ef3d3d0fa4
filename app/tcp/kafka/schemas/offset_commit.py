"""OffsetCommit (api key 8): stores the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import NO_UUID, Int16, Int32, Int64, Uuid, at, message

from ..api import Api


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


API = Api(
    key=8,
    name="OffsetCommit",
    versions=(0, 10),
    flexible_since=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
