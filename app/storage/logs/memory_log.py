"""One partition in memory: a ring that keeps the newest records and drops the rest.

Offsets, timestamps and errors are the same as on disk: a reader whose records were
dropped gets ``OffsetOutOfRange``. Nothing survives a restart, and the receipt of a
write says so (durability ``none``). The log start offset may be inside a batch; that
batch is served whole, and the reader skips its first records, as in any log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stele.wire import record_batch as rb

from ...clock import Clock
from ..config_types import INT64_MAX
from ..engine import PartitionSpec
from ..recovery.checkpoint import LeaderEpochs
from ..segments.age import RecordAge, Verdict, age_of_batch, age_of_header, newest_in_batch, retention_verdict
from ..topic_config import TopicConfig
from .partition_log import Span, check_offset

# Bounds a ring of large records; 10,000 records of the usual size stay far below it.
RING_BYTES_MAX = 64 * 1024 * 1024


@dataclass(slots=True)
class StoredBatch:
    """One batch of the ring, appended at ``appended_ms``.

    ``age`` is None until its records have been read.
    """

    header: rb.BatchHeader
    data: bytes
    appended_ms: int
    age: RecordAge | None

    def read_age(self) -> None:
        """Read the times of its records; for threads."""
        self.age = age_of_batch(self.data)


class MemorySpan:
    """Batches that are already in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_nowait(self) -> bytes:
        return self._data

    read = read_nowait


class MemoryLog:
    """The ring of one partition."""

    def __init__(self, spec: PartitionSpec, clock: Clock) -> None:
        self._clock = clock
        self.topic_partition = spec.topic_partition
        self.config: TopicConfig = spec.config
        self.producer_state = spec.producer_state
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        # A ring is never compacted.
        self.holes_until = 0
        self.log_end_offset = 0
        self.size_bytes = 0
        self.deletions = 0
        self._batches: deque[StoredBatch] = deque()

    @property
    def high_watermark(self) -> int:
        """Return the end, because no append to a ring waits for a sync."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Return the end, because a ring takes no transactional batches."""
        return self.log_end_offset

    @property
    def readable_ends(self) -> tuple[int, int]:
        return self.log_end_offset, self.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Return the log start offset, because no record is ever on disk."""
        return self.log_start_offset

    def append(
        self, batches: bytearray | memoryview, headers: list[rb.BatchHeader], *, leader_epoch: int | None
    ) -> tuple[int, int]:
        """Append as ``DiskLog.append`` does, then drop what exceeds the ring."""
        assert leader_epoch is not None, "copies are on disk"
        base_offset, now_ms = self.log_end_offset, self._clock.now_ms()
        for header in headers:
            rb.assign_offsets(batches, header.position, self.log_end_offset, leader_epoch)
            header.base_offset = self.log_end_offset
            header.partition_leader_epoch = leader_epoch
            data = bytes(memoryview(batches)[header.position : header.position + header.size])
            self._batches.append(StoredBatch(header, data, now_ms, age_of_header(header)))
            self.size_bytes += header.size
            self.log_end_offset = header.next_offset
            if header.has_producer_id:
                self.producer_state.apply(header)
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
        """Drop batches past ``retention.ms``; return their number."""
        dropped = 0
        while self._batches and self._verdict(self._batches[0], now_ms) is Verdict.DELETE:
            self.advance_log_start(self._batches[0].header.next_offset)
            dropped += 1
        return dropped

    def batches_to_read(self, now_ms: int) -> list[StoredBatch]:
        """Return the oldest batches whose records must be read to know their age."""
        batches: list[StoredBatch] = []
        for stored in self._batches:
            verdict = self._verdict(stored, now_ms)
            if verdict is Verdict.KEEP:
                break
            if verdict is Verdict.READ:
                batches.append(stored)
        return batches

    def _verdict(self, stored: StoredBatch, now_ms: int) -> Verdict:
        return retention_verdict(
            self.config,
            claimed_ms=stored.header.max_timestamp,
            arrival_ms=stored.appended_ms,
            records=stored.age,
            now_ms=now_ms,
            retention_ms=self.config.retention_ms,
        )

    def plan(
        self, offset: int, max_bytes: int, *, at_least_one: bool, end_offset: int = INT64_MAX
    ) -> Callable[[bool], MemorySpan | None] | None:
        check_offset(self, offset)
        first = bisect_right(self._batches, offset, key=lambda stored: stored.header.base_offset) - 1
        if offset == self.log_end_offset or first < 0:
            return None
        parts: list[bytes] = []
        size = 0
        for index in range(first, len(self._batches)):
            data = self._batches[index].data
            if size + len(data) > max_bytes and (parts or not at_least_one):
                break
            parts.append(data)
            size += len(data)
        span = MemorySpan(b"".join(parts))
        return (lambda _nowait: span) if parts else None

    def aborted_search(self, from_offset: int) -> None:
        return None

    # It is nowhere else.
    has_remote = False

    def is_remote_at(self, offset: int) -> bool:
        return False

    def holds(self, span: Span) -> bool:
        return True

    def time_search(self, timestamp_ms: int) -> Callable[[], tuple[int, int, int] | None]:
        batches, start = list(self._batches), self.log_start_offset
        return lambda: _find_time(batches, start, timestamp_ms)

    def newest_time_search(self) -> Callable[[], int]:
        batches, start = list(self._batches), self.log_start_offset
        return lambda: max((_newest_time(stored, start) for stored in batches), default=rb.NO_TIMESTAMP)


def _find_time(
    batches: Iterable[StoredBatch], log_start_offset: int, timestamp_ms: int
) -> tuple[int, int, int] | None:
    for stored in batches:
        if stored.header.max_timestamp < timestamp_ms:
            continue
        record = rb.first_record(stored.data, from_offset=log_start_offset, timestamp_ms=timestamp_ms)
        if record is not None:
            return record.offset, record.timestamp, stored.header.partition_leader_epoch
    return None


def _newest_time(stored: StoredBatch, log_start_offset: int) -> int:
    if stored.header.base_offset >= log_start_offset:
        return stored.header.max_timestamp
    return newest_in_batch(stored.data, from_offset=log_start_offset)
