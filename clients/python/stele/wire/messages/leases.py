"""Messages for reading under leases: poll, ack, nack and extend (ADR-0017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ..schema import Int32, Int64, Label, frozen_message
from .base import Batches, Request, Response, message
from .frame_types import MessageType

# No limit on the partitions of a lease.
ANY_NUMBER = -1


@message(MessageType.POLL_REQUEST)
class PollRequest(Request):
    """Request records under a lease.

    ``start`` is ``earliest`` or ``latest``, for a group that has committed nothing. A
    repeated ``poll_id`` returns the same lease while it is held.
    """

    group: str
    start: str = "earliest"
    poll_id: str | None = None
    max_records: Int32 = 500
    max_bytes: Int32 = 1024 * 1024
    max_partitions: Int32 = ANY_NUMBER
    max_wait_ms: Int32 = 0
    lease_ms: Int32 = 30_000
    topics: Sequence[str]


@frozen_message
class PolledPartition:
    """The records ``[offset, next_offset)`` are leased; the batches may hold others around them."""

    topic: str
    partition: Int32
    offset: Int64
    next_offset: Int64
    deliveries: Int32
    batches: Batches


@frozen_message
class SkippedPartition:
    """Records that retention deleted before the group read them."""

    topic: str
    partition: Int32
    offset: Int64
    next_offset: Int64


@message(MessageType.POLL_RESPONSE)
class PollResponse(Response):
    """Leased records; ``lease`` None if no record came in time."""

    lease: str | None
    expires_at_ms: Int64 = 0
    skipped: Sequence[SkippedPartition] = ()
    partitions: Sequence[PolledPartition] = ()


@frozen_message
class _LeaseRequest(Request):
    group: str
    lease: str


@message(MessageType.ACK_REQUEST)
class AckRequest(_LeaseRequest):
    """Commit the records of a lease."""


@message(MessageType.ACK_RESPONSE)
class AckResponse(Response):
    """The records of the lease are committed."""


@message(MessageType.NACK_REQUEST)
class NackRequest(_LeaseRequest):
    """Return a lease, so that the next poll gets its records."""


@message(MessageType.NACK_RESPONSE)
class NackResponse(Response):
    """The lease was returned."""


@message(MessageType.EXTEND_REQUEST)
class ExtendRequest(_LeaseRequest):
    """Extend a lease to ``lease_ms`` from now."""

    lease_ms: Annotated[Int32, Label("lease time")]


@message(MessageType.EXTEND_RESPONSE)
class ExtendResponse(Response):
    """``expires_at_ms``: since the epoch."""

    expires_at_ms: Int64
