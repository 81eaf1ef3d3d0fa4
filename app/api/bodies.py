"""JSON bodies of requests, as the routes decode them and the OpenAPI document shows them.

A ``Meta`` here describes a field and states its bounds for the document only
(``extra_json_schema``): the layers below check the bounds, with errors that say
more than a decoder could. Produce bodies are in ``record_json``, because their
records are decoded one by one.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..groups.messages import NO_MEMBER
from .requests import INT32_MAX

SESSION_TIMEOUT_MS = 45_000


def _bounds(**keywords: Any) -> Meta:
    """State JSON Schema ``keywords`` in the document, without a check by the decoder."""
    return Meta(extra_json_schema=keywords)


_Topics = Annotated[list[str], _bounds(minItems=1)]
_Generation = Annotated[int, _bounds(minimum=0, maximum=INT32_MAX)]
_Offset = Annotated[int, _bounds(minimum=0)]
_LeaseToken = Annotated[str, Meta(description="the lease returned by the poll")]
_LeaseMs = Annotated[int, _bounds(minimum=100, maximum=3_600_000)]


class TopicBody(Struct, forbid_unknown_fields=True):
    """``{"partitions": 3, "configs": {"retention.ms": 1000}}``; null resets a config to its default."""

    partitions: Annotated[int | None, _bounds(type=["integer", "null"], minimum=1, maximum=100)] = None
    configs: dict[str, str | int | bool | None] = {}


class RangesBody(Struct, forbid_unknown_fields=True):
    """``{"ranges": "0:42-100"}``: the ``ranges`` of the end of a search, unchanged."""

    ranges: str


class JoinBody(Struct, forbid_unknown_fields=True):
    """A join of a group, or with ``member_id`` a change of that member's topics."""

    topics: _Topics
    session_timeout_ms: Annotated[int, _bounds(minimum=6000, maximum=1_800_000)] = SESSION_TIMEOUT_MS
    member_id: str = NO_MEMBER
    client_id: str = "http"


class HeartbeatBody(Struct, forbid_unknown_fields=True):
    """A heartbeat of a member that knows the assignment of ``generation``."""

    generation: _Generation


class OwnerBody(Struct, forbid_unknown_fields=True):
    """The member that claims or releases a partition."""

    member_id: str
    generation: _Generation


class CommitBody(Struct, forbid_unknown_fields=True):
    """An offset that the owner of a partition commits."""

    member_id: str
    generation: _Generation
    offset: Annotated[_Offset, Meta(description="of the next record to read")]
    metadata: str = ""


class OffsetBody(Struct, forbid_unknown_fields=True):
    """The new offset of one partition."""

    topic: str
    partition: Annotated[int, _bounds(minimum=0)]
    offset: _Offset


class ResetBody(Struct, forbid_unknown_fields=True):
    """``to`` for all partitions of ``topics``, or ``offsets`` for single partitions.

    Without ``topics`` the reset covers the topics in which the group has committed.
    """

    to: Annotated[str | int | None, _bounds(examples=["earliest", "latest", 42, "-1h"])] = None
    topics: _Topics | None = None
    offsets: list[OffsetBody] | None = None


class PollBody(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """A poll: what to read, how much of it, and how long the lease on it lasts."""

    topics: _Topics
    max_records: Annotated[int, _bounds(minimum=1, maximum=100_000)] = 500
    max_bytes: Annotated[int, _bounds(minimum=1)] = 1024 * 1024
    max_partitions: Annotated[
        int | None, Meta(description="null: a fair share"), _bounds(type=["integer", "null"], minimum=1)
    ] = None
    wait_ms: Annotated[int, _bounds(minimum=0, maximum=2000)] = 0
    lease_ms: _LeaseMs = 30_000
    start: Annotated[str, _bounds(enum=["earliest", "latest"])] = "earliest"
    poll_id: (
        Annotated[
            str,
            Meta(
                description="chosen by the client: a repeated poll gets the same answer while its lease is held"
            ),
        ]
        | None
    ) = None


class LeaseBody(Struct, forbid_unknown_fields=True):
    """The lease to acknowledge or give back."""

    lease: _LeaseToken


class ExtendBody(Struct, forbid_unknown_fields=True):
    """The lease to extend, and for how long from now on."""

    lease: _LeaseToken
    lease_ms: _LeaseMs = 30_000
