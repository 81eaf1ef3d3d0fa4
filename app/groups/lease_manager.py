"""Leases: groups whose clients poll and acknowledge, without membership of their own.

All that a listener may call about leases. All clients that poll one group are
together one managed member of it (ADR-0017). ``lease_polls`` gives records out,
``lease_settlement`` ends leases, ``redelivery`` counts failures; ``lease_pool`` has
the state that they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..broker.broker import Broker
from ..clock import Clock
from .coordinator import GroupCoordinator
from .lease import Lease, LeasedPartition, Polled, PollRequest
from .lease_polls import LeasePolls
from .lease_pool import LeasePools
from .lease_positions import LeasePositions
from .lease_settlement import LeaseSettlement
from .poll_member import PollMember
from .redelivery import Redelivery


class LeaseManager:
    """All leases of one broker. It runs on the event loop, above the coordinator."""

    def __init__(self, *, broker: Broker, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._pools = LeasePools(coordinator.table, clock)
        self._member = PollMember(broker, coordinator)
        positions = LeasePositions(broker, coordinator)
        redelivery = Redelivery(coordinator=coordinator, pools=self._pools, positions=positions)
        self._polls = LeasePolls(
            broker=broker,
            coordinator=coordinator,
            clock=clock,
            pools=self._pools,
            member=self._member,
            positions=positions,
            redelivery=redelivery,
        )
        self._settlement = LeaseSettlement(
            broker=broker,
            coordinator=coordinator,
            clock=clock,
            pools=self._pools,
            member=self._member,
            positions=positions,
            redelivery=redelivery,
        )

    def close(self) -> None:
        """End the polls that wait."""
        self._pools.wake_all()

    async def poll(self, request: PollRequest) -> Polled:
        """Return the group's next records under a lease; without a lease if none came in time.

        More ``max_bytes`` than the broker's ``fetch_bytes_max`` count as that many.

        Raises:
            InvalidRequest, InvalidGroupId, UnknownTopic: change the request.
            CorruptLog: the next records of a partition are corrupt; the error says where to continue.
            CoordinatorNotAvailable, GroupStoreFailed, …: as ``GroupCoordinator.join_managed``.
        """
        return await self._polls.poll(request)

    async def ack(self, group: str, token: str) -> Sequence[LeasedPartition]:
        """Commit what a lease holds, and return it. A repeated ack gets the same answer.

        Raises:
            InvalidRequest: the token is not a lease of the group.
            LeaseFenced: its records were given, or assigned, to another client.
            GroupStoreFailed, CoordinatorNotAvailable: ack again.
        """
        return await self._settlement.ack(group, token)

    async def nack(self, group: str, token: str) -> None:
        """Give a lease back, so that the next poll gets its records. Returns when the failure is counted.

        Raises:
            InvalidRequest, LeaseFenced: as ``ack``.
            GroupStoreFailed: the lease is given back, and the failure is not counted.
        """
        await self._settlement.nack(group, token)

    def extend(self, group: str, token: str, lease_ms: int) -> int:
        """Hold a lease for ``lease_ms`` from now on; returns when it ends, in ms since the epoch.

        Raises ``InvalidRequest``, ``LeaseFenced``.
        """
        return self._settlement.extend(group, token, lease_ms)

    def leases(self, group: str) -> list[tuple[Lease, int]]:
        """Return the leases in force, and when each ends in ms since the epoch."""
        return [(held.lease, held.expires_at_ms) for held in self._pools.get(group).held.values()]

    def retire(self, group: str) -> None:
        """Remove the polls' member from a group that is to be reset, unless a poll or a lease is in force."""
        pool = self._pools.get(group)
        if not pool.held and not pool.polling:
            self._member.leave(pool)
