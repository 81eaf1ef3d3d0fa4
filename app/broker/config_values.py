"""Configurations as clients see them: values, their sources, and changes to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ..errors import InvalidConfig, InvalidRequest
from ..storage.config_types import ConfigType


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's numbers (KIP-226, KIP-714, KIP-1043)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One source of a value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One configuration; ``synonyms`` are all of its sources, the one in effect first."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType | None
    documentation: str
    synonyms: Sequence[ConfigSynonym] = ()
    is_read_only: bool = False
    is_sensitive: bool = False


class Operation(IntEnum):
    """The operations of an incremental change (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


def changed_values(
    changes: Iterable[ConfigChange],
    *,
    effective: Mapping[str, str],
    type_of: Callable[[str], ConfigType | None],
) -> dict[str, str | None]:
    """Return the values that ``changes`` set; None resets one to the default.

    ``effective`` are the values before the changes.

    Raises:
        InvalidRequest: a name is repeated, a value is null, or an operation is unknown.
        InvalidConfig: an element is added to or removed from a value that is not a list.
    """
    values: dict[str, str | None] = {}
    for change in changes:
        if change.name in values:
            raise InvalidRequest(f"Error due to duplicate config keys: {change.name[:80]} is changed twice")
        values[change.name] = _changed(change, effective=effective, type_of=type_of)
    return values


def _changed(
    change: ConfigChange, *, effective: Mapping[str, str], type_of: Callable[[str], ConfigType | None]
) -> str | None:
    name, operation, value = change
    if operation == Operation.DELETE:
        return None
    if value is None:
        raise InvalidRequest(f"Null value not supported for : {name[:80]}")
    if operation == Operation.SET:
        return value
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise InvalidRequest(
            f"operation {operation} of {name[:80]} is unknown; use SET, DELETE, APPEND or SUBTRACT"
        )
    if type_of(name) is not ConfigType.LIST:
        reason = f"Can't {Operation(operation).name} to key {name[:80]} because its type is not LIST."
        raise InvalidConfig(name, value, reason, message=reason)
    elements = [element for element in effective.get(name, "").split(",") if element]
    for element in value.split(","):
        if operation == Operation.APPEND and element not in elements:
            elements.append(element)
        elif operation == Operation.SUBTRACT and element in elements:
            elements.remove(element)
    return ",".join(elements)
