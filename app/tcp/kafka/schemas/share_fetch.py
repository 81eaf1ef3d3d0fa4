"""ShareFetch (api key 78): reads records for a member of a share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, Int64, Records, Uuid, at, message

from ..api import Api


@message
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Sequence[Int8]


@message
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


@message
class FetchTopic:
    topic_id: Uuid
    partitions: Sequence[FetchPartition]


@message
class ForgottenTopic:
    topic_id: Uuid
    partitions: Sequence[Int32]


@message
class ShareFetchRequest:
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = at("2+", default=0)
    is_renew_ack: Bool = at("2+", default=False)
    topics: Sequence[FetchTopic]
    forgotten_topics_data: Sequence[ForgottenTopic]


@message
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@message
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@message
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: Sequence[AcquiredRecords]


@message
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: Sequence[PartitionData]


@message
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@message
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: Sequence[ShareFetchableTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]


API = Api(
    key=78,
    name="ShareFetch",
    versions=(1, 2),
    flexible_since=0,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
)
