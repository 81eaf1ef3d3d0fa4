"""Live brokers, the versions of their changes, and leases.

``Membership`` is the interface of what several brokers agree on. Its methods block: call them in a thread,
one at a time. Times are those of the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

# A broker without a heartbeat for this time counts as dead, unless it has registered with another.
SESSION_TIMEOUT_MS = 5_000
# Heartbeats carry what the other brokers show of this one.
_HEARTBEAT_MS_MAX = 1_000
# A lease ends so long after its holder counts as dead, if it was renewed last with the last heartbeat.
_LEASE_BEYOND_MS = 1_000
# Another broker may take a lease when its holder counts as dead; the holder stops a little earlier.
_STOPS_EARLIER_MS = 500


class MemberEndpoint(NamedTuple):
    """The address of a broker's listener for clients."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A broker that is registered.

    ``incarnation`` is new with each start. ``started_at_ms`` is when the broker joined: at its start, or when it came
    back after it had counted as dead. Endpoints are by listener. ``session_timeout_ms`` after its last heartbeat the
    broker counts as dead.
    """

    broker_id: int
    incarnation: UUID
    rack: str | None
    endpoints: Mapping[str, MemberEndpoint]
    started_at_ms: int = 0
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    # Whether it shows leader epochs to clients; those of earlier versions do not.
    shows_epochs: bool = True

    @property
    def heartbeat_interval_ms(self) -> int:
        return min(_HEARTBEAT_MS_MAX, self.session_timeout_ms // 5)

    @property
    def lease_ms(self) -> int:
        """Time after its last renewal at which a lease of this broker ends."""
        return self.session_timeout_ms + _LEASE_BEYOND_MS

    @property
    def renew_interval_ms(self) -> int:
        return self.session_timeout_ms * 2 // 5

    @property
    def certain_ms(self) -> int:
        """Time after a heartbeat or a renewal for which this broker may rely on its leases."""
        return self.session_timeout_ms - _STOPS_EARLIER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease in force.

    ``epoch`` rises with each new holder; ``expires_in_ms`` counts from the query.
    """

    broker_id: int
    incarnation: UUID
    epoch: int
    expires_in_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The live brokers, versions of changes, and leases in force.

    Brokers are in ascending order of their ids. ``history`` is the epoch of the history of the database (ADR-0071), and
    ``leader_epoch``, which is not less, rises with each change of the live brokers. -1: some of them show none.
    """

    members: tuple[Member, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict[str, int])
    leases: Mapping[str, Lease] = field(default_factory=dict[str, Lease])
    history: int = 0
    leader_epoch: int = -1


class Displaced(Exception):
    """Another process has registered under the id of this broker."""


class Membership(Protocol):
    """Every method raises ``StorageUnavailable`` if the database cannot be reached."""

    def register(self, member: Member, *, previous: UUID | None = None) -> bool:
        """Add a broker, or replace a dead one of the same id; return False if a live one has the id.

        ``previous`` is an incarnation that is known to have ended.
        """
        ...

    def heartbeat(self, member: Member, report: str | None = None) -> None:
        """Note that the broker is alive; register it again if it was removed.

        A broker that counted as dead joins again: it gets another ``started_at_ms``. Raises ``Displaced``.

        ``report`` is a JSON object that surveys show; None keeps the last one.
        """
        ...

    def look(self) -> ClusterState: ...
    def leave(self, member: Member) -> None:
        """Remove the broker, and end its leases."""
        ...

    def acquire(self, name: str, member: Member) -> int | None:
        """Take a lease that is free, or one's own; return its epoch, None if another broker has it."""
        ...

    def renew(self, names: Sequence[str], member: Member) -> Mapping[str, int]:
        """Renew the leases of ``names`` that this broker has, and return their epochs."""
        ...

    def release(self, name: str, member: Member) -> None:
        """End a lease of this broker."""
        ...

    def close(self) -> None: ...
