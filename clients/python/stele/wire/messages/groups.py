"""Group membership, partition ownership, and committed offsets (ADR-0017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ..schema import Bool, Int32, Int64, Label, frozen_message
from .base import Batches, Request, Response, message
from .frame_types import MessageType


@frozen_message
class _MemberRequest(Request):
    group: str
    member_id: str


@frozen_message
class _GenerationRequest(_MemberRequest):
    generation: Int32


@frozen_message
class _OwnerRequest(_GenerationRequest):
    topic: str
    partition: Int32


# ── membership ──


@frozen_message
class _Membership(Response):
    """A membership.

    ``is_rebalancing``: other members are rejoining, and generation and assignment are
    those before the rebalance.
    """

    member_id: str
    generation: Int32
    is_rebalancing: Bool
    assignment: Annotated[
        Sequence[tuple[Annotated[str, Label("topic")], Annotated[Sequence[Int32], Label("partition")]]],
        Label("topic"),
    ]


@message(MessageType.JOIN_GROUP_REQUEST)
class JoinGroupRequest(Request):
    """Join a group with an empty ``member_id``; otherwise change the topics of a member."""

    group: str
    member_id: str = ""
    client_id: str = ""
    session_timeout_ms: Int32
    topics: Sequence[str]


@message(MessageType.JOIN_GROUP_RESPONSE)
class JoinGroupResponse(_Membership):
    """The assignment of the member's generation."""


@message(MessageType.HEARTBEAT_REQUEST)
class HeartbeatRequest(_GenerationRequest):
    """Keep a membership alive; ``generation`` is the last that the member has seen."""


@message(MessageType.HEARTBEAT_RESPONSE)
class HeartbeatResponse(_Membership):
    """The membership; a higher generation means that there was a rebalance."""


@message(MessageType.LEAVE_GROUP_REQUEST)
class LeaveGroupRequest(_MemberRequest):
    """Leave a group; answered once the other members have the partitions."""


@message(MessageType.LEAVE_GROUP_RESPONSE)
class LeaveGroupResponse(Response):
    """The member has left."""


# ── ownership ──


@message(MessageType.CLAIM_REQUEST)
class ClaimRequest(_OwnerRequest):
    """Become the owner of an assigned partition."""


@message(MessageType.CLAIM_RESPONSE)
class ClaimResponse(Response):
    """The member owns the partition."""


@message(MessageType.RELEASE_REQUEST)
class ReleaseRequest(_OwnerRequest):
    """Stop owning a partition, which stays assigned."""


@message(MessageType.RELEASE_RESPONSE)
class ReleaseResponse(Response):
    """The member no longer owns the partition."""


@message(MessageType.COMMIT_REQUEST)
class CommitRequest(_OwnerRequest):
    """Commit the offset of the next record to read."""

    offset: Int64
    metadata: str = ""


@message(MessageType.COMMIT_RESPONSE)
class CommitResponse(Response):
    """The offset is durable."""


@message(MessageType.COMMITTED_REQUEST)
class CommittedRequest(Request):
    group: str
    topic: str
    partition: Int32


@message(MessageType.COMMITTED_RESPONSE)
class CommittedResponse(Response):
    """The committed offset; -1 if nothing was committed."""

    offset: Int64
    metadata: str = ""


@message(MessageType.OWNER_FETCH_REQUEST)
class OwnerFetchRequest(_OwnerRequest):
    """Fetch from a partition as its owner."""

    offset: Int64
    max_bytes: Int32 = 1024 * 1024
    max_wait_ms: Int32 = 0


@message(MessageType.OWNER_FETCH_RESPONSE)
class OwnerFetchResponse(Response):
    """The batches; the first may start before the requested offset."""

    high_watermark: Int64
    log_start_offset: Int64
    batches: Batches
