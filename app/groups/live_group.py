"""One group as the coordinator serves it: joining, syncing, staying and leaving.

``Group`` decides which transitions are allowed; this module performs them. Everything runs on the event loop
and nothing awaits, so a request is done or parked when its call returns, and
requests take effect in the order of their calls. ``LiveMembers`` has the members
and what they wait on, ``Rebalance`` leads to the next generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ..cluster.consumer_group_store import OwnedPartition
from ..cluster.group_store import MemberProtocol
from ..errors import (
    FencedInstance,
    GroupFull,
    GroupOfOtherType,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    SteleError,
    UnknownMember,
)
from .base.committed_offsets import GroupOffsets
from .base.context import GroupContext
from .base.member import Member
from .base.messages import (
    NO_MEMBER,
    CommitRequest,
    Joined,
    JoinRequest,
    LeavingMember,
    Membership,
    Results,
    Synced,
    SyncRequest,
)
from .base.states import GroupState, GroupType
from .classic.answers import joined_of, synced_of
from .classic.group import Group
from .classic.live_members import LiveMembers, new_member_id
from .classic.managed_members import is_led_by_the_broker, membership_of, not_managed
from .classic.rebalance import Rebalance
from .classic.restarts import Restarts
from .consumer.claims import GroupClaims
from .consumer.commits import check_commit
from .consumer.live_group import LiveConsumerGroup
from .consumer.live_migration import LiveMigration
from .share.live_group import LiveShareGroup


def _protocols(request: JoinRequest) -> tuple[MemberProtocol, ...]:
    # Copied, because a listener may pass slices of a frame, which would keep the whole frame in memory.
    return tuple(MemberProtocol(name, bytes(metadata)) for name, metadata in request.protocols)


class LiveGroup:
    """A group with its ``members``, committed ``offsets`` and ``claims``.

    ``consumer`` is None for a classic group. While the broker assigns the partitions, the
    members are in it, and ``group`` and ``members`` are empty; ``migration`` leads from one to the other.
    ``share`` is None unless it is a share group, which it stays until it is deleted.
    """

    def __init__(self, group: Group, context: GroupContext) -> None:
        self.group = group
        self.offsets = GroupOffsets(group.name, context)
        self.members = LiveMembers(group, context, expire=self._expire)
        self.rebalance = Rebalance(self.members, context)
        self._restarts = Restarts(self.members, context)
        self.migration = LiveMigration(self.members, self.rebalance, context)
        self.claims = GroupClaims(self.members, self.migration, context)
        self.share: LiveShareGroup | None = None
        self._context = context

    @property
    def consumer(self) -> LiveConsumerGroup | None:
        return self.migration.consumer

    @property
    def is_unused(self) -> bool:
        """No member is in it or about to join, and it has no offsets: it can be dropped."""
        modern = self.consumer or self.share
        is_busy = modern is not None and not modern.is_unused
        return not is_busy and self.is_empty and not self.group.pending and self.offsets.is_empty

    @property
    def is_empty(self) -> bool:
        """True if it has no members, and no rebalance."""
        return self.state is GroupState.EMPTY

    @property
    def state(self) -> GroupState:
        if self.share is not None:
            return self.share.group.state
        return self.group.state if self.consumer is None else self.consumer.group.state

    @property
    def type(self) -> GroupType:
        """The protocol of its members."""
        if self.share is not None:
            return "share"
        return "classic" if self.consumer is None else "consumer"

    @property
    def emptied_at_ms(self) -> int | None:
        """Time at which its last member left; None if it has members or never had any."""
        return self.group.emptied_at_ms if self.consumer is None else self.consumer.group.emptied_at_ms

    def subscribed(self, topics: AbstractSet[str]) -> AbstractSet[str]:
        """Return those of ``topics`` that consumers of this group read, or may."""
        if self.share is None and self.consumer is None:
            return self.group.subscribed(topics)
        group = self.consumer if self.share is None else self.share
        assert group is not None
        return set(filter(group.group.is_subscribed, topics))

    # ── the three protocols ──

    def joined_share_group(self) -> LiveShareGroup:
        """Return the group for a member of a share group.

        A group that no client has used becomes a share group.

        Raises ``GroupOfOtherType``.
        """
        if self.share is None:
            if not self.is_unused or self.group.generation > 0 or self.consumer is not None:
                raise GroupOfOtherType(self.group.name, self.type)
            self.share = LiveShareGroup(self.group.name, self._context)
        return self.share

    def joined_consumer_group(self, instance_id: str | None) -> LiveConsumerGroup:
        """See ``LiveMigration.joined_consumer_group``.

        Raises ``GroupOfOtherType`` and ``GroupFull``.
        """
        if self.share is not None:
            raise GroupOfOtherType(self.group.name, self.type)
        return self.migration.joined_consumer_group(instance_id)

    def _become_classic(self) -> None:
        """Let an empty consumer group be a classic one.

        Raises ``InconsistentGroupProtocol`` of share groups.
        """
        if self.share is not None:
            raise InconsistentGroupProtocol(
                self.group.name, "it is a share group, whose members take single records"
            )
        self.migration.end(RebalanceInProgress(self.group.name))

    def check_commit(self, request: CommitRequest, *, is_transactional: bool = False) -> None:
        """Check the membership of a client that commits, and restart its session.

        Raises what ``Group.check_commit`` or ``consumer.commits.check_commit`` raises, and ``GroupOfOtherType``.
        """
        if self.share is not None:
            raise GroupOfOtherType(self.group.name, self.type)
        if self.consumer is not None:
            facts = self._context.topic_facts({offset.topic for offset in request.offsets})
            partitions = [
                OwnedPartition(facts[offset.topic].topic_id, offset.partition)
                for offset in request.offsets
                if offset.topic in facts
            ]
            committer = check_commit(
                self.consumer.group, request, partitions, is_transactional=is_transactional
            )
            if committer is not None and not is_transactional and self.migration.classic is not None:
                self.migration.classic.keep_alive(committer)
            return
        member = self.group.check_commit(
            generation=request.generation,
            member_id=request.member_id,
            instance_id=request.instance_id,
            is_transactional=is_transactional,
        )
        # A producer may outlive the consumer that it commits for, so that session goes on as it is.
        if member is not None and not is_transactional:
            self.members.keep_alive(member)

    def close(self, error: SteleError) -> None:
        """Answer all parked requests with ``error``, and stop all timers for good."""
        self.rebalance.close()
        self.members.close(error)
        if self.consumer is not None:
            self.consumer.close(error)
        if self.share is not None:
            self.share.close(error)

    async def settled(self) -> None:
        """Return once the broker is not about to assign this group; that waits for the store only."""
        await self.members.managed.settled()
        await self.migration.settled()

    # ── join ──

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """See ``GroupCoordinator.join``."""
        if self.migration.classic is not None and not self.is_empty:
            return self.migration.classic.join(request)
        self._become_classic()
        self._check_room(request.member_id, request.instance_id)
        if request.member_id == NO_MEMBER:
            return self._join_new(request)
        return self._join_known(request)

    def _check_room(self, member_id: str, instance_id: str | None) -> None:
        """Raises ``GroupFull``. Known members and instances that return always have room."""
        group, limit = self.group, self._context.settings.group_size_max
        if member_id in group.members or group.static_member(instance_id) is not None:
            return
        taken = len(group.members)
        if member_id == NO_MEMBER:
            taken += len(group.pending)
        if taken >= limit:
            if member_id in group.pending:
                self._forget_pending(member_id)
            raise GroupFull(group.name, limit=limit)

    def _join_new(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group = self.group
        old = group.static_member(request.instance_id)
        group.check_protocols(
            request.protocol_type, request.protocols, replacing=None if old is None else old.member_id
        )
        member_id = new_member_id(self._context, request.instance_id or request.client_id)
        if old is not None:
            return self._replace_static(old, member_id, request)
        if request.instance_id is None and request.requires_known_member_id:
            self.members.await_join(member_id, request.session_timeout_ms)
            raise MemberIdRequired(group.name, member_id)
        return self._add(member_id, request)

    def _join_known(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group, member_id = self.group, request.member_id
        if member_id in group.pending and request.instance_id is None:
            group.check_protocols(request.protocol_type, request.protocols)
            return self._add(member_id, request)
        member = group.check_member(member_id, request.instance_id)
        group.check_protocols(request.protocol_type, request.protocols, replacing=member_id)
        is_same = member.protocols == _protocols(request)
        is_leader = group.leader == member_id
        if is_same and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not is_leader)
        ):
            # The earlier answer was lost, or nothing changed for this member: repeat the answer.
            future = self.members.park_join(member)
            self.members.answer_join(member, joined_of(group, member))
            self.members.start_session(member)
            return future
        self._update(member, request)
        future = self.members.park_join(member)
        self.rebalance.begin_or_complete(
            f"{'leader' if is_leader else 'member'} {member_id!r} joins again",
            request.reason,
        )
        return future

    def _add(self, member_id: str, request: JoinRequest) -> asyncio.Future[Joined]:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=_protocols(request),
            is_new=True,
            is_managed=request.is_managed,
        )
        member.held = member.owned_by_report()
        future = self.members.add(member, request.protocol_type)
        self.rebalance.member_joined(f"member {member_id!r} joins", request.reason)
        return future

    def _update(self, member: Member, request: JoinRequest) -> None:
        self.group.set_protocols(member, _protocols(request))
        member.held = member.owned_by_report()
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.group.set_client(member, request.client_id, request.client_host)

    def _replace_static(self, old: Member, member_id: str, request: JoinRequest) -> asyncio.Future[Joined]:
        """Readmit an instance that restarted without its member id.

        A client with the old id is fenced.
        """
        group, members = self.group, self.members
        assert old.instance_id is not None
        leader_before = group.leader
        is_same = old.protocols == _protocols(request)
        member = members.replace_static(old, member_id, FencedInstance(group.name, old.instance_id))
        self._update(member, request)
        future = members.park_join(member)
        members.start_session(member)
        is_other = not is_same and group.select_protocol() != group.protocol_name
        if group.state is not GroupState.STABLE or is_other:
            self.rebalance.begin_or_complete(f"static member {old.instance_id!r} is back", request.reason)
            return future

        generation = group.generation

        def kept(error: SteleError | None) -> None:
            if members.is_closed or not members.parking.is_parked(member, future):
                return
            if error is not None:
                # The store still has the old member id, and a restart would not know the new one.
                members.remove(member_id, error)
                self.rebalance.members_left(f"static member {member_id!r} could not be kept")
            elif group.state is GroupState.STABLE and group.generation == generation:
                is_leader = group.leader == member_id
                skip = is_leader and request.supports_skip_assignment
                # A client that cannot skip its assignment must not learn that it leads: it would assign
                # in a generation that is assigned already. Its answer has its old id as the leader's.
                joined = joined_of(
                    group,
                    member,
                    leader=None if request.supports_skip_assignment else leader_before,
                    with_members=skip,
                    skip_assignment=skip,
                )
                members.answer_join(member, joined)
                members.start_session(member)

        self._restarts.keep(kept)
        return future

    # ── managed members ──

    def join_managed(self, request: JoinRequest) -> asyncio.Future[Membership]:
        """See ``GroupCoordinator.join_managed``; completes when the group is stable with this member in it."""
        if self.migration.classic is not None and not self.is_empty:
            return self.migration.classic.join_managed(request)
        group, managed = self.group, self.members.managed
        self._become_classic()
        self._check_room(request.member_id, None)
        if request.member_id == NO_MEMBER:
            group.check_protocols(request.protocol_type, request.protocols)
            member_id = new_member_id(self._context, request.client_id)
            waiting = managed.await_assignment(member_id)
            self._add(member_id, request)
            return waiting
        member = group.check_member(request.member_id, None)
        if not member.is_managed:
            raise not_managed(member.member_id)
        group.check_protocols(request.protocol_type, request.protocols, replacing=member.member_id)
        waiting = managed.await_assignment(member.member_id)
        is_same = member.protocols == _protocols(request)
        self._update(member, request)
        self.members.keep_alive(member)
        if not is_same:
            self.rebalance.begin_or_complete(f"member {member.member_id!r} reads other topics")
        elif group.state is GroupState.STABLE:
            self.members.answer_assigned(member)
        return waiting

    def membership(self, member_id: str, *, generation: int | None) -> Membership:
        """See ``GroupCoordinator.membership``."""
        if self.migration.classic is not None:
            return self.migration.classic.membership(member_id, generation=generation)
        group = self.group
        member = group.check_member(member_id, None)
        if generation is not None and not 0 <= generation <= group.generation:
            raise IllegalGeneration(group.name, generation, current_generation=group.generation)
        self.members.keep_alive(member)
        return membership_of(group, member)

    def topics_changed(self, topic: str) -> None:
        """Assign again if the broker assigns for this group and it reads ``topic``.

        The partitions of ``topic`` changed.
        """
        group = self.group
        if self.consumer is not None:
            self.consumer.topics_changed(topic)
        elif self.share is not None:
            self.share.topics_changed(topic)
        elif is_led_by_the_broker(group) and group.is_subscribed(topic):
            self.rebalance.begin_or_complete(f"the partitions of topic {topic!r} changed")

    # ── sync ──

    def sync(self, request: SyncRequest) -> asyncio.Future[Synced]:
        """See ``GroupCoordinator.sync``."""
        if self.migration.classic is not None:
            return self.migration.classic.sync(request)
        group, members = self.group, self.members
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation, member.member_id)
        for requested, current in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and requested != current:
                raise InconsistentGroupProtocol(group.name, f"it chose {current!r}, not {requested[:80]!r}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(group.name)
        # An empty or dead group has no members, so none can sync.
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        self.rebalance.synced(member)
        future = members.park_sync(member)
        if group.state is GroupState.STABLE:
            members.parking.answer_sync(member, synced_of(group, member))
            members.start_session(member)
        elif group.leader == member.member_id and not self.rebalance.is_assigning:
            self.rebalance.assign(request.assignments)
        return future

    # ── staying and leaving ──

    def heartbeat(self, *, generation: int, member_id: str, instance_id: str | None) -> None:
        """See ``GroupCoordinator.heartbeat``."""
        if self.migration.classic is not None:
            self.migration.classic.heartbeat(
                generation=generation, member_id=member_id, instance_id=instance_id
            )
            return
        member = self.group.check_member(member_id, instance_id)
        self.group.check_generation(generation, member.member_id)
        self.members.keep_alive(member)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(self.group.name)

    def leave(self, leaving: Sequence[LeavingMember]) -> Results:
        """Remove members with one rebalance, however many there are; see ``GroupCoordinator.leave``."""
        results: Results = []
        left: list[str] = []
        for leaver in leaving:
            try:
                if leaver.member_id in self.group.pending and leaver.instance_id is None:
                    self._forget_pending(leaver.member_id)
                else:
                    left.append(self._leave(leaver))
            except SteleError as error:
                results.append(error)
            else:
                results.append(None)
        if left and self.consumer is not None:
            self.consumer.left()
        elif left:
            self.rebalance.members_left(
                f"{', '.join(map(repr, left[:3]))}{' …' if len(left) > 3 else ''} left"
            )
        return results

    def _leave(self, leaver: LeavingMember) -> str:
        if self.migration.classic is not None:
            return self.migration.classic.leave(leaver)
        group, member_id = self.group, leaver.member_id
        if member_id == NO_MEMBER:
            # An administrator removes an instance, whatever its member id is now.
            member = group.static_member(leaver.instance_id)
            if member is None:
                raise UnknownMember(group.name, member_id)
        else:
            member = group.check_member(member_id, leaver.instance_id)
        self.members.remove(member.member_id, UnknownMember(group.name, member.member_id))
        return member.member_id

    def _forget_pending(self, member_id: str) -> None:
        """Forget an id that was handed out; a rebalance no longer waits for its join."""
        self.members.forget_pending(member_id)
        self.rebalance.complete_if_all_joined()

    def forget_all_pending(self) -> None:
        """Forget all ids that were handed out, because the group is deleted."""
        for member_id in list(self.group.pending):
            self._forget_pending(member_id)

    def _expire(self, member_id: str) -> None:
        """Remove a member whose session timed out, unless it waits for the broker."""
        group = self.group
        if member_id in group.pending:
            self._forget_pending(member_id)
            return
        member = group.members[member_id]
        if not (member.is_new or member.is_managed) and (member.is_awaiting_join or member.is_awaiting_sync):
            # The answer that it waits for restarts its session.
            return
        self.members.remove(member_id, UnknownMember(group.name, member_id))
        self.rebalance.members_left(f"member {member_id!r} missed its session timeout")
