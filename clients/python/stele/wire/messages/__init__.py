"""The messages of the binary protocol.

ADR-0009 has types 01 to 06; ADR-0010, ADR-0015 and ADR-0017 the others.

Each message is declared once, as a frozen dataclass whose annotations are its
fields in wire order, and registered by its frame type::

    @message(MessageType.COMMITTED_REQUEST)
    class CommittedRequest(Request):
        group: str
        topic: str
        partition: Int32

``docs/formats/binary-protocol.md`` documents the bytes. The codecs are compiled from the
declarations (``stele.wire.schema``, ``codec``). Every decoder checks counts and lengths
against the remaining bytes, and raises ``MessageError`` for missing or trailing bytes.

To add a message, add a type to ``frame_types``, a class to the module of its subject, a
section to the document, and a case to ``tests/unit/wire/messages_cases.py``.
"""

from __future__ import annotations

from ..error_codes import ErrorCode, error_code
from .base import (
    REQUESTS,
    RESPONSES,
    ErrorResponse,
    Message,
    Request,
    Response,
    decode_request,
    decode_response,
)
from .codec import MessageError
from .fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from .frame_types import LAST_ADR_0009_TYPE, MessageType
from .groups import (
    ClaimRequest,
    ClaimResponse,
    CommitRequest,
    CommitResponse,
    CommittedRequest,
    CommittedResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OwnerFetchRequest,
    OwnerFetchResponse,
    ReleaseRequest,
    ReleaseResponse,
)
from .leases import (
    ANY_NUMBER,
    AckRequest,
    AckResponse,
    ExtendRequest,
    ExtendResponse,
    NackRequest,
    NackResponse,
    PolledPartition,
    PollRequest,
    PollResponse,
    SkippedPartition,
)
from .produce import (
    ACKS_ALL,
    ANY_PARTITION,
    UNKNOWN_OFFSET,
    Durability,
    FlushTopicRequest,
    FlushTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    NamedProducerRequest,
    NamedProducerResponse,
    ProduceBatchRequest,
    ProduceBatchResponse,
    ProducerStateRequest,
    ProducerStateResponse,
)
from .simple import (
    ConsumeRequest,
    ConsumeResponse,
    FlushRequest,
    FlushResponse,
    ProduceRequest,
    ProduceResponse,
    encode_produce_responses,
)
from .topics import (
    DEFAULT_PARTITIONS,
    AlterTopicRequest,
    AlterTopicResponse,
    BrokerEndpoint,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    DescribeTopicRequest,
    DescribeTopicResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

__all__ = [
    "ACKS_ALL",
    "ANY_NUMBER",
    "ANY_PARTITION",
    "DEFAULT_PARTITIONS",
    "EARLIEST_TIMESTAMP",
    "LAST_ADR_0009_TYPE",
    "LATEST_TIMESTAMP",
    "REQUESTS",
    "RESPONSES",
    "UNKNOWN_OFFSET",
    "AckRequest",
    "AckResponse",
    "AlterTopicRequest",
    "AlterTopicResponse",
    "BrokerEndpoint",
    "ClaimRequest",
    "ClaimResponse",
    "CommitRequest",
    "CommitResponse",
    "CommittedRequest",
    "CommittedResponse",
    "ConsumeRequest",
    "ConsumeResponse",
    "CreateTopicRequest",
    "CreateTopicResponse",
    "DeleteTopicRequest",
    "DeleteTopicResponse",
    "DescribeTopicRequest",
    "DescribeTopicResponse",
    "Durability",
    "ErrorCode",
    "ErrorResponse",
    "ExtendRequest",
    "ExtendResponse",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "FlushRequest",
    "FlushResponse",
    "FlushTopicRequest",
    "FlushTopicResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "Message",
    "MessageError",
    "MessageType",
    "MetadataRequest",
    "MetadataResponse",
    "NackRequest",
    "NackResponse",
    "NamedProducerRequest",
    "NamedProducerResponse",
    "OwnerFetchRequest",
    "OwnerFetchResponse",
    "PartitionMetadata",
    "PollRequest",
    "PollResponse",
    "PolledPartition",
    "ProduceBatchRequest",
    "ProduceBatchResponse",
    "ProduceRequest",
    "ProduceResponse",
    "ProducerStateRequest",
    "ProducerStateResponse",
    "ReleaseRequest",
    "ReleaseResponse",
    "Request",
    "Response",
    "SkippedPartition",
    "TopicMetadata",
    "decode_request",
    "decode_response",
    "encode_produce_responses",
    "error_code",
]
