"""A state machine of a share group's members and partitions (KIP-932, ADR-0044).

A partition may have several members, and nothing depends on which member reads it: the records that a member
holds are locked in ``SharePartition``. So there is nothing to revoke and nothing to store. After a
restart the members are unknown and join again.

The epoch of the group rises with each change of its members, their subscriptions or its partitions.
A member gets the epoch of the group, and its partitions, with its next heartbeat. If the answer to a
heartbeat is lost, the member repeats its previous epoch and gets the same answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """``assigned`` is what the member was told with ``epoch``."""

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[OwnedPartition] = frozenset()


class ShareGroup:
    """See the module. ``members`` are by member id, in the order in which they joined."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._partitions: Mapping[str, Sequence[OwnedPartition]] = {}
        self._targets: dict[str, frozenset[OwnedPartition]] = {}

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def topics(self) -> frozenset[str]:
        """All topics that a member is subscribed to."""
        return frozenset(topic for member in self.members.values() for topic in member.topics)

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

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
            member.topics = request.topics
            self._change()

    def _add(self, request: ShareHeartbeat, *, size_max: int) -> None:
        if len(self.members) >= size_max:
            raise GroupFull(self.name, limit=size_max)
        self.members[request.member_id] = ShareMember(
            member_id=request.member_id,
            rack_id=request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=request.topics or frozenset(),
        )
        self._change()

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
        target = self._targets[member.member_id]
        if is_told and target == member.assigned:
            return member.epoch, None
        member.assigned = target
        return member.epoch, target

    def remove(self, member_id: str) -> None:
        """Remove a member. Raises ``UnknownMember``."""
        if self.members.pop(member_id, None) is None:
            raise UnknownMember(self.name, member_id)
        self._change()

    # ── partitions ──

    def serve(self, partitions: Mapping[str, Sequence[OwnedPartition]]) -> None:
        """Assign the partitions of each topic from now on; they have a state."""
        if partitions != self._partitions:
            self._partitions = partitions
            self._change()

    def _change(self) -> None:
        self.epoch += 1
        targets: dict[str, set[OwnedPartition]] = {member_id: set() for member_id in self.members}
        # Topics begin with different members, so that many small topics spread.
        turn = 0
        for topic in sorted(self._partitions):
            partitions = self._partitions[topic]
            readers = [member_id for member_id, member in self.members.items() if topic in member.topics]
            if not partitions or not readers:
                continue
            # Each partition has a reader, and each reader a partition.
            pairs = max(len(partitions), len(readers))
            for index in range(pairs):
                reader = readers[(turn + index) % len(readers)]
                targets[reader].add(partitions[index % len(partitions)])
            turn += pairs
        self._targets = {member_id: frozenset(target) for member_id, target in targets.items()}
