"""The claims of one group's members on partitions, kept in the store (ADR-0017).

The rules are in ``ownership``; here a claim is made durable.
"""

from __future__ import annotations

import asyncio

from ..cluster.group_store import DeleteOwner, OwnerRecord
from ..errors import SteleError
from .group import Group
from .group_context import GroupContext
from .ownership import Claimant, check_claim, check_owner
from .parking import answer


class GroupClaims:
    """Changes ``group.owners``, and keeps each change in the store."""

    def __init__(self, group: Group, context: GroupContext) -> None:
        self._group = group
        self._context = context

    def claim(self, claimant: Claimant) -> asyncio.Future[None]:
        """Make the claimant the owner.

        Completes when that is durable; at once if it owns the partition.

        Raises what ``check_claim`` raises, and ``GroupStoreFailed`` from the future:
        the claim was not kept.
        """
        group = self._group
        check_claim(group, claimant)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if claimant.key in group.owners:
            future.set_result(None)
            return future
        group.owners[claimant.key] = claimant.member_id

        def kept(error: SteleError | None) -> None:
            if error is not None and group.owners.get(claimant.key) == claimant.member_id:
                del group.owners[claimant.key]
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
        """End the ownership; the partition stays assigned. Raises what ``check_owner`` raises."""
        check_owner(self._group, claimant)
        del self._group.owners[claimant.key]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = DeleteOwner(group=claimant.group, topic=claimant.topic, partition=claimant.partition)
        self._context.persist([change], lambda error: answer(future, error))
        return future
