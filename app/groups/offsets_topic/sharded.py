"""``__consumer_offsets`` of a cluster: a partition per shard (ADR-0059).

The broker that has the lease of a shard serves its partition, and is its leader. The epoch of the lease is the
leader epoch. Other brokers answer with ``NotLeader``, after which a client asks for the leader again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...broker.topics import CONSUMER_OFFSETS, Topic
from ...broker.virtual import PartitionLeader
from ...cluster.group_shards import SHARDS, lease_of_shard
from ...cluster.membership import Lease, Member
from ...errors import CoordinatorFenced, CoordinatorNotAvailable, GroupStoreFailed, NotLeader
from ...storage.engine import LogState
from ...storage.topic_partition import TopicPartition
from ...storage.waiters import Waiters
from .standalone import offsets_topic
from .view import OffsetsView

if TYPE_CHECKING:
    from ..coordinator import GroupCoordinator


class Leases(Protocol):
    """The part of ``SharedCluster`` that the topic uses."""

    @property
    def members(self) -> Sequence[Member]: ...
    @property
    def leases(self) -> Mapping[str, Lease]: ...
    def is_held(self, name: str) -> bool: ...


class ShardedOffsetsTopic:
    """Implements ``VirtualTopic``; belongs to the event loop, as its coordinators do.

    ``coordinators`` has one for each shard, by its number, and ``deletions`` what returns the deletions in its store.
    """

    def __init__(
        self,
        coordinators: Sequence[GroupCoordinator],
        leases: Leases,
        *,
        deletions: Sequence[Callable[[], Sequence[tuple[str, str | None, int]]]],
        cluster_id: str,
        broker_id: int,
    ) -> None:
        assert len(coordinators) == SHARDS
        # Not the id of a broker on its own, whose topic has other partitions. A data directory that is moved to
        # shared storage may have committed offsets in it.
        self._topic = offsets_topic(f"{cluster_id}/{CONSUMER_OFFSETS}/{SHARDS}", partitions=SHARDS)
        self._tables = [coordinator.table for coordinator in coordinators]
        self._leases = leases
        self._broker_id = broker_id
        self._waiters: Waiters | None = None
        self._views = [
            OffsetsView(
                table,
                partitions=1,
                partition_of=lambda _group: 0,
                changed=self._waker(shard),
                deletions=deletions[shard],
            )
            for shard, table in enumerate(self._tables)
        ]
        for shard, table in enumerate(self._tables):
            table.watch_stand_by(partial(self._lost, shard))

    @property
    def topic(self) -> Topic:
        return self._topic

    def attach(self, waiters: Waiters) -> None:
        self._waiters = waiters

    def _waker(self, shard: int) -> Callable[[int], None]:
        def wake(_partition: int) -> None:
            if self._waiters is not None:
                self._waiters.wake(TopicPartition(CONSUMER_OFFSETS, shard))

        return wake

    def _lost(self, shard: int) -> None:
        self._views[shard].forget()
        # Those who wait look for the next leader.
        self._waker(shard)(0)

    # ── leaders ──

    def leader(self, partition: int) -> PartitionLeader | None:
        if self._is_served(partition):
            return PartitionLeader(self._broker_id, self._tables[partition].epoch)
        lease = self._leases.leases.get(lease_of_shard(partition))
        if lease is None or all(member.incarnation != lease.incarnation for member in self._leases.members):
            return PartitionLeader(None, -1)
        return PartitionLeader(lease.broker_id, lease.epoch)

    def _is_served(self, partition: int) -> bool:
        return self._tables[partition].is_open and self._leases.is_held(lease_of_shard(partition))

    def _view(self, partition: int) -> OffsetsView:
        """Return the view of a partition that this broker serves. Raises ``NotLeader``."""
        if not self._is_served(partition):
            lease = self._leases.leases.get(lease_of_shard(partition))
            holder = None if lease is None else lease.broker_id
            raise NotLeader(CONSUMER_OFFSETS, partition, None if holder == self._broker_id else holder)
        return self._views[partition]

    # ── reads ──

    async def prepare(self, partition: int) -> None:
        while not self._view(partition).is_made:
            try:
                await self._view(partition).make()
            except (CoordinatorFenced, CoordinatorNotAvailable, GroupStoreFailed) as error:
                # The database may have a new holder, or cannot be reached. A client tries again.
                raise NotLeader(CONSUMER_OFFSETS, partition, None) from error

    def state(self, partition: int) -> LogState:
        return self._view(partition).state(0)

    def read(self, partition: int, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes | bytearray:
        return self._view(partition).read(0, offset, max_bytes, at_least_one=at_least_one)

    async def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int]:
        return await self._view(partition).offset_for_time(0, timestamp_ms)

    def max_timestamp(self, partition: int) -> int:
        return self._view(partition).max_timestamp(0)

    def epoch_end_offset(self, partition: int, epoch: int) -> tuple[int, int]:
        return self._view(partition).epoch_end_offset(0, epoch)
