"""Access rules in Kafka's terms: resources, patterns, operations, one rule, and a filter of rules.

The numbers are those of Kafka's protocol, but for subjects of the schema registry, which it does not have.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from ..cluster.acls import AclRecord
from ..errors import (
    AuthorizationError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidAcl,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from .principal import Principal

_E = TypeVar("_E", bound=IntEnum)

# The name of the only resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"
# Every name, every host; as a principal, every client.
WILDCARD = "*"
EVERYBODY = "User:*"
NAME_CHARACTERS_MAX = 1000


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    # Out of the way of the types that Kafka may add.
    SUBJECT = 100


class PatternType(IntEnum):
    """ANY and MATCH only in filters; MATCH selects the patterns that cover a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


# What an ALLOW of one operation allows besides. A DENY denies only its own operation.
IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}

_O = Operation
OPERATIONS_OF = {
    ResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
    ResourceType.SUBJECT: (
        *(_O.READ, _O.WRITE, _O.DELETE, _O.DESCRIBE),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
}


# Compared and hashed by identity, because every request looks one up.
@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """An operation on a type of resource."""

    operation: Operation
    resource_type: ResourceType

    def __repr__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"

    def error(self, principal: str, name: str) -> AuthorizationError:
        kind = self.resource_type.name.lower().replace("_", " ")
        what = "the cluster" if self.resource_type is ResourceType.CLUSTER else f"{kind} {name[:200]!r}"
        text = self.operation.name.lower().replace("_", " ")
        return _ERRORS.get(self.resource_type, ClusterAuthorizationFailed)(principal, text, what)


_ERRORS: dict[ResourceType, type[AuthorizationError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}

ACTIONS = {
    (operation, resource_type): Action(operation, resource_type)
    for resource_type, operations in OPERATIONS_OF.items()
    for operation in operations
}

READ_TOPIC = ACTIONS[Operation.READ, ResourceType.TOPIC]
WRITE_TOPIC = ACTIONS[Operation.WRITE, ResourceType.TOPIC]
CREATE_TOPIC = ACTIONS[Operation.CREATE, ResourceType.TOPIC]
DELETE_TOPIC = ACTIONS[Operation.DELETE, ResourceType.TOPIC]
ALTER_TOPIC = ACTIONS[Operation.ALTER, ResourceType.TOPIC]
DESCRIBE_TOPIC = ACTIONS[Operation.DESCRIBE, ResourceType.TOPIC]
DESCRIBE_CONFIGS_TOPIC = ACTIONS[Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC]
ALTER_CONFIGS_TOPIC = ACTIONS[Operation.ALTER_CONFIGS, ResourceType.TOPIC]
READ_GROUP = ACTIONS[Operation.READ, ResourceType.GROUP]
DELETE_GROUP = ACTIONS[Operation.DELETE, ResourceType.GROUP]
DESCRIBE_GROUP = ACTIONS[Operation.DESCRIBE, ResourceType.GROUP]
DESCRIBE_CONFIGS_GROUP = ACTIONS[Operation.DESCRIBE_CONFIGS, ResourceType.GROUP]
ALTER_CONFIGS_GROUP = ACTIONS[Operation.ALTER_CONFIGS, ResourceType.GROUP]
CREATE_CLUSTER = ACTIONS[Operation.CREATE, ResourceType.CLUSTER]
ALTER_CLUSTER = ACTIONS[Operation.ALTER, ResourceType.CLUSTER]
DESCRIBE_CLUSTER = ACTIONS[Operation.DESCRIBE, ResourceType.CLUSTER]
DESCRIBE_CONFIGS_CLUSTER = ACTIONS[Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER]
ALTER_CONFIGS_CLUSTER = ACTIONS[Operation.ALTER_CONFIGS, ResourceType.CLUSTER]
CLUSTER_ACTION_CLUSTER = ACTIONS[Operation.CLUSTER_ACTION, ResourceType.CLUSTER]
IDEMPOTENT_WRITE_CLUSTER = ACTIONS[Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER]
WRITE_TRANSACTIONAL_ID = ACTIONS[Operation.WRITE, ResourceType.TRANSACTIONAL_ID]
DESCRIBE_TRANSACTIONAL_ID = ACTIONS[Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID]
# The names of these resources are principals.
CREATE_TOKENS_USER = ACTIONS[Operation.CREATE_TOKENS, ResourceType.USER]
DESCRIBE_TOKENS_USER = ACTIONS[Operation.DESCRIBE_TOKENS, ResourceType.USER]
# The names of subjects have their context in front, unless it is the default one.
READ_SUBJECT = ACTIONS[Operation.READ, ResourceType.SUBJECT]
WRITE_SUBJECT = ACTIONS[Operation.WRITE, ResourceType.SUBJECT]
DELETE_SUBJECT = ACTIONS[Operation.DELETE, ResourceType.SUBJECT]
DESCRIBE_SUBJECT = ACTIONS[Operation.DESCRIBE, ResourceType.SUBJECT]


def _member(kind: type[_E], number: int, what: str, *, refused: tuple[int, ...] = ()) -> _E:
    known = [member for member in kind if member not in refused]
    if number not in known:
        names = ", ".join(f"{member.value} ({member.name})" for member in known)
        raise InvalidAcl(f"{what} {number} is unknown; use {names}")
    return kind(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """Allow or deny a principal from a host an operation on what a pattern covers."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    principal: str
    host: str = WILDCARD
    operation: Operation
    permission: Permission = Permission.ALLOW

    @classmethod
    def of(cls, record: AclRecord) -> Acl:
        """Check the numbers and names of a rule. Raises InvalidAcl."""
        acl = cls(
            resource_type=_member(ResourceType, record.resource_type, "resource type", refused=(1,)),
            pattern_type=_member(PatternType, record.pattern_type, "pattern type", refused=(1, 2)),
            resource_name=record.resource_name,
            principal=record.principal,
            host=record.host,
            operation=_member(Operation, record.operation, "operation", refused=(1,)),
            permission=_member(Permission, record.permission, "permission", refused=(1,)),
        )
        acl.check()
        return acl

    @property
    def record(self) -> AclRecord:
        return AclRecord(
            int(self.resource_type),
            int(self.pattern_type),
            self.resource_name,
            self.principal,
            self.host,
            int(self.operation),
            int(self.permission),
        )

    def check(self) -> None:
        """Raise InvalidAcl if the rule could never apply, or is too long."""
        name = self.resource_name
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise InvalidAcl(f"the name of a resource has 1 to {NAME_CHARACTERS_MAX} printable characters")
        if self.resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
            raise InvalidAcl(f"the name of the cluster is {CLUSTER_NAME}")
        if len(self.principal) > NAME_CHARACTERS_MAX or not self.principal.isprintable():
            raise InvalidAcl(f"a principal has at most {NAME_CHARACTERS_MAX} printable characters")
        try:
            kind = Principal.parse(self.principal).kind
        except ValueError as error:
            raise InvalidAcl(str(error)) from error
        if kind != "User":
            raise InvalidAcl(f"{self.principal[:80]!r} is not a user; write it as User:NAME")
        if self.host != WILDCARD and not _is_address(self.host):
            raise InvalidAcl(f"host {self.host[:80]!r} is not an IP address; give one, or *")
        possible = (Operation.ALL, *OPERATIONS_OF[self.resource_type])
        if self.operation not in possible:
            names = ", ".join(operation.name for operation in possible)
            raise InvalidAcl(
                f"{self.operation.name} is no operation of {self.resource_type.name}; use one of {names}"
            )

    def __str__(self) -> str:
        pattern = "" if self.pattern_type is PatternType.LITERAL else " PREFIXED"
        return (
            f"{self.permission.name} {self.principal} from {self.host} {self.operation.name} on "
            f"{self.resource_type.name}{pattern} {self.resource_name}"
        )

    def covers(self, name: str) -> bool:
        """Return whether the pattern covers the resource ``name``."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects rules to list or to remove; None and ANY match all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @classmethod
    def of(
        cls,
        *,
        resource_type: int,
        resource_name: str | None,
        pattern_type: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> AclFilter:
        """Check the numbers of a filter. Raises InvalidAcl."""
        return cls(
            resource_type=_member(ResourceType, resource_type, "resource type"),
            resource_name=resource_name,
            pattern_type=_member(PatternType, pattern_type, "pattern type"),
            principal=principal,
            host=host,
            operation=_member(Operation, operation, "operation"),
            permission=_member(Permission, permission, "permission"),
        )

    def selects(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._selects_pattern(acl)
        )

    def _selects_pattern(self, acl: Acl) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.resource_name is None or acl.covers(self.resource_name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.resource_name in (
            None,
            acl.resource_name,
        )
