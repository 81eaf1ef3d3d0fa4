"""One group as a state machine: no input or output, no clock, no waiting.

Kafka's classic group protocol. Members join; when all have, a new generation
begins and one of them, the leader, assigns partitions to all; when its
assignment is there the group is stable, until a member comes, goes or changes::

            ┌──────────────────────── REBALANCE ─────────────────────────┐
            │                   ┌──── REBALANCE ────┐                    │
            ▼                   ▼                   │                    │
    ┌─ PREPARING_REBALANCE ─ JOINED ─▶ COMPLETING_REBALANCE ─ ASSIGNED ─▶ STABLE
    │       ▲
   LEFT  REBALANCE
    │       │
    └───▶ EMPTY ─ DELETED ─▶ DEAD

``TRANSITIONS`` is that picture; the diagram and the code cannot differ, for
``handle`` knows nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ..cluster.group_store import GroupRecord, MemberProtocol, MemberRecord, OwnerRecord
from ..errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    PartitionNotAssigned,
    PartitionNotOwned,
    PartitionOwned,
    RebalanceInProgress,
    UnknownMember,
)
from .consumer_protocol import AssignedPartition, assigned_partitions, subscribed_topics

# Members of this protocol type are consumers, whose metadata names their topics.
CONSUMER = "consumer"


class GroupState(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    REBALANCE = "a member came, went or changed"
    JOINED = "all members joined, or were dropped: the leader may assign"
    LEFT = "nobody is left"
    ASSIGNED = "the leader's assignment is kept"
    DELETED = "the group is deleted"


_S = GroupState

TRANSITIONS: Mapping[GroupState, Mapping[Event, GroupState]] = {
    _S.EMPTY: {Event.REBALANCE: _S.PREPARING_REBALANCE, Event.DELETED: _S.DEAD},
    _S.PREPARING_REBALANCE: {Event.JOINED: _S.COMPLETING_REBALANCE, Event.LEFT: _S.EMPTY},
    _S.COMPLETING_REBALANCE: {Event.REBALANCE: _S.PREPARING_REBALANCE, Event.ASSIGNED: _S.STABLE},
    _S.STABLE: {Event.REBALANCE: _S.PREPARING_REBALANCE},
    _S.DEAD: {},
}


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group; times in ms.

    ``is_new``: its first join is not answered yet, so it does not know its id
    and cannot send heartbeats. ``is_awaiting_join``, ``is_awaiting_sync``: it is
    parked, an answer is due to it. ``is_managed``: the broker joins, syncs and
    leads for it (ADR-0017), so it joins every generation as soon as that is prepared.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    is_awaiting_join: bool = False
    is_awaiting_sync: bool = False
    is_managed: bool = False

    @property
    def assigned(self) -> frozenset[AssignedPartition]:
        """Its assignment, as far as those are bytes that consumers understand."""
        return assigned_partitions(self.assignment)

    @property
    def is_static(self) -> bool:
        """It has an instance id: it may go away and come back without a rebalance."""
        return self.instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """What it told the leader for that protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def record(self, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
            is_managed=self.is_managed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who wants to own a partition, or says that it does."""

    group: str
    member_id: str
    generation: int
    topic: str
    partition: int

    @property
    def key(self) -> AssignedPartition:
        return AssignedPartition(self.topic, self.partition)


class Group:
    """``leader`` is a member id. ``members`` keeps the order in which they came.

    ``pending``: ids handed out for a join that has not come (KIP-394).
    ``pending_sync``: members of this generation that have not asked for their assignment.
    ``owners``: member ids by what they claimed; who owns a partition has it assigned, or will lose it
    with the next assignment.
    ``emptied_at_ms``: when the last member left; set by the owner, who has a clock.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()
        self.pending_sync: set[str] = set()
        self.owners: dict[AssignedPartition, str] = {}
        self.emptied_at_ms: int | None = None
        # A rebalance out of EMPTY: it waits for the delay, not for its members.
        self.is_initial_rebalance = False
        self._static: dict[str, str] = {}

    @classmethod
    def restored(cls, record: GroupRecord) -> Group:
        """The group as it was kept: stable if it has members."""
        group = cls(record.group)
        group.generation = record.generation
        group.protocol_type = record.protocol_type
        group.protocol_name = record.protocol_name
        group.emptied_at_ms = record.emptied_at_ms
        for kept in record.members:
            member = Member(
                member_id=kept.member_id,
                instance_id=kept.instance_id,
                client_id=kept.client_id,
                client_host=kept.client_host,
                session_timeout_ms=kept.session_timeout_ms,
                rebalance_timeout_ms=kept.rebalance_timeout_ms,
                protocols=kept.protocols,
                assignment=kept.assignment,
                is_managed=kept.is_managed,
            )
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group._static[member.instance_id] = member.member_id
        if group.members:
            group.leader = record.leader if record.leader in group.members else next(iter(group.members))
            group.state = GroupState.STABLE
        for owner in record.owners:
            member = group.members.get(owner.member_id)
            part = AssignedPartition(owner.topic, owner.partition)
            if member is not None and part in member.assigned:
                group.owners[part] = owner.member_id
        group.check()
        return group

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """The group to be kept; with ``assignments``, by member id, in the place of those it has."""
        owners = self.owners if assignments is None else self._owners_under(assignments)
        return GroupRecord(
            group=self.name,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            emptied_at_ms=self.emptied_at_ms,
            members=tuple(
                member.record(
                    member.assignment if assignments is None else assignments.get(member.member_id, b"")
                )
                for member in self.members.values()
            ),
            owners=tuple(
                OwnerRecord(group=self.name, topic=topic, partition=partition, member_id=member_id)
                for (topic, partition), member_id in self.owners.items()
                if (topic, partition) in owners
            ),
        )

    # ── states ──

    def can(self, event: Event) -> bool:
        return event in TRANSITIONS[self.state]

    def handle(self, event: Event) -> None:
        """Go where ``TRANSITIONS`` says; an event that the state does not know is a bug."""
        assert self.can(event), f"{event} in {self.state} of group {self.name!r}"
        self.is_initial_rebalance = self.state is GroupState.EMPTY and event is Event.REBALANCE
        self.state = TRANSITIONS[self.state][event]

    def check(self) -> None:
        """Assert what always holds."""
        assert self.leader is None or self.leader in self.members
        assert (self.leader is None) == (not self.members)
        assert self.pending.isdisjoint(self.members)
        assert self.pending_sync <= set(self.members)
        assert set(self.owners.values()) <= set(self.members)
        assert self._static == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        assert not self.members or self.protocol_type
        assert not self.members or self.common_protocols(self.members.values())
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        elif self.state is not GroupState.PREPARING_REBALANCE:
            assert self.members
            assert self.protocol_name is not None

    # ── members ──

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that has ``instance_id``."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def add(self, member: Member, protocol_type: str) -> None:
        """Its protocols must have been checked by ``check_protocols``. The first one leads."""
        assert member.member_id not in self.members
        self.pending.discard(member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
            self.leader = member.member_id
            self.emptied_at_ms = None
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member:
        """The first of the others leads if it was the leader."""
        member = self.members.pop(member_id)
        self.pending_sync.discard(member_id)
        self.owners = {part: owner for part, owner in self.owners.items() if owner != member_id}
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old: Member, member_id: str) -> Member:
        """The instance of ``old`` came back and is ``member_id`` now: place, assignment and lead are its own."""
        assert old.instance_id is not None
        new = replace(old, member_id=member_id, is_new=False, is_awaiting_join=False, is_awaiting_sync=False)
        self.members = {
            new.member_id if key == old.member_id else key: new if key == old.member_id else member
            for key, member in self.members.items()
        }
        self._static[old.instance_id] = member_id
        for part, owner in self.owners.items():
            if owner == old.member_id:
                self.owners[part] = member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(member_id)
        if self.leader == old.member_id:
            self.leader = member_id
        return new

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_awaiting_join]

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and all(member.is_awaiting_join for member in self.members.values())

    # ── what a request may do ──

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that asks.

        Raises:
            UnknownMember: there is none of that instance id, or of that member id.
            FencedInstance: the instance id belongs to another member by now.
        """
        if instance_id is not None:
            member = self.static_member(instance_id)
            if member is None:
                raise UnknownMember(self.name, member_id)
            if member.member_id != member_id:
                raise FencedInstance(self.name, instance_id)
            return member
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        return member

    def check_generation(self, generation: int) -> None:
        """Raises ``IllegalGeneration``."""
        if generation != self.generation:
            raise IllegalGeneration(self.name, generation, current_generation=self.generation)

    def check_commit(self, *, generation: int, member_id: str, instance_id: str | None) -> Member | None:
        """The member that commits; None: an administrator, or a consumer that assigns by itself.

        Commits are taken while the group prepares a rebalance: that is when
        members give their partitions back.

        Raises:
            UnknownMember, FencedInstance, IllegalGeneration: of another time, or of nobody in a group
                that has members.
            RebalanceInProgress: the generation is current, but what it assigns is not known yet.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        if generation < 0 and not member_id and instance_id is None:
            raise UnknownMember(self.name, member_id)
        member = self.check_member(member_id, instance_id)
        self.check_generation(generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress(self.name)
        return member

    # ── protocols ──

    @staticmethod
    def common_protocols(members: Iterable[Member]) -> set[str]:
        """Names that every one of ``members`` offers."""
        common: set[str] | None = None
        for member in members:
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return common or set()

    def check_protocols(
        self, protocol_type: str, protocols: Sequence[MemberProtocol], *, besides: str | None = None
    ) -> None:
        """``besides``: the member that offers ``protocols`` in the place of what it offered before.

        Raises:
            InconsistentGroupProtocol: the others do not have one of them in common, or are of another type.
        """
        if not protocol_type or not protocols:
            raise InconsistentGroupProtocol(self.name, "the protocol type or the list of protocols is empty")
        others = [member for member in self.members.values() if member.member_id != besides]
        if not others:
            return
        if protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                self.name, f"the group is of type {self.protocol_type!r}, not {protocol_type[:80]!r}"
            )
        common = self.common_protocols(others)
        if not any(name in common for name, _ in protocols):
            raise InconsistentGroupProtocol(
                self.name, f"its members support {', '.join(sorted(common))[:200]}, and the request does not"
            )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; most votes win.

        Of names with as many votes, the one that was voted for first, so that
        the same members always get the same answer.
        """
        candidates = self.common_protocols(self.members.values())
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        ((name, _),) = votes.most_common(1)
        return name

    # ── generations ──

    def elect_leader(self) -> bool:
        """Let a member lead that has joined; False: none has, or there is none."""
        if self.leader is not None and self.members[self.leader].is_awaiting_join:
            return True
        joined = self.awaiting_join
        if joined:
            self.leader = joined[0].member_id
        return bool(joined)

    def next_generation(self) -> None:
        """All who will have joined: begin their generation. Their assignments are those of the last one no more."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.handle(Event.JOINED)
            for member in self.members.values():
                member.assignment = b""
                if member.is_awaiting_join:
                    self.pending_sync.add(member.member_id)
        else:
            self.protocol_name = None
            self.handle(Event.LEFT)
        self.check()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """The leader's assignment is kept; who is not in it gets nothing, and owns nothing that it has lost."""
        self.owners = self._owners_under(assignments)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.handle(Event.ASSIGNED)
        self.check()

    def _owners_under(self, assignments: Mapping[str, bytes]) -> dict[AssignedPartition, str]:
        return {
            part: owner
            for part, owner in self.owners.items()
            if part in assigned_partitions(assignments.get(owner, b""))
        }

    # ── ownership ──

    def check_assigned(self, claimant: Claimant) -> None:
        """It has the partition, in the current generation.

        Raises:
            UnknownMember, IllegalGeneration: of another time.
            RebalanceInProgress: the generation is current, but what it assigns is not known yet.
            PartitionNotAssigned: see there.
        """
        member = self.check_member(claimant.member_id, None)
        self.check_generation(claimant.generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress(self.name)
        if claimant.key not in member.assigned:
            raise PartitionNotAssigned(
                self.name, claimant.topic, claimant.partition, member_id=claimant.member_id
            )

    def check_owner(self, claimant: Claimant) -> None:
        """As ``check_assigned``, and raises ``PartitionOwned`` or ``PartitionNotOwned``."""
        self.check_assigned(claimant)
        self._check_no_other(claimant)
        if claimant.key not in self.owners:
            raise PartitionNotOwned(
                self.name, claimant.topic, claimant.partition, member_id=claimant.member_id
            )

    def check_claim(self, claimant: Claimant) -> None:
        """As ``check_assigned``, and raises ``PartitionOwned`` or, as what is claimed now may be lost, ``RebalanceInProgress``."""
        self.check_assigned(claimant)
        self._check_no_other(claimant)
        if self.state is not GroupState.STABLE:
            raise RebalanceInProgress(self.name)

    def _check_no_other(self, claimant: Claimant) -> None:
        owner = self.owners.get(claimant.key, claimant.member_id)
        if owner != claimant.member_id:
            raise PartitionOwned(self.name, claimant.topic, claimant.partition, owner=owner)

    # ── topics ──

    def is_subscribed(self, topic: str) -> bool:
        """A consumer of this group reads ``topic``, or may: its metadata cannot be read."""
        if self.protocol_type != CONSUMER:
            return False
        for member in self.members.values():
            for _, metadata in member.protocols:
                topics = subscribed_topics(metadata)
                if topics is None or topic in topics:
                    return True
        return False
