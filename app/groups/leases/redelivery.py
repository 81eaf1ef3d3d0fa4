"""Failed deliveries: leases that expired or were given back, and how often records failed.

The count is kept in the metadata of the committed offset, so it survives a
restart. Clients read it as ``deliveries``; a client that gives up on a record
writes it to a dead-letter topic itself.
"""

from __future__ import annotations

import asyncio
import logging

from ...errors import SteleError
from ..base.consumer_protocol import AssignedPartition
from ..base.messages import OffsetToCommit, Results
from ..coordinator import GroupCoordinator
from .lease import FAILURES
from .pool import HeldLease, LeasePool, LeasePools
from .positions import LeasePositions

logger = logging.getLogger(__name__)


class Redelivery:
    """Gives the records of failed leases to the next poll, and counts the failures."""

    def __init__(
        self, *, coordinator: GroupCoordinator, pools: LeasePools, positions: LeasePositions
    ) -> None:
        self._coordinator = coordinator
        self._pools = pools
        self._positions = positions

    def failures(self, pool: LeasePool, part: AssignedPartition, position: int) -> int:
        """Return how many deliveries of the records from ``position`` on have failed."""
        offset, failures = pool.failures.get(part, (-1, 0))
        if offset == position:
            return failures
        (committed,) = self._coordinator.committed(pool.group, [part])
        count = committed.metadata.removeprefix(FAILURES)
        is_count = committed.metadata.startswith(FAILURES) and count.isascii() and count.isdigit()
        return int(count[:9]) if is_count and committed.offset == position else 0

    def expire(self, pool: LeasePool, held: HeldLease) -> None:
        """End a lease whose time is over, unless its ack is on its way to the store."""
        if pool.held.get(held.lease.lease_id) is held and not held.is_settling:
            logger.info("group %r: a lease ran out, its records are delivered again", pool.group)
            self.fail(pool, held)

    def fail(self, pool: LeasePool, held: HeldLease) -> asyncio.Future[Results] | None:
        """End a lease whose records were not handled, and count the failure.

        The future completes when the count is durable. None if it cannot be kept, because the member has left, the
        coordinator is closing, or another broker has the group.
        """
        pool.counting += 1

        def counted() -> None:
            pool.counting -= 1
            self._pools.drop_if_idle(pool)

        self._pools.free(pool, held)
        try:
            offsets = self._count(pool, held)
            membership = self._coordinator.membership(pool.group, pool.member_id)
            counting = self._coordinator.commit_assigned(membership, pool.group, offsets)
        except SteleError as error:
            logger.info("group %r: a failed delivery is not counted: %s", pool.group, error)
            counted()
            return None
        counting.add_done_callback(lambda _: counted())
        return counting

    def _count(self, pool: LeasePool, held: HeldLease) -> list[OffsetToCommit]:
        """Count the failure of what the group handles next.

        Return the offsets that keep the count.
        """
        offsets: list[OffsetToCommit] = []
        for part in held.lease.partitions:
            if not self._positions.is_next(pool.group, part):
                continue
            failures = self.failures(pool, part.key, part.offset) + 1
            pool.failures[part.key] = (part.offset, failures)
            offsets.append(
                OffsetToCommit(
                    topic=part.topic,
                    partition=part.partition,
                    offset=part.offset,
                    metadata=f"{FAILURES}{failures}",
                )
            )
        return offsets
