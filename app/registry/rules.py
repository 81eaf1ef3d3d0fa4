"""Metadata and rules of schemas: data contracts, which are kept and returned, but not executed."""

from __future__ import annotations

from typing import Any, cast

from .definitions import Json
from .errors import InvalidRules

_KINDS = ("migrationRules", "domainRules", "encodingRules")


def check_rules(rule_set: Json | None) -> None:
    """Check that rules have names of their own. Raises ``InvalidRules``."""
    for kind in _KINDS:
        rules: Any = (rule_set or {}).get(kind) or []
        if not isinstance(rules, list):
            raise InvalidRules(f"{kind} is a list of rules")
        names = [_name(rule) for rule in cast("list[Any]", rules)]
        if any(not isinstance(name, str) or not name for name in names):
            raise InvalidRules(f"each rule of {kind} needs a name")
        if len(set(names)) < len(names):
            raise InvalidRules(f"two rules of {kind} have the same name")


def rules_of(rule_set: Json | None) -> list[Json]:
    """Return the rules of all kinds."""
    rules: list[Json] = []
    for kind in _KINDS:
        members: Any = (rule_set or {}).get(kind)
        if isinstance(members, list):
            rules += [rule for rule in cast("list[Any]", members) if isinstance(rule, dict)]
    return rules


def merged(*layers: object) -> Json | None:
    """Return an object with the members of all layers that are objects, those of later ones first.

    Maps are joined by key, rules by name, and sets of strings are united.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in cast("dict[str, Any]", layer if isinstance(layer, dict) else {}).items():
            result[name] = _joined(result.get(name), value)
    return result or None


def _joined(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**cast("dict[str, Any]", below), **cast("dict[str, Any]", above)}
    if isinstance(below, list) and isinstance(above, list):
        names = [_name(item) for item in cast("list[Any]", above)]
        return [item for item in cast("list[Any]", below) if _name(item) not in names] + above
    return above


def _name(item: Any) -> Any:
    return cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else item
