"""A group on its way between the two consumer protocols (ADR-0043).

It comes with its members.

``migration`` has the rules; here is what changes hands: members, sessions, parked requests, and
the answers that wait for the store.
"""

from __future__ import annotations

import asyncio
import logging

from ...errors import GroupFull, GroupOfOtherType, RebalanceInProgress, SteleError
from ..base.context import GroupContext
from ..base.states import GroupState
from ..classic.live_members import LiveMembers
from ..classic.rebalance import Rebalance
from .group import ConsumerGroup
from .live_classic_members import LiveClassicMembers
from .live_group import LiveConsumerGroup
from .migration import downgrade, has_classic_members_only, may_downgrade, may_upgrade, upgraded

logger = logging.getLogger(__name__)


class LiveMigration:
    """``consumer`` is None while the group is a classic one.

    So is ``classic``, which serves its classic members.
    """

    def __init__(self, members: LiveMembers, rebalance: Rebalance, context: GroupContext) -> None:
        self.consumer: LiveConsumerGroup | None = None
        self.classic: LiveClassicMembers | None = None
        self._group = members.group
        self._members = members
        self._rebalance = rebalance
        self._context = context
        # The newest downgrade, until it is stored.
        self._downgrading: asyncio.Future[None] | None = None

    # ── to a consumer group ──

    def joined_consumer_group(self, instance_id: str | None) -> LiveConsumerGroup:
        """Return the group for a member of the new protocol that joins; a classic group becomes one.

        Raises:
            GroupOfOtherType: the policy of the broker, or a member of the group, does not allow that.
            GroupFull: there is no room for another member.
        """
        if self.consumer is not None:
            return self.consumer
        if self._group.state is not GroupState.EMPTY:
            return self._upgrade(instance_id)
        group = ConsumerGroup(self._group.name, topics_of=self._context.topic_facts)
        # No commit of the old members is mistaken for one of the new.
        group.epoch = group.assignment_epoch = max(self._group.generation, group.epoch)
        return self.restore(group)

    def restore(self, group: ConsumerGroup) -> LiveConsumerGroup:
        """Let the broker assign for the members of ``group`` from now on."""
        self.consumer = LiveConsumerGroup(group, self._context, becomes_classic=self._downgrade_if_due)
        self.classic = LiveClassicMembers(self.consumer, self._members, self._context)
        return self.consumer

    def _upgrade(self, instance_id: str | None) -> LiveConsumerGroup:
        """Move the members to a consumer group for the first member of the new protocol.

        What is parked is answered REBALANCE_IN_PROGRESS. The change is stored before that member is answered.
        """
        group, settings = self._group, self._context.settings
        policy, limit = settings.group_consumer_migration_policy, settings.group_consumer_size_max
        if not may_upgrade(policy):
            raise GroupOfOtherType(
                group.name, "classic", why=f"STELE_GROUP_CONSUMER_MIGRATION_POLICY is {policy}"
            )
        consumer = upgraded(group, topics_of=self._context.topic_facts)
        if len(consumer.members) >= limit and consumer.static_member(instance_id) is None:
            raise GroupFull(group.name, limit=limit, setting="group_consumer_size_max")
        logger.info(
            "group %r: the broker assigns after generation %d, for %d members of the classic protocol",
            *(group.name, group.generation, len(group.members)),
        )
        self._rebalance.close()
        waiting = self._members.managed.hand_over()
        for member_id in list(group.members):
            self._members.remove(member_id, RebalanceInProgress(group.name))
        group.become_empty()
        live = self.restore(consumer)
        assert self.classic is not None
        for member_id, future in waiting.items():
            # With what the new member's join changes: until then there are classic members only.
            self.classic.answer_join_managed(member_id, future)
        self._members.managed.settle()
        return live

    # ── to a classic group ──

    def _downgrade_if_due(self) -> bool:
        """Make a consumer group a classic one, if all members use the classic protocol; True if it did so.

        They join again, because a member that left may have had partitions.
        """
        policy = self._context.settings.group_consumer_migration_policy
        live = self.consumer
        if live is None or not may_downgrade(policy) or not has_classic_members_only(live.group):
            return False
        group, waiting = self._group, live.retire()
        self.consumer = self.classic = None
        downgrading = self._downgrading = asyncio.get_running_loop().create_future()
        downgrade(live.group, group)
        logger.info(
            "group %r: no member of the new protocol is left; its %d members assign after generation %d",
            *(group.name, len(group.members), group.generation),
        )
        for member in group.members.values():
            self._members.start_session(member)

        def kept(error: SteleError | None) -> None:
            # If it fails, the next assignment writes it; a restart before that finds the consumer group.
            downgrading.set_result(None)
            for done in waiting:
                done(error)

        self._context.persist([group.record()], kept)
        self._rebalance.begin_or_complete("the last member of the new protocol left")
        self._context.changed(group.name)
        return True

    async def settled(self) -> None:
        """Return when the store has the group with its members in this protocol.

        Raises ``GroupStoreFailed``.
        """
        if self._downgrading is not None:
            await asyncio.shield(self._downgrading)
        if self.consumer is not None:
            await self.consumer.settled()

    def end(self, error: SteleError) -> None:
        """Make an empty consumer group a classic one.

        Its store entry goes with the next write of the group.
        """
        if self.consumer is not None:
            group, emptied = self._group, self.consumer.group
            # No commit of the old members is mistaken for one of the new.
            group.generation = max(group.generation, emptied.epoch)
            group.emptied_at_ms = emptied.emptied_at_ms
            self.consumer.close(error)
            self.consumer = self.classic = None
