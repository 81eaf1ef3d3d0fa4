"""Copies access rules and quotas, and names what cannot be copied."""

from __future__ import annotations

from collections.abc import Awaitable

from ..errors import InvalidRequestError, SteleClientError
from ..operations.acls import AclDocument
from .errors import SourceError
from .source import reads
from .source.cluster import Source
from .source.reads import Entity, SourceAcl
from .target import SteleTarget

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
# What it is about, and its name.
_Quota = tuple[Entity, str]


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

    def __init__(self, source: Source, target: SteleTarget) -> None:
        self._source = source
        self._target = target
        self._rules: set[_Rule] = set()
        self._quotas: dict[_Quota, float] = {}
        # What the target does not take, and why; it is not offered again.
        self._refused: dict[_Rule | _Quota, str] = {}
        self.not_copied: list[str] = []

    async def copy(self) -> None:
        """Write what has changed since the last time.

        What this mirror has added is removed once the source has dropped it.
        """
        missing: list[str] = []
        for what, copy in (
            ("ACLs", self._copy_acls),
            ("quotas", self._copy_quotas),
            ("users", self._list_users),
        ):
            try:
                missing += await copy()
            except (SourceError, SteleClientError) as error:
                missing.append(f"{what}: {error}")
        self.not_copied = missing

    async def _copy_acls(self) -> list[str]:
        acls = await reads.acls(self._source)
        rules = {rule for acl in acls if (rule := rule_of(acl)) is not None}
        added = sorted(rules - self._rules)
        if added:
            try:
                await self._target.add_acls(list(map(_document, added)))
            except InvalidRequestError:
                # One of them; which one, and why, is found out one by one.
                for rule in added:
                    await self._offer(rule, self._target.add_acls([_document(rule)]))
        for rule in self._rules - rules:
            if self._refused.pop(rule, None) is None:
                await self._target.remove_acl(_document(rule))
        self._rules = rules
        return [
            *(f"ACL {shown_acl(acl)}: it is about the cluster itself, or of a kind that Stele lacks"
              for acl in acls if rule_of(acl) is None),
            *(f"ACL {' '.join(value for _, value in rule)}: {self._refused[rule]}"
              for rule in sorted(rules) if rule in self._refused),
        ]  # fmt: skip

    async def _offer(self, what: _Rule | _Quota, call: Awaitable[None]) -> None:
        try:
            await call
            self._refused.pop(what, None)
        except InvalidRequestError as error:
            self._refused[what] = str(error)

    async def _copy_quotas(self) -> list[str]:
        quotas = {
            (entity, key): value
            for entity, values in (await reads.quotas(self._source)).items()
            for key, value in values.items()
        }
        for quota in self._quotas.keys() - quotas.keys():
            if self._refused.pop(quota, None) is None:
                await self._target.change_quotas(quota[0], {quota[1]: None})
        for quota, value in quotas.items():
            if self._quotas.get(quota) != value:
                await self._offer(quota, self._target.change_quotas(quota[0], {quota[1]: value}))
        self._quotas = quotas
        return [
            f"quota {key} of {_shown_entity(entity)}: {why}"
            for (entity, key) in quotas
            if (why := self._refused.get((entity, key))) is not None
        ]

    async def _list_users(self) -> list[str]:
        return [
            f"user {name}: passwords cannot be read; add the user with 'stele user add'"
            for name in await reads.scram_users(self._source)
        ]


def _shown_entity(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or 'default'}" for kind, name in entity)


def _document(rule: _Rule) -> AclDocument:
    return dict(rule)
