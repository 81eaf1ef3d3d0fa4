package main

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// The client tells codes and sentences; these are Kafka's names of the codes
// that a driver may meet.
var names = map[sarama.KError]string{
	sarama.ErrUnknown:                         "UNKNOWN_SERVER_ERROR",
	sarama.ErrOffsetOutOfRange:                "OFFSET_OUT_OF_RANGE",
	sarama.ErrInvalidMessage:                  "CORRUPT_MESSAGE",
	sarama.ErrUnknownTopicOrPartition:         "UNKNOWN_TOPIC_OR_PARTITION",
	sarama.ErrLeaderNotAvailable:              "LEADER_NOT_AVAILABLE",
	sarama.ErrNotLeaderForPartition:           "NOT_LEADER_OR_FOLLOWER",
	sarama.ErrRequestTimedOut:                 "REQUEST_TIMED_OUT",
	sarama.ErrMessageSizeTooLarge:             "MESSAGE_TOO_LARGE",
	sarama.ErrOffsetMetadataTooLarge:          "OFFSET_METADATA_TOO_LARGE",
	sarama.ErrOffsetsLoadInProgress:           "COORDINATOR_LOAD_IN_PROGRESS",
	sarama.ErrConsumerCoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE",
	sarama.ErrNotCoordinatorForConsumer:       "NOT_COORDINATOR",
	sarama.ErrInvalidTopic:                    "INVALID_TOPIC_EXCEPTION",
	sarama.ErrMessageSetSizeTooLarge:          "RECORD_LIST_TOO_LARGE",
	sarama.ErrInvalidRequiredAcks:             "INVALID_REQUIRED_ACKS",
	sarama.ErrIllegalGeneration:               "ILLEGAL_GENERATION",
	sarama.ErrInconsistentGroupProtocol:       "INCONSISTENT_GROUP_PROTOCOL",
	sarama.ErrInvalidGroupId:                  "INVALID_GROUP_ID",
	sarama.ErrUnknownMemberId:                 "UNKNOWN_MEMBER_ID",
	sarama.ErrInvalidSessionTimeout:           "INVALID_SESSION_TIMEOUT",
	sarama.ErrRebalanceInProgress:             "REBALANCE_IN_PROGRESS",
	sarama.ErrInvalidCommitOffsetSize:         "INVALID_COMMIT_OFFSET_SIZE",
	sarama.ErrTopicAuthorizationFailed:        "TOPIC_AUTHORIZATION_FAILED",
	sarama.ErrGroupAuthorizationFailed:        "GROUP_AUTHORIZATION_FAILED",
	sarama.ErrClusterAuthorizationFailed:      "CLUSTER_AUTHORIZATION_FAILED",
	sarama.ErrInvalidTimestamp:                "INVALID_TIMESTAMP",
	sarama.ErrUnsupportedVersion:              "UNSUPPORTED_VERSION",
	sarama.ErrTopicAlreadyExists:              "TOPIC_ALREADY_EXISTS",
	sarama.ErrInvalidPartitions:               "INVALID_PARTITIONS",
	sarama.ErrInvalidReplicationFactor:        "INVALID_REPLICATION_FACTOR",
	sarama.ErrInvalidReplicaAssignment:        "INVALID_REPLICA_ASSIGNMENT",
	sarama.ErrInvalidConfig:                   "INVALID_CONFIG",
	sarama.ErrNotController:                   "NOT_CONTROLLER",
	sarama.ErrInvalidRequest:                  "INVALID_REQUEST",
	sarama.ErrUnsupportedForMessageFormat:     "UNSUPPORTED_FOR_MESSAGE_FORMAT",
	sarama.ErrPolicyViolation:                 "POLICY_VIOLATION",
	sarama.ErrOutOfOrderSequenceNumber:        "OUT_OF_ORDER_SEQUENCE_NUMBER",
	sarama.ErrDuplicateSequenceNumber:         "DUPLICATE_SEQUENCE_NUMBER",
	sarama.ErrInvalidProducerEpoch:            "INVALID_PRODUCER_EPOCH",
	sarama.ErrKafkaStorageError:               "KAFKA_STORAGE_ERROR",
	sarama.ErrUnknownProducerID:               "UNKNOWN_PRODUCER_ID",
	sarama.ErrNonEmptyGroup:                   "NON_EMPTY_GROUP",
	sarama.ErrGroupIDNotFound:                 "GROUP_ID_NOT_FOUND",
	sarama.ErrTopicDeletionDisabled:           "TOPIC_DELETION_DISABLED",
	sarama.ErrFencedLeaderEpoch:               "FENCED_LEADER_EPOCH",
	sarama.ErrUnknownLeaderEpoch:              "UNKNOWN_LEADER_EPOCH",
	sarama.ErrUnsupportedCompressionType:      "UNSUPPORTED_COMPRESSION_TYPE",
	sarama.ErrOffsetNotAvailable:              "OFFSET_NOT_AVAILABLE",
	sarama.ErrMemberIdRequired:                "MEMBER_ID_REQUIRED",
	sarama.ErrGroupMaxSizeReached:             "GROUP_MAX_SIZE_REACHED",
	sarama.ErrFencedInstancedId:               "FENCED_INSTANCE_ID",
	sarama.ErrGroupSubscribedToTopic:          "GROUP_SUBSCRIBED_TO_TOPIC",
	sarama.ErrInvalidRecord:                   "INVALID_RECORD",
	sarama.ErrUnstableOffsetCommit:            "UNSTABLE_OFFSET_COMMIT",
	sarama.ErrSASLAuthenticationFailed:        "SASL_AUTHENTICATION_FAILED",
	sarama.ErrProducerFenced:                  "PRODUCER_FENCED",
}

func nameOf(err error) string {
	var code sarama.KError
	if !errors.As(err, &code) {
		return ""
	}
	if name, known := names[code]; known {
		return name
	}
	return fmt.Sprintf("ERROR_CODE_%d", int16(code))
}

// orNil: in the fields of answers the client has a code for "no error" too.
func orNil(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}
