"""The managed member that all polls of one group share (ADR-0017).

The member outlives the process: it is found by its client id in the group, which
the store keeps.
"""

from __future__ import annotations

import asyncio

from ...broker.broker import Broker
from ...errors import RebalanceInProgress
from ..base.messages import NO_MEMBER, LeavingMember, ManagedJoin, Membership
from ..coordinator import GroupCoordinator
from .lease import PollRequest
from .pool import LeasePool

# The client id of that member. Its member id starts with it.
POLL_CLIENT_ID = "stele-poll"
# A poll waits at least this long for the join, even if its request says not to wait.
_JOIN_MS_MIN = 2000
# The member stays in its group this long after its last poll or lease.
_SESSION_MARGIN_MS = 30_000


class PollMember:
    """Joins, finds and removes the member of a pool, and notes in the pool what it is."""

    def __init__(self, broker: Broker, coordinator: GroupCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    def find(self, pool: LeasePool) -> Membership | None:
        """Restart the session of the member; None if the group has none.

        Raises ``CoordinatorNotAvailable``, ``CoordinatorFenced``.
        """
        member = self._coordinator.managed_member(pool.group, POLL_CLIENT_ID)
        if member is None:
            pool.member_id, pool.topics, pool.session_timeout_ms = NO_MEMBER, frozenset(), 0
            return None
        pool.member_id, pool.topics, pool.session_timeout_ms = member
        return self._coordinator.membership(pool.group, member.member_id)

    async def join(self, pool: LeasePool, request: PollRequest, *, timeout_ms: int) -> Membership | None:
        """Return the member, subscribed to the topics of ``request``; None while the group rebalances.

        Raises what ``GroupCoordinator.join_managed`` raises.
        """
        known = self.find(pool)
        needed_ms = min(
            max(request.lease_ms, request.wait_ms) + _SESSION_MARGIN_MS,
            self._broker.settings.group_max_session_timeout_ms,
        )
        if known is not None and request.topics <= pool.topics and needed_ms <= pool.session_timeout_ms:
            return None if known.is_rebalancing else known
        joining = self._coordinator.join_managed(
            ManagedJoin(
                group=pool.group,
                topics=request.topics | {topic for topic in pool.topics if self._broker.has_topic(topic)},
                member_id=pool.member_id,
                client_id=POLL_CLIENT_ID,
                client_host=request.client_host,
                session_timeout_ms=max(
                    pool.session_timeout_ms, needed_ms, self._broker.settings.group_min_session_timeout_ms
                ),
            )
        )
        done, _ = await asyncio.wait((joining,), timeout=max(timeout_ms, _JOIN_MS_MIN) / 1000)
        if not done:
            return None
        try:
            membership = joining.result()
        except RebalanceInProgress:
            # Another poll joined with other topics meanwhile.
            return None
        pool.member_id = membership.member_id
        self.find(pool)
        return membership

    def leave(self, pool: LeasePool) -> None:
        """Remove the member from its group, if there is one."""
        if self.find(pool) is not None:
            self._coordinator.leave(pool.group, [LeavingMember(member_id=pool.member_id)])
