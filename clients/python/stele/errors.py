"""Everything a caller may have to catch, as a tree.

::

    SteleClientError                    .retriable  .code  .is_outcome_unknown
    ├── BrokerUnavailableError          nobody listens, or it is closing: nothing was sent, back off
    ├── ConnectionLostError             it broke while an answer was due
    ├── RequestTimedOutError            no answer in time
    ├── StorageFailedError              the broker's disk
    ├── ThrottledError                  too much at once
    ├── ProtocolError                   the other end does not speak this protocol
    ├── UnknownTopicError               no such topic or partition
    ├── TopicExistsError
    ├── InvalidRequestError             a name, a number or a configuration that cannot be
    ├── OffsetOutOfRangeError
    ├── RecordTooLargeError
    ├── CorruptRecordsError             bytes that fail their CRC
    ├── UnsupportedOperationError       not over this transport
    ├── ClosedError                     used after close()
    ├── GroupError                      a consumer group does not allow it; .code says why
    │   ├── PartitionOwnedError         by another member, still
    │   └── LeaseLostError              the records of a batch are somebody else's by now
    ├── CoordinatorUnavailableError     consumer groups cannot be served just now
    ├── ProducerStateError              sequences the broker cannot accept; the producer is done
    ├── ProduceError                    some of several records; .errors by index
    ├── SerializationError
    ├── DeserializationError            .record has the bytes
    ├── DataLossError                   stele.spark: records that a query had still to read are gone
    └── ForeignTopicError               stele.cdc: a topic has records of another writer

``retriable`` means: the same call may succeed later, unchanged.
``is_outcome_unknown`` means: the request may have been carried out all the same,
so repeating a plain produce may store a record twice (a ``Producer`` repeats
without doing so).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from .wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from .records import Record, RecordMetadata

E = TypeVar("E", bound="SteleClientError")


class SteleClientError(Exception):
    """The root of what this library raises for anything but a programming error."""

    retriable: bool = False
    is_outcome_unknown: bool = False
    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code

    def twin(self) -> Self:
        """The same error for another caller: a traceback grows on the instance that is raised."""
        return _rebuild(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with ``args`` alone, which not every one here accepts.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[E], args: tuple[Any, ...], fields: dict[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class BrokerUnavailableError(SteleClientError):
    """Nothing was sent. Back off and call again: the connection is opened anew by itself."""

    retriable = True
    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class ConnectionLostError(SteleClientError):
    """The connection ended before the answer came."""

    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class RequestTimedOutError(SteleClientError):
    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.REQUEST_TIMED_OUT


class StorageFailedError(SteleClientError):
    """The broker's disk failed or is full; what was acked before is safe."""

    retriable = True
    is_outcome_unknown = True
    default_code = ErrorCode.KAFKA_STORAGE_ERROR


class ThrottledError(SteleClientError):
    retriable = True
    default_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ProtocolError(SteleClientError):
    """The answer is not one of this protocol: wrong port, or a broker of another release."""

    is_outcome_unknown = True


class UnknownTopicError(SteleClientError):
    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicExistsError(SteleClientError):
    default_code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidRequestError(SteleClientError):
    default_code = ErrorCode.INVALID_REQUEST


class OffsetOutOfRangeError(SteleClientError):
    """``log_start_offset`` and ``high_watermark`` are -1 where the broker did not tell them."""

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


class RecordTooLargeError(SteleClientError):
    default_code = ErrorCode.MESSAGE_TOO_LARGE


class CorruptRecordsError(SteleClientError):
    """Stored bytes that fail their CRC: they do not heal. The message says where and where to go on."""

    default_code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedOperationError(SteleClientError):
    default_code = ErrorCode.UNSUPPORTED_VERSION


class ClosedError(SteleClientError):
    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} was closed; make a new one")


class GroupError(SteleClientError):
    """A consumer group does not allow it: its members, its generation, its subscription."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class PartitionOwnedError(GroupError):
    """Another member owns the partition; claim it again when that one has released it."""

    retriable = True
    default_code = ErrorCode.PARTITION_OWNED


class LeaseLostError(GroupError):
    """What was polled ran out of time, or belongs to somebody else by now: it is delivered again.

    Whatever was done with the records was done at least once.
    """

    default_code = ErrorCode.LEASE_FENCED


class CoordinatorUnavailableError(SteleClientError):
    retriable = True
    default_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ProducerStateError(SteleClientError):
    """The broker refuses this producer's epoch or sequence."""

    default_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProduceError(SteleClientError):
    """Some records of several were not accepted.

    ``errors`` maps the index of a record, as it was given, to what became of it;
    ``results`` holds a receipt or None for every record. Retriable when every
    one of the errors is.
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
        self.errors = dict(errors)
        self.results = list(results)
        self.retriable = all(error.retriable for error in errors.values())
        self.is_outcome_unknown = any(error.is_outcome_unknown for error in errors.values())


class SerializationError(SteleClientError):
    """The object cannot be turned into bytes; nothing was sent."""

    default_code = ErrorCode.INVALID_RECORD


class DeserializationError(SteleClientError):
    """The value of ``record`` is not what the deserializer expects; its bytes are in ``record.value``.

    The consumer's position is already behind it: iterate on to skip it.
    """

    default_code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record: Record[bytes]) -> None:
        super().__init__(message)
        self.record = record


_CLASSES: dict[ErrorCode, type[SteleClientError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordsError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.BROKER_NOT_AVAILABLE: BrokerUnavailableError,
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
    ErrorCode.INVALID_RECORD: InvalidRequestError,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ThrottledError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: InvalidRequestError,
    # Only the Kafka protocol has these.
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: UnsupportedOperationError,
    ErrorCode.ILLEGAL_SASL_STATE: UnsupportedOperationError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerStateError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: UnsupportedOperationError,
    ErrorCode.SECURITY_DISABLED: UnsupportedOperationError,
    ErrorCode.LOG_DIR_NOT_FOUND: InvalidRequestError,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: InvalidRequestError,
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
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: InvalidRequestError,
    ErrorCode.PARTITION_NOT_ASSIGNED: GroupError,
    ErrorCode.PARTITION_OWNED: PartitionOwnedError,
    ErrorCode.PARTITION_NOT_OWNED: GroupError,
    ErrorCode.LEASE_FENCED: LeaseLostError,
}


def error_for(code: ErrorCode, message: str, **fields: Any) -> SteleClientError:
    """The typed error for what a broker answered; ``fields`` are those of its class."""
    cls = _CLASSES.get(code, SteleClientError)
    if cls is OffsetOutOfRangeError:
        return OffsetOutOfRangeError(message, code=code, **fields)
    return cls(message, code=code)
