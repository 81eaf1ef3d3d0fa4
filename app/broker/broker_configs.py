"""The broker's configurations by Kafka's names, and which of them can change.

One table holds three kinds. The defaults of topic configurations can be changed
while the broker runs, for this broker or for the whole cluster. Settings are read
when it starts, and are only shown, but for those in ``_CHANGEABLE``. The rest are constants of a single broker.
Settings that Kafka has no name for are shown as ``stele.…``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import InvalidConfig, InvalidRequest
from ..settings import SETTINGS, Settings, is_secret
from ..storage.config_types import ConfigType, int32, int64
from ..storage.topic_config import CONFIG_ENTRIES, ConfigEntry, TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The state of the broker that its configurations are read from."""

    settings: Settings
    broker_id: int
    # HOST:PORT
    listener: str
    advertised_listener: str
    # Kafka's name of what its listener speaks: PLAINTEXT or SSL.
    security_protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One configuration: its built-in default, its value at the start, and its parser.

    ``parse`` is None if the value cannot be changed; otherwise it raises ``ValueError``
    with the rule that a text breaks. ``is_shown_unset`` is false for configurations
    that Kafka lists only if they are set.
    """

    type: ConfigType
    description: str
    default: str | None = None
    read: Callable[[BrokerFacts], str | None] | None = None
    parse: Callable[[str], object] | None = None
    setting: str | None = None
    is_sensitive: bool = False
    is_shown_unset: bool = True

    def value_at_start(self, facts: BrokerFacts) -> str | None:
        return self.default if self.read is None else self.read(facts)


# Kafka's name → Stele's setting. Where the units differ, a function below converts them.
_SETTINGS = {
    "auto.create.topics.enable": "auto_create_topics_enable",
    "broker.id": "broker_id",
    "broker.rack": "broker_rack",
    "connections.max.idle.ms": "idle_timeout_ms",
    "errors.deadletterqueue.auto.create.topics.enable": "dead_letter_auto_create_topics_enable",
    "errors.deadletterqueue.topic.name.prefix": "dead_letter_topic_prefix",
    "fetch.max.bytes": "fetch_bytes_max",
    "group.consumer.max.size": "group_consumer_size_max",
    "group.consumer.migration.policy": "group_consumer_migration_policy",
    "group.initial.rebalance.delay.ms": "group_initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "group_max_session_timeout_ms",
    "group.max.size": "group_size_max",
    "group.min.session.timeout.ms": "group_min_session_timeout_ms",
    "group.share.max.record.lock.duration.ms": "group_share_max_record_lock_duration_ms",
    "group.share.min.record.lock.duration.ms": "group_share_min_record_lock_duration_ms",
    "group.share.record.lock.duration.ms": "group_share_record_lock_duration_ms",
    "log.cleaner.backoff.ms": "log_cleaner_backoff_ms",
    "log.cleaner.dedupe.buffer.size": "log_cleaner_dedupe_buffer_size",
    "log.cleaner.enable": "log_cleaner_enable",
    "log.flush.offset.checkpoint.interval.ms": "log_checkpoint_interval_ms",
    "log.flush.scheduler.interval.ms": "log_flush_interval_ms",
    "log.retention.check.interval.ms": "log_retention_check_interval_ms",
    "max.connections": "connections_max",
    "node.id": "broker_id",
    "num.partitions": "num_partitions",
    "offset.metadata.max.bytes": "offset_metadata_bytes_max",
    "producer.id.expiration.ms": "producer_id_expiration_ms",
    "quota.window.num": "quota_window_num",
    "quota.window.size.seconds": "quota_window_size_seconds",
    "request.timeout.ms": "request_timeout_ms",
    "socket.request.max.bytes": "frame_bytes_max",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "transaction_check_interval_ms",
    "transaction.max.timeout.ms": "transaction_max_timeout_ms",
    "transactional.id.expiration.ms": "transactional_id_expiration_ms",
}
# Configurations that are 64-bit numbers in Kafka.
_LONGS = {
    "connections.max.idle.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.flush.scheduler.interval.ms",
    "log.retention.check.interval.ms",
}
SHARE_LOCK_MS = "group.share.record.lock.duration.ms"
SHARE_LOCK_MS_MIN = "group.share.min.record.lock.duration.ms"
SHARE_LOCK_MS_MAX = "group.share.max.record.lock.duration.ms"
# Settings that can change while the broker runs.
CLEANER_BACKOFF_MS = "log.cleaner.backoff.ms"
_CHANGEABLE: Mapping[str, Callable[[str], object]] = {
    CLEANER_BACKOFF_MS: int64(0),
    SHARE_LOCK_MS: int32(1000, 3_600_000),
    SHARE_LOCK_MS_MIN: int32(1000, 30_000),
    SHARE_LOCK_MS_MAX: int32(30_000, 3_600_000),
}
_MS_PER_MINUTE = 60_000
_ONE_BROKER = "There is one broker; this is what holds for it."


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setting(name: str, setting: str) -> BrokerConfig:
    declared = SETTINGS[setting]
    if declared.info.annotation is bool:
        config_type = ConfigType.BOOLEAN
    elif declared.info.annotation is int:
        config_type = ConfigType.LONG if name in _LONGS else ConfigType.INT
    else:
        config_type = ConfigType.STRING

    def read(facts: BrokerFacts) -> str | None:
        return _text(declared.value(facts.settings))

    return BrokerConfig(
        type=config_type,
        description=declared.info.description or "",
        default=_text(declared.default),
        read=read,
        parse=_CHANGEABLE.get(name),
        setting=setting,
        is_sensitive=is_secret(setting),
    )


def _retention_ms(text: str) -> int:
    milliseconds = int64(-1)(text)
    if milliseconds == 0:
        raise ValueError("Value must be -1 (no limit) or at least 1")
    return milliseconds


def _topic_default(entry: ConfigEntry) -> BrokerConfig:
    # Kafka's defaults of these are in hours; the name in milliseconds has no value until it is set.
    has_other_units = len(entry.broker_names) > 1 or entry.field == "flush_ms"
    return BrokerConfig(
        type=entry.type,
        description=f"Default of topics: {entry.description}",
        default=None if has_other_units else entry.show(getattr(TopicConfig(), entry.field)),
        parse=_retention_ms if entry.field == "retention_ms" else entry.parse,
    )


def _fixed(config_type: ConfigType, value: str | None, description: str = _ONE_BROKER) -> BrokerConfig:
    return BrokerConfig(type=config_type, description=description, default=value)


def _listeners(facts: BrokerFacts) -> str:
    return f"{facts.security_protocol}://{facts.listener}"


def _advertised_listeners(facts: BrokerFacts) -> str:
    return f"{facts.security_protocol}://{facts.advertised_listener}"


def _security_protocols(facts: BrokerFacts) -> str:
    return f"{facts.security_protocol}:{facts.security_protocol}"


def _connections_per_address(facts: BrokerFacts) -> str:
    most = facts.settings.connections_per_address_max
    return str(_UNLIMITED if most is None else most)


def _data_dir(facts: BrokerFacts) -> str:
    return str(facts.settings.data_dir.absolute())


def _offsets_retention_minutes(facts: BrokerFacts) -> str:
    return str(facts.settings.offsets_retention_ms // _MS_PER_MINUTE)


def _throttle() -> BrokerConfig:
    return BrokerConfig(
        type=ConfigType.LONG,
        description="Stored and shown; there is no replication to throttle.",
        parse=int64(0),
        is_shown_unset=False,
    )


_UNLIMITED = 2**31 - 1

_INT, _LIST, _STRING = ConfigType.INT, ConfigType.LIST, ConfigType.STRING

_KAFKA_NAMES: dict[str, BrokerConfig] = {
    **{name: _setting(name, setting) for name, setting in _SETTINGS.items()},
    **{
        entry.broker_names[0]: _topic_default(entry)
        for entry in CONFIG_ENTRIES.values()
        if entry.broker_names
    },
    "advertised.listeners": BrokerConfig(
        type=_LIST, description="Where clients reach this broker.", read=_advertised_listeners
    ),
    "listeners": BrokerConfig(
        type=_LIST,
        description="The address that is bound.",
        default="PLAINTEXT://127.0.0.1:9092",
        read=_listeners,
    ),
    "log.dir": BrokerConfig(type=_LIST, description="The directory of the logs.", read=_data_dir),
    "log.dirs": BrokerConfig(type=_LIST, description="The directory of the logs.", read=_data_dir),
    "offsets.retention.minutes": BrokerConfig(
        type=_INT,
        description="Offsets of a group that has been empty for this long are dropped (minutes).",
        default=str(7 * 24 * 60),
        read=_offsets_retention_minutes,
    ),
    "log.retention.minutes": _fixed(_INT, None, "Not used: set log.retention.ms."),
    "log.retention.hours": _fixed(_INT, "168", "What holds unless log.retention.ms is set."),
    "log.roll.hours": _fixed(_INT, "168", "What holds unless log.roll.ms is set."),
    "log.roll.jitter.hours": _fixed(_INT, "0", "Segments roll at their age exactly."),
    "log.cleaner.threads": _fixed(_INT, "1", "One partition is compacted at a time."),
    "alter.config.policy.class.name": _fixed(ConfigType.CLASS, None, "There are no policies."),
    "authorizer.class.name": _fixed(_STRING, "", "There is no authorizer."),
    "auto.leader.rebalance.enable": _fixed(ConfigType.BOOLEAN, "false"),
    "controlled.shutdown.enable": _fixed(ConfigType.BOOLEAN, "true", "A shutdown syncs everything first."),
    "create.topic.policy.class.name": _fixed(ConfigType.CLASS, None, "There are no policies."),
    "default.replication.factor": _fixed(_INT, "1"),
    "delete.topic.enable": _fixed(ConfigType.BOOLEAN, "true", "Topics can be deleted."),
    "group.coordinator.rebalance.protocols": _fixed(
        _LIST, "classic,consumer", "The group protocols that are served."
    ),
    "inter.broker.listener.name": _fixed(_STRING, None),
    "listener.security.protocol.map": BrokerConfig(
        type=_STRING,
        description="What the Kafka listener speaks.",
        default="PLAINTEXT:PLAINTEXT",
        read=_security_protocols,
    ),
    "max.connections.per.ip": BrokerConfig(
        type=_INT,
        description="Connections from one address.",
        default=str(_UNLIMITED),
        read=_connections_per_address,
    ),
    "max.connections.per.ip.overrides": _fixed(_STRING, "", "All addresses have the same limit."),
    "num.io.threads": _fixed(_INT, "8", "Files that are synced concurrently."),
    "num.network.threads": _fixed(_INT, "1", "One event loop serves every connection."),
    "offsets.retention.check.interval.ms": _fixed(
        ConfigType.LONG, "600000", "Interval of the check for expired offsets."
    ),
    "offsets.topic.num.partitions": _fixed(_INT, "50", "Offsets are kept in a file of their own."),
    "offsets.topic.replication.factor": _fixed(ConfigType.SHORT, "1"),
    "process.roles": _fixed(_LIST, "broker,controller"),
    "remote.log.storage.system.enable": _fixed(ConfigType.BOOLEAN, "false", "There is no tiered storage."),
    "sasl.enabled.mechanisms": _fixed(_LIST, "", "There is no authentication yet."),
    "security.inter.broker.protocol": _fixed(_STRING, "PLAINTEXT"),
    "socket.listen.backlog.size": _fixed(_INT, "1024", "Connections that wait to be accepted."),
    "transaction.remove.expired.transaction.cleanup.interval.ms": _fixed(
        _INT, "3600000", "Interval of the check for expired transactional ids."
    ),
    "follower.replication.throttled.rate": _throttle(),
    "leader.replication.throttled.rate": _throttle(),
    "replica.alter.log.dirs.io.max.bytes.per.second": _throttle(),
}

_SHOWN_BY_KAFKA_NAME = {*_SETTINGS.values(), "data_dir", "offsets_retention_ms"}

BROKER_CONFIGS: dict[str, BrokerConfig] = {
    **_KAFKA_NAMES,
    **{
        (name := f"stele.{setting.replace('_', '.')}"): _setting(name, setting)
        for setting in SETTINGS
        if setting not in _SHOWN_BY_KAFKA_NAME
    },
}

# The broker's name of a topic configuration → the names that Kafka reads in turn for its value.
SYNONYMS: dict[str, tuple[str, ...]] = {
    entry.broker_names[0]: entry.broker_names
    for entry in CONFIG_ENTRIES.values()
    if len(entry.broker_names) > 1
}


def check_broker_values(values: Mapping[str, str]) -> None:
    """Check values to be set on a broker, or as the default of all brokers.

    Raises:
        InvalidConfig: no configuration has that name.
        InvalidRequest: a configuration cannot change while the broker runs, or a value is not valid.
    """
    for name in values:
        config = BROKER_CONFIGS.get(name)
        if config is None:
            raise InvalidConfig.unknown(name, values[name], kind="broker")
        if config.parse is None:
            hint = (
                "it is fixed while the broker runs"
                if config.setting is None
                else f"set STELE_{config.setting.upper()} and restart the broker"
            )
            raise InvalidRequest(f"Cannot update these configs dynamically: [{name}]; {hint}")
    for name, value in values.items():
        parse = BROKER_CONFIGS[name].parse
        try:
            if parse is not None:
                parse(value)
        except ValueError as error:
            raise InvalidRequest(str(InvalidConfig(name, value, str(error)))) from error


def topic_defaults(values: Mapping[str, str]) -> TopicConfig:
    """Return the topic defaults of a broker on which ``values`` are set."""
    fields: dict[str, object] = {}
    for entry in CONFIG_ENTRIES.values():
        value = values.get(entry.broker_names[0]) if entry.broker_names else None
        if value is not None:
            fields[entry.field] = entry.parse(value)
    return replace(TopicConfig(), **fields)  # type: ignore[arg-type]


def check_share_locks(values: Mapping[str, str], settings: Settings) -> None:
    """Check that the locks of share groups last as long as they may.

    ``values`` are set on the broker. Raises ``InvalidRequest``.
    """
    low, lock, high = (
        int(values.get(name, SETTINGS[_SETTINGS[name]].value(settings)))
        for name in (SHARE_LOCK_MS_MIN, SHARE_LOCK_MS, SHARE_LOCK_MS_MAX)
    )
    if not low <= lock <= high:
        reason = f"it must be from {low} ({SHARE_LOCK_MS_MIN}) to {high} ({SHARE_LOCK_MS_MAX})"
        raise InvalidRequest(str(InvalidConfig(SHARE_LOCK_MS, str(lock), reason)))


# A default → the default that it must not exceed. For retention, -1 is no limit and -2 the same as the other.
_NOT_ABOVE = {
    "log.cleaner.min.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "log.local.retention.ms": "log.retention.ms",
    "log.local.retention.bytes": "log.retention.bytes",
}
_FIELDS = {entry.broker_names[0]: entry.field for entry in CONFIG_ENTRIES.values() if entry.broker_names}


def check_topic_defaults(values: Mapping[str, str]) -> None:
    """Check that the topic defaults in ``values`` do not contradict each other.

    Kafka checks those of retention only. The others would refuse every new topic.

    Raises:
        InvalidRequest: one of them exceeds the other.
    """
    defaults = topic_defaults(values)
    for name, upper_name in _NOT_ABOVE.items():
        value: int = getattr(defaults, _FIELDS[name])
        upper: int = getattr(defaults, _FIELDS[upper_name])
        if upper < 0 or value == -2:
            continue
        if value == -1 or value > upper:
            reason = f"it must not be above {upper_name}, which is {upper}; change one of the two"
            raise InvalidRequest(str(InvalidConfig(name, str(value), reason)))
