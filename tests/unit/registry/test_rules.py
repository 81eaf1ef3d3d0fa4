"""Metadata and rules, which are checked a little and merged."""

from __future__ import annotations

from typing import Any

import pytest

from app.registry.errors import InvalidRules
from app.registry.rules import check_rules, merged, rules_of


@pytest.mark.parametrize(
    "rule_set",
    [
        {"domainRules": [{"type": "CEL"}]},
        {"domainRules": [{"name": ""}]},
        {"migrationRules": [{"name": "a"}, {"name": "a"}]},
        {"encodingRules": ["a", 1]},
        {"domainRules": {"name": "a"}},
    ],
)
def test_rules_need_names_of_their_own(rule_set: Any) -> None:
    with pytest.raises(InvalidRules):
        check_rules(rule_set)


def test_rules_of_different_kinds_may_have_one_name() -> None:
    rule_set = {"domainRules": [{"name": "a"}], "migrationRules": [{"name": "a"}]}
    check_rules(rule_set)
    check_rules(None)
    assert rules_of(rule_set) == [{"name": "a"}, {"name": "a"}]


def test_later_layers_win() -> None:
    assert merged(
        {"properties": {"a": "default", "b": "default"}, "sensitive": ["a"]},
        {"properties": {"b": "own", "c": "own"}, "sensitive": ["b", "a"]},
        {"properties": {"c": "override"}},
    ) == {"properties": {"a": "default", "b": "own", "c": "override"}, "sensitive": ["b", "a"]}
    assert merged(None, None, None) is None
    assert merged(None, {}, None) is None


def test_rules_are_merged_by_name() -> None:
    assert merged(
        {"domainRules": [{"name": "a", "expr": "1"}, {"name": "b", "expr": "1"}]},
        {"domainRules": [{"name": "b", "expr": "2"}]},
    ) == {"domainRules": [{"name": "a", "expr": "1"}, {"name": "b", "expr": "2"}]}
