"""Requests of members of consumer groups, and their answers (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

from ...cluster.consumer_group_store import ConsumerMember, OwnedPartition
from ...errors import InvalidRequest
from ..base.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member joins (epoch 0), stays, or leaves (-1, -2).

    A static member that leaves with -2 will be back.

    What is None has not changed since the last heartbeat. ``regex`` is empty for none.
    ``owned`` are the partitions that the member has. Times in ms.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: AbstractSet[OwnedPartition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if the member sends all its fields.

        It does so when it joins, and after an answer got lost.
        """
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms is not None and has_subscription and self.owned is not None

    def check(self) -> None:
        """Check what does not depend on the group. Raises ``InvalidRequest``."""
        for what, text in (
            ("group id", self.group),
            ("member id", self.member_id),
            ("instance id", self.instance_id),
            ("rack id", self.rack_id),
        ):
            if text == "":
                raise InvalidRequest(f"the {what} is empty")
        if self.epoch < -2:
            raise InvalidRequest(f"member epoch {self.epoch} is not valid; join with 0, leave with -1 or -2")
        if self.epoch == -2 and self.instance_id is None:
            raise InvalidRequest("member epoch -2 is for members with an instance id; leave with -1")
        if self.epoch != 0:
            return
        if self.rebalance_timeout_ms is None:
            raise InvalidRequest("a member that joins must say its rebalance timeout")
        if self.owned is None or self.owned:
            raise InvalidRequest("a member that joins must say that it owns no partitions")
        if self.topics is None and self.regex is None:
            raise InvalidRequest(
                "a member that joins must subscribe to topics by name or by a regular expression"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatAnswer:
    """``assigned`` is None if it is what the member was told before."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: frozenset[OwnedPartition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """``names`` are the names of the topics of all partitions, by their ids; deleted topics are not in it."""

    group: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[ConsumerMember]
    names: Mapping[UUID, str]
