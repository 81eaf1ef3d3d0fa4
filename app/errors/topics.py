"""Errors about topics: names, partitions, placement and configurations."""

from __future__ import annotations

from typing import Self

from .base import RequestError, SteleError, short


class TopicError(RequestError):
    """The state or the settings of ``topic`` do not allow the request."""

    def __init__(self, message: str, *, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class UnknownTopic(TopicError):
    def __init__(self, topic: str, *, instead: str = "") -> None:
        """``instead`` is what to write in its place."""
        super().__init__(
            f"topic {short(topic)!r} does not exist; {instead or 'create it, or produce to it'}",
            topic=topic,
        )


class UnknownTopicId(TopicError):
    def __init__(self, topic_id: str) -> None:
        super().__init__(
            f"no topic has the id {topic_id}; request the metadata of the topic's name again, because it was deleted",
            topic="",
        )
        self.topic_id = topic_id


class TopicRecreated(TopicError):
    def __init__(self, topic: str, topic_id: str) -> None:
        super().__init__(
            f"topic {short(topic)!r} is not the one with the id {topic_id}, which was deleted: positions in that mean "
            "nothing here; read it from the beginning, without them",
            topic=topic,
        )
        self.topic_id = topic_id


class UnknownPartition(TopicError):
    def __init__(self, topic: str, partition: int, *, partitions: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}; its partitions are 0 to {partitions - 1}",
            topic=topic,
        )
        self.partition = partition
        self.partitions = partitions


class TopicExists(TopicError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} already exists.", topic=topic)


class TopicDiffers(TopicError):
    def __init__(self, topic: str, differences: str) -> None:
        super().__init__(
            f"topic {topic!r} already exists with other settings: {differences}; alter it, or choose another name",
            topic=topic,
        )
        self.differences = differences


class TopicNotCompacted(TopicError):
    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} is not compacted, so it has no newest record per key; "
            "set cleanup.policy=compact, or search its records",
            topic=topic,
        )


class InvalidTopicName(TopicError):
    def __init__(self, topic: str, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"topic name {short(topic)!r} is not valid: {reason}",
            topic=topic,
        )
        self.reason = reason


class InternalTopic(TopicError):
    """The topic belongs to the broker; clients can only read it."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {short(topic)!r} is internal: only the broker writes to it, and it cannot be created, "
            "altered or deleted; choose another name",
            topic=topic,
        )


class MirroredTopic(TopicError):
    """The topic is a copy; only its mirror writes to it."""

    def __init__(self, topic: str, mirror: str) -> None:
        super().__init__(
            f"topic {short(topic)!r} is a copy that mirror {mirror!r} keeps, so nothing else may write to it; write to its "
            f"source, or end the copy with: stele mirror promote {mirror} --topic {topic}",
            topic=topic,
        )
        self.mirror = mirror


class UnknownMirror(RequestError):
    def __init__(self, mirror: str) -> None:
        super().__init__(f"there is no mirror {short(mirror)!r}; see: stele mirror list")
        self.mirror = mirror


class InvalidPartitionCount(TopicError):
    def __init__(self, topic: str, partitions: int, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"topic {topic!r} cannot have {partitions} partitions: {reason}", topic=topic
        )
        self.partitions = partitions
        self.reason = reason


class TooManyPartitions(TopicError):
    """``is_of_files``: the limit is that of the files that the process may open."""

    def __init__(self, topic: str, *, total: int, limit: int, is_of_files: bool = False) -> None:
        why, advice = (
            ("the files that it may open are enough for", "raise its limit of open files (ulimit -n)")
            if is_of_files
            else ("its limit is", "raise partitions_max of the broker")
        )
        super().__init__(
            f"topic {topic!r} cannot have that many partitions: the broker would have {total}, and {why} {limit}; "
            f"request fewer, or {advice}",
            topic=topic,
        )
        self.total = total
        self.limit = limit


class InvalidConfig(RequestError):
    """The message has Kafka's form, because Kafka's tools show it unchanged."""

    def __init__(self, name: str, value: str | None, reason: str, *, message: str | None = None) -> None:
        super().__init__(
            message or f"Invalid value {short(str(value))} for configuration {short(name)}: {reason}"
        )
        self.name = name
        self.value = value
        self.reason = reason

    @classmethod
    def unknown(cls, name: str, value: str | None, *, kind: str = "topic") -> Self:
        """Return the error for a name that is not a configuration of ``kind``."""
        message = f"Unknown {kind} config name: {short(name)}"
        return cls(name, value, "there is no configuration of this name", message=message)


class InvalidReplicationFactor(RequestError):
    def __init__(self, replication_factor: int, *, brokers: int = 1) -> None:
        there_are = "there is 1 broker; use 1, or -1" if brokers == 1 else f"there are {brokers} brokers"
        super().__init__(
            f"Unable to replicate the partition {replication_factor} time(s): {there_are}"
            if replication_factor > 0
            else f"Replication factor is {replication_factor}; it must be 1, or -1 to use the default value"
        )
        self.replication_factor = replication_factor


class InvalidReplicaAssignment(RequestError):
    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the replicas cannot be assigned: {reason}; omit the assignment to let the broker choose"
        )
        self.reason = reason


class NotLeader(SteleError):
    """Another broker of the cluster serves the partition.

    None does for the moment if ``broker_id`` is None.
    """

    def __init__(self, topic: str, partition: int, broker_id: int | None) -> None:
        where = "no broker does at the moment" if broker_id is None else f"broker {broker_id} does"
        super().__init__(
            f"this broker does not serve partition {partition} of topic {topic!r}: {where}; "
            "request the metadata again, and try again"
        )
        self.topic = topic
        self.partition = partition
        self.broker_id = broker_id
