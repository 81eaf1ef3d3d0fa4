"""The error code of every error of the tree, for both TCP listeners."""

from __future__ import annotations

import logging

from stele.wire.error_codes import ErrorCode

from .. import errors
from ..broker.counts import Counts

logger = logging.getLogger(__name__)

_BUG = "the broker failed to process the request; its log has the error"

# A test proves that every leaf of the tree has a row.
ERROR_CODES: dict[type[errors.SteleError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.StatementStopped: ErrorCode.POLICY_VIOLATION,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.TopicRecreated: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicDiffers: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicNotCompacted: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.MirroredTopic: ErrorCode.POLICY_VIOLATION,
    errors.UnknownMirror: ErrorCode.RESOURCE_NOT_FOUND,
    errors.InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    errors.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.MissingKey: ErrorCode.INVALID_RECORD,
    errors.BrokenContract: ErrorCode.INVALID_RECORD,
    errors.UnencodableValue: ErrorCode.INVALID_RECORD,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.UnexpectedEnd: ErrorCode.UNEXPECTED_END,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.InconsistentGroupProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.TooManyGroups: ErrorCode.POLICY_VIOLATION,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.PartitionNotAssigned: ErrorCode.PARTITION_NOT_ASSIGNED,
    errors.PartitionOwned: ErrorCode.PARTITION_OWNED,
    errors.PartitionNotOwned: ErrorCode.PARTITION_NOT_OWNED,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidRegularExpression: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.CommitVersionTooOld: ErrorCode.UNSUPPORTED_VERSION,
    errors.GroupOfOtherType: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
    errors.LockNotHeld: ErrorCode.INVALID_RECORD_STATE,
    errors.LeaseFenced: ErrorCode.LEASE_FENCED,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.AuthenticationRequired: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.InvalidCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.DuplicateUser: ErrorCode.DUPLICATE_RESOURCE,
    errors.UnknownCredential: ErrorCode.RESOURCE_NOT_FOUND,
    errors.TooManyCredentials: ErrorCode.POLICY_VIOLATION,
    errors.TopicAuthorizationFailed: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.GroupAuthorizationFailed: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.ClusterAuthorizationFailed: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TransactionalIdAuthorizationFailed: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.AuthorizationDisabled: ErrorCode.SECURITY_DISABLED,
    errors.InvalidAcl: ErrorCode.INVALID_REQUEST,
    errors.TooManyAcls: ErrorCode.POLICY_VIOLATION,
    errors.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.UnknownProducerMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.TransactionFenced: ErrorCode.PRODUCER_FENCED,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TooManyTransactionalIds: ErrorCode.POLICY_VIOLATION,
    errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.IdempotencyKeyReused: ErrorCode.INVALID_REQUEST,
    errors.IdempotencyKeyInUse: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.OperationNotAttempted: ErrorCode.OPERATION_NOT_ATTEMPTED,
    errors.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.ReadMemoryFull: ErrorCode.REQUEST_TIMED_OUT,
    errors.BrokerClosing: ErrorCode.BROKER_NOT_AVAILABLE,
    errors.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorFenced: ErrorCode.NOT_COORDINATOR,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageLimitReached: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.NotReplicated: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.LogDirFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.CatalogFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.GroupStoreFailed: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.DataDirLocked: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.BrokerIdTaken: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code_of(error: errors.SteleError) -> ErrorCode:
    """Return the code of ``error``; ``UNKNOWN_SERVER_ERROR`` for an error without a row.

    The error is answered with it, so it forgets its frames.
    """
    errors.forget_frames(error)
    return ERROR_CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)


def failure(error: Exception, request: str, counts: Counts) -> tuple[ErrorCode, str]:
    """Return the code and the message of what ended ``request``.

    An error that is not in the tree is an internal error: it is logged and counted.
    """
    if isinstance(error, errors.SteleError):
        return error_code_of(error), str(error)
    logger.error("%s failed", request, exc_info=error)
    counts.internal_errors += 1
    return ErrorCode.UNKNOWN_SERVER_ERROR, _BUG
