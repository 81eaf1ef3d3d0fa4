"""The exceptions of the library, as a tree.

::

    SteleClientError                    .retriable  .code  .is_outcome_unknown
    ├── BrokerUnavailableError          no connection, or the broker is closing; nothing was sent
    ├── ConnectionLostError             the connection broke before the response
    ├── RequestTimedOutError            no response in time
    ├── StorageFailedError              the broker's disk failed or is full, or its replica lacks records
    ├── ThrottledError                  too many requests at once, or more than a quota allows
    ├── ProtocolError                   the peer does not speak this protocol
    ├── UnknownTopicError               no such topic or partition
    ├── TopicExistsError                the topic to create exists
    ├── InvalidRequestError             an invalid name, number or configuration
    │   └── InvalidRecordError          the topic refuses a record: it breaks the schema contract, or lacks a key
    ├── OffsetOutOfRangeError           the offset was deleted, or is past the log end
    ├── UnexpectedEndError              of a conditional append: the partition ends elsewhere
    ├── RecordTooLargeError             a record or request exceeds a limit
    ├── CorruptRecordsError             stored bytes fail their CRC
    ├── AuthenticationError             the broker needs a login, or refused this one
    ├── AuthorizationError              no access rule allows this
    ├── UnsupportedOperationError       not available over this transport
    ├── ClosedError                     used after close()
    ├── GroupError                      rejected by a consumer group; .code has the reason
    │   ├── PartitionOwnedError         another member owns the partition
    │   └── LeaseLostError              the lease of a batch expired
    ├── CoordinatorUnavailableError     consumer groups are temporarily unavailable
    ├── ProducerStateError              the broker rejects this producer's epoch or sequence
    │   └── TransactionError            the transaction cannot go on; it is aborted
    │       └── TransactionFencedError  another producer began with this transactional id
    ├── ProduceError                    some of several records failed; .errors by index
    ├── RegistryError                   the schema registry refused a request; .error_code is its own
    │   ├── UnknownSchemaError          no such subject, version or schema
    │   └── IncompatibleSchemaError     the compatibility level of the subject forbids the schema
    ├── SerializationError              a serializer failed; nothing was sent
    ├── DeserializationError            a deserializer failed; .record has the bytes
    ├── DataLossError                   stele.spark: records of a query are gone
    └── ForeignTopicError               stele.cdc: a topic has records of another writer

``retriable``: the same call may succeed later.
``is_outcome_unknown``: the broker may have executed the request, so repeating a plain
produce may store a record twice. A ``Producer`` retries without doing so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from .wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from .records import Record, RecordMetadata

E = TypeVar("E", bound="SteleClientError")


class SteleClientError(Exception):
    """The base class of the library's errors, apart from programming errors."""

    retriable: bool = False
    is_outcome_unknown: bool = False
    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code: ErrorCode = self.default_code if code is None else code

    def twin(self) -> Self:
        """Return a copy for another caller.

        Raising adds a traceback to the instance.
        """
        return _rebuild(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with ``args`` alone, which not every subclass accepts.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[E], args: tuple[Any, ...], fields: dict[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class BrokerUnavailableError(SteleClientError):
    """Nothing was sent. Back off and call again; the next call reconnects."""

    retriable = True
    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class ConnectionLostError(SteleClientError):
    """The connection broke before the response."""

    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class RequestTimedOutError(SteleClientError):
    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.REQUEST_TIMED_OUT


class StorageFailedError(SteleClientError):
    """The broker's disk failed or is full, or no replica has the records; those acked before are safe."""

    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.KAFKA_STORAGE_ERROR


class ThrottledError(SteleClientError):
    retriable = True
    default_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ProtocolError(SteleClientError):
    """The response is not of this protocol: a wrong port, or another release."""

    is_outcome_unknown = True


class UnknownTopicError(SteleClientError):
    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicExistsError(SteleClientError):
    default_code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidRequestError(SteleClientError):
    default_code = ErrorCode.INVALID_REQUEST


class InvalidRecordError(InvalidRequestError):
    """The topic refuses a record, and stored nothing of its batch; the message has its index in the batch and the reason.

    It breaks the schema contract of the topic, or it has no key and the topic is compacted.
    """


class OffsetOutOfRangeError(SteleClientError):
    """``log_start_offset`` and ``high_watermark`` are -1 if not sent."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        log_start_offset: int = -1,
        high_watermark: int = -1,
    ) -> None:
        super().__init__(message, code=code)
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


class UnexpectedEndError(SteleClientError):
    """The partition ends at ``log_end_offset``, not where a conditional append expected it.

    Nothing was stored. Readers may not see all records before the end yet: fetch with ``wait_ms``, and append again
    with the new end.
    """

    default_code = ErrorCode.UNEXPECTED_END

    def __init__(self, message: str, *, code: ErrorCode | None = None, log_end_offset: int = -1) -> None:
        super().__init__(message, code=code)
        self.log_end_offset = log_end_offset


class RecordTooLargeError(SteleClientError):
    default_code = ErrorCode.MESSAGE_TOO_LARGE


class CorruptRecordsError(SteleClientError):
    """Stored bytes fail their CRC, permanently; the message has their offsets."""

    default_code = ErrorCode.CORRUPT_MESSAGE


class AuthenticationError(SteleClientError):
    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class AuthorizationError(SteleClientError):
    """No access rule allows this, whether or not the object exists."""

    default_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnsupportedOperationError(SteleClientError):
    default_code = ErrorCode.UNSUPPORTED_VERSION


class ClosedError(SteleClientError):
    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is closed; create a new one")


class GroupError(SteleClientError):
    """A group rejects a request: its membership, generation or subscription."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class PartitionOwnedError(GroupError):
    """Another member owns the partition; claim it again once it is released."""

    retriable = True
    default_code = ErrorCode.PARTITION_OWNED


class LeaseLostError(GroupError):
    """The lease of a batch expired or was taken over; its records are redelivered.

    The work done for the batch is therefore done at least once.
    """

    default_code = ErrorCode.LEASE_FENCED


class CoordinatorUnavailableError(SteleClientError):
    retriable = True
    default_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ProducerStateError(SteleClientError):
    """The broker refuses this producer's epoch or sequence."""

    default_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TransactionError(ProducerStateError):
    """The transaction cannot go on; abort it, and begin again."""

    default_code = ErrorCode.INVALID_TXN_STATE


class TransactionFencedError(TransactionError):
    """Another producer has the transactional id, or the transaction took too long.

    Nothing of the transaction was or will be committed.
    """

    default_code = ErrorCode.PRODUCER_FENCED


class ProduceError(SteleClientError):
    """Some of several records were not accepted.

    ``errors`` maps the index of a record, in the order given, to its error.
    ``results`` has a receipt or None per record. Retriable if all errors are.
    """

    def __init__(
        self,
        errors: Mapping[int, SteleClientError],
        results: Sequence[RecordMetadata | None] = (),
        *,
        total: int | None = None,
    ) -> None:
        first = next(iter(errors.values()))
        total = len(results) if total is None else total
        super().__init__(
            f"{len(errors)} of {total} records were not accepted; the first: {first}", code=first.code
        )
        self.errors: dict[int, SteleClientError] = dict(errors)
        self.results: list[RecordMetadata | None] = list(results)
        self.retriable: bool = all(error.retriable for error in errors.values())
        self.is_outcome_unknown: bool = any(error.is_outcome_unknown for error in errors.values())


class RegistryError(SteleClientError):
    """The schema registry refused a request; ``error_code`` is its own, or the HTTP status."""

    def __init__(self, message: str, *, status: int, error_code: int) -> None:
        super().__init__(message, code=ErrorCode.INVALID_REQUEST)
        self.error_code = error_code
        self.retriable: bool = status >= 500
        self.is_outcome_unknown: bool = self.retriable


class UnknownSchemaError(RegistryError):
    """The registry has no such subject, version or schema, or it was deleted."""


class IncompatibleSchemaError(RegistryError):
    """The compatibility level of the subject forbids the schema; nothing was registered."""


class SerializationError(SteleClientError):
    """A serializer failed; nothing was sent."""

    default_code = ErrorCode.INVALID_RECORD


class DeserializationError(SteleClientError):
    """A deserializer rejected the value of ``record``; its bytes are in ``record.value``.

    The consumer's position is past the record: continue to skip it.
    """

    default_code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record: Record[bytes]) -> None:
        super().__init__(message)
        self.record = record


_CLASSES: dict[ErrorCode, type[SteleClientError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordsError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.LEADER_NOT_AVAILABLE: BrokerUnavailableError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: BrokerUnavailableError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.BROKER_NOT_AVAILABLE: BrokerUnavailableError,
    ErrorCode.NOT_CONTROLLER: BrokerUnavailableError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: GroupError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailableError,
    ErrorCode.NOT_COORDINATOR: CoordinatorUnavailableError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidRequestError,
    ErrorCode.INVALID_REQUIRED_ACKS: InvalidRequestError,
    ErrorCode.ILLEGAL_GENERATION: GroupError,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: GroupError,
    ErrorCode.INVALID_GROUP_ID: GroupError,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupError,
    ErrorCode.INVALID_SESSION_TIMEOUT: GroupError,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.INVALID_TIMESTAMP: InvalidRequestError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedOperationError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExistsError,
    ErrorCode.INVALID_PARTITIONS: InvalidRequestError,
    ErrorCode.INVALID_REPLICATION_FACTOR: InvalidRequestError,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: InvalidRequestError,
    ErrorCode.INVALID_CONFIG: InvalidRequestError,
    ErrorCode.INVALID_REQUEST: InvalidRequestError,
    ErrorCode.POLICY_VIOLATION: InvalidRequestError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProducerStateError,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ProducerStateError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerStateError,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageFailedError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: StorageFailedError,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProducerStateError,
    ErrorCode.NON_EMPTY_GROUP: GroupError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupError,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: InvalidRequestError,
    ErrorCode.FENCED_LEADER_EPOCH: InvalidRequestError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: InvalidRequestError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: InvalidRequestError,
    ErrorCode.MEMBER_ID_REQUIRED: GroupError,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupError,
    ErrorCode.FENCED_INSTANCE_ID: GroupError,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupError,
    ErrorCode.INVALID_RECORD: InvalidRecordError,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ThrottledError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: InvalidRequestError,
    # Only the Kafka protocol has these.
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNACCEPTABLE_CREDENTIAL: InvalidRequestError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: UnsupportedOperationError,
    ErrorCode.ILLEGAL_SASL_STATE: UnsupportedOperationError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.SECURITY_DISABLED: UnsupportedOperationError,
    ErrorCode.LOG_DIR_NOT_FOUND: InvalidRequestError,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: InvalidRequestError,
    ErrorCode.NOT_ENOUGH_REPLICAS: CoordinatorUnavailableError,
    ErrorCode.INVALID_TXN_STATE: TransactionError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ProducerStateError,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: InvalidRequestError,
    ErrorCode.CONCURRENT_TRANSACTIONS: CoordinatorUnavailableError,
    ErrorCode.OPERATION_NOT_ATTEMPTED: InvalidRequestError,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: CoordinatorUnavailableError,
    ErrorCode.PRODUCER_FENCED: TransactionFencedError,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionError,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: InvalidRequestError,
    ErrorCode.ELECTION_NOT_NEEDED: InvalidRequestError,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: InvalidRequestError,
    ErrorCode.RESOURCE_NOT_FOUND: InvalidRequestError,
    ErrorCode.DUPLICATE_RESOURCE: InvalidRequestError,
    ErrorCode.INVALID_UPDATE_VERSION: InvalidRequestError,
    ErrorCode.BROKER_ID_NOT_REGISTERED: InvalidRequestError,
    ErrorCode.INCONSISTENT_TOPIC_ID: InvalidRequestError,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: InvalidRequestError,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: InvalidRequestError,
    ErrorCode.FENCED_MEMBER_EPOCH: GroupError,
    ErrorCode.UNRELEASED_INSTANCE_ID: GroupError,
    ErrorCode.UNSUPPORTED_ASSIGNOR: GroupError,
    ErrorCode.STALE_MEMBER_EPOCH: GroupError,
    ErrorCode.INVALID_RECORD_STATE: GroupError,
    ErrorCode.SHARE_SESSION_NOT_FOUND: GroupError,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: GroupError,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: GroupError,
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: InvalidRequestError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidRequestError,
    ErrorCode.PARTITION_NOT_ASSIGNED: GroupError,
    ErrorCode.PARTITION_OWNED: PartitionOwnedError,
    ErrorCode.PARTITION_NOT_OWNED: GroupError,
    ErrorCode.LEASE_FENCED: LeaseLostError,
    ErrorCode.UNEXPECTED_END: UnexpectedEndError,
}


def connection_error(message: str) -> SteleClientError:
    """Return the error that a frame of type 00 stands for, which has no number.

    The broker accepts no connection, or ends this one: it is shutting down, has too many, or has heard nothing for
    too long. It has handled no request that it has not answered.
    """
    if message.startswith("frame length"):
        return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return BrokerUnavailableError(message)


def error_for(
    code: ErrorCode, message: str, *, log_start_offset: int = -1, log_end_offset: int = -1
) -> SteleClientError:
    """Return the typed error for an error response; the offsets are those of errors that have them."""
    cls = _CLASSES.get(code, SteleClientError)
    if cls is OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            message, code=code, log_start_offset=log_start_offset, high_watermark=log_end_offset
        )
    if cls is UnexpectedEndError:
        return UnexpectedEndError(message, code=code, log_end_offset=log_end_offset)
    return cls(message, code=code)
