"""The messages of the binary protocol.

ADR-0009 has types 01 to 06; ADR-0010, ADR-0015, ADR-0017 and ADR-0033 the others.

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

from ..error_codes import ErrorCode as ErrorCode
from ..error_codes import error_code as error_code
from .base import REQUESTS as REQUESTS
from .base import RESPONSES as RESPONSES
from .base import ErrorResponse as ErrorResponse
from .base import Message as Message
from .base import Request as Request
from .base import Response as Response
from .base import decode_request as decode_request
from .base import decode_request_in_steps as decode_request_in_steps
from .base import decode_response as decode_response
from .codec import REQUEST_ELEMENTS_MAX as REQUEST_ELEMENTS_MAX
from .codec import MessageError as MessageError
from .fetch import EARLIEST_TIMESTAMP as EARLIEST_TIMESTAMP
from .fetch import LATEST_TIMESTAMP as LATEST_TIMESTAMP
from .fetch import FetchedPartition as FetchedPartition
from .fetch import FetchPartition as FetchPartition
from .fetch import FetchRequest as FetchRequest
from .fetch import FetchResponse as FetchResponse
from .fetch import IsolatedFetchRequest as IsolatedFetchRequest
from .fetch import IsolatedFetchResponse as IsolatedFetchResponse
from .fetch import IsolatedListOffsetsRequest as IsolatedListOffsetsRequest
from .fetch import IsolatedListOffsetsResponse as IsolatedListOffsetsResponse
from .fetch import ListOffsetsRequest as ListOffsetsRequest
from .fetch import ListOffsetsResponse as ListOffsetsResponse
from .fetch import TopicFetchRequest as TopicFetchRequest
from .fetch import TopicFetchResponse as TopicFetchResponse
from .fetch import TopicIdentity as TopicIdentity
from .frame_types import LAST_ADR_0009_TYPE as LAST_ADR_0009_TYPE
from .frame_types import MessageType as MessageType
from .groups import ClaimRequest as ClaimRequest
from .groups import ClaimResponse as ClaimResponse
from .groups import CommitRequest as CommitRequest
from .groups import CommitResponse as CommitResponse
from .groups import CommittedRequest as CommittedRequest
from .groups import CommittedResponse as CommittedResponse
from .groups import HeartbeatRequest as HeartbeatRequest
from .groups import HeartbeatResponse as HeartbeatResponse
from .groups import JoinGroupRequest as JoinGroupRequest
from .groups import JoinGroupResponse as JoinGroupResponse
from .groups import LeaveGroupRequest as LeaveGroupRequest
from .groups import LeaveGroupResponse as LeaveGroupResponse
from .groups import OwnerFetchRequest as OwnerFetchRequest
from .groups import OwnerFetchResponse as OwnerFetchResponse
from .groups import ReleaseRequest as ReleaseRequest
from .groups import ReleaseResponse as ReleaseResponse
from .leases import ANY_NUMBER as ANY_NUMBER
from .leases import AckRequest as AckRequest
from .leases import AckResponse as AckResponse
from .leases import ExtendRequest as ExtendRequest
from .leases import ExtendResponse as ExtendResponse
from .leases import NackRequest as NackRequest
from .leases import NackResponse as NackResponse
from .leases import PolledPartition as PolledPartition
from .leases import PollRequest as PollRequest
from .leases import PollResponse as PollResponse
from .leases import SkippedPartition as SkippedPartition
from .logins import AuthenticateRequest as AuthenticateRequest
from .logins import AuthenticateResponse as AuthenticateResponse
from .mirrors import MirrorAppendRequest as MirrorAppendRequest
from .mirrors import MirrorAppendResponse as MirrorAppendResponse
from .produce import ACKS_ALL as ACKS_ALL
from .produce import ANY_PARTITION as ANY_PARTITION
from .produce import UNKNOWN_OFFSET as UNKNOWN_OFFSET
from .produce import ConditionalProduceRequest as ConditionalProduceRequest
from .produce import ConditionalProduceResponse as ConditionalProduceResponse
from .produce import Durability as Durability
from .produce import FlushTopicRequest as FlushTopicRequest
from .produce import FlushTopicResponse as FlushTopicResponse
from .produce import InitProducerIdRequest as InitProducerIdRequest
from .produce import InitProducerIdResponse as InitProducerIdResponse
from .produce import NamedProducerRequest as NamedProducerRequest
from .produce import NamedProducerResponse as NamedProducerResponse
from .produce import ProduceBatchRequest as ProduceBatchRequest
from .produce import ProduceBatchResponse as ProduceBatchResponse
from .produce import ProducerStateRequest as ProducerStateRequest
from .produce import ProducerStateResponse as ProducerStateResponse
from .simple import ConsumeRequest as ConsumeRequest
from .simple import ConsumeResponse as ConsumeResponse
from .simple import FlushRequest as FlushRequest
from .simple import FlushResponse as FlushResponse
from .simple import ProduceRequest as ProduceRequest
from .simple import ProduceResponse as ProduceResponse
from .simple import encode_produce_responses as encode_produce_responses
from .tables import ALL_PARTITIONS as ALL_PARTITIONS
from .tables import CURRENT_END as CURRENT_END
from .tables import LookUpKeyRequest as LookUpKeyRequest
from .tables import LookUpKeyResponse as LookUpKeyResponse
from .tables import TableFetchRequest as TableFetchRequest
from .tables import TableFetchResponse as TableFetchResponse
from .topics import DEFAULT_PARTITIONS as DEFAULT_PARTITIONS
from .topics import AlterTopicRequest as AlterTopicRequest
from .topics import AlterTopicResponse as AlterTopicResponse
from .topics import BrokerEndpoint as BrokerEndpoint
from .topics import CreateTopicRequest as CreateTopicRequest
from .topics import CreateTopicResponse as CreateTopicResponse
from .topics import DeleteTopicRequest as DeleteTopicRequest
from .topics import DeleteTopicResponse as DeleteTopicResponse
from .topics import DescribeTopicRequest as DescribeTopicRequest
from .topics import DescribeTopicResponse as DescribeTopicResponse
from .topics import HttpListenerRequest as HttpListenerRequest
from .topics import HttpListenerResponse as HttpListenerResponse
from .topics import MetadataRequest as MetadataRequest
from .topics import MetadataResponse as MetadataResponse
from .topics import PartitionMetadata as PartitionMetadata
from .topics import TopicMetadata as TopicMetadata
from .transactions import CommitTransactionsRequest as CommitTransactionsRequest
from .transactions import CommitTransactionsResponse as CommitTransactionsResponse
from .transactions import EndTransactionRequest as EndTransactionRequest
from .transactions import EndTransactionResponse as EndTransactionResponse
from .transactions import InitTransactionsRequest as InitTransactionsRequest
from .transactions import InitTransactionsResponse as InitTransactionsResponse
from .transactions import InitUnlessOpenRequest as InitUnlessOpenRequest
from .transactions import InitUnlessOpenResponse as InitUnlessOpenResponse
from .transactions import OpenTransaction as OpenTransaction
from .transactions import TransactionalProduceRequest as TransactionalProduceRequest
from .transactions import TransactionalProduceResponse as TransactionalProduceResponse
