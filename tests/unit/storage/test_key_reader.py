"""Reads by key through the engine: when key indexes are built, used, removed and not believed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.clock import SystemClock
from app.storage.cleaning.transactions import AbortedBatches
from app.storage.disk.whole_files import write_file
from app.storage.embedded import EmbeddedEngine
from app.storage.engine import AbortedTransaction
from app.storage.keys.key_index import bounds_of, check_key_index, entries_of, salt_of, write_key_index
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, spec_of
from tests.support.compaction import Keyed, batch, no_pacing
from tests.support.engines import QUIET, open_engine, segment_path
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, simulated

COMPACT = TopicConfig(
    cleanup_policy="compact", segment_bytes=1024, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0
)


class Keys:
    """A partition that is read by key, on a simulated disk, and the model of it."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.clock = SimulatedClock()
        self.engine: EmbeddedEngine
        self.last: dict[bytes, int] = {}
        self.end = 0

    async def open(self, config: TopicConfig = COMPACT) -> None:
        spec = spec_of(ORDERS, clock=self.clock, config=config.enforced())
        self.engine = await open_engine(self.files, [spec], clock=self.clock)

    async def put(self, keys: list[bytes], *, sync: bool = True) -> None:
        raw = bytearray(batch([Keyed(key, b"v" * 40, self.clock.now_ms()) for key in keys]))
        ticket = self.engine.append(ORDERS, raw, rb.check_produced(raw), sync=sync)
        if ticket.future is not None:
            await ticket.future
        self.last |= {key: self.end + number for number, key in enumerate(keys)}
        self.end += len(keys)

    async def fill(self, *, sync: bool = True) -> None:
        for number in range(40):
            await self.put([b"k%d" % (number % 9), b"n%d" % number], sync=sync)

    async def check(self) -> None:
        for key, offset in self.last.items():
            assert await self.engine.newest_offset(ORDERS, key) == offset
        assert await self.engine.newest_offset(ORDERS, b"never") == -1
        newest = await self.engine.newest_offsets(ORDERS, self.end)
        start = self.engine.state(ORDERS).log_start_offset
        assert [offset for offset in newest if offset >= start] == sorted(self.last.values())

    def indexes(self) -> list[int]:
        return [int(path.stem) for path in self.files.paths() if path.suffix == ".keyindex"]

    def entries(self) -> int:
        """How many there are in all key indexes."""
        paths = [segment_path(base_offset, ".keyindex") for base_offset in self.indexes()]
        return sum(bounds_of(bytes(self.files.content(path)))[2] for path in paths)

    def logs(self) -> list[int]:
        return [int(path.stem) for path in self.files.paths() if path.suffix == ".log"]


@simulated
async def test_sealed_segments_get_indexes_with_the_first_look_up_and_not_before() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill()
    assert keys.indexes() == []
    assert await keys.engine.newest_offset(ORDERS, b"never") == -1
    assert keys.indexes() == keys.logs()[:-1], "the active segment has none"
    await keys.check()
    for base_offset in keys.indexes():
        raw = bytes(keys.files.content(segment_path(base_offset, ".keyindex")))
        assert check_key_index(raw) is None
        assert all(offset >= base_offset for _, offset in entries_of(raw))
    await keys.engine.close()


@simulated
async def test_segments_that_are_not_synced_are_read_without_an_index() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill(sync=False)
    await keys.check()
    assert keys.indexes() == []
    await keys.engine.flush()
    await keys.check()
    assert keys.indexes() == keys.logs()[:-1]
    await keys.engine.close()


@simulated
async def test_an_index_is_used_after_a_restart_and_not_built_again() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill()
    await keys.check()
    await keys.engine.close()
    before = {
        path: bytes(keys.files.content(path)) for path in keys.files.paths() if path.suffix == ".keyindex"
    }
    await keys.open()
    await keys.check()
    after = {
        path: bytes(keys.files.content(path)) for path in keys.files.paths() if path.suffix == ".keyindex"
    }
    # With another salt the bytes would be others.
    assert before == after
    await keys.engine.close()


@simulated
async def test_a_pass_removes_the_indexes_of_what_it_replaces_and_new_ones_are_built() -> None:
    keys = Keys()
    await keys.open(replace(COMPACT, file_delete_delay_ms=0))
    await keys.fill()
    await keys.check()
    old = keys.entries()
    assert await keys.engine.compact() == 1
    await keys.check()
    assert keys.indexes() == keys.logs()[:-1]
    assert keys.entries() < old, "each key is in fewer segments"
    assert not [path for path in keys.files.paths() if "keyindex." in path.name], "nothing is left over"
    await keys.engine.close()


@simulated
async def test_retention_and_purges_take_the_indexes_with_them() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill()
    await keys.check()
    start = keys.logs()[-1]
    await keys.engine.delete_records(ORDERS, start)
    await keys.engine.enforce_retention()
    assert keys.logs() == [start]
    assert keys.indexes() == []
    keys.last = {key: offset for key, offset in keys.last.items() if offset >= start}
    await keys.check()
    await keys.engine.drop([ORDERS])
    assert not [path for path in keys.files.paths() if path.suffix == ".keyindex"]
    await keys.engine.close()


@simulated
async def test_indexes_without_a_log_and_of_segments_that_may_have_changed_go_at_a_start() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill()
    await keys.check()
    active = keys.logs()[-1]
    await keys.engine.close()
    for base_offset in (active, 7777):
        write_file(keys.files, segment_path(base_offset, ".keyindex"), b"stale")
    await keys.open()
    assert keys.indexes() == keys.logs()[:-1]
    await keys.check()
    await keys.engine.close()


@simulated
async def test_a_wrong_index_with_a_right_crc_is_built_again_when_it_is_doubted() -> None:
    keys = Keys()
    await keys.open()
    await keys.fill()
    await keys.check()
    await keys.engine.close()
    path = segment_path(keys.logs()[-2], ".keyindex")
    raw = bytes(keys.files.content(path))
    log_bytes, next_offset, _ = bounds_of(raw)
    salt = salt_of(keys.files, path)
    assert salt is not None
    forged = b"".join(hashed + (offset - 1).to_bytes(8) for hashed, offset in entries_of(raw))
    write_key_index(
        keys.files,
        path,
        [forged],
        salt=salt,
        log_bytes=log_bytes,
        next_offset=next_offset,
        pace=no_pacing,
    )
    await keys.open()
    inside = {key: at for key, at in keys.last.items() if next_offset - 12 <= at < next_offset}
    for key, offset in inside.items():
        assert await keys.engine.newest_offset(ORDERS, key) == offset - 1, "it is as good as forged"
    key, offset = inside.popitem()
    assert await keys.engine.newest_offset(ORDERS, key, is_doubted=True) == offset
    await keys.check()
    await keys.engine.close()


# With real threads: simulated ones run on the loop.
async def test_aborted_transactions_are_collected_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads: list[threading.Thread] = []

    def collect(aborted: Iterable[AbortedTransaction]) -> AbortedBatches:
        threads.append(threading.current_thread())
        return AbortedBatches(aborted)

    monkeypatch.setattr("app.storage.key_reader.AbortedBatches", collect)
    engine = EmbeddedEngine(RealFilesInSimulatedTime(), tmp_path / "data", clock=SystemClock(), options=QUIET)
    await engine.open()
    await engine.create([spec_of(ORDERS, clock=SystemClock(), config=COMPACT.enforced())])
    await engine.start()
    builder = rb.BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(timestamp_ms=1000, key=b"k", value=b"aborted")
    marker = EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0)
    for raw in (
        bytearray(batch([Keyed(b"k", b"v", 1000)])),
        builder.build(),
        marker_batch(marker, producer_id=7, producer_epoch=0, timestamp_ms=1000),
    ):
        engine.append(ORDERS, raw, [rb.read_header(raw)], sync=False)
    assert await engine.newest_offset(ORDERS, b"k") == 0
    assert threads
    assert threading.main_thread() not in threads
    await engine.close()
