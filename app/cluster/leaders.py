"""Chooses the brokers shown as leader and replicas of a partition: rendezvous hashing, pure functions.

Every broker serves every partition. That clients of one partition meet at one broker saves the database
work and keeps its newest records in one cache; a wrong choice costs nothing else. When a broker comes or
goes, only the partitions move that it gets or had.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from .membership import Member

# As many replicas as Kafka clusters usually have; only a number that clients are shown. There are more if there are
# more racks, because clients read only from a broker that they are shown as a replica.
REPLICAS_SHOWN = 3
_DIGEST_BYTES = 8


def ranked(key: bytes, members: Sequence[Member]) -> list[Member]:
    """Return ``members`` in the order in which they are preferred for ``key``."""

    def weight(member: Member) -> tuple[bytes, int]:
        digest = blake2b(key, digest_size=_DIGEST_BYTES, key=member.broker_id.to_bytes(8, "big", signed=True))
        return digest.digest(), member.broker_id

    return sorted(members, key=weight, reverse=True)


class Leaders:
    """The replicas of partitions among ``members``, the leader first; computed once for each partition."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._racks = frozenset(member.rack for member in members)
        self._replicas: dict[tuple[bytes, int], tuple[int, ...]] = {}
        self._near: dict[tuple[str, bytes, int], int] = {}

    def replicas(self, topic_id: bytes, partition: int) -> tuple[int, ...]:
        """Return the brokers shown as replicas of a partition, the leader first; none without members."""
        key = (topic_id, partition)
        known = self._replicas.get(key)
        if known is None:
            order = ranked(topic_id + partition.to_bytes(4, "big"), self.members)
            near = {member.rack: member.broker_id for member in reversed(order) if member.rack is not None}
            # The leader, the broker that clients of each rack are sent to, then others.
            wanted = [*(m.broker_id for m in order[:1]), *near.values(), *(m.broker_id for m in order)]
            shown = list(dict.fromkeys(wanted))[: max(REPLICAS_SHOWN, len({*wanted[:1], *near.values()}))]
            known = tuple(member.broker_id for member in order if member.broker_id in shown)
            self._replicas[key] = known
        return known

    def has_rack(self, rack: str) -> bool:
        """Return whether a live broker is in ``rack``."""
        return rack in self._racks

    def near(self, topic_id: bytes, partition: int, rack: str) -> int | None:
        """Return the broker of ``rack`` that is preferred for a partition, None if the rack has no broker."""
        key = (rack, topic_id, partition)
        if rack not in self._racks:
            return None
        known = self._near.get(key)
        if known is None:
            near = [member for member in self.members if member.rack == rack]
            known = self._near[key] = ranked(topic_id + partition.to_bytes(4, "big"), near)[0].broker_id
        return known
