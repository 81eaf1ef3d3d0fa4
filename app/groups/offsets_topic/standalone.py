"""``__consumer_offsets`` of a broker on its own (ADR-0022).

One view has all groups. A group is in the partition where Kafka would keep it.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from ...broker.topics import CONSUMER_OFFSETS, Topic
from ...broker.virtual import PartitionLeader
from ...storage.engine import LogState
from ...storage.topic_config import TopicConfig
from ...storage.topic_partition import TopicPartition
from ...storage.waiters import Waiters
from .records import partition_of
from .view import OffsetsView

if TYPE_CHECKING:
    from ..coordinator import GroupCoordinator

# Kafka's default for offsets.topic.num.partitions. It must not change, because it decides the partition
# of a group.
PARTITIONS = 50


def offsets_topic(name_of_id: str, *, partitions: int) -> Topic:
    """Return the topic, with the id that ``name_of_id`` stands for."""
    config = replace(
        TopicConfig(), cleanup_policy="compact", segment_bytes=100 * 1024 * 1024, storage="memory"
    )
    return Topic(
        name=CONSUMER_OFFSETS,
        topic_id=uuid.uuid5(uuid.NAMESPACE_OID, name_of_id),
        partitions=partitions,
        # As Kafka creates it; none of this takes space on disk.
        configs={
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.segment_bytes),
        },
        shown=config,
        config=config,
        is_internal=True,
    )


class OffsetsTopic:
    """Implements ``VirtualTopic``; belongs to the event loop, as its coordinator does."""

    def __init__(self, coordinator: GroupCoordinator, *, cluster_id: str) -> None:
        """``coordinator`` must be open before the first read: its epoch is that of this run."""
        # The id differs between clusters, and is the same in every run.
        self._topic = offsets_topic(f"{cluster_id}/{CONSUMER_OFFSETS}", partitions=PARTITIONS)
        self._waiters: Waiters | None = None
        self._view = OffsetsView(
            coordinator.table,
            partitions=PARTITIONS,
            partition_of=lambda group: partition_of(group, PARTITIONS),
            changed=self._wake,
        )

    @property
    def topic(self) -> Topic:
        return self._topic

    @property
    def is_read(self) -> bool:
        """True if a client has read its records since the broker started."""
        return self._view.is_read

    def attach(self, waiters: Waiters) -> None:
        self._waiters = waiters

    def _wake(self, partition: int) -> None:
        if self._waiters is not None:
            self._waiters.wake(TopicPartition(CONSUMER_OFFSETS, partition))

    def leader(self, partition: int) -> PartitionLeader | None:
        return None

    async def prepare(self, partition: int) -> None:
        while not self._view.is_made:
            await self._view.make()

    def state(self, partition: int) -> LogState:
        return self._view.state(partition)

    def read(self, partition: int, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes | bytearray:
        return self._view.read(partition, offset, max_bytes, at_least_one=at_least_one)

    async def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int]:
        return await self._view.offset_for_time(partition, timestamp_ms)

    def max_timestamp(self, partition: int) -> int:
        return self._view.max_timestamp(partition)

    def epoch_end_offset(self, partition: int, epoch: int) -> tuple[int, int]:
        return self._view.epoch_end_offset(partition, epoch)
