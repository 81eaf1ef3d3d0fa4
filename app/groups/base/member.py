"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from ...cluster.group_store import MemberProtocol, MemberRecord
from .consumer_protocol import AssignedPartition, assigned_partitions, subscription_of


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group; times in ms.

    ``is_new``: its first join has not been answered, so it does not know its id
    and cannot send heartbeats. ``is_awaiting_join``, ``is_awaiting_sync``: its
    request is parked, an answer is due. ``is_managed``: the broker joins, syncs
    and leads for it (ADR-0017), so it joins each generation as soon as that one
    is being prepared. ``held`` are partitions that it may have in addition to its
    assignment: what it reported to own with its last join. It is not stored.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    is_awaiting_join: bool = False
    is_awaiting_sync: bool = False
    is_managed: bool = False
    held: frozenset[AssignedPartition] = frozenset()

    @classmethod
    def restored(cls, record: MemberRecord) -> Member:
        """Make the member again from its record in the store."""
        return cls(
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            session_timeout_ms=record.session_timeout_ms,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            protocols=record.protocols,
            assignment=record.assignment,
            is_managed=record.is_managed,
        )

    @property
    def assigned(self) -> frozenset[AssignedPartition]:
        """The partitions of its assignment; none if its assignor uses bytes of its own."""
        return assigned_partitions(self.assignment)

    def owned_by_report(self) -> frozenset[AssignedPartition]:
        """Return the partitions that its metadata says it has: none if the metadata is no subscription."""
        subscriptions = (subscription_of(metadata) for _, metadata in self.protocols)
        return frozenset(
            part for subscription in subscriptions if subscription for part in subscription.owned
        )

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of the protocols that it offers."""
        return frozenset(name for name, _ in self.protocols)

    @property
    def is_static(self) -> bool:
        """True for a member with an instance id: it may restart without a rebalance (KIP-345)."""
        return self.instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return what it sends the leader for that protocol; empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def record(self, assignment: bytes) -> MemberRecord:
        """Return the record to store, with ``assignment`` instead of its current one."""
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
            is_managed=self.is_managed,
        )
