"""The simulation of shared storage with compacted topics (``shared_cluster``).

Records have a few keys, and some are tombstones. Passes of compaction run at any time at any broker. The ledger
has the record at each offset: a reader gets that record or, if a newer one of its key exists, none. Look-ups
and tables are compared with what a reader finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

from stele.wire import record_batch as rb

from app.errors import OffsetOutOfRange, StorageUnavailable
from app.storage.engine import AbortedTransaction, AppendTicket, PartitionRead
from app.storage.shared.compactor import CompactorOptions
from app.storage.topic_config import TopicConfig

from .shared_cluster import NAMES, OPTIONS, PARTITIONS, Cluster, Producer, SimulatedBroker, fetch

KEYS = [b"a", b"b", b"c", b"d", b"e"]
# More than a read may take.
MARKER_MS_MIN = 100_000
# Key and value.
_Record = tuple[bytes | None, bytes | None]


class CompactedCluster(Cluster):
    """Brokers whose topic is compacted."""

    steps = 12
    batches = 8

    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        # Some maps are too small for all keys.
        memory_bytes = self.random.choice((256, 1 << 16, 1 << 16))
        self.options = replace(
            OPTIONS,
            table_memory_bytes_max=self.random.choice((160, 1 << 16)),
            compaction=CompactorOptions(
                is_enabled=False,
                wait_bytes=1,
                wait_ms=0,
                claim_ms=1,
                dedupe_buffer_bytes=memory_bytes,
                marker_ms_min=MARKER_MS_MIN,
            ),
        )
        self.config = TopicConfig(
            cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=20_000
        ).enforced()
        # The record at each offset of each partition, seen or acknowledged.
        self.records: list[dict[int, _Record]] = [{} for _ in range(PARTITIONS)]
        self._acked: list[dict[bytes, int]] = [{} for _ in range(PARTITIONS)]

    # ── what clients do ──

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        return [Producer(self, number, is_idempotent=number > 0).run(batches) for number in range(3)]

    def batch(
        self,
        values: list[bytes],
        *,
        producer_id: int,
        base_sequence: int,
        producer_epoch: int = 0,
        is_transactional: bool = False,
    ) -> bytearray:
        builder = rb.BatchBuilder(
            is_transactional=is_transactional,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=base_sequence if producer_id >= 0 else -1,
        )
        for value in values:
            is_tombstone = self.random.random() < 0.2
            # A record without a key is refused above the engine; older ones go with the first pass.
            builder.append(
                timestamp_ms=1_000,
                key=self.random.choice(KEYS),
                value=None if is_tombstone else value,
                headers=[("number", value)] if is_tombstone else [],
            )
        return builder.build()

    def acked(self, partition: int, ticket: AppendTicket, batch: bytearray) -> None:
        copy = bytearray(batch)
        rb.assign_offsets(copy, 0, ticket.base_offset, -1)
        self.see(partition, bytes(copy))
        for record in rb.decode_records(bytes(copy)):
            assert record.key is not None
            newest = self._acked[partition].get(record.key, -1)
            self._acked[partition][record.key] = max(newest, record.offset)

    def see(
        self, partition: int, raw: bytes, aborted: Sequence[AbortedTransaction] = ()
    ) -> list[tuple[int, bytes, bytes | None]]:
        """Compare records with those that were at their offsets before. (2, 11)"""
        seen: list[tuple[int, bytes, bytes | None]] = []
        for header in self.shown(raw, aborted):
            for record in rb.decode_records(raw, header):
                assert record.key is not None
                known = self.records[partition].setdefault(record.offset, (record.key, record.value))
                assert known == (record.key, record.value), f"two records at offset {record.offset}"
                seen.append((record.offset, record.key, record.value))
        return seen

    def shown(self, raw: bytes, aborted: Sequence[AbortedTransaction]) -> Iterator[rb.BatchHeader]:
        """Yield the batches whose records a client gives to its application."""
        del aborted
        return (header for header in rb.iter_headers(raw) if header.record_count)

    def check_read(self, partition: int, offset: int, read: PartitionRead) -> int:
        raw = bytes(read.batches)
        assert raw, f"nothing is returned at offset {offset}"
        next_offset, is_first = offset, True
        for header in rb.iter_headers(raw):
            rb.check_batch(raw, header.position)
            assert header.next_offset > offset
            assert is_first or header.base_offset >= next_offset, "offsets do not ascend"
            next_offset, is_first = header.next_offset, False
        self.see(partition, raw, read.aborted or ())
        return next_offset

    # ── what happens beside them ──

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        return [
            *super().actions(),
            (6, self._clean),
            (3, self._race),
            (5, lambda: self.deed(self._read_table())),
            (3, lambda: self.deed(self._look_up())),
        ]

    def _clean(self) -> None:
        self.upkeep(lambda engine: engine.upkeep.compactor.clean_due())

    def _race(self) -> None:
        """Let two passes, a merge and a deletion change the same runs."""
        self._clean()
        self.upkeep(lambda engine: engine.upkeep.merge_one())
        self._clean()
        self.deed(self.delete_records())

    async def _look_up(self) -> None:
        """The newest record of a key is at or after the newest that was acknowledged."""
        broker = await self.some_broker()
        partition, key = self.random.randrange(PARTITIONS), self.random.choice(KEYS)
        acked = self.known(partition).get(key, -1)
        try:
            found = await broker.engine.newest_offset(NAMES[partition], key)
        except StorageUnavailable:
            return
        if found >= 0:
            self.check_found(partition, found)
        if found < acked and not self._is_deleted(partition, key, acked):
            assert acked < broker.engine.state(NAMES[partition]).log_start_offset, "a look-up missed a record"

    def known(self, partition: int) -> dict[bytes, int]:
        """Return the newest offsets that readers by key must find now, if their records are not deleted."""
        return dict(self._acked[partition])

    def check_found(self, partition: int, offset: int) -> None:
        """Check the answer to a look-up."""

    def _is_deleted(self, partition: int, key: bytes, offset: int) -> bool:
        """Return whether a tombstone of the key is at ``offset`` or later, which may be gone."""
        return any(at >= offset and record == (key, None) for at, record in self.records[partition].items())

    async def _read_table(self) -> None:
        """Read a table as ``app/query/table.py`` does, while passes run."""
        broker = await self.some_broker()
        partition = self.random.randrange(PARTITIONS)
        name, engine = NAMES[partition], broker.engine
        acked = self.known(partition)
        table: dict[bytes, int] = {}
        try:
            await engine.refresh([name])
            end = engine.state(name).last_stable_offset
            read_from = end
            for start in (self.random.randint(0, end), 0):
                newest = await engine.newest_offsets(name, end, start_offset=start)
                begin = min(newest.start_offset, read_from)
                await asyncio.sleep(self.random.choice((0, 1, 20)))
                for offset in newest.within(begin, read_from):
                    await self._take(broker, partition, offset, table, only_first=True)
                read_from = begin
            position = end
            while position < min(engine.compacted_until(name), engine.state(name).last_stable_offset):
                position = await self._take(broker, partition, position, table)
        except (StorageUnavailable, OffsetOutOfRange):
            return
        start = engine.state(name).log_start_offset
        for key, offset in acked.items():
            is_complete = offset < start or table.get(key, -1) >= offset
            assert is_complete or self._is_deleted(partition, key, offset), "a table lacks a record"

    async def _take(
        self,
        broker: SimulatedBroker,
        partition: int,
        offset: int,
        table: dict[bytes, int],
        *,
        only_first: bool = False,
    ) -> int:
        (read,) = await broker.engine.read([fetch(NAMES[partition], offset, 1)], 1)
        if read.error is not None:
            raise read.error
        if not read.batches:
            return offset + 1
        for at, key, _ in self.see(partition, bytes(read.batches), read.aborted or ()):
            if at == offset or (at > offset and not only_first):
                table[key] = max(at, table.get(key, -1))
        return self.check_read(partition, offset, read)

    # ── checks ──

    async def verify(self, broker: SimulatedBroker) -> None:
        await broker.opened()
        await broker.engine.refresh(NAMES)
        for partition in range(PARTITIONS):
            await self._verify_partition(broker, partition)

    async def _verify_partition(self, broker: SimulatedBroker, partition: int) -> list[int]:
        """Compare everything that a broker returns with the ledger; return the offsets of all records."""
        name = NAMES[partition]
        state = broker.engine.state(name)
        read: dict[int, bytes] = {}
        offset = state.log_start_offset
        while offset < state.high_watermark:
            (found,) = await broker.engine.read([fetch(name, offset, 2_000)], 2_000)
            assert found.error is None, found.error
            for at, key, _ in self.see(partition, bytes(found.batches), found.aborted or ()):
                if at >= offset:
                    assert at not in read, "a record is returned twice"
                    read[at] = key
            offset = self.check_read(partition, offset, found)
        newest = {key: offset for offset, key in sorted(read.items())}
        for key in KEYS:
            known = [
                (at, value)
                for at, (of_key, value) in self.records[partition].items()
                if of_key == key and at >= state.log_start_offset
            ]
            last_offset, last_value = max(known, default=(-1, None), key=lambda record: record[0])
            is_there = newest.get(key, -1) == last_offset
            assert is_there or (last_value is None and key not in newest), (
                f"the last record of key {key!r}, at offset {last_offset}, is lost"
            )
            await self._check_look_up(broker, partition, key, newest.get(key, -1))
        offsets = await broker.engine.newest_offsets(name, state.high_watermark)
        # A table that is remembered may have records that were deleted since, and tombstones that are gone.
        differing = {offset for offset in offsets if offset >= state.log_start_offset} ^ set(newest.values())
        records = self.records[partition]
        assert all(offset in records and records[offset][1] is None for offset in differing), (
            "a table has other records than the log"
        )
        return sorted(read)

    async def _check_look_up(
        self, broker: SimulatedBroker, partition: int, key: bytes, expected: int
    ) -> None:
        name = NAMES[partition]
        records = self.records[partition]
        found = await broker.engine.newest_offset(name, key)
        if found >= 0 and found != expected:
            # It knew of a record that is gone: a tombstone, or one that was deleted by a tombstone that is gone, too. A
            # reader that does not find it asks again.
            is_gone_record = found > expected and found in records and records[found][0] == key
            assert is_gone_record, "a look-up finds another record than a reader"
            found = await broker.engine.newest_offset(name, key, is_doubted=True)
        # A reader of runs that were replaced a moment ago may still get a tombstone.
        is_gone = found < 0 <= expected and records[expected] == (key, None)
        assert is_gone or found == expected, "a look-up finds another record than a reader"

    async def finish(self, broker: SimulatedBroker) -> None:
        """After all passes, each key has one record."""
        # A merge that was given up keeps its claim for a moment.
        await asyncio.sleep(0.01)
        while await broker.engine.compact():
            pass
        for partition in range(PARTITIONS):
            offsets = await self._verify_partition(broker, partition)
            keys = [self.records[partition][offset][0] for offset in offsets]
            assert len(keys) == len(set(keys)), "a superseded record is left after the last pass"
