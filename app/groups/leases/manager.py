"""Groups whose clients poll and acknowledge leases, without membership.

All that a listener may call about leases. All clients that poll one group are
together one managed member of it (ADR-0017). ``polls`` gives records out,
``settlement`` ends leases, ``transactions`` ends them with a transaction, ``redelivery`` counts failures; ``pool`` has
their common state.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...broker.broker import Broker
from ...clock import Clock
from ..coordinator import GroupCoordinator
from .context import LeaseContext
from .lease import Lease, LeasedPartition, Polled, PollRequest
from .poll_member import PollMember
from .polls import LeasePolls
from .pool import LeasePools
from .positions import LeasePositions
from .redelivery import Redelivery
from .settlement import LeaseSettlement
from .transactions import LeaseTransactions, StageOffsets


class LeaseManager:
    """All leases of one broker. It runs on the event loop, above the coordinator."""

    def __init__(self, *, broker: Broker, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._pools = LeasePools(coordinator.table, clock)
        self._member = PollMember(broker, coordinator)
        positions = LeasePositions(broker, coordinator)
        redelivery = Redelivery(coordinator=coordinator, pools=self._pools, positions=positions)
        context = LeaseContext(
            broker=broker,
            coordinator=coordinator,
            clock=clock,
            pools=self._pools,
            member=self._member,
            positions=positions,
            redelivery=redelivery,
        )
        self._polls = LeasePolls(context)
        self._settlement = LeaseSettlement(context)
        self._transactions = LeaseTransactions(context, self._settlement)

    def close(self) -> None:
        """End the polls that wait."""
        self._pools.wake_all()

    def stand_by(self) -> None:
        """Forget all leases, because another broker has the groups now.

        Their tokens are checked against the store there, as after a restart.
        """
        self._pools.forget_all()
        self._transactions.forget_all()

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

    async def stage_acknowledgement(
        self, group: str, token: str, *, producer_id: int, stage: StageOffsets
    ) -> Sequence[LeasedPartition]:
        """Commit what a lease holds within a producer's open transaction, and return it.

        ``stage`` keeps the offsets of a request in that transaction, and raises if it is not open or the
        producer is fenced; it ends in ``GroupCoordinator.stage_offsets`` with ``producer_id``. When this
        returns, the ack is durable as a part of the transaction. The lease then does not expire: it is
        acknowledged when the transaction commits, and given back when it aborts. A repeated call gets the
        same answer.

        Raises:
            InvalidRequest, LeaseFenced: as ``ack``; or another transaction acknowledges the lease.
            GroupStoreFailed, CoordinatorNotAvailable, and what ``stage`` raises: the lease is in force as before.
        """
        return await self._transactions.stage(group, token, producer_id=producer_id, stage=stage)

    async def nack(self, group: str, token: str) -> None:
        """Give a lease back, so that the next poll gets its records.

        Returns when the failure is counted.

        Raises:
            InvalidRequest, LeaseFenced: as ``ack``.
            GroupStoreFailed: the lease is given back, and the failure is not counted.
        """
        await self._settlement.nack(group, token)

    def withdraw(self, lease: Lease) -> None:
        """End a lease that no client has got; its records count as not delivered."""
        self._settlement.withdraw(lease)

    async def extend(self, group: str, token: str, lease_ms: int) -> int:
        """Hold a lease for ``lease_ms`` from now on; returns when it ends, in ms since the epoch.

        Raises ``InvalidRequest``, ``LeaseFenced``.
        """
        return await self._settlement.extend(group, token, lease_ms)

    def leases(self, group: str) -> list[tuple[Lease, int]]:
        """Return the leases in force, and when each ends in ms since the epoch."""
        return [(held.lease, held.expires_at_ms) for held in self._pools.get(group).held.values()]

    def retire(self, group: str) -> None:
        """Remove the polls' member from a group that is to be reset.

        The member stays if a poll waits or a lease is in force.
        """
        pool = self._pools.get(group)
        if not pool.held and not pool.polling:
            self._member.leave(pool)
