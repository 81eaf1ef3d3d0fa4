"""Copies access rules and quotas, and names what cannot be copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import InvalidRequestError, SteleClientError
from ..operations.acls import AclDocument
from .errors import SourceError
from .source import reads
from .source.cluster import Source
from .source.reads import Entity, SourceAcl
from .target import Target

# Kafka's numbers. Rules about the cluster itself would give rights over this one.
_RESOURCES = {2: "TOPIC", 3: "GROUP", 5: "TRANSACTIONAL_ID"}
_OTHER_RESOURCES = {4: "CLUSTER", 6: "DELEGATION_TOKEN", 7: "USER"}
_PATTERNS = {3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
_PERMISSIONS = {2: "DENY", 3: "ALLOW"}

_Rule = tuple[tuple[str, str], ...]


def rule_of(acl: SourceAcl) -> _Rule | None:
    """Return a rule in the names of ``/v1/acls``; None if it is not to be copied."""
    names = (
        ("resource_type", _RESOURCES.get(acl.resource_type)),
        ("resource_name", acl.resource_name),
        ("pattern_type", _PATTERNS.get(acl.pattern_type)),
        ("principal", acl.principal),
        ("host", acl.host),
        ("operation", _OPERATIONS.get(acl.operation)),
        ("permission", _PERMISSIONS.get(acl.permission)),
    )
    found = tuple((name, value) for name, value in names if value is not None)
    return found if len(found) == len(names) else None


def shown_acl(acl: SourceAcl) -> str:
    """Return a rule that is not copied, for a person."""
    kind = _OTHER_RESOURCES.get(acl.resource_type, f"type {acl.resource_type}")
    operation = _OPERATIONS.get(acl.operation, f"operation {acl.operation}")
    permission = _PERMISSIONS.get(acl.permission, "")
    return f"{permission} {acl.principal} {operation} on {kind} {acl.resource_name}".strip()


class Access:
    """Rules and quotas of a mirror; ``not_copied`` has what a person must do."""

    def __init__(self, source: Source, target: Target) -> None:
        self._source = source
        self._target = target
        self._rules: set[_Rule] = set()
        self._quotas: dict[Entity, dict[str, float]] = {}
        self.not_copied: list[str] = []

    async def copy(self) -> None:
        """Write what has changed since the last time; what this mirror added and the source has dropped is removed."""
        missing: dict[str, str] = {}
        for what, copy in (
            ("ACLs", self._copy_acls),
            ("quotas", self._copy_quotas),
            ("users", self._list_users),
        ):
            try:
                missing |= await copy()
            except (SourceError, SteleClientError) as error:
                missing[what] = str(error)
        self.not_copied = [f"{what}: {why}" for what, why in missing.items()]

    async def _copy_acls(self) -> dict[str, str]:
        acls = await reads.acls(self._source)
        rules = {rule for acl in acls if (rule := rule_of(acl)) is not None}
        missing = {
            f"ACL {shown_acl(acl)}": "it is about the cluster itself, or of a kind that Stele lacks"
            for acl in acls
            if rule_of(acl) is None
        }
        added = sorted(rules - self._rules)
        if added:
            try:
                await self._target.add_acls(list(map(_document, added)))
            except InvalidRequestError:
                missing |= await self._add_one_by_one(added)
        for rule in self._rules - rules:
            await self._target.remove_acl(_document(rule))
        self._rules = rules
        return missing

    async def _add_one_by_one(self, rules: Iterable[_Rule]) -> dict[str, str]:
        missing: dict[str, str] = {}
        for rule in rules:
            try:
                await self._target.add_acls([_document(rule)])
            except InvalidRequestError as error:
                missing[f"ACL {' '.join(value for _, value in rule)}"] = str(error)
        return missing

    async def _copy_quotas(self) -> dict[str, str]:
        quotas = await reads.quotas(self._source)
        missing: dict[str, str] = {}
        for entity in quotas.keys() | self._quotas.keys():
            values, before = quotas.get(entity, {}), self._quotas.get(entity, {})
            changes: dict[str, float | None] = dict.fromkeys(before.keys() - values.keys())
            changes |= {key: value for key, value in values.items() if before.get(key) != value}
            missing |= await self._change_quotas(entity, changes)
        self._quotas = quotas
        return missing

    async def _change_quotas(self, entity: Entity, changes: Mapping[str, float | None]) -> dict[str, str]:
        missing: dict[str, str] = {}
        shown = ", ".join(f"{kind} {name or 'default'}" for kind, name in entity)
        for key, value in changes.items():
            try:
                await self._target.change_quotas(entity, {key: value})
            except InvalidRequestError as error:
                missing[f"quota {key} of {shown}"] = str(error)
        return missing

    async def _list_users(self) -> dict[str, str]:
        return {
            f"user {name}": "passwords cannot be read; add the user with 'stele user add'"
            for name in await reads.scram_users(self._source)
        }


def _document(rule: _Rule) -> AclDocument:
    return dict(rule)
