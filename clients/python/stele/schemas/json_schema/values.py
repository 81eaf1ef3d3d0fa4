"""What JSON values are, to JSON Schema."""

from __future__ import annotations

from typing import Any, TypeGuard

# To JSON Schema a number without a fraction is an integer, however it is written.
TYPES = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
NUMBERS = frozenset({"integer", "fraction"})


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def type_of(value: Any) -> str:
    """Return which of ``TYPES`` a value has."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "fraction"
    # A boolean is an integer, too, to Python.
    types = (bool, "boolean"), (int, "integer"), (str, "string"), (list, "array"), (dict, "object")
    return next((name for kind, name in types if isinstance(value, kind)), "null")


def identity_of(value: Any) -> Any:
    """Return what is equal for two values if they are: 1 is 1.0, but not true."""
    if is_object(value):
        return dict, frozenset((name, identity_of(each)) for name, each in value.items())
    if is_array(value):
        return list, tuple(map(identity_of, value))
    return isinstance(value, bool), value
