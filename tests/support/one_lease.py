"""A cluster of one broker and one lease, and a clock, both set by a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from app.cluster.membership import ClusterState, Lease, Member


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


class OneLease:
    """A membership with one broker, and a lease whose epoch a test sets."""

    def __init__(self) -> None:
        self.epoch: int | None = 1
        self.member: Member | None = None
        # Called in the thread of the membership while a renewal is on its way.
        self.during_renewal: Callable[[], object] = lambda: None

    def register(self, member: Member, *, previous: UUID | None = None) -> bool:
        self.member = member
        return True

    def heartbeat(self, member: Member, report: str | None = None) -> None: ...

    def look(self) -> ClusterState:
        member, epoch = self.member, self.epoch
        if member is None:
            return ClusterState()
        if epoch is None:
            return ClusterState(members=(member,))
        lease = Lease(broker_id=1, incarnation=member.incarnation, epoch=epoch, expires_in_ms=6_000)
        return ClusterState(members=(member,), leases={"work": lease})

    def leave(self, member: Member) -> None: ...

    def acquire(self, name: str, member: Member) -> int | None:
        return self.epoch

    def renew(self, names: Sequence[str], member: Member) -> Mapping[str, int]:
        self.during_renewal()
        return {} if self.epoch is None else dict.fromkeys(names, self.epoch)

    def release(self, name: str, member: Member) -> None: ...

    def close(self) -> None: ...
