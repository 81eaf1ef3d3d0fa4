"""Groups and commits as records that a consumer can read (ADR-0022).

Each group and each committed offset gets an entry when a client first reads the records. From then on every
durable change appends an entry.

Offsets of a coordinator begin at ``epoch << EPOCH_BITS``, with the epoch that it took from its store. So they only
go up, even after a crash, though they are not stored: the log of an earlier epoch ends below the start of this one,
and the current state is repeated above it. Clients see the epoch as the leader epoch, so they notice. A coordinator
that serves again with the same epoch, which no other broker had in between, begins where its log ended.

An offset that a transaction commits gets its entry when the transaction is committed. So nothing here is open or
aborted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from ...broker.topics import CONSUMER_OFFSETS
from ...cluster.consumer_group_store import ConsumerGroupRecord
from ...cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteTopicOffsets,
    GroupRecord,
    OffsetRecord,
    StoreChange,
)
from ...errors import OffsetOutOfRange
from ...storage.engine import LogState
from ...work_budget import Steps, in_background, pause
from .records import group_key, group_size, group_value, offset_key, offset_value
from .replay_log import Entry, ReplayLog

if TYPE_CHECKING:
    from ..table import GroupTable

# An epoch has 2^40 offsets per partition, enough for a thousand commits per millisecond over decades; there
# are 2^23 epochs.
EPOCH_BITS = 40
# About a thousand superseded entries and tombstones per partition, for readers that are not at its
# end. 50 partitions together take 13 MB.
HISTORY_BYTES = 256 * 1024
# Larger batches would hold the event loop for some milliseconds.
_BATCH_BYTES_MAX = 128 * 1024
# The memory of an entry of a committed offset in addition to its text.
_ENTRY_BYTES = 256
_RECORD_OVERHEAD_BYTES = 24
# Entries that are made, or looked at, before the loop serves other tasks.
_ENTRIES_PER_PAUSE = 1000
# Changes that are applied in one step, about 8 µs each.
_APPLIED_PER_STEP = 250

# (group, topic, partition) for an offset, (group, None, -1) for the group itself.
_Key: TypeAlias = tuple[str, str | None, int]
_Value: TypeAlias = OffsetRecord | GroupRecord
_Log: TypeAlias = ReplayLog[_Key, _Value]


def _group_key(group: str) -> _Key:
    return group, None, -1


class OffsetsView:
    """The groups of ``table`` in ``partitions`` logs; belongs to the event loop.

    ``partition_of`` returns the partition of a group. ``changed`` is called with each partition that has more to read.
    The table must be open while the view is made and read. ``deletions`` returns what was deleted before that, the
    oldest first, and runs in the thread of the store; readers of an earlier log may not have seen it.
    """

    def __init__(
        self,
        table: GroupTable,
        *,
        partitions: int,
        partition_of: Callable[[str], int],
        changed: Callable[[int], object],
        deletions: Callable[[], Sequence[_Key]] | None = None,
    ) -> None:
        self._table = table
        self._deletions = deletions
        self._partition_of = partition_of
        self._changed = changed
        # Where the logs of this process have ended so far.
        self._ends = [0] * partitions
        self._logs: list[_Log] = []
        # Keys by group, so that a deletion finds them.
        self._keys: dict[str, set[_Key]] = {}
        # Keys of offsets by topic, for the same reason.
        self._of_topic: dict[str, set[_Key]] = {}
        # Durable changes that have no entry yet, and keys to delete.
        self._unapplied: deque[StoreChange | _Key] = deque()
        # Groups that the first walk has not reached.
        self._unseen: dict[str, None] = {}
        self._making: asyncio.Task[None] | None = None
        self.is_made = False
        table.watch_durable(self.apply)

    @property
    def _epoch(self) -> int:
        return self._table.epoch

    def _start(self, partition: int) -> int:
        return max(self._epoch << EPOCH_BITS, self._ends[partition])

    @property
    def is_read(self) -> bool:
        """Return whether a client has read the records."""
        return bool(self._logs)

    def forget(self) -> None:
        """Drop all entries: another coordinator may have the groups from now on."""
        for partition, log in enumerate(self._logs):
            self._ends[partition] = log.next_offset
        self._logs, self._keys, self._of_topic, self._unseen = [], {}, {}, {}
        self._unapplied.clear()
        self._making, self.is_made = None, False

    # ── changes ──

    async def make(self) -> None:
        """Append an entry for each group, offset and earlier deletion.

        Callers share the work.

        Call it until ``is_made``: the view may have been dropped meanwhile. Raises what the store raises.
        """
        if self._making is None:
            self.forget()
            self._unseen = dict.fromkeys(self._table.names())
            self._logs = [
                ReplayLog(self._start(partition), history_bytes=HISTORY_BYTES)
                for partition in range(len(self._ends))
            ]
            self._making = asyncio.create_task(self._walk(self._logs))
        # A client that disconnects must not cancel it for the others.
        await asyncio.shield(self._making)

    async def _walk(self, logs: list[_Log]) -> None:
        """Make the entries, with pauses. Changes meanwhile are appended too."""
        try:
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
                        await pause()
                        if self._logs is not logs:
                            return
                kept = self._table.durable_record(group)
                if kept is not None:
                    self._put_group(kept)
                made += 1
                if made % _ENTRIES_PER_PAUSE == 0:
                    await pause()
                    if self._logs is not logs:
                        return
            gone = () if self._deletions is None else await self._stored_deletions(self._deletions)
            if self._logs is logs:
                for key in gone:
                    if key not in self._keys.get(key[0], ()):
                        self._put_tombstone(key)
                self.is_made = True
        except BaseException:
            if self._logs is logs:
                # The next reader begins again.
                self.forget()
            raise

    async def _stored_deletions(self, deletions: Callable[[], Sequence[_Key]]) -> Sequence[_Key]:
        """Return the deletions in the store, with those submitted until now."""
        await self._table.submitted()
        return await self._table.run_in_store(deletions)

    def apply(self, changes: Sequence[StoreChange]) -> None:
        """Append durable changes, in one turn of the loop unless there are many of them.

        Does nothing until a client reads the records.
        """
        if not self._logs:
            return
        is_applying = bool(self._unapplied)
        self._unapplied.extend(changes)
        if not is_applying:
            in_background(self._apply_all())

    def _apply_all(self) -> Steps[None]:
        while self._unapplied:
            touched: set[int] = set()
            for _ in range(_APPLIED_PER_STEP):
                if not self._unapplied:
                    break
                touched |= self._apply(self._unapplied.popleft())
            for partition in touched:
                self._changed(partition)
            if self._unapplied:
                yield

    def _apply(self, change: StoreChange | _Key) -> set[int]:
        """Append a change, or the deletion of a key; return the partitions that have more to read."""
        match change:
            case OffsetRecord():
                return set() if change.group in self._unseen else {self._put_offset(change)}
            case GroupRecord():
                return set() if change.group in self._unseen else {self._put_group(change)}
            case ConsumerGroupRecord():
                # Such groups are not in the topic, and an entry of a classic group is one no longer.
                return self._delete(_group_key(change.group))
            case DeleteOffset():
                return self._delete((change.group, change.topic, change.partition))
            case DeleteGroup():
                # The group itself last, after its offsets.
                group = _group_key(change.group)
                self._unapplied.extendleft((group, *(self._keys.get(change.group, set()) - {group})))
            case DeleteTopicOffsets():
                keys = self._of_topic.get(change.topic, ())
                self._unapplied.extendleft([key for key in keys if self._is_of_other(key, change.besides)])
            case tuple():
                return self._delete(change)
            case _:
                # Kafka does not have owners, and keeps transactions elsewhere. An offset of a transaction
                # comes as a record of its own once it is committed.
                pass
        return set()

    def _is_of_other(self, key: _Key, topic_id: UUID | None) -> bool:
        """Return whether the entry of an offset is not of the topic with this id."""
        kept = self._logs[self._partition_of(key[0])].value(key)
        return isinstance(kept, OffsetRecord) and kept.topic_id != topic_id

    def _put_offset(self, record: OffsetRecord) -> int:
        key = (record.group, record.topic, record.partition)
        size = _ENTRY_BYTES + len(record.metadata)
        return self._put(key, record, timestamp_ms=record.committed_at_ms, size=size)

    def _put_group(self, record: GroupRecord) -> int:
        since_ms = self._table.now_ms() if record.emptied_at_ms is None else record.emptied_at_ms
        return self._put(_group_key(record.group), record, timestamp_ms=since_ms, size=group_size(record))

    def _put(self, key: _Key, value: _Value, *, timestamp_ms: int, size: int) -> int:
        partition = self._partition_of(key[0])
        self._logs[partition].put(key, value, timestamp_ms=timestamp_ms, size=size)
        self._keys.setdefault(key[0], set()).add(key)
        if key[1] is not None:
            self._of_topic.setdefault(key[1], set()).add(key)
        return partition

    def _delete(self, key: _Key) -> set[int]:
        """Append a tombstone if the key has an entry; returns its partition."""
        keys = self._keys.get(key[0])
        if keys is None or key not in keys:
            return set()
        keys.remove(key)
        if not keys:
            del self._keys[key[0]]
        if key[1] is not None:
            of_topic = self._of_topic[key[1]]
            of_topic.remove(key)
            if not of_topic:
                del self._of_topic[key[1]]
        return {self._put_tombstone(key)}

    def _put_tombstone(self, key: _Key) -> int:
        partition = self._partition_of(key[0])
        now_ms = self._table.now_ms()
        self._logs[partition].put(key, None, timestamp_ms=now_ms, size=_ENTRY_BYTES)
        return partition

    # ── reads ──

    def state(self, partition: int) -> LogState:
        """Return where the log begins and ends, in both cases 0 if it has no entries.

        A reader of the topic to its end waits for the record before the end, so there is one, or the end is 0.
        """
        log = self._logs[partition] if self._logs else None
        start, end = self._bounds(partition)
        if log is not None and start == end:
            start = end = 0
        return LogState(
            log_start_offset=start,
            last_stable_offset=end,
            high_watermark=end,
            log_end_offset=end,
            leader_epoch=self._epoch,
            size_bytes=0 if log is None else log.size_bytes,
            recovery_point=start,
        )

    def _bounds(self, partition: int) -> tuple[int, int]:
        """Return where the entries of this epoch begin and end."""
        if self._logs:
            return self._logs[partition].start_offset, self._logs[partition].next_offset
        start = self._start(partition)
        return start, start

    def read(self, partition: int, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes | bytearray:
        """See ``VirtualTopic``.

        An offset before the start is one of an earlier log, and reads from the start of this one, which repeats the
        current state. ``OffsetOutOfRange`` would lead a client with ``auto.offset.reset=latest`` to the end, where it
        would miss that. If there is nothing yet, a control batch leads the reader of an earlier log to the start.
        """
        log = self._logs[partition]
        if not 0 <= offset <= log.next_offset:
            raise OffsetOutOfRange(
                topic=CONSUMER_OFFSETS,
                partition=partition,
                offset=offset,
                log_start_offset=log.start_offset,
                log_end_offset=log.next_offset,
            )
        if 0 < offset < log.start_offset == log.next_offset:
            batch = self._lead_to(log.start_offset)
            return batch if at_least_one or len(batch) <= max_bytes else b""
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

    def _lead_to(self, offset: int) -> bytearray:
        """Return a batch without records, after which consumers are at ``offset``.

        Consumers move past the marker of a transaction, and one without a producer ends none.
        """
        marker = EndTransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=0)
        batch = marker_batch(
            marker,
            producer_id=rb.NO_PRODUCER_ID,
            producer_epoch=-1,
            timestamp_ms=self._table.now_ms(),
        )
        rb.assign_offsets(batch, 0, offset - 1, self._epoch)
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
            await pause()
        return -1, rb.NO_TIMESTAMP

    def max_timestamp(self, partition: int) -> int:
        log = self._logs[partition]
        entries = log.entries_from(log.start_offset)
        return max((entry.timestamp_ms for _, entry in entries), default=rb.NO_TIMESTAMP)

    def epoch_end_offset(self, partition: int, epoch: int) -> tuple[int, int]:
        """Return the start of the log as the end of every earlier epoch."""
        start, end = self._bounds(partition)
        return epoch, end if epoch == self._epoch else start


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
