"""Serves one consumer group: heartbeats, sessions, the store (KIP-848, ADR-0042).

Requests of classic members are in ``live_classic_members`` (ADR-0043).

``ConsumerGroup`` decides; this module has the timers and writes. An answer waits until the
store has everything that it rests on. One write is on its way at a time and has all
changes since the one before, so the store always has the group as it was at one moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TypeVar

from ...cluster.consumer_group_store import JOINING, ConsumerMember, MemberState
from ...errors import SteleError
from ...linear_regex import LinearRegex
from ...work_budget import Ongoing
from ..base.context import GroupContext
from ..base.parking import answer
from ..base.timers import Sessions, Timer
from .classic_membership import step_managed
from .group import ConsumerGroup
from .messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer

logger = logging.getLogger(__name__)

# How long the topics that a regular expression matched are used without looking at all names again, because
# the rights of the client may have changed. New and deleted topics are noticed at once.
_REGEX_RESOLVED_S = 600.0

# How many expressions of a group are matched with a new topic in one turn of the loop.
_MATCHED_AT_ONCE = 10

# How often a member sends heartbeats that waits for partitions. Kafka's clients take the interval of each answer.
_WAITING_INTERVAL_MS = 1000

Sees = Callable[[str], bool]
_T = TypeVar("_T")
# Called once with None when changes are durable, or with the error.
Waiting = Callable[[SteleError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The topics that a regular expression matches, at a time of the scheduler.

    ``sees`` returns which topics the client may see.
    """

    pattern: str
    compiled: LinearRegex
    sees: Sees
    topics: frozenset[str]
    at_s: float


class LiveConsumerGroup:
    """A consumer group with its timers and with the answers that wait for the store.

    ``deadlines`` are those of classic members, which have to join again or to sync.
    ``becomes_classic`` is called before each write, and returns True if it took the members over
    (``retire``), because none of the new protocol is left.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        context: GroupContext,
        *,
        becomes_classic: Callable[[], bool] = lambda: False,
    ) -> None:
        self.group = group
        self._context = context
        self._becomes_classic = becomes_classic
        scheduler = context.scheduler
        self._sessions = Sessions(scheduler, self._session_over)
        self._revocations = Sessions(scheduler, self._revocation_over)
        self.deadlines = Sessions(scheduler, self._deadline_over)
        # The epochs in which members have to give up partitions.
        self._revoking: dict[str, int] = {}
        self._assign_timer = Timer(scheduler, self._assign_later)
        self._regexes: dict[str, Resolved] = {}
        self._is_writing = False
        self._is_closed = False
        self._waiting: list[Waiting] = []
        for member in group.members.values():
            self._start_timers(member)
        self._stepping: Ongoing[bool] | None = None
        self._is_going_on = False
        group.index.may_step = True
        self._others_step()
        if group.topics_changed():
            self._schedule_assignment()

    @property
    def is_unused(self) -> bool:
        """No member is in it, and nothing waits for the store."""
        return not (self.group.members or self._waiting or self._is_writing)

    def close(self, error: SteleError) -> None:
        """Stop all timers for good, and answer what waits with ``error``."""
        for waiting in self.retire():
            waiting(error)

    def retire(self) -> list[Waiting]:
        """Stop all timers for good; return the answers that wait for a write.

        Nothing more is written.
        """
        self._is_closed = True
        for timers in (self._sessions, self._revocations, self.deadlines):
            timers.close()
        self._assign_timer.stop()
        waiting, self._waiting = self._waiting, []
        return waiting

    # ── heartbeats ──

    def regex_to_resolve(self, request: ConsumerHeartbeat) -> str | None:
        """Return the member's regular expression if it must be matched with all topics."""
        member = self.group.members.get(request.member_id)
        pattern = request.regex if request.regex is not None or member is None else member.regex
        if not pattern:
            return None
        known = self._regexes.get(pattern)
        is_fresh = (
            known is not None
            # The group forgets what an expression matched with the last member that uses it.
            and pattern in self.group.regexes
            and self._context.scheduler.time() - known.at_s < _REGEX_RESOLVED_S
        )
        return None if is_fresh else pattern

    def learn(self, resolved: Resolved) -> None:
        """Keep the topics that a regular expression matches."""
        group = self.group
        # Without those that the group has forgotten.
        self._regexes = {
            pattern: known for pattern, known in self._regexes.items() if pattern in group.regexes
        }
        self._regexes[resolved.pattern] = resolved
        group.resolve({resolved.pattern: resolved.topics})

    def heartbeat(self, request: ConsumerHeartbeat) -> asyncio.Future[ConsumerHeartbeatAnswer]:
        """See ``ConsumerGroups.heartbeat``."""
        if request.epoch < 0:
            return self._leave(request)
        group = self.group
        stepped = group.heartbeat(
            request,
            now_ms=self.now_ms(),
            interval_ms=self.interval_ms(),
            size_max=self._context.settings.group_consumer_size_max,
        )
        self.stepped(stepped.member)
        is_told = request.epoch == 0 or request.is_full or stepped.has_changed
        return self.when_kept(
            ConsumerHeartbeatAnswer(
                member_id=stepped.member.member_id,
                epoch=stepped.member.epoch,
                heartbeat_interval_ms=self._next_heartbeat_ms(
                    stepped.member, has_joined=request.epoch == JOINING
                ),
                assigned=frozenset(stepped.member.assigned) if is_told else None,
            )
        )

    def _next_heartbeat_ms(self, member: ConsumerMember, *, has_joined: bool) -> int:
        """Return when to send the next heartbeat: soon, if it is likely to bring other partitions.

        So it is while a target is due, or others have yet to give partitions up. Members often start together, so
        the first one has to share soon after it joined.
        """
        interval_ms = self._context.configs.number(self.group.name, "consumer.heartbeat.interval.ms")
        is_waiting = member.epoch < self.group.epoch or member.state is MemberState.UNRELEASED_PARTITIONS
        return min(interval_ms, _WAITING_INTERVAL_MS) if is_waiting or has_joined else interval_ms

    def _leave(self, request: ConsumerHeartbeat) -> asyncio.Future[ConsumerHeartbeatAnswer]:
        member = self.group.leave(request, emptied_at_ms=self._context.now_ms())
        self._revocations.stop(member.member_id)
        self._revoking.pop(member.member_id, None)
        self._drop_timers()
        self._others_step()
        self._schedule_assignment()
        return self.when_kept(
            ConsumerHeartbeatAnswer(member_id=member.member_id, epoch=request.epoch, heartbeat_interval_ms=0)
        )

    def stepped(self, member: ConsumerMember) -> None:
        """Restart the timers after ``member`` joined or took a step; a write has to follow."""
        self._drop_timers()
        self._start_timers(member)
        self._others_step()
        self._schedule_assignment()

    def _others_step(self) -> None:
        """Let the managed members step.

        There is a new target, or a partition is free.
        """
        if self._stepping is None and self.group.index.may_step:
            self._stepping = Ongoing(step_managed(self.group))
            self._go_on_stepping()

    def _go_on_stepping(self) -> None:
        stepping = self._stepping
        assert stepping is not None
        if not stepping.go_on():
            self._go_on_later()
            return
        self._stepping = None
        if stepping.outcome:
            self._context.changed(self.group.name)

    def _go_on_later(self) -> None:
        """Go on in the next turn of the loop with what one turn has not finished."""
        if not self._is_going_on:
            self._is_going_on = True
            self._context.scheduler.call_later(0, self._go_on, context=Context())

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._is_closed:
            return
        if self._stepping is not None:
            self._go_on_stepping()
        if self.group.is_assigning:
            self.group.go_on_assigning()
            self._assigned()
        else:
            self.write()

    def left(self) -> None:
        """Go on without members that were removed."""
        self._drop_timers()
        self._others_step()
        self._schedule_assignment()
        self.write()
        self._context.changed(self.group.name)

    # ── timers ──

    def now_ms(self) -> int:
        """Return the time of the scheduler."""
        return int(self._context.scheduler.time() * 1000)

    def interval_ms(self) -> int:
        """Return the shortest time between two assignments."""
        return self._context.configs.number(self.group.name, "consumer.assignment.interval.ms")

    def start_session(self, member: ConsumerMember) -> None:
        """Restart the session timeout of a member; those of the classic protocol choose it themselves."""
        self._sessions.start(
            member.member_id,
            self._context.configs.number(self.group.name, "consumer.session.timeout.ms")
            if member.classic is None
            else member.classic.session_timeout_ms,
        )

    def _start_timers(self, member: ConsumerMember) -> None:
        member_id = member.member_id
        self.start_session(member)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revocations.stop(member_id)
            self._revoking.pop(member_id, None)
        elif self._revoking.get(member_id) != member.epoch:
            # Each epoch has the whole timeout; heartbeats do not make it longer.
            self._revoking[member_id] = member.epoch
            self._revocations.start(member_id, member.rebalance_timeout_ms)

    def _drop_timers(self) -> None:
        """Stop the timers of members that are gone."""
        for member_id in self.group.take_gone():
            for timers in (self._sessions, self._revocations, self.deadlines):
                timers.stop(member_id)
            self._revoking.pop(member_id, None)

    def _session_over(self, member_id: str) -> None:
        self._remove(member_id, "missed its session timeout")

    def _revocation_over(self, member_id: str) -> None:
        self._remove(member_id, "did not give up its partitions within its rebalance timeout")

    def _deadline_over(self, member_id: str) -> None:
        self._remove(member_id, "did not join again or sync within its rebalance timeout")

    def _remove(self, member_id: str, why: str) -> None:
        logger.info("group %r: member %r %s", self.group.name, member_id, why)
        self.group.remove(member_id, emptied_at_ms=self._context.now_ms())
        self.left()

    # ── targets ──

    def _schedule_assignment(self) -> None:
        """Make the next target as soon as its interval allows, if one is needed."""
        group = self.group
        if self._is_closed or not group.members or group.epoch == group.assignment_epoch:
            self._assign_timer.stop()
        elif group.is_assigning:
            self._go_on_later()
        elif not self._assign_timer.is_running:
            self._assign_timer.start(group.assignment_wait_ms(self.now_ms(), interval_ms=self.interval_ms()))

    def _assign_later(self) -> None:
        if self.group.is_assignment_due(self.now_ms(), interval_ms=0) and self.group.members:
            self.group.assign(self.now_ms())
            self._assigned()

    def _assigned(self) -> None:
        """Go on once there is a target, or with making it."""
        if not self.group.is_assigning:
            self._others_step()
            self.write()
            self._context.changed(self.group.name)
        self._schedule_assignment()

    def topics_changed(self, topic: str) -> None:
        """Make another target if the group reads ``topic`` and it has changed.

        It was created, deleted or grown.
        """
        group = self.group
        exists = topic in self._context.partitions_of([topic])
        for number, (pattern, before) in enumerate(list(group.regexes.items())):
            if not exists:
                group.resolve({pattern: before - {topic}})
                continue
            regex = self._regexes.get(pattern)
            if regex is None:
                # The next heartbeat of a member matches it with all topics.
                continue
            is_matched = regex.sees(topic) and (
                regex.compiled.matches_at_once(topic) if number < _MATCHED_AT_ONCE else None
            )
            if is_matched is None:
                del self._regexes[pattern]
            else:
                group.resolve({pattern: before | {topic} if is_matched else before - {topic}})
        if group.is_subscribed(topic):
            group.topics_changed()
        if group.epoch > group.assignment_epoch:
            self._schedule_assignment()
            self.write()

    # ── the store ──

    def when_kept(self, result: _T) -> asyncio.Future[_T]:
        """Write what has changed.

        Completes with ``result`` when the store has all that it rests on.
        """
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if self._is_kept:
            future.set_result(result)
        else:
            self.answer_with_write(future, result)
            self.write()
        return future

    def answer_with_write(self, future: asyncio.Future[_T], result: _T) -> None:
        """Let a waiting request wait for the next write, which the caller begins."""
        answers = self._context.answers
        self._waiting.append(
            lambda error: answers.call(lambda: answer(future, result if error is None else error))
        )

    async def settled(self) -> None:
        """Return when the store has the group as it is. Raises ``GroupStoreFailed``."""
        while not (self._is_kept or self._is_closed):
            await self.when_kept(None)

    @property
    def _is_kept(self) -> bool:
        return not self._is_writing and not self.group.has_changes

    def write(self) -> None:
        """Write what has changed, unless a write is on its way: then it follows that."""
        if self._is_closed or self._becomes_classic():
            return
        if self._is_writing or not (self._waiting or self.group.has_changes):
            return
        changes, waiting = self.group.take_changes(), self._waiting
        self._waiting = []
        self._is_writing = True

        def written(error: SteleError | None) -> None:
            self._is_writing = False
            if error is not None:
                # The next heartbeat writes it; until then no member learns of it.
                self.group.give_back(changes)
            for done in waiting:
                done(error)
            if error is None or self._waiting:
                self.write()

        self._context.persist(changes, written)
