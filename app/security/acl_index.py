"""Decide by access rules, as Apache Kafka's StandardAuthorizer does: a pure function over an index.

A rule applies if its principal, host, operation and pattern fit. A DENY that applies
decides, then an ALLOW; with neither, access is denied, except on resources without rules
if ``allows_without_acl``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .acl import EVERYBODY, IMPLIED_BY, WILDCARD, Acl, Operation, PatternType, Permission, ResourceType


@dataclass(frozen=True, slots=True)
class Decision:
    """``rule`` is the rule that decided; None if it was the absence of rules."""

    is_allowed: bool
    rule: Acl | None = None


class AclIndex:
    """An immutable set of rules, indexed by resource."""

    def __init__(self, acls: Iterable[Acl], *, allows_without_acl: bool = False) -> None:
        self._allows_without_acl = allows_without_acl
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._lengths: dict[ResourceType, set[int]] = {}
        self._of_type: dict[ResourceType, list[Acl]] = {}
        for acl in acls:
            key = acl.resource_type, acl.resource_name
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefixed.setdefault(key, []).append(acl)
                self._lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))
            else:
                self._literal.setdefault(key, []).append(acl)
            self._of_type.setdefault(acl.resource_type, []).append(acl)

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return whether ``principal`` at ``host`` may do ``operation`` with ``name``.

        ``name`` is that of a resource.
        """
        allowing: Acl | None = None
        has_rules = False
        for acl in self._covering(resource_type, name):
            has_rules = True
            if not _is_of(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return Decision(False, acl)
            elif allowing is None and _allows(acl.operation, operation):
                allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        return Decision(self._allows_without_acl and not has_rules)

    def may_somewhere(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether ``principal`` may do ``operation`` on any resource (KIP-679)."""
        denied_names: set[str] = set()
        denied_prefixes: list[str] = []
        allowing: list[Acl] = []
        for acl in self._of_type.get(resource_type, ()):
            if not _is_of(acl, principal, host) or acl.operation not in (operation, Operation.ALL):
                continue
            if acl.permission is Permission.ALLOW:
                allowing.append(acl)
            elif acl.pattern_type is PatternType.PREFIXED:
                denied_prefixes.append(acl.resource_name)
            else:
                denied_names.add(acl.resource_name)
        if WILDCARD in denied_names:
            return False
        for acl in allowing:
            name = acl.resource_name
            if acl.pattern_type is PatternType.LITERAL and name == WILDCARD:
                return True
            is_denied = any(name.startswith(prefix) for prefix in denied_prefixes)
            if not is_denied and (acl.pattern_type is PatternType.PREFIXED or name not in denied_names):
                return True
        return self._allows_without_acl

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), ())


def _is_of(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)


def _allows(allowed: Operation, wanted: Operation) -> bool:
    return allowed in (wanted, Operation.ALL) or allowed in IMPLIED_BY.get(wanted, ())
