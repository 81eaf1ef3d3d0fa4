"""Passes over whole partitions against the specification: the last record of each key, in order."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.producing.producer_state import ProducerStates
from app.errors import CorruptLog
from app.storage.cleaning import pass_state
from app.storage.cleaning.dirty_records import DirtyRecords
from app.storage.cleaning.key_map import SLOT_BYTES
from app.storage.cleaning.planning import CleaningRules
from tests.support.batches import with_new_crc
from tests.support.compaction import (
    DAY_MS,
    NOW_MS,
    CleanedPartition,
    Keyed,
    batch,
    compacted,
    records_of,
)
from tests.support.simulated_files import Fault, SimulatedFiles

DIRECTORY = Path("/orders-0")
KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e"])


@dataclass(frozen=True)
class Drawn:
    records: tuple[Keyed, ...]
    codec: Compression
    producer_id: int


BATCHES = st.builds(
    Drawn,
    st.lists(
        st.builds(
            Keyed,
            KEYS,
            st.none() | st.binary(max_size=40),
            st.integers(NOW_MS - 1_000, NOW_MS),
            st.just(()) | st.just((("name", b"x"),)),
        ),
        min_size=1,
        max_size=6,
    ).map(tuple),
    st.sampled_from(list(Compression)),
    st.sampled_from([-1, 1, 2]),
)
# Each example writes and rewrites a partition; how long that takes is another matter.
RELAXED = settings(deadline=None, max_examples=25)
SEGMENTS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=5)


class StoppedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


def partition_of(
    segments: list[list[Drawn]], files: SimulatedFiles | None = None, base_offset: int = 0
) -> CleanedPartition[SimulatedFiles]:
    files = files or SimulatedFiles()
    if not files.exists(DIRECTORY):
        files.make_dir(DIRECTORY)
    partition = CleanedPartition(files, DIRECTORY)
    sequences: dict[int, int] = {}
    offset, built = base_offset, list[list[bytes]]()
    for segment in segments:
        built.append([])
        for drawn in segment:
            sequence = sequences.get(drawn.producer_id, 0) if drawn.producer_id >= 0 else -1
            built[-1].append(
                batch(
                    drawn.records,
                    offset,
                    compression=drawn.codec,
                    producer_id=drawn.producer_id,
                    producer_epoch=0 if drawn.producer_id >= 0 else -1,
                    base_sequence=sequence,
                )
            )
            offset += len(drawn.records)
            sequences[drawn.producer_id] = sequence + len(drawn.records)
    partition.write(built, base_offset=base_offset)
    return partition


@RELAXED
@given(SEGMENTS, st.integers(1, 3_000))
def test_what_remains_is_the_last_record_of_each_key(segments: list[list[Drawn]], segment_bytes: int) -> None:
    partition = partition_of(segments)
    before, end = partition.records(), partition.facts()[-1].next_offset
    rules = CleaningRules(
        segment_bytes=segment_bytes,
        index_bytes_max=1_000_000,
        min_cleanable_dirty_ratio=0,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=1,
        delete_retention_ms=DAY_MS,
    )
    assert partition.clean(rules=rules) == end
    assert partition.records() == compacted(before)
    # The end of the log has not moved, and nothing is left beside the segments.
    assert partition.facts()[-1].next_offset == end
    assert {path.suffix for path in partition.files.paths()} == {".log", ".index", ".timeindex"}
    assert partition.counts.records_read == len(before)
    assert partition.counts.records_kept == len(compacted(before))


@RELAXED
@given(SEGMENTS)
def test_passes_after_it_change_nothing_but_the_files_that_fit_together_now(
    segments: list[list[Drawn]],
) -> None:
    partition = partition_of(segments)
    partition.clean()
    for _ in range(len(segments)):
        # What is small enough is merged; then there is nothing left to do.
        partition.clean()
    before = {path: bytes(partition.files.content(path)) for path in partition.files.paths()}
    renames = partition.files.counts["rename"]
    partition.clean()
    assert {path: bytes(partition.files.content(path)) for path in partition.files.paths()} == before
    assert len(partition.base_offsets()) > 1 or partition.files.counts["rename"] == renames


@RELAXED
@given(SEGMENTS)
def test_tombstones_go_when_their_time_is_over(segments: list[list[Drawn]]) -> None:
    partition = partition_of(segments)
    partition.clean()
    kept = partition.records()
    partition.clean(now_ms=NOW_MS + DAY_MS - 1)
    assert partition.records() == kept
    partition.clean(now_ms=NOW_MS + DAY_MS)
    assert partition.records() == [record for record in kept if record.value is not None]


@RELAXED
@given(SEGMENTS, st.integers(0, 4))
def test_segments_from_the_first_uncleanable_one_on_keep_their_bytes(
    segments: list[list[Drawn]], cleanable: int
) -> None:
    partition = partition_of(segments)
    facts, before = partition.facts(), partition.records()
    first = facts[min(cleanable, len(facts) - 1)].base_offset
    logs = {base: partition.log(base) for base in partition.base_offsets() if base >= first}
    assert partition.clean(first_uncleanable=first) == first
    assert {base: partition.log(base) for base in partition.base_offsets() if base >= first} == logs
    assert partition.records() == compacted(before, mapped_end=first)


@RELAXED
@given(SEGMENTS, st.sampled_from([0, 5, 7]))
def test_more_keys_than_fit_into_the_map_take_several_passes(segments: list[list[Drawn]], slots: int) -> None:
    partition = partition_of(segments)
    before, end = partition.records(), partition.facts()[-1].next_offset
    first_dirty, passes = 0, 0
    while first_dirty < end:
        # The smallest map has three slots and takes two keys.
        mapped_end = partition.clean(memory_bytes=slots * SLOT_BYTES * 8 // 7, first_dirty=first_dirty)
        assert mapped_end > first_dirty
        # A reader between two passes sees the last record of each key.
        assert {r.key: r for r in partition.records() if r.key is not None} == {
            r.key: r for r in before if r.key is not None
        }
        first_dirty, passes = mapped_end, passes + 1
    assert partition.records() == compacted(before)


def remembering(dirty_bytes: int) -> Callable[..., DirtyRecords]:
    """Return a constructor of ``DirtyRecords`` for as many records, whatever the memory of the pass."""

    def make(first_offset: int, end_offset: int, *, memory_bytes: int) -> DirtyRecords:
        return DirtyRecords(first_offset, end_offset, memory_bytes=dirty_bytes)

    return make


@RELAXED
@given(SEGMENTS, st.integers(0, 40), st.integers(0, 10))
def test_how_many_dirty_records_are_remembered_changes_no_byte(
    segments: list[list[Drawn]], dirty_bytes: int, first_dirty: int
) -> None:
    """What is not remembered is looked up in the map of keys; ``first_dirty`` may be inside a batch."""
    logs: list[dict[int, bytes]] = []
    for remembered in (0, dirty_bytes):
        partition = partition_of(segments)
        with mock.patch.object(pass_state, "DirtyRecords", remembering(remembered)):
            partition.clean(first_dirty=min(first_dirty, partition.facts()[-1].base_offset))
        logs.append({base: partition.log(base) for base in partition.base_offsets()})
    assert logs[0] == logs[1]


@RELAXED
@given(SEGMENTS)
def test_producers_are_recognised_as_before(segments: list[list[Drawn]]) -> None:
    partition = partition_of(segments)
    last_batches: dict[int, int] = {}
    states: list[bytes] = []
    for _ in range(2):
        producers = ProducerStates(StoppedClock())
        for base in partition.base_offsets():
            for header in rb.iter_headers(partition.log(base)):
                if header.has_producer_id:
                    last_batches[header.producer_id] = header.last_offset
        for base in partition.base_offsets():
            for header in rb.iter_headers(partition.log(base)):
                if last_batches.get(header.producer_id) == header.last_offset:
                    producers.apply(header)
        states.append(producers.snapshot())
        partition.clean(
            last_batches=partition.batch_offsets(
                lambda header: last_batches.get(header.producer_id) == header.last_offset
            )
        )
    assert states[0] == states[1]


def test_a_batch_that_nobody_can_read_is_kept_and_stands_for_no_key() -> None:
    partition = partition_of(
        [
            [Drawn((Keyed(b"a"), Keyed(b"b")), Compression.NONE, -1)],
            [Drawn((Keyed(b"a"), Keyed(b"b"), Keyed(b"b")), Compression.NONE, -1)],
            [Drawn((Keyed(b"b"),), Compression.NONE, -1)],
        ]
    )
    facts, raw = partition.facts(), bytearray(partition.log(2))
    # The second record claims more bytes than the batch has; its first one parses.
    second = rb.HEADER_BYTES + (len(raw) - rb.HEADER_BYTES) // 3
    raw[second] = 0x7E
    broken = with_new_crc(bytes(raw))
    partition.files.damage(DIRECTORY / f"{2:020d}.log", broken)
    partition.clean(facts=facts)
    kept = b"".join(partition.log(base) for base in partition.base_offsets())
    assert broken in kept
    assert partition.counts.unreadable_batches == 1
    # "a" is in the broken batch, too, where no reader gets it.
    assert [record.offset for record in records_of(kept.replace(broken, b""))] == [0, 5]


class TestDamage:
    def test_a_wrong_crc_ends_the_pass_and_leaves_the_partition_alone(self) -> None:
        partition = partition_of([[Drawn((Keyed(b"a"), Keyed(b"a")), Compression.NONE, -1)]] * 2)
        facts, path = partition.facts(), DIRECTORY / f"{2:020d}.log"
        log = bytearray(partition.log(2))
        log[-1] ^= 1
        partition.files.damage(path, bytes(log))
        before = {path: bytes(partition.files.content(path)) for path in partition.files.paths()}
        with pytest.raises(CorruptLog):
            partition.clean(facts=facts)
        assert {path: bytes(partition.files.content(path)) for path in partition.files.paths()} == before

    def test_a_missing_end_is_seen(self) -> None:
        partition = partition_of([[Drawn((Keyed(b"a"),), Compression.NONE, -1)] * 2] * 2)
        facts = partition.facts()
        size = len(partition.log(0)) // 2
        partition.files.damage(DIRECTORY / f"{0:020d}.log", partition.log(0)[:size])
        with pytest.raises(CorruptLog):
            partition.clean(facts=facts)

    def test_an_absurd_length_allocates_nothing(self) -> None:
        partition = partition_of([[Drawn((Keyed(b"a"),), Compression.NONE, -1)]])
        facts = partition.facts()
        log = bytearray(partition.log(0))
        struct.pack_into(">i", log, 8, 2**31 - 1)
        partition.files.damage(DIRECTORY / f"{0:020d}.log", bytes(log))
        with pytest.raises(CorruptLog):
            partition.clean(facts=facts)


def test_a_pass_that_is_told_to_stop_leaves_no_file() -> None:
    partition = partition_of([[Drawn((Keyed(b"a"), Keyed(b"a")), Compression.NONE, -1)]] * 3)

    class Stop(Exception):
        pass

    def stop(size: int) -> None:
        raise Stop

    before = partition.files.paths()
    with pytest.raises(Stop):
        partition.clean(pace=stop)
    assert partition.files.paths() == before
    assert not partition.files.handles


@pytest.mark.parametrize("kind", ["create", "write", "sync"])
def test_a_full_disk_leaves_the_log_as_it_was(kind: str) -> None:
    batches = [Drawn((Keyed(b"a", bytes(300)), Keyed(b"b")), Compression.NONE, -1)]
    partition = partition_of([batches, batches, batches])
    before = {path: bytes(partition.files.content(path)) for path in partition.files.paths()}
    partition.files.fail(Fault(kinds=(kind,), call=1, errno=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        partition.clean()
    assert {path: bytes(partition.files.content(path)) for path in partition.files.paths()} == before
    assert not partition.files.handles
    partition.files.heal()
    partition.clean()
    assert [record.offset for record in partition.records()] == [4, 5]
