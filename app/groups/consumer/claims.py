"""The claims of one group's members on partitions, kept in the store (ADR-0017).

The rules are in ``ownership``; here a claim is made durable.
"""

from __future__ import annotations

import asyncio

from ...cluster.group_store import DeleteOwner, OwnerRecord
from ...errors import SteleError
from ..base.context import GroupContext
from ..base.parking import answer
from ..classic.live_members import LiveMembers
from .live_migration import LiveMigration
from .ownership import Claimant, check_assigned, check_claim, check_owner


class GroupClaims:
    """Changes the owners of a group and keeps each change in the store.

    Each call restarts the claimant's session.

    While the broker assigns the partitions (``migration``), there is nothing to change: a member
    owns what it is assigned.
    """

    def __init__(self, members: LiveMembers, migration: LiveMigration, context: GroupContext) -> None:
        self._members = members
        self._group = members.group
        self._migration = migration
        self._context = context

    def check_assigned(self, claimant: Claimant) -> None:
        """Raises what ``ownership.check_assigned`` or ``check_assigned_by_broker`` raises."""
        if self._migration.classic is not None:
            self._migration.classic.check_owner(claimant)
        else:
            check_assigned(self._group, claimant)

    def check_owner(self, claimant: Claimant) -> None:
        """Raises what ``ownership.check_owner`` or ``check_assigned_by_broker`` raises."""
        if self._migration.classic is not None:
            self._migration.classic.check_owner(claimant)
        else:
            check_owner(self._group, claimant)
            self._members.keep_alive(self._group.members[claimant.member_id])

    def claim(self, claimant: Claimant) -> asyncio.Future[None]:
        """Make the claimant the owner.

        Completes when that is durable; at once if it owns the partition.

        Raises what ``check_claim`` raises, and ``GroupStoreFailed`` from the future:
        the claim was not kept.
        """
        if self._migration.consumer is not None:
            self.check_owner(claimant)
            return self._migration.consumer.when_kept(None)
        group = self._group
        check_claim(group, claimant)
        self._members.keep_alive(group.members[claimant.member_id])
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if claimant.key in group.owners:
            future.set_result(None)
            return future
        group.owners.claim(claimant.key, claimant.member_id)

        def kept(error: SteleError | None) -> None:
            if error is not None and group.owners.get(claimant.key) == claimant.member_id:
                group.owners.release(claimant.key)
            answer(future, error)

        self._context.persist(
            [
                OwnerRecord(
                    group=claimant.group,
                    topic=claimant.topic,
                    partition=claimant.partition,
                    member_id=claimant.member_id,
                )
            ],
            kept,
        )
        return future

    def release(self, claimant: Claimant) -> asyncio.Future[None]:
        """End the ownership; the partition stays assigned.

        Raises what ``check_owner`` raises.
        """
        self.check_owner(claimant)
        if self._migration.consumer is not None:
            return self._migration.consumer.when_kept(None)
        self._group.owners.release(claimant.key)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = DeleteOwner(group=claimant.group, topic=claimant.topic, partition=claimant.partition)
        self._context.persist([change], lambda error: answer(future, error))
        return future
