"""Topic configuration: Kafka's names, each within its bounds."""

from __future__ import annotations

import pytest

from app.errors import InvalidConfig
from app.storage.topic_config import CONFIG_ENTRIES, TopicConfig, parse_topic_config


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
        ("retention.bytes", str(2**63)),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(64 * 1024 * 1024 + 1)),
        ("flush.messages", "0"),
        ("flush.ms", "-2"),
        ("index.interval.bytes", "-1"),
        ("cleanup.policy", "compact"),
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
        ("flush.ms", "-1"),
        ("index.interval.bytes", "0"),
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
