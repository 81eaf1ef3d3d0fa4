"""The quotas that can be set, their rules, and which of them holds for a client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ...errors import InvalidRequest
from ...errors.base import short
from .entities import EntityType, QuotaEntity

# Further from a whole number than this, a rate of bytes is refused, as in Kafka.
_WHOLE = 1e-6
_VALUE_MAX = float(2**63 - 1)


class QuotaKey(StrEnum):
    """Kafka's names of the quotas."""

    PRODUCE = "producer_byte_rate"
    CONSUME = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONNECTION = "connection_creation_rate"


# Kafka's quota of changes to topics and partitions.
_MUTATION = "controller_mutation_rate"
_OF_IP = frozenset({QuotaKey.CONNECTION})
_OF_CLIENT = frozenset(QuotaKey) - _OF_IP


def check_quota(entity: QuotaEntity, name: str, value: float | None) -> QuotaKey:
    """Return the key of a quota that is set, or removed if ``value`` is None.

    Raises:
        InvalidRequest: ``entity`` cannot have it, or not with this value.
    """
    allowed = _OF_IP if EntityType.IP in entity.names() else _OF_CLIENT
    if name == _MUTATION:
        raise InvalidRequest(f"{_MUTATION} is not supported: this broker does not limit changes to topics")
    if name not in allowed:
        raise InvalidRequest(f"{short(name)!r} is not a quota of {entity}; use {', '.join(sorted(allowed))}")
    key = QuotaKey(name)
    if value is None:
        return key
    if not math.isfinite(value) or not 0 < value <= _VALUE_MAX:
        raise InvalidRequest(f"{key} is {value}; use a number greater than 0, or remove the quota")
    if key is not QuotaKey.REQUEST and (value < 1 or abs(value - round(value)) > _WHOLE):
        raise InvalidRequest(f"{key} is {value}; use a whole number")
    return key


class Limit(NamedTuple):
    """A quota that holds for a client: its value, and who shares it."""

    value: float
    scope: tuple[str | None, str | None]


# A name, the default of a type (a None), or no part of that type.
_Part = tuple[str | None] | tuple[()]
_DEFAULT: _Part = (None,)
_ABSENT: _Part = ()


class Limits:
    """All quotas of one key, found by Kafka's precedence."""

    def __init__(self) -> None:
        self._clients: dict[tuple[_Part, _Part], float] = {}
        self._addresses: dict[str | None, float] = {}

    def __bool__(self) -> bool:
        return bool(self._clients or self._addresses)

    def add(self, entity: QuotaEntity, value: float) -> None:
        names = entity.names()
        if EntityType.IP in names:
            self._addresses[names[EntityType.IP]] = value
            return
        user: _Part = (names[EntityType.USER],) if EntityType.USER in names else _ABSENT
        client: _Part = (names[EntityType.CLIENT_ID],) if EntityType.CLIENT_ID in names else _ABSENT
        self._clients[user, client] = value

    def of_client(self, user: str, client_id: str) -> Limit | None:
        """Return what holds for ``client_id`` of ``user``: the most specific of eight levels.

        A quota of a user is shared by its clients, and one of a client id by all users. One of
        both, default or not, counts each pair on its own.
        """
        limits = self._clients
        if not limits:
            return None
        own_user, own_client = (user,), (client_id,)
        for level in (
            (own_user, own_client),
            (own_user, _DEFAULT),
            (own_user, _ABSENT),
            (_DEFAULT, own_client),
            (_DEFAULT, _DEFAULT),
            (_DEFAULT, _ABSENT),
            (_ABSENT, own_client),
            (_ABSENT, _DEFAULT),
        ):
            value = limits.get(level)
            if value is not None:
                return Limit(value, (user if level[0] else None, client_id if level[1] else None))
        return None

    def of_address(self, address: str) -> Limit | None:
        value = self._addresses.get(address, self._addresses.get(None))
        return None if value is None else Limit(value, (address, None))


def limits_by_key(quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> dict[QuotaKey, Limits]:
    """Arrange quotas by their key, to be looked up per request."""
    limits = {key: Limits() for key in QuotaKey}
    for entity, values in quotas.items():
        for key, value in values.items():
            limits[key].add(entity, value)
    return limits
