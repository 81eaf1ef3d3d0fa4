"""``__consumer_offsets``.

Groups and commits as records that a consumer can read (ADR-0022).

The topic is a view of the group store, made when a client first reads it: each
group and each committed offset gets an entry in the partition where Kafka would
keep it. From then on every durable change appends an entry.

Offsets of a run begin at ``epoch << EPOCH_BITS``, with the epoch that the coordinator
took from its store when it started. So they only go up, also after a crash, though
they are not stored: the log of an earlier run ends below the start of this one, and
the current state is repeated above it. Clients see the epoch as the leader epoch, so
they notice.

An offset that a transaction commits gets its entry when the transaction is committed. So
nothing in the topic is open or aborted, and there are no markers in it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from stele.wire import record_batch as rb

from ..broker.topics import CONSUMER_OFFSETS, Topic
from ..cluster.consumer_group_store import ConsumerGroupRecord
from ..cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteTopicOffsets,
    GroupRecord,
    OffsetRecord,
    StoreChange,
)
from ..errors import OffsetOutOfRange
from ..storage.engine import LogState
from ..storage.topic_config import TopicConfig
from ..storage.topic_partition import TopicPartition
from ..storage.waiters import Waiters
from .offset_records import group_key, group_size, group_value, offset_key, offset_value, partition_of
from .replay_log import Entry, ReplayLog

if TYPE_CHECKING:
    from .coordinator import GroupCoordinator

# Kafka's default for offsets.topic.num.partitions. It must not change, because it decides the partition
# of a group.
PARTITIONS = 50
# A run of the broker has 2^40 offsets per partition, enough for a thousand commits per millisecond
# over decades; there are 2^23 runs.
EPOCH_BITS = 40
# About a thousand superseded entries and tombstones per partition, for readers that are not at its
# end. All partitions together take 13 MB.
HISTORY_BYTES = 256 * 1024
# Larger batches would hold the event loop for some milliseconds.
_BATCH_BYTES_MAX = 128 * 1024
# The memory of an entry of a committed offset in addition to its text.
_ENTRY_BYTES = 256
_RECORD_OVERHEAD_BYTES = 24
# Entries that are made, or looked at, before the loop serves other tasks.
_ENTRIES_PER_PAUSE = 1000

# (group, topic, partition) for an offset, (group, None, -1) for the group itself.
_Key: TypeAlias = tuple[str, str | None, int]
_Value: TypeAlias = OffsetRecord | GroupRecord
_Log: TypeAlias = ReplayLog[_Key, _Value]


def _group_key(group: str) -> _Key:
    return group, None, -1


class OffsetsTopic:
    """Implements ``VirtualTopic``; belongs to the event loop, as its coordinator does."""

    def __init__(self, coordinator: GroupCoordinator, *, cluster_id: str) -> None:
        """``coordinator`` must be open before the first read.

        Its epoch is that of this run.
        """
        self._table = coordinator.table
        config = replace(
            TopicConfig(),
            cleanup_policy="compact",
            segment_bytes=100 * 1024 * 1024,
            storage="memory",
        )
        self._topic = Topic(
            name=CONSUMER_OFFSETS,
            # Differs between clusters, and is the same in every run.
            topic_id=uuid.uuid5(uuid.NAMESPACE_OID, f"{cluster_id}/{CONSUMER_OFFSETS}"),
            partitions=PARTITIONS,
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
        self._logs: list[_Log] = []
        # Keys by group, so that a deletion finds them.
        self._keys: dict[str, set[_Key]] = {}
        # Groups that the first walk has not reached.
        self._unseen: dict[str, None] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._waiters: Waiters | None = None

    @property
    def topic(self) -> Topic:
        return self._topic

    @property
    def _epoch(self) -> int:
        return self._table.epoch

    @property
    def _start(self) -> int:
        return self._epoch << EPOCH_BITS

    @property
    def is_read(self) -> bool:
        """True if a client has asked for its records since the broker started."""
        return bool(self._logs)

    def attach(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._table.watch_durable(self.apply)

    # ── changes ──

    async def prepare(self) -> None:
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._walk())
        if not self._preparing.done():
            # A client that disconnects must not cancel it for the others.
            await asyncio.shield(self._preparing)
        elif self._preparing.cancelled() or self._preparing.exception() is not None:
            self._preparing = None
            await self.prepare()

    async def _walk(self) -> None:
        """Append an entry for each group and offset, with pauses.

        Changes meanwhile are appended too.
        """
        self._unseen = dict.fromkeys(self._table.names())
        self._keys = {}
        self._logs = [ReplayLog(self._start, history_bytes=HISTORY_BYTES) for _ in range(PARTITIONS)]
        made = 0
        for group in list(self._unseen):
            if group not in self._unseen:
                continue
            del self._unseen[group]
            for part in self._table.durable_offsets(group):
                # The current one: it may have changed during a pause.
                record = self._table.durable_offset(group, *part)
                if record is not None:
                    self._put_offset(record)
                made += 1
                if made % _ENTRIES_PER_PAUSE == 0:
                    await asyncio.sleep(0)
            kept = self._table.durable_record(group)
            if kept is not None:
                self._put_group(kept)
            made += 1
            if made % _ENTRIES_PER_PAUSE == 0:
                await asyncio.sleep(0)

    def apply(self, changes: Sequence[StoreChange]) -> None:
        """Append changes that became durable; does nothing until a client reads the topic."""
        if not self._logs:
            return
        touched: set[int] = set()
        for change in changes:
            match change:
                case OffsetRecord():
                    if change.group not in self._unseen:
                        touched.add(self._put_offset(change))
                case GroupRecord():
                    if change.group not in self._unseen:
                        touched.add(self._put_group(change))
                case ConsumerGroupRecord():
                    # Such groups are not in the topic, and an entry of a classic group is one no longer.
                    touched |= self._delete(change.group, _group_key(change.group))
                case DeleteOffset():
                    touched |= self._delete(change.group, (change.group, change.topic, change.partition))
                case DeleteGroup():
                    keys = self._keys.get(change.group, set())
                    # The group itself last, after its offsets.
                    for key in sorted(keys, key=lambda key: (key[1] is None, key)):
                        touched |= self._delete(change.group, key)
                case DeleteTopicOffsets():
                    touched |= self._delete_topic(change)
                case _:
                    # Kafka does not have owners, and keeps transactions elsewhere. An offset of a transaction
                    # comes as a record of its own once it is committed.
                    pass
        if self._waiters is not None:
            for partition in touched:
                self._waiters.wake(TopicPartition(CONSUMER_OFFSETS, partition))

    def _put_offset(self, record: OffsetRecord) -> int:
        key = (record.group, record.topic, record.partition)
        size = _ENTRY_BYTES + len(record.metadata)
        return self._put(key, record, timestamp_ms=record.committed_at_ms, size=size)

    def _put_group(self, record: GroupRecord) -> int:
        since_ms = self._table.now_ms() if record.emptied_at_ms is None else record.emptied_at_ms
        return self._put(_group_key(record.group), record, timestamp_ms=since_ms, size=group_size(record))

    def _put(self, key: _Key, value: _Value, *, timestamp_ms: int, size: int) -> int:
        partition = partition_of(key[0], PARTITIONS)
        self._logs[partition].put(key, value, timestamp_ms=timestamp_ms, size=size)
        self._keys.setdefault(key[0], set()).add(key)
        return partition

    def _delete(self, group: str, key: _Key) -> set[int]:
        """Append a tombstone if the key has an entry; returns its partition."""
        keys = self._keys.get(group)
        if keys is None or key not in keys:
            return set()
        keys.remove(key)
        if not keys:
            del self._keys[group]
        partition = partition_of(group, PARTITIONS)
        now_ms = self._table.now_ms()
        self._logs[partition].put(key, None, timestamp_ms=now_ms, size=_ENTRY_BYTES)
        return {partition}

    def _delete_topic(self, change: DeleteTopicOffsets) -> set[int]:
        touched: set[int] = set()
        for group, keys in list(self._keys.items()):
            log = self._logs[partition_of(group, PARTITIONS)]
            for key in sorted(key for key in keys if key[1] == change.topic):
                kept = log.value(key)
                if isinstance(kept, OffsetRecord) and kept.topic_id != change.besides:
                    touched |= self._delete(group, key)
        return touched

    # ── reads ──

    def state(self, partition: int) -> LogState:
        log = self._logs[partition] if self._logs else None
        end = self._start if log is None else log.next_offset
        return LogState(
            log_start_offset=self._start,
            last_stable_offset=end,
            high_watermark=end,
            log_end_offset=end,
            leader_epoch=self._epoch,
            size_bytes=0 if log is None else log.size_bytes,
            recovery_point=self._start,
        )

    def read(self, partition: int, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes | bytearray:
        """See ``VirtualTopic``.

        An offset of an earlier run reads from the start of this one, which repeats the current
        state. So a client that resets to the end after ``OffsetOutOfRange`` misses nothing.
        """
        log = self._logs[partition]
        is_earlier = 0 <= offset < log.start_offset and log.next_offset > log.start_offset
        if not (is_earlier or log.start_offset <= offset <= log.next_offset):
            raise OffsetOutOfRange(
                topic=CONSUMER_OFFSETS,
                partition=partition,
                offset=offset,
                log_start_offset=log.start_offset,
                log_end_offset=log.next_offset,
            )
        limit = min(max_bytes, _BATCH_BYTES_MAX) - rb.HEADER_BYTES
        builder: rb.BatchBuilder | None = None
        base_offset, size = 0, 0
        for at, entry in log.entries_from(offset):
            key, value = _record(entry)
            size += _RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
            if builder is None:
                if size > limit and not at_least_one:
                    break
                builder, base_offset = rb.BatchBuilder(), at
            elif size > limit or at - base_offset >= 1 << 31:
                break
            builder.append(
                timestamp_ms=entry.timestamp_ms, key=key, value=value, offset_delta=at - base_offset
            )
        if builder is None:
            return b""
        batch = builder.build()
        rb.assign_offsets(batch, 0, base_offset, self._epoch)
        return batch

    async def offset_for_time(self, partition: int, timestamp_ms: int) -> tuple[int, int]:
        log = self._logs[partition]
        offset = log.start_offset
        while offset < log.next_offset:
            looked = 0
            for at, entry in log.entries_from(offset):
                if entry.timestamp_ms >= timestamp_ms:
                    return at, entry.timestamp_ms
                offset, looked = at + 1, looked + 1
                if looked >= _ENTRIES_PER_PAUSE:
                    break
            else:
                break
            # The log may change meanwhile, but not before the offsets already looked at.
            await asyncio.sleep(0)
        return -1, rb.NO_TIMESTAMP

    def max_timestamp(self, partition: int) -> int:
        log = self._logs[partition]
        entries = log.entries_from(log.start_offset)
        return max((entry.timestamp_ms for _, entry in entries), default=rb.NO_TIMESTAMP)

    def epoch_end_offset(self, partition: int, epoch: int) -> tuple[int, int]:
        return epoch, self._start


def _record(entry: Entry[_Key, _Value]) -> tuple[bytes, bytes | None]:
    group, topic, partition = entry.key
    key = group_key(group) if topic is None else offset_key(group, topic, partition)
    match entry.value:
        case None:
            return key, None
        case GroupRecord():
            return key, group_value(entry.value, state_since_ms=entry.timestamp_ms)
        case OffsetRecord():
            return key, offset_value(entry.value)
