"""Entities of quotas (a user, a client id, both, or an address), and filters over them (KIP-546)."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from ...errors import InvalidRequest
from ...errors.base import short

_NAME_CHARACTERS_MAX = 1_000


class EntityType(StrEnum):
    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The name per type, sorted by type; None stands for all that have no quota of their own."""

    parts: tuple[tuple[EntityType, str | None], ...]

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
        """Check and sort ``parts``. Raises InvalidRequest."""
        named: dict[EntityType, str | None] = {}
        for text, name in parts:
            kind = entity_type(text)
            if kind is None:
                raise InvalidRequest(unknown_type(text))
            if kind in named:
                raise InvalidRequest(f"the entity has two names of type {kind}; give one")
            named[kind] = _checked_name(kind, name)
        if not named:
            raise InvalidRequest("the quota has no entity; name a user, a client-id or an ip")
        if EntityType.IP in named and len(named) > 1:
            raise InvalidRequest("ip cannot be combined with user or client-id")
        return cls(tuple(sorted(named.items())))

    @classmethod
    def from_text(cls, text: str) -> QuotaEntity:
        """Parse what ``str`` returned."""
        return cls.of(cast("dict[str, str | None]", json.loads(text)).items())

    def __str__(self) -> str:
        return json.dumps(dict(self.parts))

    def names(self) -> Mapping[EntityType, str | None]:
        return dict(self.parts)


def entity_type(text: str) -> EntityType | None:
    """Return the type with the name ``text``, None if there is none."""
    try:
        return EntityType(text)
    except ValueError:
        return None


def unknown_type(text: str) -> str:
    """Return the message for a type that does not exist."""
    return f"entity type {short(text)!r} is unknown; use user, client-id or ip"


def _checked_name(kind: EntityType, name: str | None) -> str | None:
    if name is None:
        return None
    if not name or len(name) > _NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the name of the {kind} has {len(name)} characters; use 1 to {_NAME_CHARACTERS_MAX}"
        )
    if kind is not EntityType.IP:
        return name
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequest(f"{short(name)!r} is not an IP address; give one such as 192.0.2.7") from None
    return address_text(name)


def address_text(host: str) -> str:
    """Return an address in one spelling, an IPv4 address that is mapped into IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class Match(StrEnum):
    """A filter's match on the name of one entity type."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Finds entities that have a part of each type in ``wanted``; if strict, no other part."""

    wanted: Mapping[EntityType, tuple[Match, str | None]]
    is_strict: bool = False

    def __post_init__(self) -> None:
        if EntityType.IP in self.wanted and len(self.wanted) > 1:
            raise InvalidRequest("ip cannot be combined with user or client-id")

    def matches(self, entity: QuotaEntity) -> bool:
        names = entity.names()
        if self.is_strict and names.keys() != self.wanted.keys():
            return False
        for kind, (match, name) in self.wanted.items():
            if kind not in names:
                return False
            if match is Match.DEFAULT and names[kind] is not None:
                return False
            if match is Match.EXACT and (name is None or names[kind] != name):
                return False
        return True


ALL_ENTITIES = EntityFilter({})
