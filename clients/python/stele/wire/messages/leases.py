"""Records under a lease: polled, then acknowledged, given back or held for longer (ADR-0017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ..schema import Int32, Int64, Label, frozen_message
from .base import Batches, Request, Response, message
from .frame_types import MessageType

# Of partitions in one lease.
ANY_NUMBER = -1


@message(MessageType.POLL_REQUEST)
class PollRequest(Request):
    """Ask for records under a lease.

    ``start`` is ``earliest`` or ``latest``: where a group begins that has committed
    nothing. The same ``poll_id`` again is answered with the same lease, while that
    holds.
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
    """What retention deleted before it was read."""

    topic: str
    partition: Int32
    offset: Int64
    next_offset: Int64


@message(MessageType.POLL_RESPONSE)
class PollResponse(Response):
    """``lease`` None: no record came in time."""

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
    """Commit what the lease holds."""


@message(MessageType.ACK_RESPONSE)
class AckResponse(Response):
    """What the lease held is committed."""


@message(MessageType.NACK_REQUEST)
class NackRequest(_LeaseRequest):
    """Give the lease back: the next poll gets its records."""


@message(MessageType.NACK_RESPONSE)
class NackResponse(Response):
    """The lease is given back."""


@message(MessageType.EXTEND_REQUEST)
class ExtendRequest(_LeaseRequest):
    """Hold the lease for ``lease_ms`` from now on."""

    lease_ms: Annotated[Int32, Label("lease time")]


@message(MessageType.EXTEND_RESPONSE)
class ExtendResponse(Response):
    """``expires_at_ms``: since the epoch."""

    expires_at_ms: Int64
