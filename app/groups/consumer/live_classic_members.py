"""Requests of classic members of a consumer group: what waits, and until when (ADR-0043).

``classic_membership`` decides. None of these requests waits for other members. The answers to
joins and syncs wait for the store, like those to heartbeats of the new protocol.

A member has its rebalance timeout for each of two steps, as in a classic group: to join again
after it learned that it has to, and to sync after it joined.
"""

from __future__ import annotations

import asyncio

from ...cluster.consumer_group_store import ConsumerMember
from ...errors import GroupFull, IllegalGeneration, MemberIdRequired, RebalanceInProgress, UnknownMember
from ..base.context import GroupContext
from ..base.messages import NO_MEMBER, Joined, JoinRequest, LeavingMember, Membership, Synced, SyncRequest
from ..classic.live_members import LiveMembers, new_member_id
from ..classic.managed_members import not_managed
from .classic_membership import (
    check_generation,
    check_protocols,
    check_sync,
    classic_member,
    join,
    joined,
    must_join_again,
    named,
    synced,
)
from .group import ConsumerGroup
from .live_group import LiveConsumerGroup
from .ownership import Claimant, check_assigned_by_broker


class LiveClassicMembers:
    """The classic members of ``consumer``.

    Their ids that have not joined yet are pending in ``members``.
    """

    def __init__(self, consumer: LiveConsumerGroup, members: LiveMembers, context: GroupContext) -> None:
        self._consumer = consumer
        self._members = members
        self._context = context

    @property
    def _group(self) -> ConsumerGroup:
        return self._consumer.group

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Let a member join.

        Raises as ``GroupCoordinator.join``; an answer never waits for other members.
        """
        check_protocols(self._group, request)
        member = self._admit(request)
        self._consumer.deadlines.start(member.member_id, member.rebalance_timeout_ms)
        return self._consumer.when_kept(joined(member))

    def _admit(self, request: JoinRequest) -> ConsumerMember:
        member_id = self._id_to_join_with(request)
        member = join(
            self._group,
            request,
            member_id,
            now_ms=self._consumer.now_ms(),
            interval_ms=self._consumer.interval_ms(),
            size_max=self._context.settings.group_consumer_size_max,
        )
        self._members.forget_pending(member_id)
        self._consumer.stepped(member)
        return self._group.members[member_id]

    def _id_to_join_with(self, request: JoinRequest) -> str:
        """Return the id of a member that joins: a new one if it has none yet."""
        group, pending = self._group, self._members.group.pending
        known = request.member_id
        if known != NO_MEMBER:
            if request.instance_id is None and known not in group.members and known not in pending:
                raise UnknownMember(group.name, known)
            return known
        limit = self._context.settings.group_consumer_size_max
        if group.static_member(request.instance_id) is None and len(group.members) + len(pending) >= limit:
            raise GroupFull(group.name, limit=limit, setting="group_consumer_size_max")
        member_id = new_member_id(self._context, request.instance_id or request.client_id)
        if request.instance_id is None and request.requires_known_member_id:
            self._members.await_join(member_id, request.session_timeout_ms)
            raise MemberIdRequired(group.name, member_id)
        return member_id

    def sync(self, request: SyncRequest) -> asyncio.Future[Synced]:
        """Return the assignment of a member. Raises as ``GroupCoordinator.sync``."""
        member = classic_member(self._group, request.member_id, request.instance_id)
        try:
            check_sync(self._group, member, request)
        except RebalanceInProgress:
            self._expect_join(member.member_id)
            raise
        self._consumer.deadlines.stop(member.member_id)
        self._consumer.start_session(member)
        return self._consumer.when_kept(synced(self._group, member))

    def heartbeat(self, *, generation: int, member_id: str, instance_id: str | None) -> None:
        """Restart the session of a member. Raises as ``GroupCoordinator.heartbeat``."""
        member = classic_member(self._group, member_id, instance_id)
        check_generation(self._group, member, generation)
        self._consumer.start_session(member)
        if must_join_again(self._group, member):
            self._expect_join(member.member_id)
            raise RebalanceInProgress(self._group.name)

    def _expect_join(self, member_id: str) -> None:
        """Remove the member unless it joins in time; further heartbeats do not make the time longer."""
        deadlines = self._consumer.deadlines
        if member_id not in deadlines:
            deadlines.start(member_id, self._group.members[member_id].rebalance_timeout_ms)

    def keep_alive(self, member_id: str) -> None:
        """Restart the session of a member that committed, unless it uses the new protocol."""
        member = self._group.members[member_id]
        if member.classic is not None:
            self._consumer.start_session(member)

    def leave(self, leaver: LeavingMember) -> str:
        """Remove a member and return its id; ``LiveConsumerGroup.left`` has to follow.

        Raises ``UnknownMember``, also about members of the new protocol, and ``FencedInstance``.
        """
        group, member_id = self._group, leaver.member_id
        if member_id == NO_MEMBER:
            # An administrator removes an instance, whatever its member id is now.
            static = group.static_member(leaver.instance_id)
            if static is None:
                raise UnknownMember(group.name, member_id)
            member_id = static.member_id
        member = classic_member(group, member_id, leaver.instance_id)
        group.remove(member.member_id, emptied_at_ms=self._context.now_ms())
        return member.member_id

    # ── managed members ──

    def join_managed(self, request: JoinRequest) -> asyncio.Future[Membership]:
        """Let a managed member join, or read other topics.

        Raises as ``GroupCoordinator.join_managed``.

        Completes when that is durable. What other members have yet to give up comes later.
        """
        known = self._group.members.get(request.member_id)
        if known is not None and not known.is_managed:
            raise not_managed(known.member_id)
        check_protocols(self._group, request)
        member = self._admit(request)
        return self._consumer.when_kept(self.membership(member.member_id))

    def answer_join_managed(self, member_id: str, future: asyncio.Future[Membership]) -> None:
        """Answer a managed member with the next write.

        It has waited since before the broker assigned.
        """
        self._consumer.answer_with_write(future, self.membership(member_id))

    def membership(self, member_id: str, *, generation: int | None = None) -> Membership:
        """Restart the session of a managed member. See ``GroupCoordinator.membership``."""
        group = self._group
        member = classic_member(group, member_id, None)
        if generation is not None and not 0 <= generation <= member.epoch:
            raise IllegalGeneration(group.name, generation, current_generation=member.epoch)
        self._consumer.start_session(member)
        return Membership(
            member_id=member_id,
            generation=member.epoch,
            assigned=named(member.assigned, group.topic_names()),
            is_rebalancing=member.epoch < group.epoch,
        )

    def check_owner(self, claimant: Claimant) -> None:
        """Restart the session of a member that has a partition.

        Raises as ``check_assigned_by_broker``.
        """
        check_assigned_by_broker(self._group, claimant)
        self._consumer.start_session(self._group.members[claimant.member_id])
