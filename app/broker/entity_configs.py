"""Configurations of groups and client metrics subscriptions, by Kafka's names.

``GROUP_CONFIGS`` has one line per configuration of groups; ``GroupConfigs`` is how the
groups read them. Those of a protocol that is not served (KIP-1071), and all of client metrics subscriptions (KIP-714), are stored and shown so that tools can manage
them, and have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from stele.wire.messages.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from ..errors import InvalidConfig, InvalidRequest
from ..linear_regex import InvalidPattern, LinearRegex
from ..storage.config_types import INT64_MAX, ConfigType, boolean, choice, int32, split_list, trimmed
from .topics import is_topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityConfig:
    """One configuration: its default, its parser and the broker's name for it.

    ``parse`` raises ``ValueError`` with the rule that a text breaks.
    """

    type: ConfigType
    default: str
    description: str
    parse: Callable[[str], object]
    broker_name: str | None = None


LOCK_MS = "share.record.lock.duration.ms"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
COPY_TO_DEAD_LETTERS = "errors.deadletterqueue.copy.record.enable"

_INT, _STRING, _LIST = ConfigType.INT, ConfigType.STRING, ConfigType.LIST
_LATER = "Takes effect with the group protocol it is for, which is not served yet."
# By protocol: what there is to say about its three intervals.
_INTERVALS = {
    "consumer": {
        "session.timeout.ms": "After how long without a heartbeat a member is removed.",
        "heartbeat.interval.ms": "How often members send heartbeats; the broker tells them.",
        "assignment.interval.ms": "The shortest time between two assignments of the group.",
    },
    "share": {
        "session.timeout.ms": "After how long without a heartbeat a member is removed.",
        "heartbeat.interval.ms": "How often members send heartbeats; the broker tells them.",
        "assignment.interval.ms": "Has no effect: members of a share group have nothing to give up first.",
    },
}
# As java.time.Duration reads it: days, then hours, minutes and seconds, each with a sign.
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=.)((?P<days>[+-]?[0-9]{1,19})D)?"
    r"(T(?=.)((?P<hours>[+-]?[0-9]{1,19})H)?((?P<minutes>[+-]?[0-9]{1,19})M)?"
    r"((?P<seconds>[+-]?[0-9]{1,19}([.,][0-9]{0,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_MATCH_KEYS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3_600_000


def _group_number(
    default: int, minimum: int, maximum: int | None, broker_name: str, description: str = _LATER
) -> EntityConfig:
    return EntityConfig(
        type=_INT,
        default=str(default),
        description=description,
        parse=int32(minimum, maximum),
        broker_name=broker_name,
    )


def _offset_reset(text: str) -> str:
    text = trimmed(text)
    kind, _, duration = text.partition(":")
    if text not in ("earliest", "latest") and (kind != "by_duration" or _duration_ms(duration) is None):
        raise ValueError("it must be earliest, latest, or by_duration: with a duration of ISO 8601")
    return text


def _duration_ms(text: str) -> int | None:
    """Parse a duration that is not negative and fits into 64 bits."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    parts = (Decimal((match[unit] or "0").replace(",", ".")) * unit_ms for unit, unit_ms in _UNITS_MS.items())
    duration_ms = int(sum(parts)) * (-1 if match["sign"] == "-" else 1)
    return duration_ms if 0 <= duration_ms <= INT64_MAX else None


def _dead_letter_topic(text: str) -> str:
    name = trimmed(text)
    if name.startswith("__") or (name and not is_topic_name(name)):
        raise ValueError("it must be the name of a topic that does not begin with two underscores, or empty")
    return name


def share_start(reset: str, now_ms: int) -> int:
    """Return where a share group begins, by its ``share.auto.offset.reset``: a time in ms or a position."""
    kind, _, duration = trimmed(reset).partition(":")
    if kind != "by_duration":
        return EARLIEST_TIMESTAMP if kind == "earliest" else LATEST_TIMESTAMP
    back_ms = _duration_ms(duration)
    assert back_ms is not None, reset
    return max(0, now_ms - back_ms)


def _elements(text: str) -> list[str]:
    elements = split_list(text)
    if not all(elements):
        raise ValueError("values must not be empty")
    return elements


def _matches(text: str) -> list[str]:
    patterns = _elements(text)
    for pattern in patterns:
        key, _, value = map(trimmed, pattern.partition("="))
        if key not in _MATCH_KEYS or not value or not _is_pattern(value):
            raise ValueError(f"Illegal client matching pattern: {pattern[:80]}")
    return patterns


def _is_pattern(text: str) -> bool:
    """Return whether ``text`` is a regular expression in one of the syntaxes in use."""
    try:
        LinearRegex(text)
    except InvalidPattern:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            return False
    return True


GROUP_CONFIGS: dict[str, EntityConfig] = {
    **{
        f"{protocol}.{name}": _group_number(
            default,
            minimum,
            maximum,
            f"group.{protocol}.{name}",
            _INTERVALS.get(protocol, {}).get(name, _LATER),
        )
        for protocol in ("consumer", "share", "streams")
        for name, default, minimum, maximum in (
            ("session.timeout.ms", 45_000, 45_000, 60_000),
            ("heartbeat.interval.ms", 5_000, 5_000, 15_000),
            ("assignment.interval.ms", 1_000, 0, 15_000),
        )
    },
    LOCK_MS: _group_number(
        30_000,
        # The settings of the broker may allow less; see ``check_lock``.
        1000,
        3_600_000,
        "group.share.record.lock.duration.ms",
        "How long a member holds the records that it got, unless it renews the lock.",
    ),
    "share.delivery.count.limit": _group_number(
        5, 2, 10, "group.share.delivery.count.limit", "How often a record is delivered before it is given up."
    ),
    "share.partition.max.record.locks": _group_number(
        2_000,
        100,
        4_000,
        "group.share.partition.max.record.locks",
        "How many records of a partition may be delivered and unfinished at a time.",
    ),
    "share.auto.offset.reset": EntityConfig(
        type=_STRING,
        default="latest",
        description="Where a group begins: earliest, latest, or by_duration: with a duration of ISO 8601.",
        parse=_offset_reset,
    ),
    "share.isolation.level": EntityConfig(
        type=_STRING,
        default="read_uncommitted",
        description="Whether records of open and aborted transactions are delivered.",
        parse=choice("read_committed", "read_uncommitted"),
    ),
    "share.renew.acknowledge.enable": EntityConfig(
        type=ConfigType.BOOLEAN,
        default="true",
        description="Whether members may renew the locks of records.",
        parse=boolean,
    ),
    DEAD_LETTER_TOPIC: EntityConfig(
        type=_STRING,
        default="",
        description="The topic for letters about records that are given up; empty for none (KIP-1191).",
        parse=_dead_letter_topic,
    ),
    COPY_TO_DEAD_LETTERS: EntityConfig(
        type=ConfigType.BOOLEAN,
        default="false",
        description="Whether a dead letter has the key, the value and the headers of its record.",
        parse=boolean,
    ),
    "streams.num.standby.replicas": _group_number(0, 0, 2, "group.streams.num.standby.replicas"),
    "streams.initial.rebalance.delay.ms": _group_number(
        3_000, 0, None, "group.streams.initial.rebalance.delay.ms"
    ),
}

CLIENT_METRICS_CONFIGS: dict[str, EntityConfig] = {
    "interval.ms": EntityConfig(
        type=_INT,
        default="300000",
        description="How often clients would push metrics; telemetry is not served yet.",
        parse=int32(None),
    ),
    "match": EntityConfig(
        type=_LIST,
        default="",
        description="Which clients are meant, as NAME=REGULAR-EXPRESSION; telemetry is not served yet.",
        parse=_matches,
    ),
    "metrics": EntityConfig(
        type=_LIST,
        default="",
        description="Prefixes of metrics that are wanted; telemetry is not served yet.",
        parse=_elements,
    ),
}


class GroupConfigs:
    """Reads the configurations of groups; each read has the value in effect at that moment.

    ``of`` returns the texts that are set for a group, ``default_of`` what holds on this broker for others.
    """

    def __init__(
        self,
        of: Callable[[str], Mapping[str, str]],
        default_of: Callable[[EntityConfig], str] = lambda config: config.default,
    ) -> None:
        self._of = of
        self._default_of = default_of

    def number(self, group: str, name: str) -> int:
        """Return a configuration that is an integer."""
        value = self._value(group, name)
        assert isinstance(value, int), name
        return value

    def text(self, group: str, name: str) -> str:
        """Return a configuration that is a text."""
        value = self._value(group, name)
        assert isinstance(value, str), name
        return value

    def is_on(self, group: str, name: str) -> bool:
        """Return a configuration that is a boolean."""
        value = self._value(group, name)
        assert isinstance(value, bool), name
        return value

    def _value(self, group: str, name: str) -> object:
        config = GROUP_CONFIGS[name]
        text = self._of(group).get(name)
        return config.parse(self._default_of(config) if text is None else text)


# For groups of a broker in which nothing is configured, as in tests.
DEFAULT_GROUP_CONFIGS = GroupConfigs(lambda _group: {})


def check_group_values(values: Mapping[str, str]) -> None:
    """Check configurations of a group. Raises ``InvalidConfig``."""
    for name, value in values.items():
        config = GROUP_CONFIGS.get(name)
        if config is None:
            raise InvalidConfig.unknown(name, value, kind="group")
        try:
            config.parse(value)
        except ValueError as error:
            raise InvalidConfig(name, value, str(error)) from error


def check_lock(values: Mapping[str, str], *, minimum: int, maximum: int) -> None:
    """Check how long the group's locks last, by the bounds of this broker.

    Raises ``InvalidConfig``.
    """
    text = values.get(LOCK_MS)
    if text is None:
        return
    try:
        int32(minimum, maximum)(text)
    except ValueError as error:
        raise InvalidConfig(LOCK_MS, text, str(error)) from error


def check_dead_letter_topic(values: Mapping[str, str], *, prefix: str) -> None:
    """Check the name of the dead-letter topic of a group. Raises ``InvalidConfig``."""
    name = values.get(DEAD_LETTER_TOPIC, "").strip()
    if name and not name.startswith(prefix):
        raise InvalidConfig(
            DEAD_LETTER_TOPIC, name, f"it must begin with {prefix!r} (STELE_DEAD_LETTER_TOPIC_PREFIX)"
        )


def check_client_metrics_values(values: Mapping[str, str]) -> None:
    """Check configurations of a client metrics subscription.

    Raises ``InvalidConfig`` or, as in Kafka for an unknown name and an interval out of bounds, ``InvalidRequest``.
    """
    for name, value in values.items():
        config = CLIENT_METRICS_CONFIGS.get(name)
        if config is None:
            raise InvalidRequest(f"Unknown client metrics configuration: {name[:80]}")
        try:
            parsed = config.parse(value)
        except ValueError as error:
            raise InvalidConfig(name, value, str(error)) from error
        if isinstance(parsed, int) and not _INTERVAL_MS_MIN <= parsed <= _INTERVAL_MS_MAX:
            raise InvalidRequest(
                f"Invalid value {value[:80]} for {name}, interval must be between {_INTERVAL_MS_MIN} and "
                f"{_INTERVAL_MS_MAX} (1 hour)"
            )
