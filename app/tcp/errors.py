"""The error tree in the numbers of the wire: the one table of the TCP doors."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from .. import errors

# A test proves that every leaf of the tree stands here.
ERROR_CODES: dict[type[errors.SteleError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicDiffers: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.BrokerClosing: ErrorCode.BROKER_NOT_AVAILABLE,
    errors.CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LogDirFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DataDirLocked: ErrorCode.KAFKA_STORAGE_ERROR,
}


def error_code_of(error: errors.SteleError) -> ErrorCode:
    return ERROR_CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
