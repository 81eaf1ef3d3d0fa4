"""The errors of the broker, as a tree.

::

    SteleError
    ├── RequestError                 the request is at fault: the client must change it
    │   ├── InvalidRequest           a field, or a combination of fields, is not valid
    │   ├── TopicError               (``topics``)
    │   │   ├── UnknownTopic
    │   │   ├── UnknownTopicId       no topic has this id; a new topic may have its name
    │   │   ├── TopicRecreated       the position is in a deleted topic of this name
    │   │   ├── UnknownPartition
    │   │   ├── TopicExists
    │   │   ├── TopicDiffers         it exists with other partitions or configurations
    │   │   ├── TopicNotCompacted    only compacted topics are read by key
    │   │   ├── InvalidTopicName
    │   │   ├── InternalTopic        belongs to the broker; clients cannot write to it or change it
    │   │   ├── MirroredTopic        a copy; only its mirror writes to it
    │   │   ├── InvalidPartitionCount
    │   │   └── TooManyPartitions    more than the broker may have in total
    │   ├── UnknownMirror
    │   ├── StatementStopped         a SQL statement has reached a limit
    │   ├── InvalidConfig            an unknown name, a value out of bounds, or two that contradict
    │   ├── InvalidReplicationFactor
    │   ├── InvalidReplicaAssignment
    │   ├── InvalidBatch             (``records``) bytes that are not RecordBatch v2
    │   ├── InvalidTimestamp         records from too far in the past or in the future
    │   ├── MissingKey               records without a key in a compacted topic
    │   ├── BrokenContract           records without the schemas that their topic asks for
    │   ├── UnencodableValue         JSON that a schema does not describe
    │   ├── UnsupportedCompression   the request's version does not allow the codec
    │   ├── BatchTooLarge
    │   ├── InvalidAcks
    │   ├── OutOfOrderSequence       a batch before this one is missing
    │   ├── DuplicateSequence        stored too long ago to return its offsets
    │   ├── ProducerFenced           a newer instance of the producer took over
    │   ├── UnexpectedEnd            of a conditional append: other records came first
    │   ├── OffsetOutOfRange
    │   ├── AuthenticationFailed     (``security``) the text never tells why
    │   ├── AuthenticationRequired
    │   ├── CredentialError          users and API keys
    │   │   ├── InvalidCredential
    │   │   ├── DuplicateUser
    │   │   ├── UnknownCredential
    │   │   └── TooManyCredentials
    │   ├── AuthorizationError       the principal may not do this
    │   │   ├── TopicAuthorizationFailed
    │   │   ├── GroupAuthorizationFailed
    │   │   ├── ClusterAuthorizationFailed
    │   │   └── TransactionalIdAuthorizationFailed
    │   ├── AclError                 access rules
    │   │   ├── AuthorizationDisabled
    │   │   ├── InvalidAcl
    │   │   └── TooManyAcls
    │   ├── TransactionError         (``transactions``)
    │   │   ├── TransactionalIdNotFound
    │   │   ├── UnknownProducerMapping   the transactional id belongs to another producer id
    │   │   ├── TransactionFenced        a newer producer has begun with this transactional id
    │   │   ├── InvalidTransactionState
    │   │   ├── InvalidTransactionTimeout
    │   │   ├── TooManyTransactionalIds
    │   │   └── TransactionAbortable     abort the transaction, then go on
    │   ├── IdempotencyKeyReused     for a request with another body
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
    │       ├── FencedMemberEpoch    (``consumer_groups``) give up all partitions and join again
    │       ├── StaleMemberEpoch     of a commit: repeat it with the epoch of the next heartbeat
    │       ├── UnreleasedInstance   a live member has this instance id
    │       ├── UnsupportedAssignor
    │       ├── InvalidRegularExpression
    │       ├── CommitVersionTooOld
    │       ├── GroupOfOtherType     its members use another group protocol
    │       ├── LockNotHeld   (``share_groups``) poll again; a lock of a queue holds no records
    │       ├── InvalidRecordState   (``share_groups``) fetch again; the member holds the records no longer
    │       ├── LeaseFenced          its records belong to another lease
    │       └── OffsetMetadataTooLarge
    ├── RequestTimedOut              no confirmation in time; the request may still complete
    ├── ConcurrentTransactions       the transaction before this one has not ended yet; try again
    ├── IdempotencyKeyInUse          the first request with this key is still running; try again
    ├── OperationNotAttempted        another part of the request was refused
    ├── UnstableOffset               an open transaction has committed an offset here; try again
    ├── QuotaExceeded                (``quotas``) try again when the wait is over
    ├── ReadMemoryFull               other reads hold the memory for unpacked batches; try again
    ├── BrokerClosing                try again after the broker has restarted
    ├── CoordinatorNotAvailable      groups cannot be served now; try again
    ├── CoordinatorFenced            another coordinator has taken over the groups; find it
    ├── NotCoordinator               another broker of the cluster has the groups
    ├── NotLeader                    another broker of the cluster serves the partition
    └── StorageError                 (``storage``) the storage is at fault
        ├── CorruptLog               stored bytes that fail their CRC: file and position are known
        ├── StorageFull              no space; acknowledged records are safe
        ├── StorageLimitReached      too many open files, too little memory; the log goes on
        ├── StorageUnavailable       a storage that is elsewhere cannot be reached; try again
        ├── NotReplicated            no cut of the replica has, or will have, the records
        ├── LogDirFailed             a write or sync failed; the log accepts nothing more
        ├── CatalogFailed            topics and configurations cannot be read or written
        ├── GroupStoreFailed         groups and committed offsets cannot be read or written
        ├── DataDirLocked            another broker uses this data directory
        └── BrokerIdTaken            a live broker of the cluster has the same id

Errors carry fields, never a protocol's codes: each listener translates them in one
table (``api/errors.py``, ``tcp/errors.py``). A message names the object, and what to
do next. One module per subject defines them (``base`` has the top of the tree); other code
imports them from here.
"""

from __future__ import annotations

from .base import (
    BrokerClosing,
    InvalidRequest,
    ReadMemoryFull,
    RequestError,
    RequestTimedOut,
    StatementStopped,
    SteleError,
    forget_frames,
)
from .consumer_groups import (
    CommitVersionTooOld,
    FencedMemberEpoch,
    GroupOfOtherType,
    InvalidRegularExpression,
    StaleMemberEpoch,
    UnreleasedInstance,
    UnsupportedAssignor,
)
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
    NotCoordinator,
    OffsetMetadataTooLarge,
    OwnershipError,
    PartitionNotAssigned,
    PartitionNotOwned,
    PartitionOwned,
    RebalanceInProgress,
    TooManyGroups,
    UnknownMember,
)
from .quotas import QuotaExceeded
from .records import (
    RECORD_ERRORS_MAX,
    BatchTooLarge,
    BrokenContract,
    DuplicateSequence,
    InvalidAcks,
    InvalidBatch,
    InvalidTimestamp,
    MissingKey,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    RecordError,
    UnencodableValue,
    UnexpectedEnd,
    UnsupportedCompression,
)
from .security import (
    AclError,
    AuthenticationFailed,
    AuthenticationRequired,
    AuthorizationDisabled,
    AuthorizationError,
    ClusterAuthorizationFailed,
    CredentialError,
    DuplicateUser,
    GroupAuthorizationFailed,
    InvalidAcl,
    InvalidCredential,
    TooManyAcls,
    TooManyCredentials,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownCredential,
)
from .share_groups import InvalidRecordState, LockNotHeld
from .storage import (
    BrokerIdTaken,
    CatalogFailed,
    CorruptLog,
    DataDirLocked,
    GroupStoreFailed,
    LogDirFailed,
    NotReplicated,
    StorageError,
    StorageFull,
    StorageLimitReached,
    StorageUnavailable,
)
from .topics import (
    InternalTopic,
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    MirroredTopic,
    NotLeader,
    TooManyPartitions,
    TopicDiffers,
    TopicError,
    TopicExists,
    TopicNotCompacted,
    TopicRecreated,
    UnknownMirror,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from .transactions import (
    ConcurrentTransactions,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    OperationNotAttempted,
    TooManyTransactionalIds,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionError,
    TransactionFenced,
    UnknownProducerMapping,
    UnstableOffset,
)

__all__ = [
    "RECORD_ERRORS_MAX",
    "AclError",
    "AuthenticationFailed",
    "AuthenticationRequired",
    "AuthorizationDisabled",
    "AuthorizationError",
    "BatchTooLarge",
    "BrokenContract",
    "BrokerClosing",
    "BrokerIdTaken",
    "CatalogFailed",
    "ClusterAuthorizationFailed",
    "CommitVersionTooOld",
    "ConcurrentTransactions",
    "CoordinatorFenced",
    "CoordinatorNotAvailable",
    "CorruptLog",
    "CredentialError",
    "DataDirLocked",
    "DuplicateSequence",
    "DuplicateUser",
    "FencedInstance",
    "FencedMemberEpoch",
    "GroupAuthorizationFailed",
    "GroupError",
    "GroupFull",
    "GroupNotEmpty",
    "GroupNotFound",
    "GroupOfOtherType",
    "GroupStoreFailed",
    "GroupSubscribedToTopic",
    "IdempotencyKeyInUse",
    "IdempotencyKeyReused",
    "IllegalGeneration",
    "InconsistentGroupProtocol",
    "InternalTopic",
    "InvalidAcks",
    "InvalidAcl",
    "InvalidBatch",
    "InvalidConfig",
    "InvalidCredential",
    "InvalidGroupId",
    "InvalidPartitionCount",
    "InvalidRecordState",
    "InvalidRegularExpression",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidSessionTimeout",
    "InvalidTimestamp",
    "InvalidTopicName",
    "InvalidTransactionState",
    "InvalidTransactionTimeout",
    "LeaseFenced",
    "LockNotHeld",
    "LogDirFailed",
    "MemberIdRequired",
    "MirroredTopic",
    "MissingKey",
    "NotCoordinator",
    "NotLeader",
    "NotReplicated",
    "OffsetMetadataTooLarge",
    "OffsetOutOfRange",
    "OperationNotAttempted",
    "OutOfOrderSequence",
    "OwnershipError",
    "PartitionNotAssigned",
    "PartitionNotOwned",
    "PartitionOwned",
    "ProducerFenced",
    "QuotaExceeded",
    "ReadMemoryFull",
    "RebalanceInProgress",
    "RecordError",
    "RequestError",
    "RequestTimedOut",
    "StaleMemberEpoch",
    "StatementStopped",
    "SteleError",
    "StorageError",
    "StorageFull",
    "StorageLimitReached",
    "StorageUnavailable",
    "TooManyAcls",
    "TooManyCredentials",
    "TooManyGroups",
    "TooManyPartitions",
    "TooManyTransactionalIds",
    "TopicAuthorizationFailed",
    "TopicDiffers",
    "TopicError",
    "TopicExists",
    "TopicNotCompacted",
    "TopicRecreated",
    "TransactionAbortable",
    "TransactionError",
    "TransactionFenced",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdNotFound",
    "UnencodableValue",
    "UnexpectedEnd",
    "UnknownCredential",
    "UnknownMember",
    "UnknownMirror",
    "UnknownPartition",
    "UnknownProducerMapping",
    "UnknownTopic",
    "UnknownTopicId",
    "UnreleasedInstance",
    "UnstableOffset",
    "UnsupportedAssignor",
    "UnsupportedCompression",
    "forget_frames",
]
