"""Everything that can go wrong, as a tree.

::

    SteleError
    ├── RequestError                 the request is at fault; change it
    │   ├── InvalidRequest           a field or a combination of fields makes no sense
    │   ├── TopicError
    │   │   ├── UnknownTopic
    │   │   ├── UnknownTopicId       no topic has this id; its name may have another by now
    │   │   ├── UnknownPartition
    │   │   ├── TopicExists
    │   │   ├── TopicDiffers         it exists with another shape than the one asked for
    │   │   ├── InvalidTopicName
    │   │   ├── InternalTopic         belongs to the broker; clients cannot write to it or change it
    │   │   ├── InvalidPartitionCount
    │   │   └── TooManyPartitions    more than the broker may have in all
    │   ├── InvalidConfig
    │   ├── InvalidReplicationFactor
    │   ├── InvalidReplicaAssignment
    │   ├── InvalidBatch             bytes that are not RecordBatch v2
    │   ├── InvalidTimestamp         records from too far in the past or in the future
    │   ├── UnsupportedCompression   the version of the request does not allow the codec
    │   ├── BatchTooLarge
    │   ├── InvalidAcks
    │   ├── OutOfOrderSequence
    │   ├── DuplicateSequence
    │   ├── ProducerFenced
    │   ├── OffsetOutOfRange
    │   └── GroupError               consumer groups
    │       ├── InvalidGroupId
    │       ├── InvalidSessionTimeout
    │       ├── InconsistentGroupProtocol
    │       ├── UnknownMember
    │       ├── IllegalGeneration
    │       ├── RebalanceInProgress
    │       ├── MemberIdRequired     join again with the member id that it carries
    │       ├── FencedInstance       another member took over this instance id
    │       ├── GroupFull
    │       ├── TooManyGroups
    │       ├── GroupNotEmpty
    │       ├── GroupNotFound
    │       ├── GroupSubscribedToTopic
    │       ├── OwnershipError       of one partition of a topic
    │       │   ├── PartitionNotAssigned
    │       │   ├── PartitionOwned   by another member
    │       │   └── PartitionNotOwned   claim it first
    │       ├── LeaseFenced          what it held is somebody else's by now
    │       └── OffsetMetadataTooLarge
    ├── RequestTimedOut              nothing is wrong but the clock; try again
    ├── BrokerClosing                try again when it is back
    ├── CoordinatorNotAvailable      groups cannot be served just now; try again
    ├── CoordinatorFenced            another coordinator has the groups; find it
    └── StorageError                 the disk is at fault
        ├── CorruptLog               stored bytes that fail their CRC: file and position are known
        ├── StorageFull              no space; what was acked is safe
        ├── LogDirFailed             a write or sync failed; the log accepts nothing more
        ├── GroupStoreFailed         groups and committed offsets cannot be read or written
        └── DataDirLocked            another broker has this data directory

Errors carry fields, never a protocol's codes: each listener translates them once,
in one table (``api/errors.py``, ``tcp/errors.py``). The message is written for
the person who reads it and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Records named in one refusal; the others of the batch are refused with them.
RECORD_ERRORS_MAX = 1000


class SteleError(Exception):
    """The root; catch it only at the edge of a task or a connection."""


class RequestError(SteleError):
    """The peer must change its request."""


class InvalidRequest(RequestError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TopicError(RequestError):
    """Something about ``topic`` does not allow the request."""

    def __init__(self, message: str, *, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class UnknownTopic(TopicError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {_short(topic)!r} does not exist; create it, or produce to it", topic=topic)


class UnknownTopicId(TopicError):
    def __init__(self, topic_id: str) -> None:
        super().__init__(
            f"no topic has the id {topic_id}; it was deleted, ask for the metadata of its name again",
            topic="",
        )
        self.topic_id = topic_id


class UnknownPartition(TopicError):
    def __init__(self, topic: str, partition: int, *, partitions: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}; it has 0 to {partitions - 1}", topic=topic
        )
        self.partition = partition
        self.partitions = partitions


class TopicExists(TopicError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} already exists.", topic=topic)


class TopicDiffers(TopicError):
    def __init__(self, topic: str, differences: str) -> None:
        super().__init__(
            f"topic {topic!r} exists and differs: {differences}; alter it or choose another name", topic=topic
        )
        self.differences = differences


class InvalidTopicName(TopicError):
    def __init__(self, topic: str, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"topic name {_short(topic)!r} is not valid: {reason}",
            topic=topic,
        )
        self.reason = reason


class InternalTopic(TopicError):
    """Clients can neither write to such a topic, nor create, change or delete it."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {_short(topic)!r} is internal: only the broker writes to it, and it cannot be created, "
            "altered or deleted; choose another name",
            topic=topic,
        )


class InvalidPartitionCount(TopicError):
    def __init__(self, topic: str, partitions: int, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"topic {topic!r} cannot have {partitions} partitions: {reason}", topic=topic
        )
        self.partitions = partitions
        self.reason = reason


class TooManyPartitions(TopicError):
    def __init__(self, topic: str, *, total: int, limit: int) -> None:
        super().__init__(
            f"topic {topic!r} cannot have that many partitions: it makes {total} in all, and the limit is {limit}; "
            "ask for fewer, or raise partitions_max of the broker",
            topic=topic,
        )
        self.total = total
        self.limit = limit


class InvalidConfig(RequestError):
    """The message has the form of Apache Kafka's, which its tools and clients show."""

    def __init__(self, name: str, value: str | None, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"Invalid value {_short(str(value))} for configuration {_short(name)}: {reason}"
        )
        self.name = name
        self.value = value
        self.reason = reason

    @classmethod
    def unknown(cls, name: str, value: str | None, *, kind: str = "topic") -> Self:
        """There is no configuration of this name for a ``kind``."""
        message = f"Unknown {kind} config name: {_short(name)}"
        return cls(name, value, "there is no configuration of this name", message=message)


class InvalidReplicationFactor(RequestError):
    def __init__(self, replication_factor: int) -> None:
        super().__init__(
            f"Unable to replicate the partition {replication_factor} time(s): there is 1 broker; use 1, or -1"
            if replication_factor > 0
            else f"Replication factor is {replication_factor}; it must be 1, or -1 to use the default value"
        )
        self.replication_factor = replication_factor


class InvalidReplicaAssignment(RequestError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the assignment of replicas is not possible: {reason}; leave it to the broker")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record caused its batch to be refused; ``index`` counts within the batch, from 0."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.index} is not accepted: {self.reason}"


class InvalidBatch(RequestError):
    """``is_damaged``: its CRC says that it was valid when it was made, so the same again may be.

    ``record_errors`` names the records at fault, at most ``RECORD_ERRORS_MAX``; empty if it is the batch.
    """

    def __init__(
        self, reason: str, *, is_damaged: bool = False, record_errors: Sequence[RecordError] = ()
    ) -> None:
        super().__init__(f"the record batch is not valid: {reason}; nothing of it was stored")
        self.reason = reason
        self.is_damaged = is_damaged
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(RequestError):
    """``record_errors`` names the records at fault, at most ``RECORD_ERRORS_MAX`` of ``refused``."""

    def __init__(self, record_errors: Sequence[RecordError], *, refused: int = 1) -> None:
        more = f"; {refused - 1} more are not accepted" if refused > 1 else ""
        super().__init__(f"{record_errors[0]}{more}; nothing of the batch was stored")
        self.record_errors = tuple(record_errors)
        self.refused = refused


class UnsupportedCompression(RequestError):
    def __init__(self, codec: str, reason: str) -> None:
        super().__init__(f"the record batch is compressed with {codec}: {reason}")
        self.codec = codec
        self.reason = reason


class BatchTooLarge(RequestError):
    """Sizes in bytes."""

    def __init__(self, size: int, *, limit: int, what: str = "record batch") -> None:
        super().__init__(
            f"a {what} of {size} bytes is larger than the {limit} that are allowed; "
            "send less at once, or raise max.message.bytes of the topic"
        )
        self.size = size
        self.limit = limit


class InvalidAcks(RequestError):
    def __init__(self, acks: object) -> None:
        super().__init__(f"acks is {acks!r}; it must be 0, 1 or all (-1)")
        self.acks = acks


class OutOfOrderSequence(RequestError):
    def __init__(self, *, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} where {expected} comes next; "
            "a batch before it is missing: send that first, or start with a new producer id"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected


class DuplicateSequence(RequestError):
    """A batch that was stored before, so long ago that its offsets are not remembered."""

    def __init__(self, *, producer_id: int, sequence: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} again; it is stored already, do not retry it"
        )
        self.producer_id = producer_id
        self.sequence = sequence


class ProducerFenced(RequestError):
    def __init__(self, *, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"producer {producer_id} has epoch {epoch}, but {current_epoch} is current; "
            "a newer instance took over: stop, or ask for a new producer id"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class OffsetOutOfRange(RequestError):
    """``offset`` is outside ``[log_start_offset, log_end_offset]``."""

    def __init__(
        self, *, topic: str, partition: int, offset: int, log_start_offset: int, log_end_offset: int
    ) -> None:
        super().__init__(
            f"offset {offset} of {topic}-{partition} is out of range: "
            f"the log has {log_start_offset} to {log_end_offset}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    @property
    def is_gone(self) -> bool:
        """True when the record was there and retention has deleted it."""
        return 0 <= self.offset < self.log_start_offset


class GroupError(RequestError):
    """Something about ``group`` does not allow the request."""

    def __init__(self, message: str, *, group: str) -> None:
        super().__init__(message)
        self.group = group


class InvalidGroupId(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"group id {_short(group)!r} is not valid: {reason}", group=group)
        self.reason = reason


class InvalidSessionTimeout(GroupError):
    """Times in ms."""

    def __init__(self, group: str, session_timeout_ms: int, *, min_ms: int, max_ms: int) -> None:
        super().__init__(
            f"a session timeout of {session_timeout_ms} ms is not allowed: choose {min_ms} to {max_ms} ms, or "
            "change group_min_session_timeout_ms or group_max_session_timeout_ms of the broker",
            group=group,
        )
        self.session_timeout_ms = session_timeout_ms


class InconsistentGroupProtocol(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(
            f"the protocols do not fit group {_short(group)!r}: {reason}; "
            "give all of its members one assignor in common, or use another group id",
            group=group,
        )
        self.reason = reason


class UnknownMember(GroupError):
    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(
            f"group {_short(group)!r} has no member {_short(member_id)!r}; "
            "it left, or was silent for its session timeout: join again without a member id",
            group=group,
        )
        self.member_id = member_id


class IllegalGeneration(GroupError):
    def __init__(self, group: str, generation: int, *, current_generation: int) -> None:
        super().__init__(
            f"generation {generation} of group {_short(group)!r} is not the current one, "
            f"{current_generation}: join again",
            group=group,
        )
        self.generation = generation
        self.current_generation = current_generation


class RebalanceInProgress(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {_short(group)!r} is rebalancing: join again", group=group)


class MemberIdRequired(GroupError):
    """Not a fault: ``member_id`` is the id that the second join brings along (KIP-394)."""

    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(f"join group {_short(group)!r} again, as member {_short(member_id)!r}", group=group)
        self.member_id = member_id


class FencedInstance(GroupError):
    def __init__(self, group: str, instance_id: str) -> None:
        super().__init__(
            f"another member of group {_short(group)!r} has the instance id {_short(instance_id)!r} now; "
            "stop this one, or give it an instance id of its own",
            group=group,
        )
        self.instance_id = instance_id


class GroupFull(GroupError):
    def __init__(self, group: str, *, limit: int) -> None:
        super().__init__(
            f"group {_short(group)!r} has the {limit} members it may have; raise group_size_max of the broker",
            group=group,
        )
        self.limit = limit


class TooManyGroups(GroupError):
    def __init__(self, group: str, *, limit: int) -> None:
        super().__init__(
            f"group {_short(group)!r} would be one more than the {limit} that are allowed; "
            "delete groups that are not used, or raise groups_max of the broker",
            group=group,
        )
        self.limit = limit


class GroupNotEmpty(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {_short(group)!r} has members; stop them first", group=group)


class GroupNotFound(GroupError):
    def __init__(self, group: str) -> None:
        super().__init__(f"group {_short(group)!r} does not exist", group=group)


class GroupSubscribedToTopic(GroupError):
    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"a member of group {_short(group)!r} is subscribed to topic {_short(topic)!r}; stop it first",
            group=group,
        )
        self.topic = topic


class OwnershipError(GroupError):
    """A member may not do that with this partition."""

    def __init__(self, message: str, *, group: str, topic: str, partition: int) -> None:
        super().__init__(message, group=group)
        self.topic = topic
        self.partition = partition


class PartitionNotAssigned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, member_id: str) -> None:
        super().__init__(
            f"{_short(topic)}-{partition} is not assigned to member {_short(member_id)!r} of group "
            f"{_short(group)!r}; a heartbeat says what is",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.member_id = member_id


class PartitionOwned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, owner: str) -> None:
        super().__init__(
            f"{_short(topic)}-{partition} is owned by member {_short(owner)!r} of group {_short(group)!r}; "
            "claim it again when that one has released it",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.owner = owner


class PartitionNotOwned(OwnershipError):
    def __init__(self, group: str, topic: str, partition: int, *, member_id: str) -> None:
        super().__init__(
            f"member {_short(member_id)!r} of group {_short(group)!r} does not own {_short(topic)}-{partition}; "
            "claim it first",
            group=group,
            topic=topic,
            partition=partition,
        )
        self.member_id = member_id


class LeaseFenced(GroupError):
    def __init__(self, group: str, reason: str) -> None:
        super().__init__(
            f"the lease on group {_short(group)!r} does not hold any more: {reason}; "
            "what it held is delivered again: poll, and do not repeat this request",
            group=group,
        )
        self.reason = reason


class OffsetMetadataTooLarge(GroupError):
    """Sizes in bytes of UTF-8."""

    def __init__(self, group: str, size: int, *, limit: int) -> None:
        super().__init__(
            f"metadata of {size} bytes beside an offset is more than the {limit} that are allowed; "
            "shorten it, or raise offset_metadata_bytes_max of the broker",
            group=group,
        )
        self.size = size
        self.limit = limit


class RequestTimedOut(SteleError):
    def __init__(self, what: str, *, timeout_ms: int) -> None:
        super().__init__(f"{what} was not confirmed within {timeout_ms} ms; it may still happen")
        self.what = what
        self.timeout_ms = timeout_ms


class BrokerClosing(SteleError):
    def __init__(self) -> None:
        super().__init__("the broker is shutting down; connect again when it is back")


class CoordinatorNotAvailable(SteleError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"consumer groups are not available: {reason}; try again")
        self.reason = reason


class CoordinatorFenced(SteleError):
    """Epochs count who had the group store, one after the other."""

    def __init__(self, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"this coordinator (epoch {epoch}) was followed by another (epoch {current_epoch}); "
            "find the coordinator of the group again"
        )
        self.epoch = epoch
        self.current_epoch = current_epoch


class StorageError(SteleError):
    """The disk, or what is on it."""


class CorruptLog(StorageError):
    """Stored bytes that are not what was written. Records from ``next_offset`` on are readable."""

    def __init__(self, *, path: Path, position: int, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(
            f"{path} is corrupt at byte {position}: {reason}; offsets {offset} to {next_offset - 1} "
            f"cannot be read, go on at {next_offset}, and restore the file from a copy if there is one"
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason


class StorageFull(StorageError):
    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(
            f"no space left to append to {path} ({cause.strerror}); "
            "free space or lower retention, then produce again: what was acked is safe"
        )
        self.path = path


class LogDirFailed(StorageError):
    """After the first failed write or sync nothing more is accepted (fsyncgate, ADR-0003)."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"the log at {path} stopped after an error of the disk ({cause}); "
            "it accepts nothing more until the broker is restarted on a healthy disk"
        )
        self.path = path
        self.cause = cause


class GroupStoreFailed(StorageError):
    """What was answered before is safe; what failed was not kept."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"consumer groups cannot be kept in {path} ({cause}); free space or mend the disk, "
            "then try again, and restart the broker if it stays so"
        )
        self.path = path
        self.cause = cause


class DataDirLocked(StorageError):
    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"the data directory {path} is in use by another broker{owner}; "
            "stop it, or give this one another --data-dir"
        )
        self.path = path


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
