"""One partition in memory: a ring that keeps the newest records and forgets the rest.

The same offsets, timestamps and errors as on disk: who falls behind the ring
gets ``OffsetOutOfRange``. Nothing survives a restart, and a write's receipt says
so (durability ``none``). Batches stay whole; the log start offset moves by
records, so a batch that is half forgotten is served and its first records are
skipped by the reader, as in any log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from stele.wire import record_batch as rb

from ..errors import OffsetOutOfRange
from .checkpoint import LeaderEpochs
from .engine import PartitionSpec
from .topic_config import TopicConfig

# Bounds a ring of large records; 10,000 records of the usual size stay far below it.
RING_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Stored:
    header: rb.BatchHeader
    data: bytes


class MemoryLog:
    """The ring of one partition."""

    def __init__(self, spec: PartitionSpec) -> None:
        self.topic_partition = spec.topic_partition
        self.config: TopicConfig = spec.config
        self.ledger = spec.ledger
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.size_bytes = 0
        self._batches: deque[_Stored] = deque()

    @property
    def batches(self) -> int:
        return len(self._batches)

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp, in ms; -1 if there is none."""
        return max((stored.header.max_timestamp for stored in self._batches), default=rb.NO_TIMESTAMP)

    def append(
        self, batches: bytearray | memoryview, headers: list[rb.BatchHeader], *, leader_epoch: int
    ) -> tuple[int, int]:
        """As ``DiskLog.append``; then forgets what the ring no longer holds."""
        base_offset = self.log_end_offset
        for header in headers:
            rb.assign_offsets(batches, header.position, self.log_end_offset, leader_epoch)
            header.base_offset = self.log_end_offset
            header.partition_leader_epoch = leader_epoch
            data = bytes(memoryview(batches)[header.position : header.position + header.size])
            self._batches.append(_Stored(header, data))
            self.size_bytes += header.size
            self.log_end_offset = header.next_offset
            if header.has_producer_id:
                self.ledger.apply(header)
        self.epochs.note(leader_epoch, base_offset)
        self.advance_log_start(self.log_end_offset - self.config.memory_records)
        return base_offset, self.log_end_offset - 1

    def advance_log_start(self, offset: int) -> None:
        self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)
        bound = RING_BYTES_MAX
        if self.config.retention_bytes >= 0:
            bound = min(bound, self.config.retention_bytes)
        while self._batches:
            oldest = self._batches[0].header
            is_over = self.size_bytes > bound and len(self._batches) > 1
            if oldest.last_offset >= self.log_start_offset and not is_over:
                return
            self._batches.popleft()
            self.size_bytes -= oldest.size
            self.log_start_offset = max(self.log_start_offset, oldest.next_offset)

    def expire(self, now_ms: int) -> int:
        """Forget batches past ``retention.ms``; returns how many."""
        dropped = 0
        if self.config.retention_ms >= 0:
            while (
                self._batches
                and 0 <= self._batches[0].header.max_timestamp < now_ms - self.config.retention_ms
            ):
                self.advance_log_start(self._batches[0].header.next_offset)
                dropped += 1
        return dropped

    def plan(self, offset: int, max_bytes: int) -> bytes | None:
        """Whole batches from the one that holds ``offset``; None at the log end. Raises ``OffsetOutOfRange``."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            topic, partition = self.topic_partition
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=offset,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
            )
        first = bisect_right(self._batches, offset, key=lambda stored: stored.header.base_offset) - 1
        if offset == self.log_end_offset or first < 0:
            return None
        parts: list[bytes] = []
        size = 0
        for index in range(first, len(self._batches)):
            data = self._batches[index].data
            if parts and size + len(data) > max_bytes:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def find_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the first record at or after ``timestamp_ms``."""
        for stored in self._batches:
            if stored.header.max_timestamp < timestamp_ms:
                continue
            record = rb.first_record(
                stored.data, from_offset=self.log_start_offset, timestamp_ms=timestamp_ms
            )
            if record is not None:
                return record.offset, record.timestamp, stored.header.partition_leader_epoch
        return None
