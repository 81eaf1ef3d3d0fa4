"""Topic configuration: Kafka's names, each within its bounds."""

from __future__ import annotations

import pytest

from app.errors import InvalidConfig
from app.storage.topic_config import CONFIG_ENTRIES, TopicConfig, check_topic_config, parse_topic_config


def test_nothing_set_is_the_default() -> None:
    assert parse_topic_config({}) == TopicConfig()


def test_what_is_in_effect_can_be_set_again() -> None:
    config = parse_topic_config({"retention.ms": "5", "stele.storage": "memory", "segment.bytes": "4096"})
    assert (config.retention_ms, config.storage, config.segment_bytes) == (5, "memory", 4096)
    assert parse_topic_config(config.as_strings()) == config
    assert set(config.as_strings()) == set(CONFIG_ENTRIES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("retention.ms", str(2**63)),
        ("retention.bytes", str(2**63)),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", str(2**31)),
        ("flush.messages", "0"),
        ("flush.ms", "-2"),
        ("index.interval.bytes", "-1"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "compact,"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("delete.retention.ms", "-1"),
        ("file.delete.delay.ms", "-1"),
        ("message.timestamp.type", "createtime"),
        ("stele.storage", "tape"),
        ("stele.memory.records", "0"),
        ("no.such.name", "1"),
    ],
)
def test_a_value_outside_its_bounds_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        parse_topic_config({name: value})
    assert error.value.name == name
    assert error.value.value == value
    assert error.value.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("retention.ms", str(2**63 - 1)),
        ("segment.bytes", "1024"),
        ("segment.bytes", str(2**31 - 1)),
        ("flush.ms", "0"),
        ("max.message.bytes", str(2**31 - 1)),
        ("min.insync.replicas", "2"),
        ("index.interval.bytes", "0"),
        ("min.cleanable.dirty.ratio", "0.0"),
        ("min.cleanable.dirty.ratio", "1.0"),
        ("max.compaction.lag.ms", "1"),
    ],
)
def test_the_bounds_themselves_are_allowed(name: str, value: str) -> None:
    assert parse_topic_config({name: value}).as_strings()[name] == value


@pytest.mark.parametrize("name", CONFIG_ENTRIES)
def test_every_name_fills_a_field_and_says_what_it_means(name: str) -> None:
    entry = CONFIG_ENTRIES[name]
    assert hasattr(TopicConfig(), entry.field)
    assert entry.description.endswith(".")
    assert entry.parse(TopicConfig().as_strings()[name]) == getattr(TopicConfig(), entry.field)


def test_values_of_every_type_are_read_as_kafka_reads_them() -> None:
    config = parse_topic_config(
        {"retention.ms": " +5 ", "preallocate": "TRUE", "min.cleanable.dirty.ratio": "5e-1"}
    )
    shown = config.as_strings()
    assert (shown["retention.ms"], shown["preallocate"], shown["min.cleanable.dirty.ratio"]) == (
        "5",
        "true",
        "0.5",
    )


@pytest.mark.parametrize("value", ["-1", str(2**63 - 1)])
def test_the_default_of_flush_ms_leaves_it_to_the_broker(value: str) -> None:
    assert parse_topic_config({"flush.ms": value}) == TopicConfig()


def test_a_topic_without_a_cleanup_policy_has_no_retention() -> None:
    config = parse_topic_config({"cleanup.policy": "", "retention.ms": "5", "retention.bytes": "6"})
    assert (config.as_strings()["cleanup.policy"], config.as_strings()["retention.ms"]) == ("", "5")
    assert (config.enforced().retention_ms, config.enforced().retention_bytes) == (-1, -1)


def test_a_batch_has_a_limit_that_no_topic_can_raise() -> None:
    config = parse_topic_config({"max.message.bytes": str(2**31 - 1)})
    assert config.enforced().max_message_bytes == 64 * 1024 * 1024


def test_defaults_can_be_those_of_the_broker() -> None:
    defaults = TopicConfig(retention_ms=5, segment_bytes=4096)
    config = parse_topic_config({"segment.bytes": "8192"}, defaults=defaults)
    assert (config.retention_ms, config.segment_bytes) == (5, 8192)


def test_values_that_contradict_each_other_are_refused_in_kafkas_words() -> None:
    with pytest.raises(InvalidConfig) as error:
        check_topic_config(TopicConfig(min_compaction_lag_ms=6, max_compaction_lag_ms=5))
    assert str(error.value) == (
        "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)"
    )


@pytest.mark.parametrize(
    ("text", "shown", "is_compacted", "is_deleted"),
    [
        ("delete", "delete", False, True),
        ("compact", "compact", True, False),
        ("delete,compact", "delete,compact", True, True),
        (" compact , delete ", "compact,delete", True, True),
        ("compact,compact", "compact", True, False),
        ("", "", False, False),
    ],
)
def test_a_cleanup_policy_is_a_list(text: str, shown: str, is_compacted: bool, is_deleted: bool) -> None:
    config = parse_topic_config({"cleanup.policy": text, "retention.ms": "5", "retention.bytes": "6"})
    assert config.as_strings()["cleanup.policy"] == shown
    assert (config.is_compacted, config.is_deleted) == (is_compacted, is_deleted)
    retention = (config.enforced().retention_ms, config.enforced().retention_bytes)
    assert retention == ((5, 6) if is_deleted else (-1, -1))


@pytest.mark.parametrize(("policy", "segment_ms"), [("compact", 50), ("compact,delete", 50), ("delete", 60)])
def test_a_compacted_topic_rolls_in_time_for_its_maximum_lag(policy: str, segment_ms: int) -> None:
    values = {"cleanup.policy": policy, "segment.ms": "60", "max.compaction.lag.ms": "50"}
    config = parse_topic_config(values)
    assert (config.segment_ms, config.enforced().segment_ms) == (60, segment_ms)


def test_a_topic_in_memory_is_not_compacted() -> None:
    asked = parse_topic_config({"cleanup.policy": "compact", "stele.storage": "memory"})
    with pytest.raises(InvalidConfig, match=r"cleanup\.policy.*stele\.storage=memory.*cannot be compacted"):
        check_topic_config(asked)


def test_a_topic_in_memory_ignores_a_default_of_the_broker_to_compact() -> None:
    for policy, enforced in (("compact", ""), ("compact,delete", "delete")):
        defaults = parse_topic_config({"cleanup.policy": policy})
        config = parse_topic_config({"stele.storage": "memory"}, defaults=defaults)
        assert config.enforced().cleanup_policy == enforced


def test_errors_have_kafkas_words() -> None:
    with pytest.raises(InvalidConfig) as error:
        parse_topic_config({"retention.ms": "-2"})
    assert str(error.value) == "Invalid value -2 for configuration retention.ms: Value must be at least -1"
    with pytest.raises(InvalidConfig) as error:
        parse_topic_config({"no.such": "1"})
    assert str(error.value) == "Unknown topic config name: no.such"
