"""A random history of a compacted partition: a crash in the middle of a pass.

Records with few keys are appended and synced, in every codec, some by idempotent
producers. Then a pass runs, and in the middle of a random call to the file system
the power goes or the process is killed. The engine that is opened on what is left
is checked against the model, finishes the pass, and is checked again. Everything
follows from the seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from random import Random

from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.producing.producer_state import ProducerStates
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.topic_config import TopicConfig

from .batches import ORDERS, spec_of
from .compaction import CleanedPartition, Keyed, Stored, batch, records_of
from .engines import DATA, read_batches
from .simulated_files import SimulatedFiles
from .simulated_time import SimulatedClock

DIRECTORY = DATA / str(ORDERS)
DAY_MS = 86_400_000
_NEVER_MS = 10**9
_CALLS_OF_A_PASS = 140


class CompactionHistory:
    """One random history; ``run`` raises an ``AssertionError`` if a record is lost or wrong."""

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None:
        self._random = Random(seed)
        self._files = files or SimulatedFiles()
        self._survivor: SimulatedFiles | None = None
        self._clock = SimulatedClock()
        self._files.now_ms = self._clock.now_ms
        # By offset; every one of them was synced.
        self._records: list[Stored] = []
        self._last_headers: dict[int, rb.BatchHeader] = {}
        self._sequences = {1: 0, 2: 0}
        self._states = ProducerStates(self._clock)
        random = self._random
        self._config = TopicConfig(
            cleanup_policy="compact",
            segment_bytes=random.choice((1024, 1500, 3000)),
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=random.choice((0, 60_000)),
            index_interval_bytes=100,
        )
        self._dedupe_bytes = random.choice((1 << 20, 24 * 5))
        # The keys of a segment, or of all, fit or do not.
        self._table_bytes = random.choice((1 << 20, 24 * 8))
        # Reading by key takes as long as all the rest.
        self._is_read_by_key = seed % 8 == 0
        self.passes = 0
        self.has_ended_inside = False

    async def run(self) -> None:
        random = self._random
        engine = await self._open(self._files)
        await self._append(engine, random.randint(5, 20))
        if random.random() < 0.5:
            # Key indexes are there when the pass begins, and are built again in it.
            await self._check_keys(engine, self._records)
        if random.random() < 0.3:
            self.passes += await engine.compact()
            await self._append(engine, random.randint(3, 12))
        if random.random() < 0.2:
            await engine.close()
            engine = await self._open(self._files)
        self._files.alarm(random.randint(1, _CALLS_OF_A_PASS), self._end)
        reader = asyncio.create_task(self._read(engine, is_cold=random.random() < 0.5))
        self.passes += await engine.compact()
        self.has_ended_inside = self._survivor is not None
        records = await reader
        assert _table(records) == _table(self._records), "a reader across the swap misses nothing"
        assert all(record == self._records[record.offset] for record in records)
        self._end()
        await engine.close()
        files = self._survivor
        assert files is not None
        self._damage_key_indexes(files)
        engine = await self._open(files)
        await self._check(engine)
        await engine.compact()
        await self._check(engine)
        before = self._logs(files)
        await engine.compact()
        assert self._logs(files) == before, "a pass without new records changes nothing"
        self._check_indexes(files)
        await self._append(engine, 3)
        await self._check(engine)
        await engine.close()
        # The next start finds what was closed, and no snapshot of the producers.
        for path in files.paths():
            if path.suffix == ".producers":
                files.unlink(path)
        engine = await self._open(files)
        await self._check(engine)
        await engine.close()

    def _end(self) -> None:
        if self._survivor is None:
            cut = self._random.random() < 0.6
            self._survivor = self._files.power_cut(self._random) if cut else self._files.crash(self._random)

    async def _open(self, files: SimulatedFiles) -> EmbeddedEngine:
        self._states = ProducerStates(self._clock)
        options = EngineOptions(
            flush_interval_ms=_NEVER_MS,
            checkpoint_interval_ms=_NEVER_MS,
            retention_interval_ms=_NEVER_MS,
            cleaner=CleanerOptions(is_enabled=False, dedupe_buffer_bytes=self._dedupe_bytes),
            table_memory_bytes_max=self._table_bytes,
        )
        engine = EmbeddedEngine(files, DATA, clock=self._clock, options=options)
        await engine.open()
        await engine.create(
            [spec_of(ORDERS, clock=self._clock, config=self._config, producer_state=self._states)]
        )
        await engine.start()
        return engine

    async def _append(self, engine: EmbeddedEngine, batches: int) -> None:
        random = self._random
        for _ in range(batches):
            keyed = [
                Keyed(
                    b"k%d" % random.randrange(6),
                    None if random.random() < 0.15 else random.randbytes(random.randint(0, 90)),
                    self._clock.now_ms() - random.randint(0, 1000),
                    (("h", b"1"),) if random.random() < 0.2 else (),
                )
                for _ in range(random.randint(1, 5))
            ]
            producer_id = random.choice((-1, 1, 2))
            sequence = self._sequences.get(producer_id, -1)
            raw = bytearray(
                batch(
                    keyed,
                    compression=random.choice(list(Compression)),
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id > 0 else -1,
                    base_sequence=sequence,
                )
            )
            headers = rb.check_produced(raw)
            if producer_id > 0:
                assert self._states.check(headers[0]) is None, "it is the next batch of its producer"
                self._sequences[producer_id] += len(keyed)
                self._last_headers[producer_id] = headers[0]
            ticket = engine.append(ORDERS, raw, headers, sync=True)
            self._records += records_of(bytes(raw))
            assert ticket.last_offset == len(self._records) - 1
            if ticket.future is not None:
                await ticket.future

    # ── what must be true ──

    async def _check(self, engine: EmbeddedEngine) -> None:
        state = engine.state(ORDERS)
        assert (state.log_start_offset, state.log_end_offset) == (0, len(self._records))
        records = await self._read(engine)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), "offsets rise"
        for record in records:
            assert record == self._records[record.offset], "what stays is as it was"
        last = {record.key: record for record in self._records}
        missing = [record for record in last.values() if record not in records]
        assert not missing, "the last record of a key stays, and a tombstone for a day"
        for offset in self._random.sample(range(len(self._records)), 5):
            raw = await read_batches(engine, offset, max_bytes=1)
            next_offset = rb.check_batch(raw).next_offset
            assert next_offset > offset, "a fetch makes progress"
            first = next((record for record in records_of(raw) if record.offset >= offset), None)
            expected = next((record for record in records if record.offset >= offset), None)
            if first is None:
                # The records of its batch at and after the offset were removed.
                assert expected is None or expected.offset >= next_offset
            else:
                assert first == expected, "it gets the first record at or after its offset"
        await self._check_keys(engine, records)
        for producer_id, header in self._last_headers.items():
            repeated = self._states.check(header)
            assert repeated is not None, f"the last batch of producer {producer_id} is recognised"
            assert repeated.base_offset == header.base_offset

    async def _check_keys(self, engine: EmbeddedEngine, found: list[Stored]) -> None:
        """Each key is found, and which records are the newest before any offset; ``found`` is the log."""
        if not self._is_read_by_key:
            return
        last = {record.key: record.offset for record in self._records}
        for number in range(7):
            key = b"k%d" % number
            assert await engine.newest_offset(ORDERS, key) == last.get(key, -1), "a key is found"
        there = {record.offset for record in found}
        for end in (self._random.randint(0, len(self._records)), len(self._records)):
            # Before the whole, which is remembered.
            start = self._random.randint(0, end)
            part = await engine.newest_offsets(ORDERS, end, start_offset=start)
            offsets = await engine.newest_offsets(ORDERS, end)
            assert part.start_offset <= max(start, engine.state(ORDERS).log_start_offset)
            assert set(part.between(start, end)) <= set(offsets.between(start, end)), "a part has no other"
            assert there & set(offsets.between(start, end)) <= set(part), "a part has all that is there"
            newest = {self._records[offset].key: offset for offset in offsets}
            assert len(newest) == len(offsets), "one record for each key"
            for key, offset in {record.key: record.offset for record in self._records[:end]}.items():
                # A pass may have removed it because of a record after the end.
                assert offset not in there or newest.get(key) == offset, "the newest record before an offset"
                assert newest.get(key, -1) <= offset
            if end == len(self._records):
                assert newest == last

    def _damage_key_indexes(self, files: SimulatedFiles) -> None:
        for path in files.paths():
            content = bytearray(files.content(path))
            if path.suffix == ".keyindex" and content and self._random.random() < 0.3:
                content[self._random.randrange(len(content))] ^= 1 << self._random.randrange(8)
                files.damage(path, bytes(content))

    async def _read(self, engine: EmbeddedEngine, *, is_cold: bool = False) -> list[Stored]:
        """Read the whole log, fetch by fetch; in threads if ``is_cold``."""
        if is_cold:
            self._files.is_cold = lambda: self._random.random() < 0.5
        records: list[Stored] = []
        offset, max_bytes = 0, self._random.choice((1, 2000, 1 << 20))
        while offset < len(self._records):
            raw = await read_batches(engine, offset, max_bytes=max_bytes)
            assert raw, "there is something up to the end"
            records += records_of(raw)
            *_, header = rb.iter_headers(raw)
            assert header.next_offset > offset
            offset = header.next_offset
        self._files.is_cold = lambda: False
        return records

    def _logs(self, files: SimulatedFiles) -> dict[Path, bytes]:
        return {path: bytes(files.content(path)) for path in files.paths() if path.suffix == ".log"}

    def _check_indexes(self, files: SimulatedFiles) -> None:
        # It compares each index with one that is built from the log.
        CleanedPartition(files, DIRECTORY).facts()


def _table(records: Iterable[Stored]) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key in ``records``; None for a tombstone."""
    return {record.key: record.value for record in records}
