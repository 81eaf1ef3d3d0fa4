"""The configuration of a topic: Kafka's names, typed, each with its default and bounds.

Sizes are in bytes and times in milliseconds, as their names say; -1 means no
limit where it is allowed. ``stele.*`` names are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import InvalidConfig

StorageKind = Literal["disk", "memory"]
TimestampType = Literal["CreateTime", "LogAppendTime"]

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_message_bytes: int = 1_048_588
    flush_messages: int = _INT64_MAX
    # -1: the broker's own interval (log_flush_interval_ms)
    flush_ms: int = -1
    cleanup_policy: Literal["delete"] = "delete"
    message_timestamp_type: TimestampType = "CreateTime"
    # What Kafka's tools set as a matter of course: taken as long as it asks for what is so anyway.
    compression_type: Literal["producer"] = "producer"
    min_insync_replicas: int = 1
    unclean_leader_election_enable: Literal["false"] = "false"
    preallocate: Literal["false"] = "false"
    index_interval_bytes: int = 4096
    storage: StorageKind = "disk"
    memory_records: int = 10_000

    def as_strings(self) -> dict[str, str]:
        """Every configuration in effect, by its Kafka name."""
        return {name: str(getattr(self, entry.field)) for name, entry in CONFIG_ENTRIES.items()}


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One name a user may set: the field it fills, how it is read, what it means."""

    field: str
    parse: Callable[[str], object]
    description: str


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("it must be a whole number") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"it must be between {minimum} and {maximum}")
        return number

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it must be one of: {', '.join(choices)}")
        return text

    return parse


CONFIG_ENTRIES: dict[str, ConfigEntry] = {
    "retention.ms": ConfigEntry(
        "retention_ms",
        _integer(-1, _INT64_MAX),
        "Delete segments whose newest record is older; -1 keeps all.",
    ),
    "retention.bytes": ConfigEntry(
        "retention_bytes",
        _integer(-1, _INT64_MAX),
        "Delete the oldest segments above this size; -1 keeps all.",
    ),
    # Kafka's least is 14 bytes; below a kibibyte every record would be its own file.
    "segment.bytes": ConfigEntry(
        "segment_bytes", _integer(1024, _INT32_MAX), "Roll to a new segment at this size."
    ),
    "segment.ms": ConfigEntry("segment_ms", _integer(1, _INT64_MAX), "Roll to a new segment at this age."),
    "max.message.bytes": ConfigEntry(
        "max_message_bytes", _integer(1, 64 * 1024 * 1024), "Largest batch accepted."
    ),
    "flush.messages": ConfigEntry(
        "flush_messages", _integer(1, _INT64_MAX), "Sync before the ack after this many unsynced records."
    ),
    "flush.ms": ConfigEntry(
        "flush_ms",
        _integer(-1, _INT64_MAX),
        "Sync in the background at least this often; -1: the broker's interval.",
    ),
    "cleanup.policy": ConfigEntry(
        "cleanup_policy", _choice("delete"), "What retention does; compact comes later."
    ),
    "message.timestamp.type": ConfigEntry(
        "message_timestamp_type", _choice("CreateTime", "LogAppendTime"), "Whose clock stamps records."
    ),
    "compression.type": ConfigEntry(
        "compression_type", _choice("producer"), "Batches stay as their producer compressed them."
    ),
    "min.insync.replicas": ConfigEntry(
        "min_insync_replicas", _integer(1, 1), "There is one replica, and acks=all waits for its disk."
    ),
    "unclean.leader.election.enable": ConfigEntry(
        "unclean_leader_election_enable", _choice("false"), "There is no other leader to elect."
    ),
    "preallocate": ConfigEntry("preallocate", _choice("false"), "Segments grow as they are written."),
    "index.interval.bytes": ConfigEntry(
        "index_interval_bytes", _integer(0, _INT32_MAX), "Log bytes between two index entries."
    ),
    "stele.storage": ConfigEntry(
        "storage", _choice("disk", "memory"), "disk, or memory: a bounded ring that a restart empties."
    ),
    "stele.memory.records": ConfigEntry(
        "memory_records", _integer(1, 10_000_000), "Records a memory partition keeps."
    ),
}


def parse_topic_config(configs: Mapping[str, str]) -> TopicConfig:
    """The defaults with ``configs`` over them.

    Raises:
        InvalidConfig: a name that does not exist, or a value outside its bounds.
    """
    fields: dict[str, object] = {}
    for name, value in configs.items():
        entry = CONFIG_ENTRIES.get(name)
        if entry is None:
            raise InvalidConfig(name, value, f"no such name; the names are {', '.join(CONFIG_ENTRIES)}")
        try:
            fields[entry.field] = entry.parse(value)
        except ValueError as error:
            raise InvalidConfig(name, value, str(error)) from error
    return replace(TopicConfig(), **fields)  # type: ignore[arg-type]
