"""Requests to the coordinator and their answers, independent of any protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...cluster.group_store import GroupChange, MemberProtocol, OffsetRecord
from ...errors import SteleError, UnstableOffset
from .consumer_protocol import AssignedPartition
from .states import GroupState, GroupType

# The member id of a member that has none yet.
NO_MEMBER = ""
# The generation of a commit without membership: by an administrator, or a consumer that assigns itself.
NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """``client_id`` and ``client_host`` are shown where the group is described.

    ``rebalance_timeout_ms``: how long a rebalance waits for this member; in
    protocols that do not have it, the session timeout.
    ``requires_known_member_id``: a new member without an instance id gets an id
    first and joins with it (KIP-394). Old protocols cannot do that.
    ``supports_skip_assignment``: the client understands ``Joined.skip_assignment`` (KIP-814).
    ``is_managed``: the broker syncs, rejoins and leads for this member (ADR-0017).
    """

    group: str
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[MemberProtocol]
    requires_known_member_id: bool = False
    supports_skip_assignment: bool = False
    is_managed: bool = False
    reason: str | None = None


class JoinedMember(NamedTuple):
    """``metadata`` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """``members`` is empty for all but the leader.

    ``skip_assignment``: this member leads, but the assignment stands as it is:
    sync without one.
    """

    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """``assignments`` are by member id, and from the leader only.

    ``protocol_type`` and ``protocol_name`` are None in protocols that do not have them.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


class Synced(NamedTuple):
    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedJoin:
    """The join of a managed member; with a member id it joins again."""

    group: str
    topics: Collection[str]
    member_id: str = NO_MEMBER
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The generation of a managed member, and the partitions that it may claim.

    ``is_rebalancing``: the next generation is being prepared; ``assigned`` is the last assignment, or empty.
    """

    member_id: str
    generation: int
    assigned: frozenset[AssignedPartition]
    is_rebalancing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member to remove.

    An administrator removes a static member with an empty member id.
    """

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """``offset`` is that of the next record to read.

    ``retention_ms`` replaces the broker's.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The generation and member id of a commit without membership.

    They are ``NO_GENERATION`` and ``NO_MEMBER``.

    In groups whose partitions the broker assigns, ``generation`` is the epoch of the member.
    ``has_member_epoch``: the version of the request knows such groups. ``checked``: the records of ``offsets`` and
    their results, if they are known already (``GroupCoordinator.checked``).
    """

    group: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    offsets: Sequence[OffsetToCommit]
    has_member_epoch: bool = True
    checked: tuple[list[OffsetRecord], Results] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """``offset`` is ``NO_OFFSET`` where nothing was committed, or it cannot be told.

    Then ``error`` says why.
    """

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: UnstableOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsOfTransaction:
    """Changes of committed offsets at the end of a transaction.

    The transaction coordinator writes ``changes`` together with the outcome of the transaction, and
    calls ``apply`` once when they are durable, in the order of the writes.
    """

    changes: Sequence[GroupChange]
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedOffsets:
    """The pending offsets of a producer were committed or dropped, in ``groups``."""

    producer_id: int
    is_committed: bool
    groups: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedGroup:
    """A group with pending offsets of a producer, and their newest epoch."""

    producer_id: int
    producer_epoch: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group: str
    protocol_type: str
    state: GroupState
    type: GroupType = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """``metadata`` and ``assignment`` are empty while the group is not stable.

    ``assigned`` is the assignment as partitions, ``owned`` what the member has claimed.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    is_managed: bool = False
    session_timeout_ms: int = 0
    topics: frozenset[str] = frozenset()
    assigned: frozenset[AssignedPartition] = frozenset()
    owned: frozenset[AssignedPartition] = frozenset()
    epoch: int | None = None
    regex: str = ""
    target: frozenset[AssignedPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """``protocol_name`` is empty while the group is not stable.

    If ``type`` is ``consumer``, the broker assigns the partitions (KIP-848): ``generation`` is the
    group epoch, ``protocol_name`` the assignor, and members have epochs; so it is if ``type`` is
    ``share`` (KIP-932). Otherwise the epochs are None.
    """

    group: str
    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str
    members: Sequence[MemberDescription]
    type: GroupType = "classic"
    assignment_epoch: int | None = None


# In the order of the request: None for success.
Results = list[SteleError | None]
