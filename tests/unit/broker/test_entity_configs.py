"""Configurations of groups as the groups read them."""

from collections.abc import Callable

import pytest

from app.broker.entity_configs import DEFAULT_GROUP_CONFIGS, GROUP_CONFIGS, GroupConfigs


def test_a_group_reads_what_is_set_at_that_moment_and_else_the_default() -> None:
    values: dict[str, dict[str, str]] = {}
    configs = GroupConfigs(lambda group: values.get(group, {}))
    assert configs.number("billing", "consumer.session.timeout.ms") == 45_000
    values["billing"] = {"consumer.session.timeout.ms": "60000", "share.auto.offset.reset": "earliest"}
    assert configs.number("billing", "consumer.session.timeout.ms") == 60_000
    assert configs.text("billing", "share.auto.offset.reset") == "earliest"
    assert configs.number("other", "consumer.session.timeout.ms") == 45_000
    assert configs.is_on("other", "share.renew.acknowledge.enable") is True


@pytest.mark.parametrize("name", GROUP_CONFIGS)
def test_every_default_is_a_valid_value(name: str) -> None:
    config = GROUP_CONFIGS[name]
    assert config.parse(config.default) is not None
    read: dict[type, Callable[[str, str], object]] = {
        int: DEFAULT_GROUP_CONFIGS.number,
        str: DEFAULT_GROUP_CONFIGS.text,
        bool: DEFAULT_GROUP_CONFIGS.is_on,
    }
    value = config.parse(config.default)
    assert read[type(value)]("any", name) == value
