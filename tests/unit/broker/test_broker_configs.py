"""The broker's configurations by Kafka's names: every setting is shown once, and defaults reach topics."""

from __future__ import annotations

import pytest

from app.broker.broker_configs import BROKER_CONFIGS, check_broker_values, topic_defaults
from app.errors import InvalidConfig, InvalidRequest
from app.groups.offset_retention import CHECK_INTERVAL_MS
from app.settings import SETTINGS
from app.storage.embedded import EngineOptions
from app.storage.topic_config import CONFIG_ENTRIES, TopicConfig
from app.transactions.timeouts import EXPIRATION_CHECK_INTERVAL_MS

ALTERABLE = [name for name, config in BROKER_CONFIGS.items() if config.parse is not None]


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_shown(setting: str) -> None:
    elsewhere = {"data_dir": "log.dirs", "offsets_retention_ms": "offsets.retention.minutes"}
    by_setting = {config.setting for config in BROKER_CONFIGS.values()}
    assert setting in by_setting or elsewhere[setting] in BROKER_CONFIGS


def test_constants_of_other_parts_are_shown_as_they_are() -> None:
    constants = {
        "num.io.threads": EngineOptions().sync_threads,
        "offsets.retention.check.interval.ms": CHECK_INTERVAL_MS,
        "transaction.remove.expired.transaction.cleanup.interval.ms": EXPIRATION_CHECK_INTERVAL_MS,
    }
    assert {name: BROKER_CONFIGS[name].default for name in constants} == {
        name: str(value) for name, value in constants.items()
    }


@pytest.mark.parametrize("name", BROKER_CONFIGS)
def test_every_configuration_has_documentation(name: str) -> None:
    assert BROKER_CONFIGS[name].description


def test_every_default_of_topics_can_be_changed_and_reaches_them() -> None:
    values = {
        entry.broker_names[0]: entry.show(getattr(TopicConfig(), entry.field))
        for entry in CONFIG_ENTRIES.values()
        if entry.broker_names
    }
    assert values.keys() <= set(ALTERABLE)
    check_broker_values(values)
    assert topic_defaults(values) == topic_defaults({}) == TopicConfig()
    assert topic_defaults({"log.retention.ms": "5", "message.max.bytes": "6"}) == TopicConfig(
        retention_ms=5, max_message_bytes=6
    )


def test_configurations_that_cannot_be_changed_name_their_setting() -> None:
    with pytest.raises(InvalidRequest, match="STELE_NUM_PARTITIONS"):
        check_broker_values({"num.partitions": "3"})
    with pytest.raises(InvalidConfig, match="Unknown broker config name"):
        check_broker_values({"no.such": "3"})
