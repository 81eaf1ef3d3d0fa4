"""A group with those who wait on it: parked joins and syncs, and the timers that end the waiting.

``group`` says what may happen; here it happens. Everything runs on the event
loop and nothing awaits, so a request is done or parked when its call returns,
and requests take effect in the order of their calls. Joining, syncing and
leaving are one class because each of them moves the same state: the group, what
is parked, and the timers.

Timers, for one group::

    session   each member    restarted by its heartbeats, commits and syncs, and when an answer that it
                             was parked for leaves; who is parked never expires, but for new members
                             (their ids are unknown to them if their connection broke): 5 minutes
    join      the group      a rebalance waits for its members at most this long; members that the broker
                             joins for (``is_managed``) are never waited for
    sync      the group      members of a new generation must sync within this
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ..cluster.group_store import MemberProtocol
from ..errors import (
    FencedInstance,
    GroupFull,
    InconsistentGroupProtocol,
    InvalidRequest,
    MemberIdRequired,
    RebalanceInProgress,
    SteleError,
    UnknownMember,
)
from .answers import joined_of, synced_of
from .group import Event, Group, GroupState, Member
from .group_context import GroupContext
from .group_offsets import GroupOffsets
from .managed_members import (
    ManagedMembers,
    are_all_managed,
    assignments_by_the_broker,
    is_led_by_the_broker,
)
from .messages import (
    NO_MEMBER,
    Joined,
    JoinRequest,
    LeavingMember,
    Membership,
    Results,
    Synced,
    SyncRequest,
)
from .parking import Parking
from .timers import Sessions, Timer

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
# A client id goes into the member id up to here; nobody parses it.
_MEMBER_ID_PREFIX_MAX = 255
# Members may ask for a rebalance timeout of 0; waiting for static ones must not spin.
_RETRY_MS_MIN = 1000


def _protocols(request: JoinRequest) -> tuple[MemberProtocol, ...]:
    # A listener may hand over slices of its frames; what is kept must not keep those.
    return tuple(MemberProtocol(name, bytes(metadata)) for name, metadata in request.protocols)


class LiveGroup:
    """A group, and its committed ``offsets``."""

    def __init__(self, group: Group, around: GroupContext) -> None:
        self.group = group
        self._is_closed = False
        # Somebody joined since the initial rebalance began to wait.
        self._has_newcomer = False
        self.offsets = GroupOffsets(group.name, around)
        self._around = around
        self._settings = around.settings
        self.parking = Parking()
        self.sessions = Sessions(around.scheduler, self._expire)
        self._join_timer = Timer(around.scheduler)
        self._sync_timer = Timer(around.scheduler)
        # The generation whose assignment is on its way to the store.
        self._assigning: int | None = None
        self.managed = ManagedMembers(group)
        for member in group.members.values():
            self._start_session(member)

    @property
    def is_unused(self) -> bool:
        """Nobody is in it, comes or has left anything: it can go."""
        group = self.group
        return group.state is GroupState.EMPTY and not group.pending and self.offsets.is_empty

    def close(self, error: SteleError) -> None:
        """Answer all who are parked, and stop the time for good."""
        self._is_closed = True
        self.sessions.close()
        self._join_timer.stop()
        self._sync_timer.stop()
        for member in self.group.members.values():
            self.parking.refuse(member, error)
        self.managed.close(error)

    # ── join ──

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        self._check_room(request.member_id, request.instance_id)
        if request.member_id == NO_MEMBER:
            return self._join_new(request)
        return self._join_known(request)

    def _check_room(self, member_id: str, instance_id: str | None) -> None:
        """Members that are there have their place, and so has an instance that comes back."""
        group, limit = self.group, self._settings.group_size_max
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
            request.protocol_type, request.protocols, besides=None if old is None else old.member_id
        )
        prefix = (request.instance_id or request.client_id)[:_MEMBER_ID_PREFIX_MAX]
        member_id = f"{prefix}-{self._around.make_id()}"
        if old is not None:
            return self._replace_static(old, member_id, request)
        if request.instance_id is None and request.requires_known_member_id:
            group.pending.add(member_id)
            self.sessions.start(member_id, request.session_timeout_ms)
            raise MemberIdRequired(group.name, member_id)
        return self._add(member_id, request)

    def _join_known(self, request: JoinRequest) -> asyncio.Future[Joined]:
        group, member_id = self.group, request.member_id
        if member_id in group.pending and request.instance_id is None:
            group.check_protocols(request.protocol_type, request.protocols)
            return self._add(member_id, request)
        member = group.check_member(member_id, request.instance_id)
        group.check_protocols(request.protocol_type, request.protocols, besides=member_id)
        is_same = member.protocols == _protocols(request)
        is_leader = group.leader == member_id
        if is_same and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not is_leader)
        ):
            # Its answer was lost, or nothing changed for it: tell it again what is the case.
            future = self._park_join(member)
            self.parking.answer_join(member, joined_of(group, member))
            self._start_session(member)
            return future
        self._update(member, request)
        future = self._park_join(member)
        self._rebalance_or_complete(
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
        group = self.group
        group.add(member, request.protocol_type)
        self._has_newcomer = True
        future = self._park_join(member)
        self.sessions.start(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(f"member {member_id!r} joins", request.reason)
        return future

    # ── members that the broker joins for ──

    def join_managed(self, request: JoinRequest) -> asyncio.Future[Membership]:
        """Completes when the group is stable with this member in it."""
        group = self.group
        self._check_room(request.member_id, None)
        if request.member_id == NO_MEMBER:
            group.check_protocols(request.protocol_type, request.protocols)
            member_id = f"{request.client_id[:_MEMBER_ID_PREFIX_MAX]}-{self._around.make_id()}"
            waiting = self.managed.await_assignment(member_id)
            self._add(member_id, request)
            return waiting
        member = group.check_member(request.member_id, None)
        if not member.is_managed:
            raise InvalidRequest(
                f"member {member.member_id[:80]!r} came through the Kafka listener; join there"
            )
        group.check_protocols(request.protocol_type, request.protocols, besides=member.member_id)
        waiting = self.managed.await_assignment(member.member_id)
        is_same = member.protocols == _protocols(request)
        self._update(member, request)
        self.keep_alive(member)
        if not is_same:
            self._rebalance_or_complete(f"member {member.member_id!r} reads other topics")
        elif group.state is GroupState.STABLE:
            self._answer_assigned(member)
        return waiting

    def _answer_assigned(self, member: Member) -> None:
        if self.managed.answer_assigned(member):
            self._start_session(member)

    def topics_changed(self, topic: str) -> None:
        """Partitions of ``topic`` came or went: assign anew, where the broker leads."""
        group = self.group
        if is_led_by_the_broker(group) and group.is_subscribed(topic):
            self._rebalance_or_complete(f"the partitions of topic {topic!r} changed")

    def _update(self, member: Member, request: JoinRequest) -> None:
        member.protocols = _protocols(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    def _replace_static(self, old: Member, member_id: str, request: JoinRequest) -> asyncio.Future[Joined]:
        """An instance came back without its member id: whoever uses the old one is fenced."""
        group = self.group
        assert old.instance_id is not None
        fenced = FencedInstance(group.name, old.instance_id)
        self.parking.refuse(old, fenced)
        self.sessions.stop(old.member_id)
        leader_before = group.leader
        member = group.replace_static(old, member_id)
        self._update(member, request)
        future = self._park_join(member)
        self._start_session(member)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            self._rebalance_or_complete(f"static member {old.instance_id!r} is back", request.reason)
            return future

        generation = group.generation

        def kept(error: SteleError | None) -> None:
            if self._is_closed or not self.parking.is_parked(member, future):
                return
            if error is not None:
                # The store has the old member id. Nobody may go on with one that a restart would not know.
                self._remove(member_id, error)
                self._changed(f"static member {member_id!r} could not be kept")
            elif group.state is GroupState.STABLE and group.generation == generation:
                is_leader = group.leader == member_id
                skip = is_leader and request.supports_skip_assignment
                # A peer that cannot skip its assignment must not find out that it leads: it would assign, in
                # a generation that is assigned. It is told its old id as the leader's.
                joined = joined_of(
                    group,
                    member,
                    leader=None if request.supports_skip_assignment else leader_before,
                    with_members=skip,
                    skip_assignment=skip,
                )
                self.parking.answer_join(member, joined)
                self._start_session(member)

        self._around.persist([group.record()], kept)
        return future

    # ── rebalance ──

    def _rebalance_or_complete(self, why: str, reason: str | None = None) -> None:
        if self.group.can(Event.REBALANCE):
            self._begin_rebalance(why, reason)
        else:
            self._complete_join_if_all_joined()

    def _begin_rebalance(self, why: str, reason: str | None = None) -> None:
        group = self.group
        logger.info(
            "group %r rebalances after generation %d: %s%s",
            group.name,
            group.generation,
            why,
            f" ({reason[:200]!r})" if reason else "",
        )
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(RebalanceInProgress(group.name))
        self._sync_timer.stop()
        group.pending_sync.clear()
        group.handle(Event.REBALANCE)
        for member in group.members.values():
            if member.is_managed and not member.is_awaiting_join:
                self.parking.mark_joined(member)
        if group.is_initial_rebalance:
            self._wait_for_more(group.rebalance_timeout_ms)
        elif group.have_all_joined:
            self._complete_join()
        else:
            self._join_timer.start(group.rebalance_timeout_ms, self._complete_join)

    def _wait_for_more(self, left_ms: int) -> None:
        """Give an empty group's first members the company of those that start with them.

        Waits once more as long as newcomers come, ``left_ms`` in all. Where the broker joins
        for all members, another rebalance costs none of them anything: it does not wait.
        """
        delay_ms = min(self._settings.group_initial_rebalance_delay_ms, left_ms)
        if are_all_managed(self.group):
            delay_ms = 0
        self._has_newcomer = False

        def waited() -> None:
            if self._has_newcomer and left_ms - delay_ms > 0 and delay_ms > 0:
                self._wait_for_more(left_ms - delay_ms)
            else:
                self._complete_join()

        self._join_timer.start(delay_ms, waited)

    def _complete_join_if_all_joined(self) -> None:
        group = self.group
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_initial_rebalance
            and group.have_all_joined
        ):
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with those who joined; static members are kept though they did not."""
        self._join_timer.stop()
        group = self.group
        late = [m.member_id for m in group.members.values() if not (m.is_awaiting_join or m.is_static)]
        for member_id in late:
            self._remove(member_id, UnknownMember(group.name, member_id))
        previous = {member.member_id: member.assigned for member in group.members.values()}
        if not group.elect_leader() and group.members:
            # Static members only, and none of them is back: they have until their sessions end.
            self._join_timer.start(max(group.rebalance_timeout_ms, _RETRY_MS_MIN), self._complete_join)
            return
        group.next_generation()
        if not group.members:
            group.emptied_at_ms = self._around.now_ms()
            logger.info("group %r is empty in generation %d", group.name, group.generation)
            # Nobody waits for it; if it fails, a restart finds members that expire.
            self._around.persist([group.record()], self._logged)
            self._around.changed(group.name)
            return
        logger.info(
            "group %r: generation %d with %d members", group.name, group.generation, len(group.members)
        )
        self._sync_timer.start(group.rebalance_timeout_ms, self._expire_syncs)
        for member in group.awaiting_join:
            self.parking.answer_join(member, joined_of(group, member))
            if member.is_managed:
                group.pending_sync.discard(member.member_id)
            if not self.managed.is_waiting(member.member_id):
                member.is_new = False
                self._start_session(member)
        if not group.pending_sync:
            self._sync_timer.stop()
        if is_led_by_the_broker(group):
            self._assign(assignments_by_the_broker(group, previous, partitions_of=self._around.partitions_of))

    def _logged(self, error: SteleError | None) -> None:
        if error is not None:
            logger.warning("group %r could not be kept: %s", self.group.name, error)

    def _expire_syncs(self) -> None:
        """Members of this generation that never asked for their assignment are gone."""
        group = self.group
        gone = list(group.pending_sync)
        for member_id in gone:
            self._remove(member_id, UnknownMember(group.name, member_id))
        if gone:
            self._changed(f"{len(gone)} members did not sync in time")

    def _retry_rebalance(self, why: str) -> None:
        """Where the broker joins for everybody, a store that is out of order must not be asked all the time."""
        group = self.group
        if not are_all_managed(group):
            self._begin_rebalance(why)
            return
        logger.warning("group %r tries again to assign: %s", group.name, why)
        self._sync_timer.stop()
        group.pending_sync.clear()
        group.handle(Event.REBALANCE)
        for member in group.members.values():
            self.parking.mark_joined(member)
        self._join_timer.start(_RETRY_MS_MIN, self._complete_join)

    def _changed(self, why: str) -> None:
        """Members are gone."""
        if self.group.state is not GroupState.EMPTY:
            self._rebalance_or_complete(why)

    # ── sync ──

    def sync(self, request: SyncRequest) -> asyncio.Future[Synced]:
        group = self.group
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        for asked, current in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if asked is not None and asked != current:
                raise InconsistentGroupProtocol(group.name, f"it chose {current!r}, not {asked[:80]!r}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(group.name)
        # A group that is empty has no members, so there is none that could ask.
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._sync_timer.stop()
        future = self._park_sync(member)
        if group.state is GroupState.STABLE:
            self.parking.answer_sync(member, synced_of(group, member))
            self._start_session(member)
        elif group.leader == member.member_id and self._assigning != group.generation:
            self._assign(request.assignments)
        return future

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Keep the assignment, and answer everybody when it is kept."""
        group = self.group
        generation = self._assigning = group.generation
        known = {member_id: bytes(assignments.get(member_id, b"")) for member_id in group.members}

        def kept(error: SteleError | None) -> None:
            if self._assigning == generation:
                self._assigning = None
            self.managed.settle()
            if (
                self._is_closed
                or group.state is not GroupState.COMPLETING_REBALANCE
                or group.generation != generation
            ):
                return
            if error is not None:
                self._refuse_syncs(error)
                for member_id in self.managed.waiting:
                    self._remove(member_id, error)
                self._retry_rebalance(f"its assignment could not be kept: {error}")
                return
            group.assign(known)
            for member in group.members.values():
                if member.is_awaiting_sync:
                    self.parking.answer_sync(member, synced_of(group, member))
                    self._start_session(member)
                self._answer_assigned(member)
            self._around.changed(group.name)

        self._around.persist([group.record(known)], kept)

    # ── staying and leaving ──

    def heartbeat(self, *, generation: int, member_id: str, instance_id: str | None) -> None:
        member = self.group.check_member(member_id, instance_id)
        self.group.check_generation(generation)
        self.keep_alive(member)
        if self.group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(self.group.name)

    def keep_alive(self, member: Member) -> None:
        """It was heard of. One that is parked as a new member stays on the longer timer."""
        if not member.is_new:
            self._start_session(member)

    def leave(self, leaving: Sequence[LeavingMember]) -> Results:
        """One rebalance, however many leave."""
        results: Results = []
        left: list[str] = []
        for one in leaving:
            try:
                if one.member_id in self.group.pending and one.instance_id is None:
                    self._forget_pending(one.member_id)
                else:
                    left.append(self._leave(one))
            except SteleError as error:
                results.append(error)
            else:
                results.append(None)
        if left:
            self._changed(f"{', '.join(map(repr, left[:3]))}{' …' if len(left) > 3 else ''} left")
        return results

    def _leave(self, leaving: LeavingMember) -> str:
        group, member_id = self.group, leaving.member_id
        if member_id == NO_MEMBER:
            # An administrator removes an instance, whichever member it is now.
            member = group.static_member(leaving.instance_id)
            if member is None:
                raise UnknownMember(group.name, member_id)
        else:
            member = group.check_member(member_id, leaving.instance_id)
        self._remove(member.member_id, UnknownMember(group.name, member.member_id))
        return member.member_id

    def _remove(self, member_id: str, error: SteleError) -> None:
        """``error`` answers what it is parked for."""
        self.parking.refuse(self.group.members[member_id], error)
        self.managed.refuse(member_id, error)
        self.sessions.stop(member_id)
        self.group.remove(member_id)

    def _forget_pending(self, member_id: str) -> None:
        """It will not come: nobody waits for it any more."""
        self.group.pending.discard(member_id)
        self.sessions.stop(member_id)
        self._complete_join_if_all_joined()

    def forget_all_pending(self) -> None:
        """Ids that were handed out count no more: the group is deleted."""
        for member_id in list(self.group.pending):
            self._forget_pending(member_id)

    def _expire(self, member_id: str) -> None:
        group = self.group
        if member_id in group.pending:
            self._forget_pending(member_id)
            return
        member = group.members[member_id]
        if not (member.is_new or member.is_managed) and (member.is_awaiting_join or member.is_awaiting_sync):
            # It waits for us; the answer starts its session anew.
            return
        self._remove(member_id, UnknownMember(group.name, member_id))
        self._changed(f"member {member_id!r} was silent for its session timeout")

    # ── parking ──

    def _park_join(self, member: Member) -> asyncio.Future[Joined]:
        # It asked again, over another connection: what it asked before has no reader any more.
        self.parking.refuse(member, RebalanceInProgress(self.group.name))
        return self.parking.park_join(member)

    def _park_sync(self, member: Member) -> asyncio.Future[Synced]:
        self.parking.answer_sync(member, RebalanceInProgress(self.group.name))
        return self.parking.park_sync(member)

    def _refuse_syncs(self, error: SteleError) -> None:
        for member in self.group.members.values():
            if member.is_awaiting_sync:
                self.parking.answer_sync(member, error)
                self._start_session(member)

    def _start_session(self, member: Member) -> None:
        self.sessions.start(member.member_id, member.session_timeout_ms)
