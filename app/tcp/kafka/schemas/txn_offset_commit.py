"""TxnOffsetCommit (api key 28): commits offsets with a transaction.

They are those of a group (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


@message
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = at("2+", default=-1)
    committed_metadata: str | None


@message
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]


@message
class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = at("3+", default=-1)
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic]


@message
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@message
class TxnOffsetCommitResponseTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic]


API = Api(
    key=28,
    name="TxnOffsetCommit",
    versions=(0, 5),
    flexible_since=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)
