"""The error code of every error of the tree, for both TCP listeners."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from .. import errors

# A test proves that every leaf of the tree has a row.
ERROR_CODES: dict[type[errors.SteleError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicDiffers: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    errors.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.MissingKey: ErrorCode.INVALID_RECORD,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
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
    errors.LeaseFenced: ErrorCode.LEASE_FENCED,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.BrokerClosing: ErrorCode.BROKER_NOT_AVAILABLE,
    errors.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorFenced: ErrorCode.NOT_COORDINATOR,
    errors.CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LogDirFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.GroupStoreFailed: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.DataDirLocked: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code_of(error: errors.SteleError) -> ErrorCode:
    """Return the code of ``error``; ``UNKNOWN_SERVER_ERROR`` for an error without a row."""
    return ERROR_CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
