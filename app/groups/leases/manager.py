"""Groups whose clients poll and acknowledge leases, without membership.

All that a listener may call about leases. All clients that poll one group are
together one managed member of it (ADR-0017). ``polls`` gives records out,
``settlement`` ends leases, ``transactions`` ends them with a transaction, ``redelivery`` counts failures; ``pool`` has
their common state.
"""

from __future__ import annotations

from ...broker.broker import Broker
from ...clock import Clock
from ..coordinator import GroupCoordinator
from .context import LeaseContext
from .lease import Lease
from .poll_member import PollMember
from .polls import LeasePolls
from .pool import LeasePools
from .positions import LeasePositions
from .redelivery import Redelivery
from .settlement import LeaseSettlement
from .transactions import LeaseTransactions


class LeaseManager:
    """All leases of one broker. It runs on the event loop, above the coordinator."""

    def __init__(self, *, broker: Broker, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._pools = LeasePools(coordinator.table, clock)
        broker.observe_deletions(self._pools.forget_topic)
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
        settlement = LeaseSettlement(context)
        self._transactions = LeaseTransactions(context, settlement)
        self.poll = LeasePolls(context).poll
        self.ack = settlement.ack
        self.nack = settlement.nack
        self.withdraw = settlement.withdraw
        self.extend = settlement.extend
        self.stage_acknowledgement = self._transactions.stage

    def close(self) -> None:
        """End the polls that wait."""
        self._pools.wake_all()

    def stand_by(self) -> None:
        """Forget all leases, because another broker has the groups now.

        Their tokens are checked against the store there, as after a restart.
        """
        self._pools.forget_all()
        self._transactions.forget_all()

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
