"""Topic configurations by Kafka's names, each with its type, default and bounds.

Every name of Apache Kafka 4.4 can be set. Some have no effect on a single broker:
they are stored and shown, and their description says so. Sizes are in bytes and
times in milliseconds, as the names say; where -1 is allowed it means no limit.
The ``stele.*`` names exist only in Stele.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import InvalidConfig
from .config_types import (
    INT64_MAX,
    ConfigType,
    as_stored,
    boolean,
    choice,
    int32,
    int64,
    ratio,
    split_list,
    trimmed,
)

StorageKind = Literal["disk", "memory"]
# When readers see a batch whose producer waits for a sync.
Visibility = Literal["synced", "appended"]
# What a producer with acks=all waits for.
Acks = Literal["synced", "replicated"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
CompressionType = Literal["producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"]
IcebergMode = Literal["off", "key_value", "value_schema"]
SchemaValidation = Literal["none", "id", "content"]
# In the order in which they were set. Empty: neither deleted nor compacted.
CleanupPolicy = Literal["delete", "compact", "delete,compact", "compact,delete", ""]

_DAY_MS = 24 * 3600 * 1000
# Largest batch that is accepted, whatever max.message.bytes allows: a whole batch is held in memory.
BATCH_BYTES_MAX = 64 * 1024 * 1024
# The longest string of Kafka's oldest protocol versions.
_VALUE_CHARACTERS_MAX = 32_767
# Kafka's minimum is 1 MiB. Below 1 KiB nearly every record would get a file of its own.
_SEGMENT_BYTES_MIN = 1024
_BROKER_FLUSH_MS = -1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIRROR_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
# Before the name of a subject that all records of a topic have.
FIXED_SUBJECT = "subject:"
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


MIRROR = "stele.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A value for every configuration, with the built-in defaults."""

    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    max_message_bytes: int = 1_048_588
    flush_messages: int = INT64_MAX
    # -1: the broker's own interval (log_flush_interval_ms)
    flush_ms: int = _BROKER_FLUSH_MS
    file_delete_delay_ms: int = 60_000
    cleanup_policy: CleanupPolicy = "delete"
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: TimestampType = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: CompressionType = "producer"
    # -1: the codec's default
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    index_interval_bytes: int = 4096
    follower_replication_throttled_replicas: str = ""
    leader_replication_throttled_replicas: str = ""
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    # -2: as retention.ms and retention.bytes
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    storage: StorageKind = "disk"
    visibility: Visibility = "synced"
    acks: Acks = "synced"
    memory_records: int = 10_000
    key_schema_validation: SchemaValidation = "none"
    value_schema_validation: SchemaValidation = "none"
    # topic, record, topic-record, or FIXED_SUBJECT and a name
    key_subject_strategy: str = "topic"
    value_subject_strategy: str = "topic"
    is_dead_letter_topic: bool = False
    # The mirror that alone may write to the topic; empty: it is no copy.
    mirror: str = ""
    # The id of the topic that it is or was a copy of.
    mirror_source_id: str = ""
    iceberg_mode: IcebergMode = "off"
    iceberg_commit_interval_ms: int = 60_000
    iceberg_snapshot_retention_ms: int = 24 * 3600 * 1000

    def as_strings(self) -> dict[str, str]:
        """Return every configuration as it is shown, by its Kafka name."""
        return {name: entry.show(getattr(self, entry.field)) for name, entry in CONFIG_ENTRIES.items()}

    @property
    def is_compacted(self) -> bool:
        """Return whether the cleanup policy has ``compact``."""
        return "compact" in self.cleanup_policy

    @property
    def has_contract(self) -> bool:
        """Return whether keys or values must have schemas."""
        return self.value_schema_validation != "none" or self.key_schema_validation != "none"

    @property
    def effective_local_retention_ms(self) -> int:
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        return self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes

    @property
    def is_deleted(self) -> bool:
        """Return whether the cleanup policy has ``delete``, so that retention applies."""
        return "delete" in self.cleanup_policy

    def enforced(self) -> TopicConfig:
        """Return the values that the broker acts on.

        They have no batch above the broker's limit, and no retention unless the
        cleanup policy is to delete. A compacted topic rolls its active segment at
        ``max.compaction.lag.ms`` if that is earlier, because an active segment is
        never cleaned. A memory topic is never compacted: it can have the policy
        only as a default of the broker that was set after it was created.
        """
        policy = self.cleanup_policy
        if self.is_compacted and self.storage == "memory":
            policy = "delete" if self.is_deleted else ""
        is_compacted = "compact" in policy
        return replace(
            self,
            cleanup_policy=policy,
            max_message_bytes=min(self.max_message_bytes, BATCH_BYTES_MAX),
            retention_ms=self.retention_ms if self.is_deleted else -1,
            retention_bytes=self.retention_bytes if self.is_deleted else -1,
            segment_ms=min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms,
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration that a user can set: its field, its parser and its description.

    ``parse`` raises ``ValueError`` with the rule that a text breaks. ``broker_names``
    are the broker's configurations that provide its default, in Kafka's order of
    precedence; their unit is milliseconds unless the name ends in another one.
    """

    field: str
    type: ConfigType
    parse: Callable[[str], object]
    description: str
    broker_names: tuple[str, ...] = ()
    show: Callable[[object], str] = _text


def _gzip_level(text: str) -> int:
    level = int32(None)(text)
    if level != -1 and not 1 <= level <= 9:
        raise ValueError("Value must be between 1 and 9 or equal to -1")
    return level


def _cleanup_policy(text: str) -> str:
    policies = split_list(text)
    for policy in policies:
        if not policy:
            raise ValueError("values must not be empty")
        if policy not in ("compact", "delete"):
            raise ValueError("String must be one of: compact, delete")
    return ",".join(dict.fromkeys(policies))


def _throttled_replicas(text: str) -> str:
    replicas = [replica for replica in split_list(text) if replica]
    if replicas != ["*"] and not all(map(_THROTTLED_REPLICA.fullmatch, replicas)):
        raise ValueError(
            "it must be the literal '*' or a list of replicas as [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    return ",".join(replicas)


def _flush_ms(text: str) -> int:
    milliseconds = int64(-1)(text)
    return _BROKER_FLUSH_MS if milliseconds == INT64_MAX else milliseconds


def _subject_strategy(text: str) -> str:
    strategy = trimmed(text)
    subject = strategy.removeprefix(FIXED_SUBJECT)
    is_fixed = subject != strategy and subject and subject.isprintable()
    if not is_fixed and strategy not in ("topic", "record", "topic-record"):
        raise ValueError("String must be one of: topic, record, topic-record, subject:NAME")
    return strategy


def _show_flush_ms(value: object) -> str:
    return str(INT64_MAX if value == _BROKER_FLUSH_MS else value)


def _mirror(text: str) -> str:
    if text and not _MIRROR_NAME.fullmatch(text):
        raise ValueError("it must be the name of a mirror: letters, digits, '.', '_' and '-', at most 100")
    return text


def _topic_id(text: str) -> str:
    if text and not _UUID.fullmatch(text):
        raise ValueError("it must be the id of a topic, as 5f0c3a52-…, or empty")
    return text


_NOT_USED = "Stored and shown; it changes nothing."
_VALIDATION = "What the {} of a record must have: none, the id of a schema of its subject, or content that this schema describes."
_STRATEGY = (
    "The subject of the schemas of {}: topic (TOPIC-{}), record (the name of the record), topic-record (TOPIC-NAME), "
    "or subject:NAME."
)
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
        "Keep the files that compaction replaced this long; other files are deleted once no reader uses them.",
        ("log.segment.delete.delay.ms",),
    ),
    "cleanup.policy": ConfigEntry(
        "cleanup_policy",
        ConfigType.LIST,
        _cleanup_policy,
        "delete applies retention, compact keeps the newest record per key, both do both; an empty list keeps all.",
        ("log.cleanup.policy",),
    ),
    "delete.retention.ms": ConfigEntry(
        "delete_retention_ms",
        ConfigType.LONG,
        int64(0),
        "Keep tombstones of a compacted topic at least this long after the first cleaning.",
        ("log.cleaner.delete.retention.ms",),
    ),
    "min.compaction.lag.ms": ConfigEntry(
        "min_compaction_lag_ms",
        ConfigType.LONG,
        int64(0),
        "Never compact records that are younger than this.",
        ("log.cleaner.min.compaction.lag.ms",),
    ),
    "max.compaction.lag.ms": ConfigEntry(
        "max_compaction_lag_ms",
        ConfigType.LONG,
        int64(1),
        "Compact once a record is older than this, whatever the dirty ratio; not below min.compaction.lag.ms.",
        ("log.cleaner.max.compaction.lag.ms",),
    ),
    "min.cleanable.dirty.ratio": ConfigEntry(
        "min_cleanable_dirty_ratio",
        ConfigType.DOUBLE,
        ratio,
        "Compact when this share of a partition's cleanable bytes is new since the last cleaning, 0 to 1.",
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
        "Stored and shown; segments get a little space ahead of small synced appends whatever is set here.",
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
        boolean,
        "Whether old segments may leave the disk once they are in the bucket of the replica (KIP-405).",
    ),
    "remote.log.copy.disable": ConfigEntry("remote_log_copy_disable", ConfigType.BOOLEAN, boolean, _NOT_USED),
    "remote.log.delete.on.disable": ConfigEntry(
        "remote_log_delete_on_disable", ConfigType.BOOLEAN, boolean, _NOT_USED
    ),
    "local.retention.ms": ConfigEntry(
        "local_retention_ms",
        ConfigType.LONG,
        int64(-2),
        "Age at which segments leave the disk, with remote.storage.enable; -1: none does, -2: as retention.ms.",
        ("log.local.retention.ms",),
    ),
    "local.retention.bytes": ConfigEntry(
        "local_retention_bytes",
        ConfigType.LONG,
        int64(-2),
        "Bytes of a partition that stay on the disk, with remote.storage.enable; -1: all, -2: as retention.bytes.",
        ("log.local.retention.bytes",),
    ),
    "errors.deadletterqueue.group.enable": ConfigEntry(
        "is_dead_letter_topic",
        ConfigType.BOOLEAN,
        boolean,
        "Whether share groups may write dead letters to the topic (KIP-1191).",
    ),
    "stele.storage": ConfigEntry(
        "storage",
        ConfigType.STRING,
        choice("disk", "memory"),
        "disk, or memory: a bounded ring that a restart empties.",
    ),
    "stele.visibility": ConfigEntry(
        "visibility",
        ConfigType.STRING,
        choice("synced", "appended"),
        "When readers see what a producer with acks=all sends: once it is synced, or as soon as it is appended.",
    ),
    "stele.acks": ConfigEntry(
        "acks",
        ConfigType.STRING,
        choice("synced", "replicated"),
        "What acks=all waits for: that records are synced, or that a cut of the replica in the bucket has them, too.",
    ),
    "stele.memory.records": ConfigEntry(
        "memory_records", ConfigType.INT, int32(1, 10_000_000), "Records a memory partition keeps."
    ),
    MIRROR: ConfigEntry(
        "mirror",
        ConfigType.STRING,
        _mirror,
        "The mirror that alone writes to this topic, set when it makes the topic and removed by its promotion.",
    ),
    "stele.mirror.source.id": ConfigEntry(
        "mirror_source_id",
        ConfigType.STRING,
        _topic_id,
        "The id of the topic that this one is or was a copy of, set by its mirror; it changes nothing.",
    ),
    "stele.iceberg.mode": ConfigEntry(
        "iceberg_mode",
        ConfigType.STRING,
        choice("off", "key_value", "value_schema"),
        "Write the topic as an Iceberg table (extra iceberg): with the columns of a record, or with the fields of its value.",
    ),
    "stele.iceberg.commit.interval.ms": ConfigEntry(
        "iceberg_commit_interval_ms",
        ConfigType.LONG,
        int64(100),
        "Time between two snapshots of the table.",
    ),
    "stele.iceberg.snapshot.retention.ms": ConfigEntry(
        "iceberg_snapshot_retention_ms",
        ConfigType.LONG,
        int64(0),
        "How long a snapshot of the table can be read after the next one has replaced it.",
    ),
    "stele.key.schema.validation": ConfigEntry(
        "key_schema_validation",
        ConfigType.STRING,
        choice("none", "id", "content"),
        _VALIDATION.format("key"),
    ),
    "stele.value.schema.validation": ConfigEntry(
        "value_schema_validation",
        ConfigType.STRING,
        choice("none", "id", "content"),
        _VALIDATION.format("value"),
    ),
    "stele.key.subject.name.strategy": ConfigEntry(
        "key_subject_strategy", ConfigType.STRING, _subject_strategy, _STRATEGY.format("keys", "key")
    ),
    "stele.value.subject.name.strategy": ConfigEntry(
        "value_subject_strategy", ConfigType.STRING, _subject_strategy, _STRATEGY.format("values", "value")
    ),
}


_VALIDATIONS = {"true": "id", "false": "none"}
_CONFLUENT = "io.confluent.kafka.serializers.subject."
_STRATEGIES = {
    "TopicNameStrategy": "topic",
    "RecordNameStrategy": "record",
    "TopicRecordNameStrategy": "topic-record",
}
# Names of Confluent Server and Redpanda, and the names for which they stand.
_ALIASES = {
    f"{vendor}.{part}.{name}": f"stele.{part}.{ours}"
    for vendor, validation in (("confluent", "schema.validation"), ("redpanda", "schema.id.validation"))
    for part in ("key", "value")
    for name, ours in (
        (validation, "schema.validation"),
        ("subject.name.strategy", "subject.name.strategy"),
    )
}


def without_aliases(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return configurations by the names of this module, those of other products translated.

    Raises:
        InvalidConfig: a value is none of the other product, or contradicts another one.
    """
    translated = {name: value for name, value in configs.items() if name not in _ALIASES}
    for alias, text in configs.items():
        name = _ALIASES.get(alias)
        if name is None:
            continue
        if text is None:
            translated.setdefault(name, None)
            continue
        value = _translated(alias, trimmed(text))
        other = translated.get(name)
        if other not in (None, value):
            raise InvalidConfig(alias, text, f"it stands for {name}={value}, which is {other} as well")
        translated[name] = value
    return translated


def _translated(alias: str, text: str) -> str:
    """Return the value of ours for which a value of another product stands."""
    is_strategy = alias.endswith(".strategy")
    values = _STRATEGIES if is_strategy else _VALIDATIONS
    value = values.get(text.removeprefix(_CONFLUENT) if is_strategy else text.lower())
    if value is None:
        raise InvalidConfig(alias, text, f"String must be one of: {', '.join(values)}")
    return value


def parse_topic_config(
    configs: Mapping[str, str],
    *,
    defaults: TopicConfig = TopicConfig(),
) -> TopicConfig:
    """Parse ``configs``, and take the rest from ``defaults``.

    Raises:
        InvalidConfig: a name does not exist (checked first, as in Kafka), or a value is
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


def explicit_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return those of a new topic, without aliases. Raises ``InvalidConfig`` if one is null."""
    explicit: dict[str, str] = {}
    for name, value in without_aliases(configs).items():
        if value is None:
            message = f"Null value not supported for topic configs: {name[:80]}"
            raise InvalidConfig(
                name, None, "a value is needed; omit the configuration to use the default", message=message
            )
        explicit[name] = value
    return explicit


def stored_topic_config(configs: Mapping[str, str], *, defaults: TopicConfig) -> TopicConfig:
    """Parse configurations that were read from the catalog."""
    return parse_topic_config(as_stored(configs, type_of_topic_config), defaults=defaults)


def type_of_topic_config(name: str) -> ConfigType | None:
    """Return the type of a configuration, None if there is no such name."""
    entry = CONFIG_ENTRIES.get(name)
    return None if entry is None else entry.type


def contract_of(config: TopicConfig) -> tuple[str, str]:
    """Return a configuration that makes the contract of a topic, and its value."""
    if config.value_schema_validation != "none":
        return "stele.value.schema.validation", config.value_schema_validation
    return "stele.key.schema.validation", config.key_schema_validation


def check_topic_config(config: TopicConfig) -> None:
    """Check that no two values contradict each other.

    This is not part of parsing, because a topic that exists must still be readable
    after a new default of the broker contradicts one of its values.

    Raises:
        InvalidConfig: the message names both configurations.
    """
    minimum, maximum = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if minimum > maximum:
        raise InvalidConfig(
            "min.compaction.lag.ms",
            str(minimum),
            f"it must not be above max.compaction.lag.ms, which is {maximum}",
            message=f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})",
        )
    if config.is_compacted and config.remote_storage_enable:
        raise InvalidConfig(
            "remote.storage.enable",
            "true",
            "the segments of a compacted topic stay on the disk, because compaction replaces them; use cleanup.policy=delete",
        )
    for name, local, total in (
        ("retention.ms", config.local_retention_ms, config.retention_ms),
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if config.remote_storage_enable and local != -2 and total >= 0 and not 0 <= local <= total:
            raise InvalidConfig(
                f"local.{name}",
                str(local),
                f"no more stays on the disk than in all: it must not be above {name}, which is {total}",
            )
    if config.mirror and config.storage == "memory":
        raise InvalidConfig(MIRROR, config.mirror, "a copy is kept on disk; use stele.storage=disk")
    if config.is_compacted and config.storage == "memory":
        raise InvalidConfig(
            "cleanup.policy",
            config.cleanup_policy,
            "a topic in memory (stele.storage=memory) cannot be compacted; use cleanup.policy=delete, or keep the "
            "topic on disk",
        )
    if config.has_contract and config.storage == "memory":
        raise InvalidConfig(
            *contract_of(config),
            "the records of a topic in memory (stele.storage=memory) are not validated; keep the topic on disk",
        )
