"""A state machine of a share group's members and partitions (KIP-932, ADR-0044).

A partition may have several members, and nothing depends on which member reads it: the records that a member
holds are locked in ``SharePartition``. So there is nothing to revoke and nothing to store. After a
restart the members are unknown and join again.

The epoch of the group rises with each change of its members, their subscriptions or its partitions.
A member gets the epoch of the group, and its partitions, with its next heartbeat. If the answer to a
heartbeat is lost, the member repeats its previous epoch and gets the same answer again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...cluster.consumer_group_store import JOINING, OwnedPartition
from ...errors import FencedMemberEpoch, GroupFull, InvalidRequest, UnknownMember
from ..base.states import GroupState

LEAVING = -1
# The only one; members cannot choose.
ASSIGNOR = "simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A member joins (epoch 0), stays, or leaves (-1).

    ``topics`` is None if they have not changed.
    """

    group: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""

    def check(self) -> None:
        """Check what does not depend on the group. Raises ``InvalidRequest``."""
        for what, text in (
            ("group id", self.group),
            ("member id", self.member_id),
            ("rack id", self.rack_id),
        ):
            if text == "":
                raise InvalidRequest(f"the {what} is empty")
        if self.epoch < LEAVING:
            raise InvalidRequest(f"member epoch {self.epoch} is not valid; join with 0, leave with -1")
        if self.epoch == JOINING and not self.topics:
            raise InvalidRequest("a member that joins must subscribe to at least one topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatAnswer:
    """``assigned`` is None if it is what the member was told before."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: frozenset[OwnedPartition] | None = None


@dataclass(slots=True, kw_only=True)
class ShareMember:
    """``assigned`` is what the member was told with ``epoch``.

    ``target`` is what it is to read, as of ``target_epoch`` of the group. ``places`` are its numbers among
    the readers of each of its topics.
    """

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[OwnedPartition] = frozenset()
    target: frozenset[OwnedPartition] = frozenset()
    target_epoch: int = -1
    places: dict[str, int] = field(default_factory=dict[str, int])


class ShareGroup:
    """See the module. ``members`` are by member id, in the order in which they joined.

    Each heartbeat costs what its own member reads, however many others there are: the partitions of a member
    follow from its place among the readers of a topic.

    ``topic_changes`` counts how often ``topics`` has changed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._partitions: Mapping[str, Sequence[OwnedPartition]] = {}
        # Member ids by topic, in no order: the last one takes the place of one that leaves.
        self._readers: dict[str, list[str]] = {}
        self.topic_changes = 0
        # The reader that gets the first partition of each topic, as of an epoch.
        self._turns: dict[str, int] = {}
        self._turns_epoch = -1

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def topics(self) -> Collection[str]:
        """All topics that a member is subscribed to."""
        return self._readers.keys()

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._readers

    # ── heartbeats ──

    def take(self, request: ShareHeartbeat, *, size_max: int) -> None:
        """Take in what a member says when it joins or stays.

        Raises ``UnknownMember``, ``FencedMemberEpoch``, ``GroupFull``.
        """
        member = self.members.get(request.member_id)
        if request.epoch == JOINING:
            if member is None:
                self._add(request, size_max=size_max)
                return
        elif member is None:
            raise UnknownMember(self.name, request.member_id)
        elif request.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(self.name, member.member_id, request.epoch, current_epoch=member.epoch)
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.topics is not None and request.topics != member.topics:
            self._stop_reading(member, member.topics - request.topics)
            self._read(member, request.topics - member.topics)
            member.topics = request.topics
            self.epoch += 1

    def _add(self, request: ShareHeartbeat, *, size_max: int) -> None:
        if len(self.members) >= size_max:
            raise GroupFull(self.name, limit=size_max)
        member = self.members[request.member_id] = ShareMember(
            member_id=request.member_id,
            rack_id=request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=request.topics or frozenset(),
        )
        self._read(member, member.topics)
        self.epoch += 1

    def _read(self, member: ShareMember, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic not in self._readers:
                self._readers[topic] = []
                self.topic_changes += 1
            member.places[topic] = len(self._readers[topic])
            self._readers[topic].append(member.member_id)

    def _stop_reading(self, member: ShareMember, topics: Iterable[str]) -> None:
        for topic in topics:
            readers, place = self._readers[topic], member.places.pop(topic)
            last = readers.pop()
            if last != member.member_id:
                readers[place] = last
                self.members[last].places[topic] = place
            if not readers:
                del self._readers[topic]
                self.topic_changes += 1

    def answer(self, request: ShareHeartbeat) -> tuple[int, frozenset[OwnedPartition] | None]:
        """Return the epoch of a member and its partitions; None for those that it knows.

        Raises ``UnknownMember`` if the member has left since ``take``.
        """
        member = self.members.get(request.member_id)
        if member is None:
            raise UnknownMember(self.name, request.member_id)
        is_told = request.epoch == member.epoch and request.topics is None
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        target = self._target(member)
        if is_told and target == member.assigned:
            return member.epoch, None
        member.assigned = target
        return member.epoch, target

    def remove(self, member_id: str) -> None:
        """Remove a member. Raises ``UnknownMember``."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(self.name, member_id)
        self._stop_reading(member, member.topics)
        del self.members[member_id]
        self.epoch += 1

    # ── partitions ──

    def serve(self, partitions: Mapping[str, Sequence[OwnedPartition]]) -> None:
        """Assign the partitions of each topic from now on; they have a state."""
        if partitions != self._partitions:
            self._partitions = partitions
            self.epoch += 1

    def _target(self, member: ShareMember) -> frozenset[OwnedPartition]:
        if member.target_epoch != self.epoch:
            member.target = frozenset(part for topic in member.topics for part in self._share(member, topic))
            member.target_epoch = self.epoch
        return member.target

    def _share(self, member: ShareMember, topic: str) -> Iterator[OwnedPartition]:
        """Yield the partitions of a topic for one of its readers.

        Each partition has a reader, and each reader a partition.
        """
        partitions, readers = self._partitions.get(topic, ()), len(self._readers[topic])
        if not partitions:
            return
        first = (member.places[topic] - self._turn(topic)) % readers
        for index in range(first, max(len(partitions), readers), readers):
            yield partitions[index % len(partitions)]

    def _turn(self, topic: str) -> int:
        """Return how many shares the topics before this one have.

        So topics begin with different members, and many small ones spread.
        """
        if self._turns_epoch != self.epoch:
            turn = 0
            for name in sorted(self._partitions):
                self._turns[name] = turn
                partitions, readers = len(self._partitions[name]), len(self._readers.get(name, ()))
                turn += max(partitions, readers) if partitions and readers else 0
            self._turns_epoch = self.epoch
        return self._turns[topic]
