"""Serves the groups of a shard while this broker has its lease (ADR-0047).

One broker of a cluster coordinates a group. A new holder reads them from the store and continues as after a
restart: members stay, and their sessions start again. Writes carry the epoch of the lease, so a broker that was
paused and replaced changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..broker.cluster import SharedCluster
from ..errors import NotCoordinator
from .services import Groups

logger = logging.getLogger(__name__)


class ShardLease:
    """Implements ``LeaseWork`` for the groups of a shard.

    ``take`` tells their store the epoch of the lease.
    """

    def __init__(
        self, groups: Groups, *, lease: str, take: Callable[[int], object], cluster: SharedCluster
    ) -> None:
        self._lease = lease
        self._groups = groups
        self._take = take
        self._cluster = cluster
        groups.coordinator.check_each_call(self._check_held)

    def _check_held(self) -> None:
        """Refuse a call if the lease may have ended unnoticed, because of a pause."""
        if not self._cluster.is_held(self._lease):
            raise NotCoordinator(None)

    def _refusal(self) -> NotCoordinator:
        lease = self._cluster.lease(self._lease)
        return NotCoordinator(
            None if lease is None else lease.broker_id, is_reading=self._cluster.is_held(self._lease)
        )

    async def stand_by(self) -> None:
        """Refuse calls until the lease is held."""
        await self._groups.coordinator.stand_by(self._refusal)

    async def begin(self, epoch: int) -> None:
        self._take(epoch)
        # Offsets of topics that do not exist are deleted: all those must be known that the last holder knew.
        await self._cluster.refresh()
        await self._groups.coordinator.open()
        logger.debug("serving %d groups of %s", self._groups.coordinator.group_count, self._lease)

    async def end(self) -> None:
        await self.stand_by()
        self._groups.leases.stand_by()
