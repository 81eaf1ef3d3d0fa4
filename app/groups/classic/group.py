"""One classic group: members, generation, assignment and owners.

It has no I/O and no clock, and never waits. The states and their transitions are in ``base.states``, a member in ``base.member``,
the checks of a claim in ``ownership``. ``LiveGroup`` drives a group: it has the
clock, the timers and the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from ...cluster.group_store import GroupRecord, MemberProtocol, OwnerRecord
from ...errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ..base.client_ids import ClientIds
from ..base.consumer_protocol import CONSUMER, AssignedPartition, assigned_partitions, subscribed_topics
from ..base.member import Member
from ..base.states import TRANSITIONS, Event, GroupState
from ..base.tally import Tally
from .owners import Owners


class Group:
    """``leader`` is a member id. ``members`` keeps the order in which they joined.

    ``pending``: member ids that were handed out for a join that has not come yet (KIP-394).
    ``assigned_generation``: the last generation that has, or had, an assignment.
    ``pending_sync``: members of this generation that have not requested their assignment.
    ``owners``: an owner has the partition assigned, or loses it with the next assignment.
    ``known_epochs``: the generations that members know who come from a consumer group (``migration``),
    until the next generation begins.
    ``emptied_at_ms``: when the last member left; the caller sets it, because a group has no clock.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.assigned_generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()
        self.pending_sync: set[str] = set()
        self.owners = Owners()
        self.known_epochs: dict[str, int] = {}
        self.emptied_at_ms: int | None = None
        # A rebalance from EMPTY waits for a delay instead of for its members.
        self.is_initial_rebalance = False
        self._static: dict[str, str] = {}
        # Counted as members change, because each of a thousand joins asks: how many members offer each protocol,
        # and how many wait for the next generation.
        self._offers: Tally[str] = Tally()
        self._joined = 0
        # The managed members.
        self.clients = ClientIds()

    @classmethod
    def restored(cls, record: GroupRecord) -> Group:
        """Make the group again from its record in the store: stable if it has members."""
        group = cls(record.group)
        group.generation = group.assigned_generation = record.generation
        group.protocol_type = record.protocol_type
        group.protocol_name = record.protocol_name
        group.emptied_at_ms = record.emptied_at_ms
        for member in map(Member.restored, record.members):
            group.members[member.member_id] = member
            group._offers.add(member.protocol_names)
            if member.is_managed:
                group.clients.add(member.client_id, member.member_id)
            if member.instance_id is not None:
                group._static[member.instance_id] = member.member_id
        if group.members:
            group.leader = record.leader if record.leader in group.members else next(iter(group.members))
            group.state = GroupState.STABLE
        for owner in record.owners:
            member = group.members.get(owner.member_id)
            part = AssignedPartition(owner.topic, owner.partition)
            if member is not None and part in member.assigned:
                group.owners.claim(part, owner.member_id)
        group.check()
        return group

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """Return the record to store.

        ``assignments``, by member id, replace the current ones; a member without one gets none.
        """
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
                if assignments is None
                or _is_kept(AssignedPartition(topic, partition), member_id, assignments)
            ),
        )

    # ── states ──

    def can(self, event: Event) -> bool:
        """True if the current state has a transition for ``event``."""
        return event in TRANSITIONS[self.state]

    def handle(self, event: Event) -> None:
        """Move to the state that ``TRANSITIONS`` names; asserts that ``can(event)``."""
        assert self.can(event), f"{event} in {self.state} of group {self.name!r}"
        self.is_initial_rebalance = self.state is GroupState.EMPTY and event is Event.REBALANCE
        self.state = TRANSITIONS[self.state][event]

    def check(self) -> None:
        """Assert the invariants of a group."""
        assert self.leader is None or self.leader in self.members
        assert (self.leader is None) == (not self.members)
        assert self.pending.isdisjoint(self.members)
        assert self.pending_sync <= set(self.members)
        assert not self.known_epochs or self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        assert self.owners.members <= set(self.members)
        assert self._static == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        assert not self.members or self.protocol_type
        assert self._offers == Counter(
            name for member in self.members.values() for name in member.protocol_names
        )
        assert {member_id for ids in self.clients.values() for member_id in ids} == {
            member.member_id for member in self.members.values() if member.is_managed
        }
        assert self._joined == sum(member.is_awaiting_join for member in self.members.values())
        assert not self.members or self._common_protocols()
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        elif self.state is not GroupState.PREPARING_REBALANCE:
            assert self.members
            assert self.protocol_name is not None

    # ── members ──

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member that has ``instance_id``; None if there is none."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member whose protocols passed ``check_protocols``; the first member leads."""
        assert member.member_id not in self.members
        self.pending.discard(member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
            self.leader = member.member_id
            self.emptied_at_ms = None
        self.members[member.member_id] = member
        self._offers.add(member.protocol_names)
        self._joined += member.is_awaiting_join
        if member.is_managed:
            self.clients.add(member.client_id, member.member_id)
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member:
        """Remove a member; if it was the leader, the first of the others leads."""
        member = self.members.pop(member_id)
        self._offers.take(member.protocol_names)
        self._joined -= member.is_awaiting_join
        self.pending_sync.discard(member_id)
        self.owners.release_all(member_id)
        if member.is_managed:
            self.clients.take(member.client_id, member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old: Member, member_id: str) -> Member:
        """Rename ``old`` to ``member_id``, because its instance restarted; returns the new member.

        It keeps the assignment, the owned partitions and the lead of ``old``.
        """
        assert old.instance_id is not None
        self._joined -= old.is_awaiting_join
        new = replace(old, member_id=member_id, is_new=False, is_awaiting_join=False, is_awaiting_sync=False)
        del self.members[old.member_id]
        self.members[member_id] = new
        if old.is_managed:
            self.clients.take(old.client_id, old.member_id)
            self.clients.add(new.client_id, member_id)
        self._static[old.instance_id] = member_id
        self.owners.rename(old.member_id, member_id)
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(member_id)
        if self.leader == old.member_id:
            self.leader = member_id
        return new

    @property
    def rebalance_timeout_ms(self) -> int:
        """The timeout of a rebalance: the longest that any member requests."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_awaiting_join]

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and self._joined == len(self.members)

    def set_awaiting_join(self, member: Member, is_awaiting: bool) -> None:
        """Note that a member waits for the next generation, or no longer does."""
        self._joined += is_awaiting - member.is_awaiting_join
        member.is_awaiting_join = is_awaiting

    def set_client(self, member: Member, client_id: str, client_host: str) -> None:
        """Note which client a member belongs to now."""
        if member.is_managed:
            self.clients.take(member.client_id, member.member_id)
            self.clients.add(client_id, member.member_id)
        member.client_id, member.client_host = client_id, client_host

    def set_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        """Let a member offer other protocols, which passed ``check_protocols``."""
        self._offers.take(member.protocol_names)
        member.protocols = protocols
        self._offers.add(member.protocol_names)

    # ── checks of requests ──

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that sent a request.

        Raises:
            UnknownMember: no member has that instance id, or that member id.
            FencedInstance: another member has the instance id now.
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

    def check_generation(self, generation: int, member_id: str = "") -> None:
        """Raises ``IllegalGeneration`` for a generation that is not current.

        The generation that the member knows is accepted, too.
        """
        if generation != self.generation and generation != self.known_epochs.get(member_id):
            raise IllegalGeneration(self.name, generation, current_generation=self.generation)

    def check_commit(
        self, *, generation: int, member_id: str, instance_id: str | None, is_transactional: bool = False
    ) -> Member | None:
        """Return the member that commits; None for an administrator or a consumer without membership.

        Commits are accepted while the group prepares a rebalance, because members
        commit when they give their partitions back. ``is_transactional``: a producer commits for
        the member. It need not name the member, because old protocols cannot, and no
        rebalance is in its way.

        Raises:
            UnknownMember, FencedInstance, IllegalGeneration: the member missed a rebalance or was
                removed, or a client that is no member commits to a group that has members.
            RebalanceInProgress: the generation is current, but its assignment is not known yet.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return None
        if generation < 0 and not member_id and instance_id is None:
            if is_transactional:
                return None
            raise UnknownMember(self.name, member_id)
        member = self.check_member(member_id, instance_id)
        self.check_generation(generation, member.member_id)
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise RebalanceInProgress(self.name)
        return member

    # ── protocols ──

    def _common_protocols(self, besides: Member | None = None) -> set[str]:
        """Return the names of the protocols that all members but ``besides`` offer."""
        theirs = frozenset[str]() if besides is None else besides.protocol_names
        others = len(self.members) - (besides is not None)
        return {name for name, count in self._offers.items() if count - (name in theirs) == others}

    def check_protocols(
        self, protocol_type: str, protocols: Sequence[MemberProtocol], *, replacing: str | None = None
    ) -> None:
        """Check that a member may join with ``protocols``.

        ``replacing``: the id of the member that offers them instead of those it offered before.

        Raises:
            InconsistentGroupProtocol: the other members share none of them, or have another type.
        """
        if not protocol_type or not protocols:
            raise InconsistentGroupProtocol(self.name, "the protocol type or the list of protocols is empty")
        replaced = None if replacing is None else self.members.get(replacing)
        if len(self.members) == (replaced is not None):
            return
        if protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                self.name, f"the group is of type {self.protocol_type!r}, not {protocol_type[:80]!r}"
            )
        common = self._common_protocols(replaced)
        if not any(name in common for name, _ in protocols):
            raise InconsistentGroupProtocol(
                self.name, f"its members support {', '.join(sorted(common))[:200]}, and the request does not"
            )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes, as Kafka does.

        Each member votes for the first of its protocols that all members support. In a tie
        the name that was voted for first wins, so the result is deterministic.
        """
        candidates = self._common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        ((name, _),) = votes.most_common(1)
        return name

    # ── generations ──

    def elect_leader(self) -> bool:
        """Make a member that has joined the leader; False if no member has."""
        if self.leader is not None and self.members[self.leader].is_awaiting_join:
            return True
        joined = self.awaiting_join
        if joined:
            self.leader = joined[0].member_id
        return bool(joined)

    def next_generation(self) -> None:
        """Begin the next generation with the current members; clears their assignments."""
        self.generation += 1
        self.pending_sync.clear()
        self.known_epochs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.handle(Event.JOINED)
            for member in self.members.values():
                if member.is_awaiting_join:
                    self.pending_sync.add(member.member_id)
                else:
                    member.held |= member.assigned
                member.assignment = b""
        else:
            self.protocol_name = None
            self.assigned_generation = self.generation
            self.handle(Event.LEFT)
        self.check()

    def become_empty(self) -> None:
        """Note that all members were moved to a consumer group; the generation stays."""
        self.handle(Event.UPGRADED)
        self.known_epochs.clear()
        self.pending_sync.clear()
        self.protocol_type = self.protocol_name = None
        self.check()

    def become_stable(self, members: Iterable[Member], epochs: Mapping[str, int], *, generation: int) -> None:
        """Take over the members of a consumer group, at least one; this group has none.

        ``epochs`` are the generations that they know, by member id.
        """
        for member in members:
            self.add(member, CONSUMER)
        self.generation = self.assigned_generation = generation
        self.known_epochs = dict(epochs)
        self.protocol_name = self.select_protocol()
        self.handle(Event.DOWNGRADED)
        self.check()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Apply the leader's assignment; a member that is not in it is assigned nothing.

        An owner loses the partitions that are no longer assigned to it.
        """
        self.owners.keep(lambda part, member_id: _is_kept(part, member_id, assignments))
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.assigned_generation = self.generation
        self.handle(Event.ASSIGNED)
        self.check()

    # ── subscriptions ──

    def is_subscribed(self, topic: str) -> bool:
        """True if a consumer of this group reads ``topic``, or may: its metadata cannot be read."""
        return bool(self.subscribed({topic}))

    def subscribed(self, topics: AbstractSet[str]) -> AbstractSet[str]:
        """Return those of ``topics`` that consumers of this group read, or may."""
        read: set[str] = set()
        if self.protocol_type != CONSUMER:
            return read
        for member in self.members.values():
            for _, metadata in member.protocols:
                known = subscribed_topics(metadata)
                read |= topics if known is None else topics & known
                if len(read) == len(topics):
                    return read
        return read


def _is_kept(part: AssignedPartition, owner: str, assignments: Mapping[str, bytes]) -> bool:
    """Whether ``owner`` still has ``part`` with the next assignments."""
    return part in assigned_partitions(assignments.get(owner, b""))
