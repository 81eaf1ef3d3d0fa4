"""JSON bodies of requests, for the routes and for the OpenAPI document.

A ``Meta`` here describes a field and states its bounds for the document only
(``extra_json_schema``): the layers below check the bounds, with errors that say
more than a decoder could. Produce bodies are in ``record_json``, because their
records are decoded one by one.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from ..groups.base.messages import NO_MEMBER
from ..security.acl_text import FIELDS
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
    """The body that creates or changes a topic.

    ``{"partitions": 3, "configs": {"retention.ms": 1000}}``; null resets a config of an existing topic to its default.
    """

    partitions: Annotated[int | None, _bounds(type=["integer", "null"], minimum=1, maximum=100)] = None
    configs: dict[str, str | int | float | bool | None] = {}


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


_Lock = Annotated[str, _bounds(minLength=1, maxLength=200)]


class SharePollBody(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """A poll of a share group: what to read and how much of it."""

    topics: _Topics
    max_records: Annotated[int, _bounds(minimum=1, maximum=10_000)] = 100
    max_bytes: Annotated[int, _bounds(minimum=1)] = 1024 * 1024
    wait_ms: Annotated[int, _bounds(minimum=0, maximum=2000)] = 0
    start: str | None = None
    lock: (
        Annotated[
            _Lock,
            Meta(description="chosen by the client: a repeated poll gets the records that the lock holds"),
        ]
        | None
    ) = None


class GroupConfigsBody(Struct, forbid_unknown_fields=True):
    """Configurations of a group to set; null resets one to its default."""

    configs: dict[str, str | int | float | bool | None]


class RedriveBody(Struct, forbid_unknown_fields=True):
    """The maximum number of dead letters to redrive."""

    max_records: Annotated[int, _bounds(minimum=1, maximum=10_000)] = 1000


class SharedRecordBody(Struct, forbid_unknown_fields=True):
    """A record that a lock holds."""

    topic: str
    partition: Annotated[int, _bounds(minimum=0)]
    offset: _Offset


class ShareLockBody(Struct, forbid_unknown_fields=True):
    """A lock, and which of its records are meant; null: all of them."""

    lock: _Lock
    records: Annotated[list[SharedRecordBody], _bounds(minItems=1, maxItems=10_000)] | None = None


class AclBody(Struct, forbid_unknown_fields=True):
    """One access rule, in the names of Kafka; see ``acl_text``."""

    principal: Annotated[str, _bounds(examples=["User:alice"])]
    operation: Annotated[str, _bounds(examples=["READ"])]
    resource_type: Annotated[str, _bounds(examples=["TOPIC"])]
    resource_name: Annotated[str | None, Meta(description="not needed for CLUSTER")] = None
    pattern_type: Annotated[str, _bounds(enum=["LITERAL", "PREFIXED"])] = "LITERAL"
    host: str = "*"
    permission: Annotated[str, _bounds(enum=["ALLOW", "DENY"])] = "ALLOW"

    def document(self) -> dict[str, str]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


class AclsBody(Struct, forbid_unknown_fields=True):
    """Access rules to add, all or none."""

    acls: list[AclBody]


class QuotaBody(Struct, forbid_unknown_fields=True):
    """A change of quotas.

    Example: ``{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}}``.
    """

    entity: dict[str, str | None]
    values: dict[str, float | None]


class UserBody(Struct, forbid_unknown_fields=True):
    """The body that adds a user."""

    name: Annotated[str, _bounds(minLength=1, maxLength=255)]
    password: Annotated[str, _bounds(minLength=8, maxLength=1024)]


class PasswordBody(Struct, forbid_unknown_fields=True):
    """The body that changes a password."""

    password: Annotated[str, _bounds(minLength=8, maxLength=1024)]


class KeyBody(Struct, forbid_unknown_fields=True):
    """The body that creates an API key; ``expires_in_ms`` null does not expire."""

    user: Annotated[str, _bounds(minLength=1, maxLength=255)]
    description: Annotated[str, _bounds(maxLength=255)] = ""
    expires_in_ms: Annotated[
        int | None, _bounds(type=["integer", "null"], minimum=1, maximum=3_153_600_000_000)
    ] = None


class LeaseOfGroup(Struct, forbid_unknown_fields=True):
    """A lease that a transaction acknowledges."""

    group: str
    lease: _LeaseToken


class OffsetOfGroup(Struct, forbid_unknown_fields=True):
    """An offset that a transaction commits; ``offset`` is that of the next record to read."""

    group: str
    topic: str
    partition: Annotated[int, _bounds(minimum=0, maximum=INT32_MAX)]
    offset: _Offset
    metadata: str = ""


class SettleBody(Struct, forbid_unknown_fields=True):
    """Leases and offsets that a transaction settles when it commits."""

    leases: list[LeaseOfGroup] = []
    offsets: list[OffsetOfGroup] = []


class TransactionBody(Struct, forbid_unknown_fields=True):
    """A whole transaction.

    Records are decoded one by one, so that an error has an index.
    """

    records: list[Raw] = []
    leases: list[LeaseOfGroup] = []
    offsets: list[OffsetOfGroup] = []
