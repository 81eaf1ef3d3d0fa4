"""Access rules for tests: random ones, a plain model of Kafka's decision, and an authorizer over a list."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from app.clock import Clock, SystemClock
from app.cluster.acls import AclRecord, AclStore
from app.security.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from app.security.acls import Acls
from app.security.authorizer import Authorizer
from app.security.principal import Principal

NAMES = ("a", "ab", "abc", "b", "*")
PRINCIPALS = ("User:alice", "User:bob", "User:ANONYMOUS")
HOSTS = ("127.0.0.1", "10.0.0.7")
_NAMED = [kind for kind in ResourceType if kind not in (ResourceType.ANY, ResourceType.CLUSTER)]


class ListStore(AclStore):
    """One in memory."""

    def __init__(self, records: Iterable[AclRecord] = ()) -> None:
        self.records = set(records)

    def acls(self) -> list[AclRecord]:
        return sorted(self.records)

    def change_acls(self, added: Sequence[AclRecord], removed: Sequence[AclRecord]) -> None:
        self.records = (self.records - set(removed)) | set(added)

    def close(self) -> None:
        pass


async def authorizer_over(
    acls: Iterable[Acl] = (),
    *,
    super_users: Iterable[Principal] = (),
    allows_without_acl: bool = False,
    clock: Clock | None = None,
) -> Authorizer:
    stored = Acls(ListStore(acl.record for acl in acls))
    await stored.open()
    return Authorizer(
        stored,
        clock=clock or SystemClock(),
        super_users=super_users,
        allows_without_acl=allows_without_acl,
    )


async def replace_rules(authorizer: Authorizer, acls: Iterable[Acl]) -> None:
    """Let ``acls`` be the only rules."""
    await authorizer.acls.remove(AclFilter())
    await authorizer.acls.add(list(acls))


def random_acl(rng: random.Random) -> Acl:
    kind = ResourceType.CLUSTER if rng.random() < 0.15 else rng.choice(_NAMED)
    is_cluster = kind is ResourceType.CLUSTER
    acl = Acl(
        resource_type=kind,
        resource_name=CLUSTER_NAME if is_cluster else rng.choice(NAMES),
        pattern_type=PatternType.LITERAL
        if is_cluster
        else rng.choice([PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED]),
        principal=rng.choice((*PRINCIPALS, "User:*")),
        host=rng.choice((*HOSTS, "*", "*")),
        operation=rng.choice((Operation.ALL, *OPERATIONS_OF[kind])),
        permission=Permission.DENY if rng.random() < 0.25 else Permission.ALLOW,
    )
    acl.check()
    return acl


def random_acls(rng: random.Random) -> list[Acl]:
    return [random_acl(rng) for _ in range(rng.choice((0, 1, 2, 4, 8, 16, 40)))]


def is_allowed(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    without_acl: bool = False,
) -> bool:
    """Decide as the documentation of Kafka's authorizer says, rule by rule and without an index."""
    covering = [
        acl
        for acl in acls
        if acl.resource_type == kind
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name == name or acl.resource_name == "*"
        )
    ]
    if not covering:
        return without_acl
    mine = [
        acl
        for acl in covering
        if (acl.principal == principal or acl.principal == "User:*") and (acl.host == host or acl.host == "*")
    ]
    for acl in mine:
        if acl.permission == Permission.DENY and acl.operation in {operation, Operation.ALL}:
            return False
    enough = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine)
