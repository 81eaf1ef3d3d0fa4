"""Access rules and filters with names for numbers, for JSON and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from ..errors import InvalidAcl
from .acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_E = TypeVar("_E", bound=IntEnum)

FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")


def document_of(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def acl_of(document: Mapping[str, str]) -> Acl:
    """Return the rule that ``document`` describes; pattern, host and permission may be left out.

    Raises:
        InvalidAcl: a name is unknown, or the rule could never apply.
    """
    kind = _named(ResourceType, document, "resource_type")
    acl = Acl(
        resource_type=kind,
        resource_name=document.get("resource_name", CLUSTER_NAME if kind is ResourceType.CLUSTER else ""),
        pattern_type=_named(PatternType, document, "pattern_type", PatternType.LITERAL),
        principal=document.get("principal", ""),
        host=document.get("host", WILDCARD),
        operation=_named(Operation, document, "operation"),
        permission=_named(Permission, document, "permission", Permission.ALLOW),
    )
    # The numbers exclude ANY and MATCH, which are for filters.
    return Acl.of(acl.record)


def filter_of(document: Mapping[str, str]) -> AclFilter:
    """Return the filter that ``document`` describes; what is left out selects all.

    Raises InvalidAcl.
    """
    return AclFilter(
        resource_type=_named(ResourceType, document, "resource_type", ResourceType.ANY),
        resource_name=document.get("resource_name"),
        pattern_type=_named(PatternType, document, "pattern_type", PatternType.ANY),
        principal=document.get("principal"),
        host=document.get("host"),
        operation=_named(Operation, document, "operation", Operation.ANY),
        permission=_named(Permission, document, "permission", Permission.ANY),
    )


def _named(kind: type[_E], document: Mapping[str, str], field: str, default: _E | None = None) -> _E:
    text = document.get(field)
    if text is None and default is not None:
        return default
    try:
        return kind[(text or "").upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(member.name for member in kind)
        raise InvalidAcl(f"{field} is {(text or '')[:40]!r}; use one of {names}") from None
