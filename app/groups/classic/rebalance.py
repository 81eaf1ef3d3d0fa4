"""The rebalance of one group: from its begin to the moment when the assignment is kept.

Everything runs on the event loop and nothing awaits, so each call takes effect
before it returns. Two timers bound a rebalance:

join
    A rebalance waits at most this long for its members to join. Managed members
    are never waited for, because the broker joins for them.
sync
    The members of a new generation must ask for their assignment within this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import Context

from ...errors import RebalanceInProgress, SteleError, UnknownMember
from ...work_budget import Ongoing
from ..base.context import GroupContext
from ..base.member import Member
from ..base.states import Event, GroupState
from ..base.timers import Timer
from .answers import joined_of, synced_of
from .live_members import LiveMembers
from .managed_members import are_all_managed, assignments_by_the_broker, is_led_by_the_broker

logger = logging.getLogger(__name__)

# Members may ask for a rebalance timeout of 0; waiting for static members must not spin.
_RETRY_MS_MIN = 1000


class Rebalance:
    """Owns the timers of a rebalance and the assignment on its way to the store."""

    def __init__(self, members: LiveMembers, context: GroupContext) -> None:
        self._members = members
        self._group = members.group
        self._context = context
        self.join_timer = Timer(context.scheduler)
        self._sync_timer = Timer(context.scheduler)
        # A member joined since the initial rebalance began to wait.
        self._has_newcomer = False
        # The generation whose assignment is on its way to the store.
        self._assigning: int | None = None
        # Assignments on their way to the store, those of past generations included.
        self._writes = 0

    def close(self) -> None:
        """Stop the timers."""
        self.join_timer.stop()
        self._sync_timer.stop()

    # ── begin ──

    def member_joined(self, why: str, reason: str | None = None) -> None:
        """Begin or complete a rebalance because a new member joined."""
        self._has_newcomer = True
        self.begin_or_complete(why, reason)

    def members_left(self, why: str) -> None:
        """Begin or complete a rebalance because members are gone."""
        if self._group.state is not GroupState.EMPTY:
            self.begin_or_complete(why)

    def begin_or_complete(self, why: str, reason: str | None = None) -> None:
        """Begin a rebalance, or complete the one that waits if all members have joined.

        ``why`` is logged, and so is ``reason``, which the client gave.
        """
        if self._group.can(Event.REBALANCE):
            self._begin(why, reason)
        else:
            self.complete_if_all_joined()

    def _begin(self, why: str, reason: str | None = None) -> None:
        group = self._group
        logger.info(
            "group %r rebalances after generation %d: %s%s",
            group.name,
            group.generation,
            why,
            f" ({reason[:200]!r})" if reason else "",
        )
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._members.refuse_syncs(RebalanceInProgress(group.name))
        self._sync_timer.stop()
        group.pending_sync.clear()
        group.handle(Event.REBALANCE)
        for member in group.members.values():
            if member.is_managed and not member.is_awaiting_join:
                self._members.mark_joined(member)
        if group.is_initial_rebalance:
            self._wait_for_more(group.rebalance_timeout_ms)
        elif group.have_all_joined and not self._writes:
            self._complete()
        else:
            self.join_timer.start(group.rebalance_timeout_ms, self._complete)

    def _wait_for_more(self, left_ms: int) -> None:
        """Delay the first rebalance of an empty group.

        So members that start together share it.

        The delay repeats while new members join, for ``left_ms`` in all. There is none
        where all members are managed, because another rebalance costs them nothing.
        """
        delay_ms = min(self._context.settings.group_initial_rebalance_delay_ms, left_ms)
        if are_all_managed(self._group):
            delay_ms = 0
        self._has_newcomer = False

        def waited() -> None:
            if self._has_newcomer and left_ms - delay_ms > 0 and delay_ms > 0:
                self._wait_for_more(left_ms - delay_ms)
            else:
                self._complete()

        self.join_timer.start(delay_ms, waited)

    # ── complete ──

    def complete_if_all_joined(self) -> None:
        """Begin the next generation if the group waits for no other member.

        Nor for the store: managed members that join one after the other, while an assignment is being written,
        share the next one, because each costs as much as the group is large.
        """
        group = self._group
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.is_initial_rebalance
            and group.have_all_joined
            and not self._writes
        ):
            self._complete()

    def _complete(self) -> None:
        """Begin the next generation with the members that joined.

        Members that did not join are removed, except static ones.
        """
        self.join_timer.stop()
        group = self._group
        late = [m.member_id for m in group.members.values() if not (m.is_awaiting_join or m.is_static)]
        for member_id in late:
            self._members.remove(member_id, UnknownMember(group.name, member_id))
        if not group.elect_leader() and group.members:
            # Only static members are left and none has joined: they have until their sessions end.
            self.join_timer.start(max(group.rebalance_timeout_ms, _RETRY_MS_MIN), self._complete)
            return
        is_led = is_led_by_the_broker(group)
        previous = {m.member_id: m.assigned for m in group.members.values()} if is_led else {}
        group.next_generation()
        if not group.members:
            self._keep_empty()
            return
        logger.info(
            "group %r: generation %d with %d members", group.name, group.generation, len(group.members)
        )
        self._sync_timer.start(group.rebalance_timeout_ms, self._expire_syncs)
        for member in group.awaiting_join:
            self._members.answer_join(member, joined_of(group, member))
            if member.is_managed:
                group.pending_sync.discard(member.member_id)
            if not self._members.managed.is_waiting(member.member_id):
                member.is_new = False
                self._members.start_session(member)
        if not group.pending_sync:
            self._sync_timer.stop()
        if is_led:
            steps = assignments_by_the_broker(group, previous, partitions_of=self._context.partitions_of)
            self._assign_for_leader(group.generation, Ongoing(steps))

    def _assign_for_leader(self, generation: int, assigning: Ongoing[dict[str, bytes]]) -> None:
        """Assign in steps; nothing is assigned if the group rebalances meanwhile."""
        group = self._group
        if (
            self._members.is_closed
            or group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation != generation
        ):
            self._members.managed.settle()
        elif assigning.go_on():
            self.assign(assigning.outcome)
        else:
            self._context.scheduler.call_later(
                0, lambda: self._assign_for_leader(generation, assigning), context=Context()
            )

    def _keep_empty(self) -> None:
        group = self._group
        group.emptied_at_ms = self._context.now_ms()
        logger.info("group %r is empty in generation %d", group.name, group.generation)

        def kept(error: SteleError | None) -> None:
            # No request waits for this. If it fails, a restart finds members that expire.
            if error is not None:
                logger.warning("group %r could not be kept: %s", group.name, error)

        self._context.persist([group.record()], kept)
        self._context.changed(group.name)

    # ── assign ──

    @property
    def is_assigning(self) -> bool:
        """The assignment of the current generation is on its way to the store."""
        return self._assigning == self._group.generation

    def synced(self, member: Member) -> None:
        """Note that ``member`` requested its assignment."""
        self._group.pending_sync.discard(member.member_id)
        if not self._group.pending_sync:
            self._sync_timer.stop()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Keep the assignment, and send it to all members once it is durable.

        It is by member id.
        """
        group, members = self._group, self._members
        generation = self._assigning = group.generation
        known = {member_id: bytes(assignments.get(member_id, b"")) for member_id in group.members}
        self._writes += 1

        def kept(error: SteleError | None) -> None:
            self._writes -= 1
            if self._assigning == generation:
                self._assigning = None
            members.managed.settle()
            if (
                members.is_closed
                or group.state is not GroupState.COMPLETING_REBALANCE
                or group.generation != generation
            ):
                if not members.is_closed:
                    self.complete_if_all_joined()
                return
            if error is not None:
                self._assignment_failed(error)
                return
            group.assign(known)
            for member in group.members.values():
                if member.is_awaiting_sync:
                    members.parking.answer_sync(member, synced_of(group, member))
                    members.start_session(member)
                members.answer_assigned(member)
            self._context.changed(group.name)

        self._context.persist([group.record(known)], kept)

    def _assignment_failed(self, error: SteleError) -> None:
        group = self._group
        self._members.refuse_syncs(error)
        for member_id in self._members.managed.waiting:
            self._members.remove(member_id, error)
        why = f"its assignment could not be kept: {error}"
        if not are_all_managed(group):
            self._begin(why)
            return
        # The broker joins for all members, so without a pause it would ask a broken store in a busy loop.
        logger.warning("group %r tries again to assign: %s", group.name, why)
        self._sync_timer.stop()
        group.pending_sync.clear()
        group.handle(Event.REBALANCE)
        for member in group.members.values():
            self._members.mark_joined(member)
        self.join_timer.start(_RETRY_MS_MIN, self._complete)

    def _expire_syncs(self) -> None:
        """Remove members of this generation that did not sync in time."""
        group = self._group
        expired = list(group.pending_sync)
        for member_id in expired:
            self._members.remove(member_id, UnknownMember(group.name, member_id))
        if expired:
            self.members_left(f"{len(expired)} members did not sync in time")
