"""Compaction of logs with transactions: what readers of committed records get, and what a start rebuilds.

``STELE_TORTURE_SEEDS`` sets how many histories ``make torture`` runs (100,000).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.broker.producing.producer_state import ProducerStates
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine
from app.storage.engine import LogState
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, spec_of
from tests.support.compaction import DAY_MS, Stored, records_of
from tests.support.engines import QUIET, fetch_of, open_engine, segment_path
from tests.support.histories import seed_ranges
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated, simulated

COMPACT = TopicConfig(
    cleanup_policy="compact",
    segment_bytes=700,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
)
WHEN_ASKED = replace(QUIET, cleaner=CleanerOptions(interval_ms=10**12))
PRODUCERS = (11, 12, 13)


class Partition:
    """A compacted partition with transactions of several producers, on a simulated disk."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.clock = SimulatedClock()
        self.states = ProducerStates(self.clock)
        self.engine: EmbeddedEngine

    async def open(self) -> None:
        self.states = ProducerStates(self.clock)
        spec = spec_of(ORDERS, clock=self.clock, config=COMPACT.enforced(), producer_state=self.states)
        self.engine = await open_engine(self.files, [spec], clock=self.clock, options=WHEN_ASKED)

    async def restart(self, *, with_snapshots: bool = True) -> None:
        await self.engine.close()
        if not with_snapshots:
            for path in self.files.paths():
                if path.suffix == ".producers":
                    self.files.unlink(path)
        await self.open()

    def put(
        self, producer_id: int, *records: tuple[bytes, bytes | None], is_transactional: bool = True
    ) -> None:
        view = self.states.view(producer_id)
        builder = rb.BatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if view is None else view.epoch,
            base_sequence=0 if view is None else view.last_sequence + 1,
            is_transactional=is_transactional,
        )
        for key, value in records:
            builder.append(timestamp_ms=self.clock.now_ms(), key=key, value=value)
        self._append(builder.build())

    def end(self, producer_id: int, kind: MarkerType, *, epoch: int = 0) -> None:
        marker = EndTransactionMarker(type=kind, coordinator_epoch=1)
        self._append(
            marker_batch(
                marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=self.clock.now_ms()
            )
        )

    def _append(self, batch: bytearray) -> None:
        self.engine.append(ORDERS, batch, [rb.read_header(batch)], sync=False)

    async def fill(self, segments: int = 1) -> None:
        """Begin new segments with records that no transaction has, and sync."""
        for number in range(segments * 9):
            self.put(99, (b"filler%d" % (number % 3), b"x" * 100), is_transactional=False)
        await self.engine.flush()

    async def compact(self, *, after_ms: int = 0) -> None:
        await asyncio.sleep(after_ms / 1000)
        await self.fill()
        await self.engine.compact()

    @property
    def state(self) -> LogState:
        return self.engine.state(ORDERS)

    async def batches(self) -> tuple[bytes, dict[int, list[tuple[int, int]]]]:
        """Return the committed batches fetch by fetch, and the aborted transactions by producer."""
        raw = bytearray()
        aborted: dict[int, list[tuple[int, int]]] = {}
        offset = self.state.log_start_offset
        while offset < self.state.last_stable_offset:
            (read,) = await self.engine.read([fetch_of(ORDERS, offset, 1_000)], 1_000)
            assert read.error is None
            assert read.batches, f"nothing at {offset}"
            raw += read.batches
            for producer_id, first, last in read.aborted or ():
                if (first, last) not in aborted.setdefault(producer_id, []):
                    aborted[producer_id].append((first, last))
            *_, header = rb.iter_headers(read.batches)
            offset = header.next_offset
        return bytes(raw), aborted

    async def committed(self) -> list[Stored]:
        """Return the records as a reader of committed ones has them."""
        raw, aborted = await self.batches()
        stored: list[Stored] = []
        for header in rb.iter_headers(raw):
            is_aborted = header.is_transactional and any(
                first <= header.base_offset <= last for first, last in aborted.get(header.producer_id, ())
            )
            if not header.is_control and not is_aborted:
                stored += records_of(raw[header.position : header.position + header.size])
        return stored

    async def table(self) -> dict[bytes | None, tuple[int, bytes | None]]:
        return {record.key: (record.offset, record.value) for record in await self.committed()}

    async def markers(self) -> list[int]:
        raw, _ = await self.batches()
        return [header.base_offset for header in rb.iter_headers(raw) if header.is_control]

    def producers(self) -> list[tuple[int, ...]]:
        return sorted(
            (
                view.producer_id,
                view.epoch,
                view.last_sequence,
                view.last_offset,
                view.transaction_start_offset,
            )
            for view in self.states.views()
        )


@simulated
async def test_aborted_records_go_in_the_first_pass_and_the_marker_after_its_time() -> None:
    partition = Partition()
    await partition.open()
    partition.put(11, (b"a", b"1"))
    partition.end(11, MarkerType.COMMIT)
    partition.put(12, (b"a", b"aborted"), (b"b", b"aborted"))
    partition.end(12, MarkerType.ABORT)
    partition.put(12, (b"c", b"1"))
    partition.end(12, MarkerType.COMMIT)
    await partition.fill(2)
    await partition.compact()
    raw, aborted = await partition.batches()
    assert b"aborted" not in raw
    assert (await partition.table())[b"a"] == (0, b"1"), "an aborted record replaces none"
    assert aborted == {}, "there is nothing left of the transaction but its marker"
    assert await partition.markers() == [1, 4, 6]
    await partition.compact(after_ms=2 * DAY_MS)
    assert await partition.markers() == [1, 6], "committed records that are left keep their markers"
    await partition.engine.close()


@simulated
async def test_a_marker_stays_with_a_batch_of_which_only_the_header_is_left() -> None:
    partition = Partition()
    await partition.open()
    partition.put(11, (b"a", b"aborted"))
    partition.end(11, MarkerType.ABORT)
    await partition.fill(2)
    await partition.compact()
    await partition.compact(after_ms=2 * DAY_MS)
    raw, aborted = await partition.batches()
    assert b"aborted" not in raw
    # It has the last sequence of the producer, so it keeps its place.
    log = bytes(partition.files.content(segment_path(0)))
    assert [header.record_count for header in rb.iter_headers(log) if header.producer_id == 11] == [0, 1]
    assert aborted == {11: [(0, 1)]}
    await partition.restart(with_snapshots=False)
    assert partition.state.last_stable_offset == partition.state.log_end_offset
    await partition.engine.close()


@simulated
async def test_the_marker_that_began_an_epoch_stays_as_long_as_there_is_no_batch_of_it() -> None:
    partition = Partition()
    await partition.open()
    partition.put(11, (b"a", b"1"))
    partition.end(11, MarkerType.ABORT, epoch=1)
    await partition.fill(2)
    for _ in range(2):
        await partition.compact(after_ms=2 * DAY_MS)
    before = partition.producers()
    assert (11, 1, -1, -1, -1) in before
    await partition.restart(with_snapshots=False)
    assert partition.producers() == before
    await partition.engine.close()


@simulated
async def test_nothing_is_compacted_from_the_first_open_transaction_on() -> None:
    partition = Partition()
    await partition.open()
    await partition.fill(2)
    partition.put(11, (b"a", b"1"))
    stable = partition.state.last_stable_offset
    await partition.fill(4)
    before = {path: bytes(partition.files.content(path)) for path in partition.files.paths()}
    await partition.engine.compact()
    bases = [int(path.stem) for path in partition.files.paths() if path.suffix == ".log"]
    assert bases[0] == 0
    holding = max(base for base in bases if base <= stable)
    for base in bases:
        if base >= holding:
            path = segment_path(base)
            assert bytes(partition.files.content(path)) == before[path]
    assert partition.state.last_stable_offset == stable
    partition.end(11, MarkerType.COMMIT)
    await partition.compact()
    assert (await partition.table())[b"a"][1] == b"1"
    await partition.engine.close()


async def _random_history(seed: int) -> None:
    random = Random(seed)
    partition = Partition()
    await partition.open()
    table: dict[bytes, bytes] = {}
    # What a transaction writes counts at the offsets of its records, not at that of its marker.
    newest: dict[bytes, int] = {}

    def settle(key: bytes, value: bytes, offset: int) -> None:
        if offset > newest.get(key, -1):
            table[key], newest[key] = value, offset

    pending: dict[int, list[tuple[bytes, bytes, int]]] = {}
    for number in range(random.randint(60, 160)):
        producer_id = random.choice(PRODUCERS)
        choice = random.random()
        key, value = b"k%d" % random.randrange(6), b"%d" % number + b"x" * random.randint(0, 60)
        offset = partition.state.log_end_offset
        if producer_id in pending and choice < 0.35:
            kind = random.choice(tuple(MarkerType))
            view = partition.states.view(producer_id)
            assert view is not None
            partition.end(producer_id, kind, epoch=view.epoch + random.randint(0, 1))
            for written in pending.pop(producer_id):
                if kind is MarkerType.COMMIT:
                    settle(*written)
        elif choice < 0.7:
            partition.put(producer_id, (key, value))
            pending.setdefault(producer_id, []).append((key, value, offset))
        elif choice < 0.8:
            partition.put(99, (key, value), is_transactional=False)
            settle(key, value, offset)
        elif choice < 0.9:
            await partition.engine.flush()
            await partition.engine.compact()
            await asyncio.sleep(random.choice((0, 0, 2 * DAY_MS)) / 1000)
        elif choice < 0.95:
            before = partition.producers(), partition.state.last_stable_offset
            await partition.restart(with_snapshots=random.random() < 0.5)
            assert (partition.producers(), partition.state.last_stable_offset) == before
    for producer_id in list(pending):
        view = partition.states.view(producer_id)
        assert view is not None
        partition.end(producer_id, MarkerType.COMMIT, epoch=view.epoch)
        for written in pending.pop(producer_id):
            settle(*written)
    for after_ms in (0, 2 * DAY_MS, 0):
        found = await partition.table()
        assert {
            key: value for key, (_, value) in found.items() if not (key or b"").startswith(b"filler")
        } == table
        for key, value_offset in newest.items():
            assert await partition.engine.newest_offset(ORDERS, key) == value_offset
        await partition.compact(after_ms=after_ms)
    before = partition.producers()
    await partition.restart(with_snapshots=False)
    assert partition.producers() == before
    assert partition.state.last_stable_offset == partition.state.log_end_offset
    await partition.engine.close()


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("seeds", seed_ranges(4, 50))
def test_random_histories_keep_the_newest_committed_record_of_each_key(seeds: range) -> None:
    for seed in seeds:
        try:
            run_simulated(lambda seed=seed: _random_history(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
