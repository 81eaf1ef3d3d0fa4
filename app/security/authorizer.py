"""Decides what a client may do: one authorizer for all listeners.

A connection or request has an ``Access``, which remembers decisions until a rule
changes, so that a produce or fetch costs a dictionary look-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from ipaddress import ip_address
from weakref import WeakValueDictionary

from ..clock import Clock
from .acl import (
    ACTIONS,
    ALTER_CLUSTER,
    CLUSTER_NAME,
    CREATE_CLUSTER,
    CREATE_TOKENS_USER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOKENS_USER,
    IDEMPOTENT_WRITE_CLUSTER,
    OPERATIONS_OF,
    READ_TOPIC,
    WRITE_TOPIC,
    Action,
    ResourceType,
)
from .acl_index import AclIndex, Decision
from .acls import Acls
from .audit import log_decision
from .principal import BROKER, Principal

# Decisions that one access remembers; when there are more, it forgets them all.
_DECISIONS_MAX = 10_000
# The same denial is logged at most this often.
_LOG_AGAIN_MS = 10_000
_DENIALS_MAX = 1000
# Accesses kept although no connection uses them now.
_ACCESSES_KEPT = 200


class Access:
    """The rights of one principal from one host."""

    __slots__ = (
        "__weakref__",
        "_authorizer",
        "_known",
        "_logged",
        "epoch",
        "host",
        "listener",
        "principal",
        "read_last",
    )

    def __init__(self, authorizer: Authorizer, listener: str, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self.listener = listener
        self.principal = principal
        self.host = host
        self._known: dict[tuple[Action, str], bool] = {}
        # The topic that ``may_read`` allowed last, because most reads are of the same topic as the one before.
        # None after each change of the rules.
        self.read_last: str | None = None
        # Another object after each change of the rules, and for each access: what was allowed under it still is.
        self.epoch = object()
        # When the log line of a denial is due again.
        self._logged: dict[tuple[Action, str], int] = {}

    def forget(self) -> None:
        """Forget all decisions, because rules have changed."""
        self._known.clear()
        self.read_last = None
        self.epoch = object()

    def allows(self, action: Action, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may do ``action``; a denial is logged."""
        is_allowed = self._known.get((action, name))
        if is_allowed is None:
            is_allowed = self._decide(action, name, is_request=True)
        if not is_allowed:
            self._log_denial(action, name)
        return is_allowed

    def may_read(self, topic: str) -> bool:
        """Return whether the principal may read ``topic``; as ``allows``.

        Callers compare ``topic`` with ``read_last`` first.
        """
        is_allowed = self.allows(READ_TOPIC, topic)
        if is_allowed:
            self.read_last = topic
        return is_allowed

    def was_allowed(self, action: Action, name: str) -> bool:
        """Return whether ``action`` was allowed before, and no rule has changed since.

        For fast paths, which leave everything else to ``allows``: it logs first decisions and denials.
        """
        return self._known.get((action, name), False)

    def sees(self, action: Action, name: str = CLUSTER_NAME) -> bool:
        """As ``allows``, for lists that leave out what is not allowed; not logged."""
        is_allowed = self._known.get((action, name))
        return self._decide(action, name, is_request=False) if is_allowed is None else is_allowed

    def require(self, action: Action, name: str = CLUSTER_NAME) -> None:
        """Raise AuthorizationError if the principal may not do ``action``."""
        if not self._known.get((action, name)) and not self.allows(action, name):
            raise action.error(str(self.principal), name)

    # ── rights that several rules can give ──

    def may_create(self, topic: str) -> bool:
        """Return whether the principal may create ``topic``: by a right on the cluster, or on the name."""
        return self.sees(CREATE_CLUSTER) or self.allows(CREATE_TOPIC, topic)

    def require_create(self, topic: str) -> None:
        if not self.may_create(topic):
            raise CREATE_TOPIC.error(str(self.principal), topic)

    def may_write_somewhere(self) -> bool:
        """Return whether the principal may produce at all (KIP-679).

        If so, it may get a producer id.
        """
        return (
            self.sees(IDEMPOTENT_WRITE_CLUSTER)
            or self._authorizer.may_somewhere(self, WRITE_TOPIC)
            or self.allows(IDEMPOTENT_WRITE_CLUSTER)
        )

    def require_write_somewhere(self) -> None:
        if not self.may_write_somewhere():
            raise IDEMPOTENT_WRITE_CLUSTER.error(str(self.principal), CLUSTER_NAME)

    def require_producer_state(self, topic: str) -> None:
        """Raise AuthorizationError unless the principal writes to or reads from ``topic``."""
        if not self.sees(WRITE_TOPIC, topic):
            self.require(READ_TOPIC, topic)

    def sees_keys_of(self, owner: str) -> bool:
        """Return whether the principal may see the API keys of ``owner``: its own always."""
        return self._is(owner) or self.sees(DESCRIBE_CLUSTER) or self.sees(DESCRIBE_TOKENS_USER, owner)

    def require_create_keys(self, owner: str, *, with_key: bool) -> None:
        """Raise AuthorizationError unless the principal may create keys for ``owner``.

        API keys act as their owner.

        It may for itself, but not after a login with a key, which would outlive that key.
        """
        if (with_key or not self._is(owner)) and not self.sees(ALTER_CLUSTER):
            self.require(CREATE_TOKENS_USER, owner)

    def require_delete_key(self, owner: str | None) -> None:
        """Raise AuthorizationError unless the principal may delete a key of ``owner``.

        ``owner`` is None if there is no such key.
        """
        if owner is None or not self._is(owner):
            self.require(ALTER_CLUSTER)

    def _is(self, owner: str) -> bool:
        return not self.principal.is_anonymous and str(self.principal) == owner

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the bits of the operations that the principal may do (KIP-430)."""
        if resource_type is ResourceType.CLUSTER and not self.sees(DESCRIBE_CLUSTER):
            return 0
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.sees(ACTIONS[operation, resource_type], name)
        )

    # ── decisions ──

    def _decide(self, action: Action, name: str, *, is_request: bool) -> bool:
        decision = self._authorizer.decide(self, action, name)
        if len(self._known) >= _DECISIONS_MAX:
            self._known.clear()
        self._known[action, name] = decision.is_allowed
        if is_request and decision.is_allowed:
            log_decision(self, repr(action), name, is_allowed=True, rule=str(decision.rule or ""))
        return decision.is_allowed

    def _log_denial(self, action: Action, name: str) -> None:
        now_ms = self._authorizer.monotonic_ms()
        if self._logged.get((action, name), now_ms) > now_ms:
            return
        if len(self._logged) >= _DENIALS_MAX:
            self._logged.clear()
        self._logged[action, name] = now_ms + _LOG_AGAIN_MS
        rule = self._authorizer.decide(self, action, name).rule
        log_decision(self, repr(action), name, is_allowed=False, rule=str(rule or ""))


class Authorizer:
    """The rules in force, and the accesses that remember what they mean."""

    def __init__(
        self,
        acls: Acls,
        *,
        clock: Clock,
        super_users: Iterable[Principal] = (),
        allows_without_acl: bool = False,
    ) -> None:
        self.acls = acls
        self._clock = clock
        self._super_users = frozenset(map(str, super_users))
        self._allows_without_acl = allows_without_acl
        self._accesses: WeakValueDictionary[tuple[str, str, str], Access] = WeakValueDictionary()
        self._newest: deque[Access] = deque(maxlen=_ACCESSES_KEPT)
        self._index = AclIndex(())
        self._changed()
        acls.observe(self._changed)

    def access(self, listener: str, principal: Principal, host: str) -> Access:
        """Return the access of ``principal`` at ``host``; it stays right when rules change."""
        key = listener, str(principal), host
        access = self._accesses.get(key)
        if access is None:
            access = self._accesses[key] = Access(self, listener, principal, _plain(host))
            # Requests over HTTP hold theirs only while they are served.
            self._newest.append(access)
        return access

    def decide(self, access: Access, action: Action, name: str) -> Decision:
        if self._is_super(access):
            return Decision(True)
        return self._index.decide(
            str(access.principal), access.host, action.operation, action.resource_type, name
        )

    def may_somewhere(self, access: Access, action: Action) -> bool:
        return self._is_super(access) or self._index.may_somewhere(
            str(access.principal), access.host, action.operation, action.resource_type
        )

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _is_super(self, access: Access) -> bool:
        # Processes of the broker itself have keys that no client can get.
        return access.principal.kind == BROKER or str(access.principal) in self._super_users

    def _changed(self) -> None:
        self._index = AclIndex(self.acls.all(), allows_without_acl=self._allows_without_acl)
        for access in list(self._accesses.values()):
            access.forget()


def _plain(host: str) -> str:
    """Return an IPv4 address that came over an IPv6 socket as IPv4, as rules name it."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)
