"""Translate the error tree into RFC 9457 problem documents.

The ``type`` of a problem is stable, and programs should test it. ``kafka_code`` is
the error code that the other protocols return. ``retriable`` tells whether the same
request may succeed later, unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from starlette.responses import Response
from stele.wire.error_codes import ErrorCode

from .. import errors
from .schemas import Shown

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER_S = 1
# Returns the body and the media type of a response that reports a problem.
ProblemEncoder = Callable[[Mapping[str, Any]], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """The fields shared by all problems of one error class."""

    status: int
    slug: str
    title: str
    code: ErrorCode
    retriable: bool = False


# A test checks that every leaf of the error tree has an entry.
PROBLEM_KINDS: dict[type[errors.SteleError], ProblemKind] = {
    errors.InvalidRequest: ProblemKind(400, "invalid-request", "Invalid request", ErrorCode.INVALID_REQUEST),
    errors.StatementStopped: ProblemKind(
        400, "statement-stopped", "Statement was stopped at a limit", ErrorCode.POLICY_VIOLATION
    ),
    errors.UnknownTopic: ProblemKind(
        404, "unknown-topic", "Unknown topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ),
    errors.UnknownTopicId: ProblemKind(
        404, "unknown-topic-id", "Unknown topic id", ErrorCode.UNKNOWN_TOPIC_ID
    ),
    errors.TopicRecreated: ProblemKind(
        410, "topic-recreated", "Topic was created again", ErrorCode.UNKNOWN_TOPIC_ID
    ),
    errors.UnknownPartition: ProblemKind(
        404, "unknown-partition", "Unknown partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ),
    errors.TopicExists: ProblemKind(409, "topic-exists", "Topic exists", ErrorCode.TOPIC_ALREADY_EXISTS),
    errors.TopicDiffers: ProblemKind(409, "topic-differs", "Topic differs", ErrorCode.TOPIC_ALREADY_EXISTS),
    errors.TopicNotCompacted: ProblemKind(
        409, "topic-not-compacted", "Topic is not compacted", ErrorCode.INVALID_TOPIC_EXCEPTION
    ),
    errors.InvalidTopicName: ProblemKind(
        400, "invalid-topic-name", "Invalid topic name", ErrorCode.INVALID_TOPIC_EXCEPTION
    ),
    errors.InternalTopic: ProblemKind(
        403, "internal-topic", "Internal topic", ErrorCode.INVALID_TOPIC_EXCEPTION
    ),
    errors.MirroredTopic: ProblemKind(
        409, "mirrored-topic", "The topic is a copy", ErrorCode.POLICY_VIOLATION
    ),
    errors.UnknownMirror: ProblemKind(404, "unknown-mirror", "Unknown mirror", ErrorCode.RESOURCE_NOT_FOUND),
    errors.InvalidPartitionCount: ProblemKind(
        400, "invalid-partition-count", "Invalid number of partitions", ErrorCode.INVALID_PARTITIONS
    ),
    errors.TooManyPartitions: ProblemKind(
        400, "too-many-partitions", "Too many partitions", ErrorCode.POLICY_VIOLATION
    ),
    errors.InvalidConfig: ProblemKind(
        400, "invalid-config", "Invalid configuration", ErrorCode.INVALID_CONFIG
    ),
    errors.InvalidReplicationFactor: ProblemKind(
        400, "invalid-replication-factor", "Invalid replication factor", ErrorCode.INVALID_REPLICATION_FACTOR
    ),
    errors.InvalidReplicaAssignment: ProblemKind(
        400, "invalid-replica-assignment", "Invalid assignment", ErrorCode.INVALID_REPLICA_ASSIGNMENT
    ),
    errors.InvalidBatch: ProblemKind(400, "invalid-batch", "Invalid record batch", ErrorCode.INVALID_RECORD),
    errors.InvalidTimestamp: ProblemKind(
        400, "invalid-timestamp", "Timestamp is not accepted", ErrorCode.INVALID_TIMESTAMP
    ),
    errors.MissingKey: ProblemKind(
        400, "missing-key", "Record without a key in a compacted topic", ErrorCode.INVALID_RECORD
    ),
    errors.BrokenContract: ProblemKind(
        422, "broken-contract", "Record breaks the contract of its topic", ErrorCode.INVALID_RECORD
    ),
    errors.UnencodableValue: ProblemKind(
        422, "unencodable-value", "Value cannot be encoded", ErrorCode.INVALID_RECORD
    ),
    errors.UnsupportedCompression: ProblemKind(
        400,
        "unsupported-compression",
        "Compression is not supported",
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    errors.BatchTooLarge: ProblemKind(413, "too-large", "Too large", ErrorCode.MESSAGE_TOO_LARGE),
    errors.InvalidAcks: ProblemKind(400, "invalid-acks", "Invalid acks", ErrorCode.INVALID_REQUIRED_ACKS),
    errors.OutOfOrderSequence: ProblemKind(
        409, "out-of-order-sequence", "Sequence out of order", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ),
    errors.DuplicateSequence: ProblemKind(
        409, "duplicate-sequence", "Already stored", ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    ),
    errors.ProducerFenced: ProblemKind(
        409, "producer-fenced", "Producer is fenced", ErrorCode.INVALID_PRODUCER_EPOCH
    ),
    errors.UnexpectedEnd: ProblemKind(
        412, "unexpected-end", "The partition ends elsewhere", ErrorCode.UNEXPECTED_END
    ),
    errors.OffsetOutOfRange: ProblemKind(
        416, "offset-out-of-range", "Offset is out of range", ErrorCode.OFFSET_OUT_OF_RANGE
    ),
    errors.InvalidGroupId: ProblemKind(
        400, "invalid-group-id", "Invalid group id", ErrorCode.INVALID_GROUP_ID
    ),
    errors.InvalidSessionTimeout: ProblemKind(
        400, "invalid-session-timeout", "Invalid session timeout", ErrorCode.INVALID_SESSION_TIMEOUT
    ),
    errors.InconsistentGroupProtocol: ProblemKind(
        409,
        "inconsistent-group-protocol",
        "Inconsistent group protocol",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    errors.UnknownMember: ProblemKind(404, "unknown-member", "Unknown member", ErrorCode.UNKNOWN_MEMBER_ID),
    errors.IllegalGeneration: ProblemKind(
        409, "illegal-generation", "Not the current generation", ErrorCode.ILLEGAL_GENERATION
    ),
    errors.RebalanceInProgress: ProblemKind(
        409, "rebalance-in-progress", "Group is rebalancing", ErrorCode.REBALANCE_IN_PROGRESS
    ),
    errors.MemberIdRequired: ProblemKind(
        409, "member-id-required", "Join again with this member id", ErrorCode.MEMBER_ID_REQUIRED
    ),
    errors.FencedInstance: ProblemKind(
        409, "fenced-instance", "Instance is fenced", ErrorCode.FENCED_INSTANCE_ID
    ),
    errors.GroupFull: ProblemKind(409, "group-full", "Group is full", ErrorCode.GROUP_MAX_SIZE_REACHED),
    errors.TooManyGroups: ProblemKind(409, "too-many-groups", "Too many groups", ErrorCode.POLICY_VIOLATION),
    errors.GroupNotEmpty: ProblemKind(409, "group-not-empty", "Group has members", ErrorCode.NON_EMPTY_GROUP),
    errors.GroupNotFound: ProblemKind(
        404, "group-not-found", "Group does not exist", ErrorCode.GROUP_ID_NOT_FOUND
    ),
    errors.GroupSubscribedToTopic: ProblemKind(
        409,
        "group-subscribed-to-topic",
        "Group is subscribed to the topic",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ),
    errors.PartitionNotAssigned: ProblemKind(
        409, "partition-not-assigned", "Partition is not assigned", ErrorCode.PARTITION_NOT_ASSIGNED
    ),
    errors.PartitionOwned: ProblemKind(
        409, "partition-owned", "Partition is owned", ErrorCode.PARTITION_OWNED, retriable=True
    ),
    errors.PartitionNotOwned: ProblemKind(
        409, "partition-not-owned", "Partition is not owned", ErrorCode.PARTITION_NOT_OWNED
    ),
    errors.FencedMemberEpoch: ProblemKind(
        409, "fenced-member-epoch", "Member epoch is fenced", ErrorCode.FENCED_MEMBER_EPOCH
    ),
    errors.StaleMemberEpoch: ProblemKind(
        409, "stale-member-epoch", "Member epoch is stale", ErrorCode.STALE_MEMBER_EPOCH
    ),
    errors.UnreleasedInstance: ProblemKind(
        409, "unreleased-instance", "Instance is in use", ErrorCode.UNRELEASED_INSTANCE_ID
    ),
    errors.UnsupportedAssignor: ProblemKind(
        400, "unsupported-assignor", "Assignor is not known", ErrorCode.UNSUPPORTED_ASSIGNOR
    ),
    errors.InvalidRegularExpression: ProblemKind(
        400,
        "invalid-regular-expression",
        "Regular expression is not valid",
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
    errors.CommitVersionTooOld: ProblemKind(
        409, "commit-version-too-old", "Version of the commit is too old", ErrorCode.UNSUPPORTED_VERSION
    ),
    errors.GroupOfOtherType: ProblemKind(
        409, "group-of-other-type", "Group uses another protocol", ErrorCode.GROUP_ID_NOT_FOUND
    ),
    errors.InvalidRecordState: ProblemKind(
        409, "invalid-record-state", "Records are not held", ErrorCode.INVALID_RECORD_STATE
    ),
    errors.LockNotHeld: ProblemKind(
        409, "lock-not-held", "Lock holds no records", ErrorCode.INVALID_RECORD_STATE
    ),
    errors.LeaseFenced: ProblemKind(409, "lease-fenced", "Lease is fenced", ErrorCode.LEASE_FENCED),
    errors.OffsetMetadataTooLarge: ProblemKind(
        413,
        "offset-metadata-too-large",
        "Metadata of an offset is too large",
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    errors.AuthenticationFailed: ProblemKind(
        401, "authentication-failed", "Login failed", ErrorCode.SASL_AUTHENTICATION_FAILED
    ),
    errors.AuthenticationRequired: ProblemKind(
        401, "authentication-required", "Login required", ErrorCode.SASL_AUTHENTICATION_FAILED
    ),
    errors.InvalidCredential: ProblemKind(
        400, "invalid-credential", "Credentials cannot be stored", ErrorCode.UNACCEPTABLE_CREDENTIAL
    ),
    errors.DuplicateUser: ProblemKind(409, "duplicate-user", "User exists", ErrorCode.DUPLICATE_RESOURCE),
    errors.UnknownCredential: ProblemKind(
        404, "unknown-credential", "User or API key does not exist", ErrorCode.RESOURCE_NOT_FOUND
    ),
    errors.TooManyCredentials: ProblemKind(
        409, "too-many-credentials", "Too many users or API keys", ErrorCode.POLICY_VIOLATION
    ),
    errors.TopicAuthorizationFailed: ProblemKind(
        403, "topic-authorization-failed", "Not authorized", ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ),
    errors.GroupAuthorizationFailed: ProblemKind(
        403, "group-authorization-failed", "Not authorized", ErrorCode.GROUP_AUTHORIZATION_FAILED
    ),
    errors.ClusterAuthorizationFailed: ProblemKind(
        403, "cluster-authorization-failed", "Not authorized", ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ),
    errors.TransactionalIdAuthorizationFailed: ProblemKind(
        403,
        "transactional-id-authorization-failed",
        "Not authorized",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    errors.AuthorizationDisabled: ProblemKind(
        409, "authorization-disabled", "Access rules are not checked", ErrorCode.SECURITY_DISABLED
    ),
    errors.InvalidAcl: ProblemKind(400, "invalid-acl", "Invalid access rule", ErrorCode.INVALID_REQUEST),
    errors.TooManyAcls: ProblemKind(
        409, "too-many-acls", "Too many access rules", ErrorCode.POLICY_VIOLATION
    ),
    errors.TransactionalIdNotFound: ProblemKind(
        404,
        "transactional-id-not-found",
        "Transactional id does not exist",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ),
    errors.UnknownProducerMapping: ProblemKind(
        409,
        "unknown-producer-mapping",
        "Transactional id belongs to another producer",
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    errors.TransactionFenced: ProblemKind(
        409, "transaction-fenced", "Transaction is fenced", ErrorCode.PRODUCER_FENCED
    ),
    errors.InvalidTransactionState: ProblemKind(
        409,
        "invalid-transaction-state",
        "The state of the transaction does not allow this",
        ErrorCode.INVALID_TXN_STATE,
    ),
    errors.InvalidTransactionTimeout: ProblemKind(
        400,
        "invalid-transaction-timeout",
        "Invalid transaction timeout",
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ),
    errors.TooManyTransactionalIds: ProblemKind(
        409, "too-many-transactional-ids", "Too many transactional ids", ErrorCode.POLICY_VIOLATION
    ),
    errors.TransactionAbortable: ProblemKind(
        409, "transaction-abortable", "Abort the transaction", ErrorCode.TRANSACTION_ABORTABLE
    ),
    errors.ConcurrentTransactions: ProblemKind(
        409,
        "concurrent-transactions",
        "The last transaction has not ended",
        ErrorCode.CONCURRENT_TRANSACTIONS,
        retriable=True,
    ),
    errors.IdempotencyKeyReused: ProblemKind(
        422, "idempotency-key-reused", "Idempotency key of another request", ErrorCode.INVALID_REQUEST
    ),
    errors.IdempotencyKeyInUse: ProblemKind(
        409,
        "idempotency-key-in-use",
        "The first request with this key is still running",
        ErrorCode.CONCURRENT_TRANSACTIONS,
        retriable=True,
    ),
    errors.OperationNotAttempted: ProblemKind(
        409, "operation-not-attempted", "Not attempted", ErrorCode.OPERATION_NOT_ATTEMPTED
    ),
    errors.UnstableOffset: ProblemKind(
        409,
        "unstable-offset",
        "A transaction has not settled this offset",
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        retriable=True,
    ),
    errors.RequestTimedOut: ProblemKind(
        504, "timed-out", "Not confirmed in time", ErrorCode.REQUEST_TIMED_OUT, retriable=True
    ),
    errors.QuotaExceeded: ProblemKind(
        429, "quota-exceeded", "Quota exceeded", ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True
    ),
    errors.ReadMemoryFull: ProblemKind(
        503, "read-memory-full", "Too many large reads", ErrorCode.REQUEST_TIMED_OUT, retriable=True
    ),
    errors.BrokerClosing: ProblemKind(
        503, "broker-closing", "Broker is closing", ErrorCode.BROKER_NOT_AVAILABLE, retriable=True
    ),
    errors.CoordinatorNotAvailable: ProblemKind(
        503,
        "coordinator-not-available",
        "Groups are not available",
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        retriable=True,
    ),
    errors.CoordinatorFenced: ProblemKind(
        503,
        "not-coordinator",
        "Not the coordinator",
        ErrorCode.NOT_COORDINATOR,
        retriable=True,
    ),
    errors.NotCoordinator: ProblemKind(
        503,
        "coordinator-elsewhere",
        "Another broker has the groups",
        ErrorCode.NOT_COORDINATOR,
        retriable=True,
    ),
    errors.NotLeader: ProblemKind(
        503,
        "leader-elsewhere",
        "Another broker serves the partition",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        retriable=True,
    ),
    errors.CorruptLog: ProblemKind(500, "corrupt-log", "Stored data is corrupt", ErrorCode.CORRUPT_MESSAGE),
    errors.StorageFull: ProblemKind(
        507, "storage-full", "No space left", ErrorCode.KAFKA_STORAGE_ERROR, retriable=True
    ),
    errors.StorageLimitReached: ProblemKind(
        503,
        "storage-limit-reached",
        "A limit of the system was reached",
        ErrorCode.KAFKA_STORAGE_ERROR,
        retriable=True,
    ),
    errors.StorageUnavailable: ProblemKind(
        503, "storage-unavailable", "Storage not available", ErrorCode.KAFKA_STORAGE_ERROR, retriable=True
    ),
    errors.NotReplicated: ProblemKind(
        503, "not-replicated", "Not replicated", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, retriable=True
    ),
    errors.LogDirFailed: ProblemKind(
        503, "log-dir-failed", "The log has stopped", ErrorCode.KAFKA_STORAGE_ERROR, retriable=True
    ),
    errors.CatalogFailed: ProblemKind(
        503, "catalog-failed", "Catalog failed", ErrorCode.KAFKA_STORAGE_ERROR, retriable=True
    ),
    errors.GroupStoreFailed: ProblemKind(
        503,
        "group-store-failed",
        "Group store failed",
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        retriable=True,
    ),
    errors.DataDirLocked: ProblemKind(
        503, "data-dir-locked", "Data directory in use", ErrorCode.KAFKA_STORAGE_ERROR
    ),
    errors.BrokerIdTaken: ProblemKind(
        503, "broker-id-taken", "Broker id in use", ErrorCode.KAFKA_STORAGE_ERROR
    ),
}

# The name and the description of the answer of each status in the OpenAPI document.
STATUSES = {
    400: ("BadRequest", "The request is invalid; see detail"),
    401: ("Unauthorized", "A login is required, or failed"),
    403: ("Forbidden", "The client may not do this; see detail"),
    404: ("NotFound", "The object does not exist; see detail"),
    406: ("NotAcceptable", "None of the accepted media types is supported"),
    409: ("Conflict", "Conflicts with the current state; see detail"),
    410: ("Gone", "Deleted by retention; log_start_offset is the earliest remaining offset"),
    412: (
        "PreconditionFailed",
        "If-Match does not hold; log_end_offset and ETag have the end of the partition",
    ),
    413: ("TooLarge", "The body is too large"),
    415: ("UnsupportedMediaType", "The media type or the coding of the body is not supported"),
    416: ("PastTheEnd", "Past the end of the log"),
    422: (
        "Unprocessable",
        "A record breaks the contract of its topic, another request has the idempotency key, or a condition is refused",
    ),
    429: ("TooManyRequests", "Too many requests of this kind; see Retry-After"),
    500: ("CorruptLog", "The stored data is corrupt; continue at next_offset"),
    503: ("Unavailable", "Temporarily unavailable; see Retry-After"),
    504: ("TimedOut", "Not confirmed in time; the request may still take effect"),
    507: ("StorageFull", "No space left on the disk"),
}
ANY_ERROR = "Error"
ProblemType = Annotated[str, Shown(examples=["/problems/unknown-topic"])]


class RecordError(TypedDict):
    """Why a record of a request was refused."""

    index: int
    type: ProblemType
    detail: str
    pointer: NotRequired[Annotated[str, Shown("the place in the key or value, a JSON pointer")]]
    kafka_code: NotRequired[int]
    retriable: NotRequired[bool]


class Problem(TypedDict):
    """A problem document, without the fields of single kinds."""

    title: str
    status: int
    type: ProblemType
    detail: str
    kafka_code: int
    retriable: bool
    errors: NotRequired[Annotated[list[RecordError], Shown("the refused records of a request")]]


_GROUPS_FULL = ProblemKind(
    507, "storage-full", "No space left", ErrorCode.COORDINATOR_NOT_AVAILABLE, retriable=True
)
_GONE = ProblemKind(410, "offset-gone", "Deleted by retention", ErrorCode.OFFSET_OUT_OF_RANGE)
_UNKNOWN = ProblemKind(500, "internal-error", "Internal error", ErrorCode.UNKNOWN_SERVER_ERROR)

_HTTP_CODES = {413: ErrorCode.MESSAGE_TOO_LARGE, 500: ErrorCode.UNKNOWN_SERVER_ERROR}

# Fields of errors that a program can act on; they become fields of the problem.
_FIELDS = (
    "topic",
    "index",
    "pointer",
    "group",
    "member_id",
    "current_generation",
    "partition",
    "offset",
    "log_start_offset",
    "log_end_offset",
    "next_offset",
    "expected",
    "limit",
    "setting",
    "differences",
    "quota",
    "retry_after_ms",
)


def kind_of(error: errors.SteleError) -> ProblemKind:
    """Return the kind of problem that ``error`` becomes."""
    if isinstance(error, errors.OffsetOutOfRange) and error.is_gone:
        return _GONE
    if isinstance(error, errors.GroupStoreFailed) and error.is_full:
        return _GROUPS_FULL
    return PROBLEM_KINDS.get(type(error), _UNKNOWN)


def problem_of(error: errors.SteleError) -> dict[str, Any]:
    """Return the problem document of ``error``, which is answered with it and forgets its frames."""
    errors.forget_frames(error)
    kind = kind_of(error)
    document: dict[str, Any] = {
        "type": f"/problems/{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": str(error),
        "kafka_code": int(kind.code),
        "retriable": kind.retriable,
    }
    document.update({name: getattr(error, name) for name in _FIELDS if hasattr(error, name)})
    return document


def encode_problem(document: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a problem document as the body of a response, and its media type."""
    return msgspec.json.encode(document), MEDIA_TYPE


def problem_response(document: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Response:
    """Encode a problem document, with ``Retry-After`` if the request may be retried."""
    status = int(document["status"])
    all_headers = dict(headers or {})
    if document["type"] == "/problems/unexpected-end":
        # RFC 9110, 13.1.1: what If-Match is compared with.
        all_headers["ETag"] = f'"{document["log_end_offset"]}"'
    if document.get("retriable") or status in (429, 503):
        all_headers.setdefault("Retry-After", str(_RETRY_AFTER_S))
    body, media_type = encode_problem(document)
    return Response(body, status, all_headers, media_type)


def error_response(error: errors.SteleError) -> Response:
    """Return the response for ``error``."""
    return problem_response(problem_of(error))


def http_problem(status: int, detail: str, **fields: object) -> dict[str, Any]:
    """Return a problem of HTTP itself, such as an unknown route, method or media type."""
    title = HTTPStatus(status).phrase
    return {
        "type": f"/problems/{title.lower().replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": detail,
        "kafka_code": int(_HTTP_CODES.get(status, ErrorCode.INVALID_REQUEST)),
        "retriable": status in (429, 503),
        **fields,
    }


class HttpError(Exception):
    """Raised by a route to answer with ``http_problem``."""

    def __init__(self, status: int, detail: str, **fields: object) -> None:
        super().__init__(detail)
        self.problem = http_problem(status, detail, **fields)


def refused_records(detail: str, documents: Sequence[Mapping[str, Any]], *, status: int = 400) -> HttpError:
    """Return the answer to a request of which no record was stored; ``documents`` are its ``errors[]``.

    If the first one is of a value that cannot be encoded, so is the answer, with its index and place.
    """
    kind, first = PROBLEM_KINDS[errors.UnencodableValue], documents[0]
    if first.get("type") != f"/problems/{kind.slug}":
        return HttpError(status, detail, errors=documents)
    fields = {"type": first["type"], "title": kind.title, "kafka_code": int(kind.code)}
    return HttpError(
        kind.status, detail, **fields, index=first["index"], pointer=first["pointer"], errors=documents
    )
