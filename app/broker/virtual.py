"""Serves virtual topics: internal topics whose records are made on read.

A *virtual* topic has no files. The part of the broker that owns its data (for
``__consumer_offsets`` the group coordinator) returns its records as batches, and
notifies waiters of new ones. Clients see an ordinary, read-only topic (ADR-0022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.record_batch import NO_TIMESTAMP

from ..errors import NotLeader, SteleError, UnknownPartition
from ..storage.engine import LogState, PartitionFetch, PartitionRead
from ..storage.topic_partition import TopicPartition
from ..storage.waiters import Waiters
from ..work_budget import pause
from .topics import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, Topic

__all__ = [
    "CONSUMER_OFFSETS",
    "INTERNAL_TOPICS",
    "TRANSACTION_STATE",
    "PartitionLeader",
    "VirtualTopic",
    "VirtualTopics",
]

# Kafka's number in ListOffsets for the record with the newest time (KIP-734).
MAX_TIMESTAMP = -3


class PartitionLeader(NamedTuple):
    """The broker that serves a partition, and its leader epoch.

    None and -1 while no broker does.
    """

    broker_id: int | None
    epoch: int


class VirtualTopic(Protocol):
    """Makes the records of one topic; callers pass only partitions that exist.

    In a cluster a partition may be served by another broker. Then all methods but ``leader`` raise ``NotLeader``. Any
    await may be the moment when that begins.
    """

    @property
    def topic(self) -> Topic: ...

    def attach(self, waiters: Waiters) -> None:
        """Notify ``waiters`` of each partition that has more to read."""
        ...

    def leader(self, partition: int) -> PartitionLeader | None:
        """Return which broker serves a partition; None if every broker would."""
        ...

    async def prepare(self, partition: int) -> None:
        """Wait until the records can be read; they may be made only on request.

        Nothing else has run since then when this returns.
        """
        ...

    def state(self, partition: int) -> LogState: ...

    def read(self, partition: int, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes | bytearray:
        """Return one batch from ``offset`` on.

        It is empty at the end of the log, and may exceed ``max_bytes`` only if
        ``at_least_one`` is set. Raises ``OffsetOutOfRange``.
        """
        ...

    async def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int]:
        """Return offset and timestamp of the first record at or after ``timestamp_ms``.

        (-1, -1) if there is none.
        """
        ...

    def max_timestamp(self, partition: int) -> int:
        """Return the newest timestamp in ms; -1 if there is none."""
        ...

    def epoch_end_offset(self, partition: int, epoch: int) -> tuple[int, int]:
        """As ``LogEngine.epoch_end_offset``, for an epoch up to the current one."""
        ...


class VirtualTopics:
    """The virtual topics of one broker, by name."""

    def __init__(self, waiters: Waiters) -> None:
        """``waiters`` are the engine's, so that a watch can hold partitions of both."""
        self._by_name: dict[str, VirtualTopic] = {}
        self._waiters = waiters
        self.names: frozenset[str] = frozenset()

    def add(self, virtual: VirtualTopic) -> None:
        virtual.attach(self._waiters)
        self._by_name[virtual.topic.name] = virtual
        self.names = frozenset(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Topic | None:
        virtual = self._by_name.get(name)
        return None if virtual is None else virtual.topic

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.all() if topic.topic_id.bytes == topic_id), None)

    def all(self) -> list[Topic]:
        """Return the topics, sorted by name."""
        return [self._by_name[name].topic for name in sorted(self._by_name)]

    def _partition(self, name: str, partition: int) -> VirtualTopic:
        """Raises ``UnknownPartition``."""
        virtual = self._by_name[name]
        if not 0 <= partition < virtual.topic.partitions:
            raise UnknownPartition(name, partition, partitions=virtual.topic.partitions)
        return virtual

    def check(self, name: str, partition: int) -> None:
        """Raises ``UnknownPartition``."""
        self._partition(name, partition)

    def leader(self, name: str, partition: int) -> PartitionLeader | None:
        """Return which broker serves a partition; None if every broker would.

        Raises ``UnknownPartition``.
        """
        return self._partition(name, partition).leader(partition)

    def state(self, name: str, partition: int) -> LogState:
        """Raises ``UnknownPartition``, ``NotLeader``."""
        return self._partition(name, partition).state(partition)

    def epoch_end_offset(self, name: str, partition: int, epoch: int) -> tuple[int, int]:
        """As ``Broker.epoch_end_offset``."""
        virtual = self._partition(name, partition)
        if epoch > virtual.state(partition).leader_epoch:
            return -1, -1
        return virtual.epoch_end_offset(partition, epoch)

    async def list_offset(self, name: str, partition: int, at: int) -> tuple[int, int, int]:
        """As ``Broker.list_offset``."""
        virtual = self._partition(name, partition)
        await virtual.prepare(partition)
        state = virtual.state(partition)
        if at == LATEST_TIMESTAMP:
            return state.high_watermark, NO_TIMESTAMP, state.leader_epoch
        if at == EARLIEST_TIMESTAMP:
            return state.log_start_offset, NO_TIMESTAMP, state.leader_epoch
        if at == MAX_TIMESTAMP:
            at = virtual.max_timestamp(partition)
            if at == NO_TIMESTAMP:
                return -1, NO_TIMESTAMP, state.leader_epoch
        return *await virtual.offset_for_time(partition, at), state.leader_epoch

    async def fetch(
        self, requests: Sequence[PartitionFetch], max_bytes: int, *, at_least_one: bool
    ) -> list[PartitionRead]:
        """Return a batch per request, in total at most ``max_bytes``.

        With ``at_least_one`` the first batch may exceed that.
        """
        reads: list[PartitionRead] = []
        for request in requests:
            name = request.topic, request.partition
            try:
                virtual = self._partition(*name)
                await virtual.prepare(request.partition)
                limit = min(max_bytes, request.max_bytes)
                batch = virtual.read(request.partition, request.offset, limit, at_least_one=at_least_one)
                # With the batch: a later end would let a wait for more overlook what came in between.
                state = virtual.state(request.partition)
            except SteleError as error:
                reads.append(PartitionRead(topic=name[0], partition=name[1], error=error))
                continue
            if batch:
                max_bytes = max(0, max_bytes - len(batch))
                at_least_one = False
                # Making a batch takes time: let the loop serve others before the next.
                await pause()
            reads.append(
                PartitionRead(
                    topic=name[0],
                    partition=name[1],
                    high_watermark=state.high_watermark,
                    last_stable_offset=state.last_stable_offset,
                    log_start_offset=state.log_start_offset,
                    aborted=() if request.isolation is IsolationLevel.READ_COMMITTED else None,
                    batches=batch,
                )
            )
        return reads

    async def wait(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Wait until a partition has records after its given offset, or time is up.

        Returns at once if another broker serves one of them.
        """
        try:
            is_at_end = all(self.state(*name).log_end_offset <= offset for name, offset in positions.items())
        except NotLeader:
            return
        if is_at_end:
            await self._waiters.wait(positions, min_bytes=1, timeout_ms=timeout_ms)
