"""One consumer group whose partitions the broker assigns.

It has epochs, members and targets (KIP-848, ADR-0042).

It has no I/O and no clock, and never waits. The epochs only grow, and in this order::

    group epoch          grows when members, subscriptions or partitions change
    assignment epoch     the group epoch that the last target assignment was made for
    epoch of a member    grows as the member walks to its target (``reconciliation``)

``LiveConsumerGroup`` drives a group: it has the clock, the timers and the store.
What a call changed is in ``take_changes`` until it is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ...cluster.consumer_group_store import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    NO_PARTITIONS,
    ConsumerGroupChange,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerMember,
    MemberState,
    OwnedPartition,
    StoredConsumerGroup,
)
from ...errors import FencedInstance, FencedMemberEpoch, GroupFull, UnknownMember, UnreleasedInstance
from ...work_budget import Ongoing
from ..base.states import GroupState
from ..base.topic_facts import TopicsOf
from .member_index import MemberIndex
from .messages import ConsumerHeartbeat
from .reconciliation import reconciled
from .targets import Assigning, new_targets

# As in Kafka the first member of a group makes it epoch 2, so that no answer has epoch 0 (KAFKA-20268).
FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """``member`` after a heartbeat.

    ``has_changed``: it was assigned other partitions than before.
    """

    member: ConsumerMember
    has_changed: bool


class ConsumerGroup:
    """``regexes`` are the topics that each regular expression of the members matched.

    ``topics_of`` returns the facts of those of the named topics that exist.
    ``assigned_at_ms`` is the time of the last assignment in the clock of the caller, None if
    there was none since the start.
    """

    def __init__(self, name: str, *, topics_of: TopicsOf) -> None:
        self.name = name
        self.epoch = FIRST_EPOCH
        self.assignment_epoch = FIRST_EPOCH
        self.assignor = ""
        self.members: dict[str, ConsumerMember] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.emptied_at_ms: int | None = None
        self.assigned_at_ms: int | None = None
        self.topics_of = topics_of
        self.index = MemberIndex()
        self._assigning: Assigning | None = None
        # The numbers of partitions by topic that the last target has.
        self._partitions: Mapping[UUID, int] = {}
        # Members that were removed or renamed since the last ``take_gone``.
        self._gone: list[str] = []
        # What the store does not have yet: the group itself, members by id, members that left.
        self._is_changed = True
        self._changed: set[str] = set()
        self._left: set[str] = set()

    # ── the store ──

    @classmethod
    def restored(cls, stored: StoredConsumerGroup, *, topics_of: TopicsOf) -> ConsumerGroup:
        """Make the group again from what the store has."""
        record = stored.record
        group = cls(record.group, topics_of=topics_of)
        group.epoch = record.epoch
        group.assignment_epoch = record.assignment_epoch
        group.assignor = record.assignor
        group.regexes = dict(record.regexes)
        group.emptied_at_ms = record.emptied_at_ms
        for member in stored.members:
            group.put(member)
        group._partitions = Counter(part.topic_id for member in stored.members for part in member.target)
        group.check()
        group.take_changes()
        return group

    def record(self) -> ConsumerGroupRecord:
        return ConsumerGroupRecord(
            group=self.name,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            regexes=dict(self.regexes),
            emptied_at_ms=self.emptied_at_ms,
        )

    @property
    def has_changes(self) -> bool:
        """True if the store does not have the group as it is."""
        return bool(self._is_changed or self._changed or self._left)

    def take_changes(self) -> list[ConsumerGroupChange]:
        """Return what has to be written to the store since the last call."""
        changes: list[ConsumerGroupChange] = [self.record()] if self._is_changed else []
        changes += [DeleteConsumerMember(group=self.name, member_id=left) for left in sorted(self._left)]
        changes += [
            ConsumerMemberRecord(group=self.name, member=self.members[member_id])
            for member_id in sorted(self._changed)
        ]
        self._is_changed = False
        self._left.clear()
        self._changed.clear()
        return changes

    def give_back(self, changes: Iterable[ConsumerGroupChange]) -> None:
        """Take note that ``changes`` were not written: ``take_changes`` returns them again."""
        for change in changes:
            match change:
                case ConsumerGroupRecord():
                    self._is_changed = True
                case ConsumerMemberRecord(member=member) if member.member_id in self.members:
                    self._changed.add(member.member_id)
                case ConsumerMemberRecord(member=member):
                    self._left.add(member.member_id)
                case DeleteConsumerMember(member_id=member_id) if member_id not in self.members:
                    self._left.add(member_id)
                case _:
                    pass

    # ── what it is ──

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if self.index.stable[self.assignment_epoch] == len(self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def check(self) -> None:
        """Assert the invariants of a group."""
        assert self.epoch >= self.assignment_epoch >= FIRST_EPOCH
        index = MemberIndex()
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            assert member.epoch <= self.assignment_epoch
            is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
            assert bool(member.revoking) <= is_revoking
            assert not is_revoking or member.epoch < self.assignment_epoch
            index.replace(None, member)
        assert index == self.index

    @property
    def topics(self) -> set[str]:
        """The topics that members subscribe to, including those that do not exist."""
        matched = (self.regexes.get(regex, frozenset()) for regex in self.index.regexes)
        return set(self.index.topics).union(*matched)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.index.topics or any(
            topic in self.regexes.get(regex, ()) for regex in self.index.regexes
        )

    def topics_of_member(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics of its subscription, including those that do not exist."""
        return member.topics | self.regexes.get(member.regex, frozenset())

    # ── members ──

    def member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """Return the member that sent a request.

        Raises ``UnknownMember``, ``FencedInstance``.
        """
        if instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                raise UnknownMember(self.name, member_id)
            return member
        member = self.static_member(instance_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        if member.member_id != member_id:
            raise FencedInstance(self.name, instance_id)
        return member

    def is_free(self, part: OwnedPartition, member_id: str) -> bool:
        """True if no member but ``member_id`` has ``part``."""
        return self.index.holders.get(part, member_id) == member_id

    def topic_names(self) -> dict[UUID, str]:
        """Return the names of the existing topics that members subscribe to, by their ids."""
        return {facts.topic_id: name for name, facts in self.topics_of(self.topics).items()}

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self.index.static.get(instance_id, ""))

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace it by what it became."""
        member_id = member.member_id
        before = self.members.get(member_id)
        if member == before:
            return
        if before is None and self.emptied_at_ms is not None:
            self.emptied_at_ms = None
            self._is_changed = True
        self.members[member_id] = member
        self.index.replace(before, member)
        self._changed.add(member_id)
        self._left.discard(member_id)

    def remove(self, member_id: str, *, emptied_at_ms: int) -> None:
        """Remove a member, and assign its partitions to the others with the next target.

        ``emptied_at_ms`` is the time, in case it was the last.
        """
        self._drop(member_id)
        self.bump()
        self.forget_regexes()
        if not self.members:
            # There is nothing to assign.
            self._assigning = None
            self.assignment_epoch = self.epoch
            self.emptied_at_ms = emptied_at_ms

    def _drop(self, member_id: str) -> None:
        self.index.replace(self.members.pop(member_id), None)
        self._changed.discard(member_id)
        self._left.add(member_id)
        self._gone.append(member_id)

    def take_gone(self) -> list[str]:
        """Return the ids that were removed or replaced since the last call, if they are not back."""
        gone, self._gone = self._gone, []
        return [member_id for member_id in gone if member_id not in self.members]

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the instance of ``old`` another member id.

        It keeps what is assigned to it, so nothing moves. What it was to give up is given up,
        because a client that starts has no partitions.
        """
        new = replace(
            old,
            member_id=member_id,
            epoch=JOINING,
            previous_epoch=JOINING,
            state=MemberState.STABLE,
            revoking=NO_PARTITIONS,
            classic=None,
        )
        self._drop(old.member_id)
        self.put(new)
        if self._assigning is not None:
            self._assigning.rename(old.member_id, member_id)
        return new

    def bump(self) -> None:
        """Begin the next group epoch; a new target is due."""
        self.epoch += 1
        self._is_changed = True

    # ── heartbeats ──

    def heartbeat(
        self, request: ConsumerHeartbeat, *, now_ms: int, interval_ms: int, size_max: int
    ) -> Stepped:
        """Apply a heartbeat of a member that joins or stays.

        Raises:
            UnknownMember, FencedMemberEpoch: the member joins again with epoch 0.
            UnreleasedInstance: a live member has the instance id.
            FencedInstance: another member took the instance id over.
            GroupFull: the group has ``size_max`` members.
        """
        before = self._admit(request, size_max=size_max)
        member = _updated(before, request)
        is_new = before.member_id not in self.members
        self.put(member)
        if is_new or (before.topics, before.regex) != (member.topics, member.regex):
            self.bump()
            self.forget_regexes()
        if self.is_assignment_due(now_ms, interval_ms=interval_ms):
            self.assign(now_ms)
        after = self.reconcile(member.member_id, request.owned)
        if after.epoch != request.epoch != after.previous_epoch:
            # The member has shown to be at this epoch, and repeats it until an answer arrives.
            after = replace(after, previous_epoch=request.epoch)
            self.put(after)
        return Stepped(member=after, has_changed=after.assigned.keys() != before.assigned.keys())

    def _admit(self, request: ConsumerHeartbeat, *, size_max: int) -> ConsumerMember:
        """Return the member that sent ``request``: it is not in the group yet if it is new."""
        if request.epoch != JOINING:
            member = self.member(request.member_id, request.instance_id)
            self._check_epoch(member, request)
            return member
        static = self.static_member(request.instance_id)
        known = self.members.get(request.member_id)
        if static is not None and static is not known:
            assert request.instance_id is not None
            if not static.is_away and static.classic is None:
                raise UnreleasedInstance(self.name, request.instance_id)
            return self.replace_static(static, request.member_id)
        if known is not None and not known.is_away:
            # A member that was fenced, or lost an answer, joins again with its id: it has given up everything.
            return known
        if known is not None:
            return self.replace_static(known, known.member_id)
        if len(self.members) >= size_max:
            raise GroupFull(self.name, limit=size_max, setting="group_consumer_size_max")
        return ConsumerMember(member_id=request.member_id)

    def _check_epoch(self, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        if request.epoch == member.epoch:
            return
        # The answer with the newer epoch may have been lost. Then the member has nothing that it did not have.
        if request.epoch == member.previous_epoch and not member.is_away and member.holds(request.owned):
            return
        raise FencedMemberEpoch(self.name, member.member_id, request.epoch, current_epoch=member.epoch)

    def reconcile(self, member_id: str, owned: Collection[OwnedPartition] | None) -> ConsumerMember:
        """Let a member take its next step to its target."""
        member = reconciled(
            self.members[member_id],
            assignment_epoch=self.assignment_epoch,
            owned=owned,
            is_free=lambda part: self.is_free(part, member_id),
        )
        self.put(member)
        return member

    def leave(self, request: ConsumerHeartbeat, *, emptied_at_ms: int) -> ConsumerMember:
        """Remove a member, or note that a static one is away.

        Raises ``UnknownMember``, ``FencedInstance``.
        """
        member = self.member(request.member_id, request.instance_id)
        if request.epoch != LEAVING_FOR_A_WHILE:
            self.remove(member.member_id, emptied_at_ms=emptied_at_ms)
            return member
        # A client that stops has given up everything; its partitions stay assigned to the instance.
        self.put(replace(member, epoch=LEAVING_FOR_A_WHILE, state=MemberState.STABLE, revoking=NO_PARTITIONS))
        return self.members[member.member_id]

    # ── targets ──

    @property
    def is_assigning(self) -> bool:
        """True while a target is being made: ``go_on_assigning`` has to be called."""
        return self._assigning is not None

    def is_assignment_due(self, now_ms: int, *, interval_ms: int) -> bool:
        """True if a new target is needed and at least ``interval_ms`` have passed."""
        return (
            not self.is_assigning
            and self.epoch > self.assignment_epoch
            and self.assignment_wait_ms(now_ms, interval_ms=interval_ms) == 0
        )

    def assignment_wait_ms(self, now_ms: int, *, interval_ms: int) -> int:
        """Return how long the next target waits for its interval."""
        return 0 if self.assigned_at_ms is None else max(0, self.assigned_at_ms + interval_ms - now_ms)

    def assign(self, now_ms: int) -> None:
        """Make the target assignment of the group epoch, or begin to: see ``is_assigning``."""
        work = new_targets(
            list(self.members.values()),
            names=self.topics,
            topics_of_member=self.topics_of_member,
            topics_of=self.topics_of,
        )
        self._assigning = Assigning(epoch=self.epoch, now_ms=now_ms, work=Ongoing(work))
        self.go_on_assigning()

    def go_on_assigning(self) -> None:
        """Take the next steps to the target; members change only once it is complete."""
        assigning = self._assigning
        if assigning is None or not assigning.work.go_on():
            return
        self._assigning = None
        targets = assigning.work.outcome
        for before, after in targets.members:
            current = self.members.get(assigning.renamed.get(before.member_id, before.member_id))
            if current is not None:
                after = after if current is before else replace(current, target=after.target)
                # No index has targets.
                self.members[after.member_id] = after
                self._changed.add(after.member_id)
        self.assignor = targets.assignor
        self.assignment_epoch = assigning.epoch
        self.assigned_at_ms = assigning.now_ms
        self._partitions = targets.partitions
        self.index.may_step = bool(self.index.managed)
        self._is_changed = True

    def topics_changed(self) -> bool:
        """Begin the next group epoch if the partitions to assign have changed.

        Returns whether a new target is needed.
        """
        if not self.members:
            return False
        if self.is_assigning:
            # The target on its way may have been made without the change.
            self.bump()
        elif self.epoch == self.assignment_epoch:
            facts = self.topics_of(self.topics).values()
            if {topic.topic_id: topic.partitions for topic in facts} != self._partitions:
                self.bump()
        return self.epoch > self.assignment_epoch

    # ── regular expressions ──

    def resolve(self, matches: Mapping[str, frozenset[str]]) -> bool:
        """Keep the topics that regular expressions match now; True if a new target is needed."""
        changed = {regex: topics for regex, topics in matches.items() if self.regexes.get(regex) != topics}
        self.regexes.update(changed)
        if changed:
            self._is_changed = True
        if self.index.regexes.keys() & changed.keys():
            self.bump()
        return self.epoch > self.assignment_epoch

    def forget_regexes(self) -> None:
        """Forget expressions that no member uses now."""
        unused = self.regexes.keys() - self.index.regexes.keys()
        for regex in unused:
            del self.regexes[regex]
        self._is_changed = self._is_changed or bool(unused)


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with what a heartbeat says of it; what is None there has not changed."""
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms is None
            else request.rebalance_timeout_ms
        ),
        topics=member.topics if request.topics is None else request.topics,
        regex=member.regex if request.regex is None else request.regex,
        assignor=member.assignor if request.assignor is None else request.assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
