"""ShareAcknowledge (api key 79): acknowledges records of a share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, Int64, Uuid, at, message

from ..api import Api


@message
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Sequence[Int8]


@message
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


@message
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: Sequence[AcknowledgePartition]


@message
class ShareAcknowledgeRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: Bool = at("2+", default=False)
    topics: Sequence[AcknowledgeTopic]


@message
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


@message
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: Sequence[PartitionData]


@message
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@message
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = at("2+", default=0)
    responses: Sequence[ShareAcknowledgeTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]


API = Api(
    key=79,
    name="ShareAcknowledge",
    versions=(1, 2),
    flexible_since=0,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
)
