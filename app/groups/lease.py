"""What a poll gives out: a lease on some records, and the opaque text that stands for it.

The text holds all that is needed to tell, also after a restart, whether the
lease can still be acknowledged (``LeaseManager``); nothing of it is secret, and
whoever makes one up can do no more than commit an offset.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ..broker.fetch import Fetched
from ..errors import InvalidRequest
from .consumer_protocol import AssignedPartition

# A lease on 1,000 partitions with long names is about this long.
_TOKEN_CHARACTERS_MAX = 512 * 1024

# What the metadata of an offset says that leases have committed.
ACKED_BY = "stele-lease:"
FAILURES = "stele-failures:"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedPartition:
    """The records ``[offset, next_offset)`` of a partition; ``deliveries``: how often they were given out, with this."""

    topic: str
    partition: int
    offset: int
    next_offset: int
    deliveries: int = 1

    @property
    def key(self) -> AssignedPartition:
        return AssignedPartition(self.topic, self.partition)


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    group: str
    lease_id: str
    parts: list[tuple[str, int, int, int]]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Token).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Some partitions of one group, held by whoever polled."""

    group: str
    lease_id: str
    partitions: Sequence[LeasedPartition]

    def token(self) -> str:
        parts = [(part.topic, part.partition, part.offset, part.next_offset) for part in self.partitions]
        return base64.urlsafe_b64encode(_encode(_Token(self.group, self.lease_id, parts))).decode()

    @classmethod
    def of_token(cls, group: str, token: str) -> Lease:
        """Raises ``InvalidRequest``."""
        reason = "lease is not one that a poll of this group gave out; send it back as it was"
        if len(token) > _TOKEN_CHARACTERS_MAX:
            raise InvalidRequest(reason)
        try:
            found = _decode(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
        except (binascii.Error, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidRequest(reason) from error
        keys = {(topic, partition) for topic, partition, _, _ in found.parts}
        if (
            found.group != group
            or not found.parts
            or not 0 < len(found.lease_id) <= 100
            or len(keys) != len(found.parts)
            or any(not 0 <= offset < next_offset < 2**63 for _, _, offset, next_offset in found.parts)
        ):
            raise InvalidRequest(reason)
        return cls(
            group=group,
            lease_id=found.lease_id,
            partitions=tuple(
                LeasedPartition(topic=topic, partition=partition, offset=offset, next_offset=next_offset)
                for topic, partition, offset, next_offset in found.parts
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """``wait_ms``: how long to wait for a record; ``lease_ms``: how long they are held for whoever polls.

    ``max_partitions``: of how many partitions the lease may have records, None: as many as are this poll's share.
    ``start``: where the group begins in a partition of which it has committed nothing, ``earliest`` or
    ``latest``. ``poll_id``: the same again, while its lease holds, is answered with the same records and lease.
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
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Records ``[offset, next_offset)`` that retention deleted before the group came to them."""

    topic: str
    partition: int
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """``fetched`` are whole batches: of each, the offsets of the leased partition beside it count.

    ``lease`` None: nothing came in time.
    """

    lease: Lease | None = None
    expires_at_ms: int = 0
    fetched: Sequence[tuple[LeasedPartition, Fetched]] = ()
    skipped: Sequence[Skipped] = ()
