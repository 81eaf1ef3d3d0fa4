"""The configuration of a topic: Kafka's names, typed, each with its default and bounds.

Every name that Apache Kafka 4.3 knows can be set. Some of them have no effect on a
single broker: they are stored and shown, and their description says so. Sizes are in
bytes and times in milliseconds, as their names say; -1 means no limit where it is
allowed. ``stele.*`` names are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from ..errors import InvalidConfig

StorageKind = Literal["disk", "memory"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
CompressionType = Literal["producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"]
# Empty: neither deleted nor compacted.
CleanupPolicy = Literal["delete", ""]

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_DAY_MS = 24 * 3600 * 1000
# Largest batch that is ever accepted, whatever max.message.bytes allows: it is held in memory as a whole.
BATCH_BYTES_MAX = 64 * 1024 * 1024
# What a string of Kafka's oldest versions holds.
_VALUE_CHARACTERS_MAX = 32_767
# Kafka's least is 1 MiB; below a kibibyte every record would be its own file.
_SEGMENT_BYTES_MIN = 1024
_BROKER_FLUSH_MS = -1


class ConfigType(Enum):
    """Kafka's types of configuration values."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    SHORT = "SHORT"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    max_message_bytes: int = 1_048_588
    flush_messages: int = _INT64_MAX
    # -1: the broker's own interval (log_flush_interval_ms)
    flush_ms: int = _BROKER_FLUSH_MS
    file_delete_delay_ms: int = 60_000
    cleanup_policy: CleanupPolicy = "delete"
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: TimestampType = "CreateTime"
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: CompressionType = "producer"
    # -1: the default of the codec
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    index_interval_bytes: int = 4096
    follower_replication_throttled_replicas: str = ""
    leader_replication_throttled_replicas: str = ""
    remote_storage_enable: Literal[False] = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    # -2: as retention.ms and retention.bytes
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    storage: StorageKind = "disk"
    memory_records: int = 10_000

    def as_strings(self) -> dict[str, str]:
        """Every configuration, by its Kafka name, as it is shown."""
        return {name: entry.show(getattr(self, entry.field)) for name, entry in CONFIG_ENTRIES.items()}

    def enforced(self) -> TopicConfig:
        """What the broker does for this configuration: no batch above its own limit, and
        no retention unless the cleanup policy is to delete."""
        has_retention = self.cleanup_policy == "delete"
        return replace(
            self,
            max_message_bytes=min(self.max_message_bytes, BATCH_BYTES_MAX),
            retention_ms=self.retention_ms if has_retention else -1,
            retention_bytes=self.retention_bytes if has_retention else -1,
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One name a user may set: the field it fills, how it is read, what it means.

    ``parse`` raises ``ValueError`` with the rule that a text breaks. ``broker_names``
    are the names of the broker's configuration that is its default, in Kafka's order;
    their unit is milliseconds except where the name ends otherwise.
    """

    field: str
    type: ConfigType
    parse: Callable[[str], object]
    description: str
    broker_names: tuple[str, ...] = ()
    show: Callable[[object], str] = _text


# Underscores are ours: topics made by earlier releases may have them.
_INTEGER = re.compile(r"[+-]?\d{1,20}(_\d{1,20}){0,9}")
_THROTTLED_REPLICA = re.compile(r"\d{1,10}:\d{1,10}")


def _integer(
    config_type: ConfigType, minimum: int | None, maximum: int | None = None
) -> Callable[[str], int]:
    largest = _INT32_MAX if config_type is ConfigType.INT else _INT64_MAX

    def parse(text: str) -> int:
        text = text.strip()
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not -largest - 1 <= number <= largest:
            raise ValueError(f"Not a number of type {config_type.value}")
        if minimum is not None and number < minimum:
            raise ValueError(f"Value must be at least {minimum}")
        if maximum is not None and number > maximum:
            raise ValueError(f"Value must be no more than {maximum}")
        return number

    return parse


def int32(minimum: int | None, maximum: int | None = None) -> Callable[[str], int]:
    """A parser of 32-bit numbers within these bounds."""
    return _integer(ConfigType.INT, minimum, maximum)


def int64(minimum: int | None, maximum: int | None = None) -> Callable[[str], int]:
    """A parser of 64-bit numbers within these bounds."""
    return _integer(ConfigType.LONG, minimum, maximum)


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false`` in any case."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return value == "true"


def choice(*choices: str) -> Callable[[str], str]:
    """A parser that takes one of ``choices`` as it is written."""

    def parse(text: str) -> str:
        text = text.strip()
        if text not in choices:
            raise ValueError(f"String must be one of: {', '.join(choices)}")
        return text

    return parse


def split_list(text: str) -> list[str]:
    """The elements of a list as Kafka writes it, without the spaces around them."""
    return [element.strip() for element in text.split(",")] if text.strip() else []


def _gzip_level(text: str) -> int:
    level = int32(None)(text)
    if level != -1 and not 1 <= level <= 9:
        raise ValueError("Value must be between 1 and 9 or equal to -1")
    return level


def _ratio(text: str) -> float:
    try:
        ratio = float(text.strip().replace("_", "x"))
    except ValueError:
        ratio = math.nan
    if math.isnan(ratio):
        raise ValueError("Not a number of type DOUBLE")
    if ratio < 0:
        raise ValueError("Value must be at least 0")
    if ratio > 1:
        raise ValueError("Value must be no more than 1")
    return ratio


def _cleanup_policy(text: str) -> str:
    policies = split_list(text)
    for policy in policies:
        if not policy:
            raise ValueError("values must not be empty")
        if policy == "compact":
            raise ValueError("compaction is not supported yet; use delete, or an empty list to keep all")
        if policy != "delete":
            raise ValueError("String must be one of: compact, delete")
    return "delete" if policies else ""


def _throttled_replicas(text: str) -> str:
    replicas = [replica for replica in split_list(text) if replica]
    if replicas != ["*"] and not all(map(_THROTTLED_REPLICA.fullmatch, replicas)):
        raise ValueError(
            "it must be the literal '*' or a list of replicas as [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    return ",".join(replicas)


def _no_remote_storage(text: str) -> bool:
    if boolean(text):
        raise ValueError("there is no tiered storage; use false")
    return False


def _flush_ms(text: str) -> int:
    milliseconds = int64(-1)(text)
    return _BROKER_FLUSH_MS if milliseconds == _INT64_MAX else milliseconds


def _show_flush_ms(value: object) -> str:
    return str(_INT64_MAX if value == _BROKER_FLUSH_MS else value)


_COMPACTION = "Stored and shown; takes effect with compaction, which comes later."
_TIERED = "Stored and shown; there is no tiered storage."
_THROTTLE = "Stored and shown; there is no replication to throttle."

CONFIG_ENTRIES: dict[str, ConfigEntry] = {
    "retention.ms": ConfigEntry(
        "retention_ms",
        ConfigType.LONG,
        int64(-1),
        "Delete segments whose newest record is older; -1 keeps all.",
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    "retention.bytes": ConfigEntry(
        "retention_bytes",
        ConfigType.LONG,
        int64(None),
        "Delete the oldest segments above this size; -1 keeps all.",
        ("log.retention.bytes",),
    ),
    "segment.bytes": ConfigEntry(
        "segment_bytes",
        ConfigType.INT,
        int32(_SEGMENT_BYTES_MIN),
        "Roll to a new segment at this size.",
        ("log.segment.bytes",),
    ),
    "segment.ms": ConfigEntry(
        "segment_ms",
        ConfigType.LONG,
        int64(1),
        "Roll to a new segment at this age.",
        ("log.roll.ms", "log.roll.hours"),
    ),
    "segment.jitter.ms": ConfigEntry(
        "segment_jitter_ms",
        ConfigType.LONG,
        int64(0),
        "Stored and shown; segments roll at segment.ms exactly.",
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    "segment.index.bytes": ConfigEntry(
        "segment_index_bytes",
        ConfigType.INT,
        int32(4),
        "Stored and shown; indexes grow with their segment.",
        ("log.index.size.max.bytes",),
    ),
    "max.message.bytes": ConfigEntry(
        "max_message_bytes",
        ConfigType.INT,
        int32(0),
        "Largest batch accepted; never more than 64 MiB, nor than a request may have.",
        ("message.max.bytes",),
    ),
    "flush.messages": ConfigEntry(
        "flush_messages",
        ConfigType.LONG,
        int64(1),
        "Sync before the ack after this many unsynced records.",
        ("log.flush.interval.messages",),
    ),
    "flush.ms": ConfigEntry(
        "flush_ms",
        ConfigType.LONG,
        _flush_ms,
        "Sync in the background at least this often; the default, or -1, is the broker's interval.",
        ("log.flush.interval.ms",),
        _show_flush_ms,
    ),
    "file.delete.delay.ms": ConfigEntry(
        "file_delete_delay_ms",
        ConfigType.LONG,
        int64(0),
        "Stored and shown; files are deleted as soon as nobody reads them.",
        ("log.segment.delete.delay.ms",),
    ),
    "cleanup.policy": ConfigEntry(
        "cleanup_policy",
        ConfigType.LIST,
        _cleanup_policy,
        "delete applies retention, an empty list keeps all; compact comes later.",
        ("log.cleanup.policy",),
    ),
    "delete.retention.ms": ConfigEntry(
        "delete_retention_ms",
        ConfigType.LONG,
        int64(0),
        _COMPACTION,
        ("log.cleaner.delete.retention.ms",),
    ),
    "min.compaction.lag.ms": ConfigEntry(
        "min_compaction_lag_ms",
        ConfigType.LONG,
        int64(0),
        _COMPACTION,
        ("log.cleaner.min.compaction.lag.ms",),
    ),
    "max.compaction.lag.ms": ConfigEntry(
        "max_compaction_lag_ms",
        ConfigType.LONG,
        int64(1),
        _COMPACTION,
        ("log.cleaner.max.compaction.lag.ms",),
    ),
    "min.cleanable.dirty.ratio": ConfigEntry(
        "min_cleanable_dirty_ratio",
        ConfigType.DOUBLE,
        _ratio,
        _COMPACTION,
        ("log.cleaner.min.cleanable.ratio",),
    ),
    "message.timestamp.type": ConfigEntry(
        "message_timestamp_type",
        ConfigType.STRING,
        choice("CreateTime", "LogAppendTime"),
        "Whose clock stamps records.",
        ("log.message.timestamp.type",),
    ),
    "message.timestamp.before.max.ms": ConfigEntry(
        "message_timestamp_before_max_ms",
        ConfigType.LONG,
        int64(0),
        "With CreateTime, refuse records that are older than this when they are produced.",
        ("log.message.timestamp.before.max.ms",),
    ),
    "message.timestamp.after.max.ms": ConfigEntry(
        "message_timestamp_after_max_ms",
        ConfigType.LONG,
        int64(0),
        "With CreateTime, refuse records that are further in the future than this.",
        ("log.message.timestamp.after.max.ms",),
    ),
    "compression.type": ConfigEntry(
        "compression_type",
        ConfigType.STRING,
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "How batches are stored; producer keeps them as their producer compressed them.",
        ("compression.type",),
    ),
    "compression.gzip.level": ConfigEntry(
        "compression_gzip_level",
        ConfigType.INT,
        _gzip_level,
        "Level when compression.type is gzip, 1 to 9; -1 is the default of the codec.",
        ("compression.gzip.level",),
    ),
    "compression.lz4.level": ConfigEntry(
        "compression_lz4_level",
        ConfigType.INT,
        int32(1, 17),
        "Level when compression.type is lz4.",
        ("compression.lz4.level",),
    ),
    "compression.zstd.level": ConfigEntry(
        "compression_zstd_level",
        ConfigType.INT,
        int32(-131_072, 22),
        "Level when compression.type is zstd.",
        ("compression.zstd.level",),
    ),
    "min.insync.replicas": ConfigEntry(
        "min_insync_replicas",
        ConfigType.INT,
        int32(1),
        "Stored and shown; there is one replica, and acks=all waits for its disk whatever is set here.",
        ("min.insync.replicas",),
    ),
    "unclean.leader.election.enable": ConfigEntry(
        "unclean_leader_election_enable",
        ConfigType.BOOLEAN,
        boolean,
        "Stored and shown; there is no other leader to elect.",
        ("unclean.leader.election.enable",),
    ),
    "preallocate": ConfigEntry(
        "preallocate",
        ConfigType.BOOLEAN,
        boolean,
        "Stored and shown; segments grow as they are written.",
        ("log.preallocate",),
    ),
    "index.interval.bytes": ConfigEntry(
        "index_interval_bytes",
        ConfigType.INT,
        int32(0),
        "Log bytes between two index entries.",
        ("log.index.interval.bytes",),
    ),
    "follower.replication.throttled.replicas": ConfigEntry(
        "follower_replication_throttled_replicas", ConfigType.LIST, _throttled_replicas, _THROTTLE
    ),
    "leader.replication.throttled.replicas": ConfigEntry(
        "leader_replication_throttled_replicas", ConfigType.LIST, _throttled_replicas, _THROTTLE
    ),
    "remote.storage.enable": ConfigEntry(
        "remote_storage_enable",
        ConfigType.BOOLEAN,
        _no_remote_storage,
        "Must be false: there is no tiered storage.",
    ),
    "remote.log.copy.disable": ConfigEntry("remote_log_copy_disable", ConfigType.BOOLEAN, boolean, _TIERED),
    "remote.log.delete.on.disable": ConfigEntry(
        "remote_log_delete_on_disable", ConfigType.BOOLEAN, boolean, _TIERED
    ),
    "local.retention.ms": ConfigEntry(
        "local_retention_ms", ConfigType.LONG, int64(-2), _TIERED, ("log.local.retention.ms",)
    ),
    "local.retention.bytes": ConfigEntry(
        "local_retention_bytes", ConfigType.LONG, int64(-2), _TIERED, ("log.local.retention.bytes",)
    ),
    "stele.storage": ConfigEntry(
        "storage",
        ConfigType.STRING,
        choice("disk", "memory"),
        "disk, or memory: a bounded ring that a restart empties.",
    ),
    "stele.memory.records": ConfigEntry(
        "memory_records", ConfigType.INT, int32(1, 10_000_000), "Records a memory partition keeps."
    ),
}


def parse_topic_config(
    configs: Mapping[str, str],
    *,
    defaults: TopicConfig = TopicConfig(),
) -> TopicConfig:
    """Read ``configs``; what they do not name is as in ``defaults``.

    Raises:
        InvalidConfig: a name that does not exist (checked first, as in Kafka), or a value
            outside its bounds.
    """
    for name, value in configs.items():
        if name not in CONFIG_ENTRIES:
            raise InvalidConfig.unknown(name, value)
    fields: dict[str, object] = {}
    for name, value in configs.items():
        entry = CONFIG_ENTRIES[name]
        if len(value) > _VALUE_CHARACTERS_MAX:
            raise InvalidConfig(
                name, value, f"Value must have no more than {_VALUE_CHARACTERS_MAX} characters"
            )
        try:
            fields[entry.field] = entry.parse(value)
        except ValueError as error:
            raise InvalidConfig(name, value, str(error)) from error
    return replace(defaults, **fields)  # type: ignore[arg-type]


def check_topic_config(config: TopicConfig) -> None:
    """Raises ``InvalidConfig`` if two values contradict each other.

    Not part of parsing: a later default of the broker may contradict what a topic has.
    """
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"it must not be above max.compaction.lag.ms, which is {config.max_compaction_lag_ms}",
        )
