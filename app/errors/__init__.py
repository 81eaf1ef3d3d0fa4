"""The errors of the broker, as a tree.

::

    SteleError
    ├── RequestError                 the request is at fault: the client must change it
    │   ├── InvalidRequest           a field, or a combination of fields, is not valid
    │   ├── TopicError               (``topics``)
    │   │   ├── UnknownTopic
    │   │   ├── UnknownTopicId       no topic has this id; a new topic may have its name
    │   │   ├── UnknownPartition
    │   │   ├── TopicExists
    │   │   ├── TopicDiffers         it exists with other partitions or configurations
    │   │   ├── InvalidTopicName
    │   │   ├── InternalTopic        belongs to the broker; clients cannot write to it or change it
    │   │   ├── InvalidPartitionCount
    │   │   └── TooManyPartitions    more than the broker may have in total
    │   ├── InvalidConfig            an unknown name, a value out of bounds, or two that contradict
    │   ├── InvalidReplicationFactor
    │   ├── InvalidReplicaAssignment
    │   ├── InvalidBatch             (``records``) bytes that are not RecordBatch v2
    │   ├── InvalidTimestamp         records from too far in the past or in the future
    │   ├── MissingKey               records without a key in a compacted topic
    │   ├── UnsupportedCompression   the request's version does not allow the codec
    │   ├── BatchTooLarge
    │   ├── InvalidAcks
    │   ├── OutOfOrderSequence       a batch before this one is missing
    │   ├── DuplicateSequence        stored too long ago to return its offsets
    │   ├── ProducerFenced           a newer instance of the producer took over
    │   ├── OffsetOutOfRange
    │   └── GroupError               (``groups``)
    │       ├── InvalidGroupId
    │       ├── InvalidSessionTimeout
    │       ├── InconsistentGroupProtocol
    │       ├── UnknownMember
    │       ├── IllegalGeneration
    │       ├── RebalanceInProgress
    │       ├── MemberIdRequired     join again with the member id in this error
    │       ├── FencedInstance       another member took over this instance id
    │       ├── GroupFull
    │       ├── TooManyGroups
    │       ├── GroupNotEmpty
    │       ├── GroupNotFound
    │       ├── GroupSubscribedToTopic
    │       ├── OwnershipError
    │       │   ├── PartitionNotAssigned
    │       │   ├── PartitionOwned       by another member
    │       │   └── PartitionNotOwned    claim it first
    │       ├── LeaseFenced          its records belong to another lease
    │       └── OffsetMetadataTooLarge
    ├── RequestTimedOut              no confirmation in time; the request may still complete
    ├── BrokerClosing                try again after the broker has restarted
    ├── CoordinatorNotAvailable      groups cannot be served now; try again
    ├── CoordinatorFenced            another coordinator has taken over the groups; find it
    └── StorageError                 (``storage``) the disk is at fault
        ├── CorruptLog               stored bytes that fail their CRC: file and position are known
        ├── StorageFull              no space; acknowledged records are safe
        ├── LogDirFailed             a write or sync failed; the log accepts nothing more
        ├── GroupStoreFailed         groups and committed offsets cannot be read or written
        └── DataDirLocked            another broker uses this data directory

Errors carry fields, never a protocol's codes: each listener translates them in one
table (``api/errors.py``, ``tcp/errors.py``). A message names the object, and what to
do next. One module per subject defines them (``base`` has the top of the tree); other code
imports them from here.
"""

from __future__ import annotations

from .base import BrokerClosing, InvalidRequest, RequestError, RequestTimedOut, SteleError
from .groups import (
    CoordinatorFenced,
    CoordinatorNotAvailable,
    FencedInstance,
    GroupError,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    LeaseFenced,
    MemberIdRequired,
    OffsetMetadataTooLarge,
    OwnershipError,
    PartitionNotAssigned,
    PartitionNotOwned,
    PartitionOwned,
    RebalanceInProgress,
    TooManyGroups,
    UnknownMember,
)
from .records import (
    RECORD_ERRORS_MAX,
    BatchTooLarge,
    DuplicateSequence,
    InvalidAcks,
    InvalidBatch,
    InvalidTimestamp,
    MissingKey,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    RecordError,
    UnsupportedCompression,
)
from .storage import CorruptLog, DataDirLocked, GroupStoreFailed, LogDirFailed, StorageError, StorageFull
from .topics import (
    InternalTopic,
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    TooManyPartitions,
    TopicDiffers,
    TopicError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)

__all__ = [
    "RECORD_ERRORS_MAX",
    "BatchTooLarge",
    "BrokerClosing",
    "CoordinatorFenced",
    "CoordinatorNotAvailable",
    "CorruptLog",
    "DataDirLocked",
    "DuplicateSequence",
    "FencedInstance",
    "GroupError",
    "GroupFull",
    "GroupNotEmpty",
    "GroupNotFound",
    "GroupStoreFailed",
    "GroupSubscribedToTopic",
    "IllegalGeneration",
    "InconsistentGroupProtocol",
    "InternalTopic",
    "InvalidAcks",
    "InvalidBatch",
    "InvalidConfig",
    "InvalidGroupId",
    "InvalidPartitionCount",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidSessionTimeout",
    "InvalidTimestamp",
    "InvalidTopicName",
    "LeaseFenced",
    "LogDirFailed",
    "MemberIdRequired",
    "MissingKey",
    "OffsetMetadataTooLarge",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OwnershipError",
    "PartitionNotAssigned",
    "PartitionNotOwned",
    "PartitionOwned",
    "ProducerFenced",
    "RebalanceInProgress",
    "RecordError",
    "RequestError",
    "RequestTimedOut",
    "SteleError",
    "StorageError",
    "StorageFull",
    "TooManyGroups",
    "TooManyPartitions",
    "TopicDiffers",
    "TopicError",
    "TopicExists",
    "UnknownMember",
    "UnknownPartition",
    "UnknownTopic",
    "UnknownTopicId",
    "UnsupportedCompression",
]
