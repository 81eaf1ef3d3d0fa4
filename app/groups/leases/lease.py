"""Leases on records, and the opaque tokens that name them.

A token holds all that is needed to decide, even after a restart, whether the
lease can still be acknowledged (``LeaseSettlement``). It is not secret: a client
that makes one up can do no more than commit an offset.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from ...broker.reading.fetch import Fetched
from ...errors import InvalidRequest
from ..base.consumer_protocol import AssignedPartition

LEASE_MS_MIN, LEASE_MS_MAX = 100, 3_600_000

# More would take longer than a turn of the loop to acknowledge; the other partitions are for other polls.
LEASE_PARTITIONS_MAX = 1000
# A lease on as many partitions with long names is about this long.
_TOKEN_CHARACTERS_MAX = 512 * 1024

# How the metadata of a committed offset starts: after an ack, and after a failed delivery.
ACKED_BY = "stele-lease:"
FAILURES = "stele-failures:"


def check_lease_ms(lease_ms: int) -> None:
    """Raises ``InvalidRequest`` if a lease cannot last for ``lease_ms``."""
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise InvalidRequest(
            f"lease_ms is {lease_ms}; it must be a whole number from {LEASE_MS_MIN} to {LEASE_MS_MAX}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedPartition:
    """The records ``[offset, next_offset)`` of a partition.

    ``deliveries``: how often they were given out, including this time. ``topic_id`` is None if the token of the lease
    has none, as those of earlier releases.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    deliveries: int = 1
    topic_id: UUID | None = None

    @property
    def key(self) -> AssignedPartition:
        return AssignedPartition(self.topic, self.partition)


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    group: str
    lease_id: str
    parts: list[tuple[str, int, int, int]]
    topic_ids: dict[str, UUID] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Token).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Records of some partitions of one group, held by the client that polled."""

    group: str
    lease_id: str
    partitions: Sequence[LeasedPartition]

    def token(self) -> str:
        parts = [(part.topic, part.partition, part.offset, part.next_offset) for part in self.partitions]
        topic_ids = {part.topic: part.topic_id for part in self.partitions if part.topic_id is not None}
        return base64.urlsafe_b64encode(_encode(_Token(self.group, self.lease_id, parts, topic_ids))).decode()

    @classmethod
    def of_token(cls, group: str, token: str) -> Lease:
        """Read a token. Raises ``InvalidRequest``."""
        reason = "lease is not one that a poll of this group gave out; send it back as it was"
        if len(token) > _TOKEN_CHARACTERS_MAX:
            raise InvalidRequest(reason)
        try:
            decoded = _decode(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
        except (binascii.Error, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidRequest(reason) from error
        keys = {(topic, partition) for topic, partition, _, _ in decoded.parts}
        if (
            decoded.group != group
            or not 0 < len(decoded.parts) <= LEASE_PARTITIONS_MAX
            or not 0 < len(decoded.lease_id) <= 100
            or len(keys) != len(decoded.parts)
            or any(not 0 <= offset < next_offset < 2**63 for _, _, offset, next_offset in decoded.parts)
        ):
            raise InvalidRequest(reason)
        return cls(
            group=group,
            lease_id=decoded.lease_id,
            partitions=tuple(
                LeasedPartition(
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    next_offset=next_offset,
                    topic_id=decoded.topic_ids.get(topic),
                )
                for topic, partition, offset, next_offset in decoded.parts
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """A poll of a group for leased records.

    ``wait_ms``: how long to wait for a record. ``lease_ms``: how long the records are held for this client.

    ``max_partitions``: how many partitions the lease may have records of, at most ``LEASE_PARTITIONS_MAX``; None: this
    poll's fair share.
    ``start``: where the group begins in a partition without a committed offset, ``earliest`` or ``latest``.
    ``is_decoded``: ``max_bytes`` counts batches decompressed, because the records are sent decompressed.
    ``poll_id``: while a lease is in force, a poll with the same id, and at least the topics of the lease, gets the
    same records and lease.
    """

    group: str
    topics: frozenset[str]
    max_records: int = 500
    max_bytes: int = 1024 * 1024
    max_partitions: int | None = None
    wait_ms: int = 0
    lease_ms: int = 30_000
    start: str = "earliest"
    poll_id: str | None = None
    is_decoded: bool = False
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Records ``[offset, next_offset)`` that retention deleted unread."""

    topic: str
    partition: int
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The result of a poll.

    ``fetched`` has whole batches; only the records of the leased partition beside them are leased.

    ``lease`` is None if no record came in time.
    """

    lease: Lease | None = None
    expires_at_ms: int = 0
    fetched: Sequence[tuple[LeasedPartition, Fetched]] = ()
    skipped: Sequence[Skipped] = ()
