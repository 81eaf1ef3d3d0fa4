"""Indexes of aborted transactions that are lost or damaged, gaps in the log, ``stele dump`` and ``stele verify``."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.broker.producing.producer_state import ProducerStates
from app.storage.disk.files import Files
from app.storage.embedded import EmbeddedEngine
from app.storage.inspection.dump_and_verify import dump, verify_partition
from app.storage.segments.transaction_index import BLOCK_ENTRIES, AbortedEntry, TransactionIndex
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import DATA, fetch_of, open_engine, segment_path
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, simulated

CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=1, retention_ms=-1)


async def opened(
    files: Files, clock: SimulatedClock, states: ProducerStates | None = None, path: Path = DATA
) -> EmbeddedEngine:
    spec = spec_of(ORDERS, clock=clock, config=CONFIG, producer_state=states)
    return await open_engine(files, [spec], clock=clock, path=path)


def put(engine: EmbeddedEngine, sequence: int, *, producer_id: int = 7, value: bytes = b"x" * 60) -> int:
    batch = batch_of([value], producer_id=producer_id, base_sequence=sequence, is_transactional=True)
    return engine.append(ORDERS, batch, [rb.read_header(batch)], sync=False).base_offset


def end(engine: EmbeddedEngine, kind: MarkerType, *, producer_id: int = 7) -> int:
    marker = EndTransactionMarker(type=kind, coordinator_epoch=2)
    batch = marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1_000)
    return engine.append(ORDERS, batch, [rb.read_header(batch)], sync=False).base_offset


async def written(files: Files, clock: SimulatedClock, path: Path = DATA) -> None:
    """Close a partition of several segments; every second transaction is aborted, and one stays open."""
    engine = await opened(files, clock, path=path)
    put(engine, 0, producer_id=8)
    for number in range(12):
        put(engine, number)
        end(engine, MarkerType(number % 2))
    await engine.flush()
    await engine.close()


async def aborted(engine: EmbeddedEngine) -> list[tuple[int, int]]:
    """End the open transaction, and return all aborted ones, as one read lists them."""
    end(engine, MarkerType.COMMIT, producer_id=8)
    state = engine.state(ORDERS)
    found: dict[tuple[int, int], None] = {}
    offset = 0
    while offset < state.last_stable_offset:
        (read,) = await engine.read([fetch_of(ORDERS, offset, 1 << 20)], 1 << 20)
        assert read.error is None
        found |= {(first, last): None for _, first, last in read.aborted or ()}
        *_, header = rb.iter_headers(read.batches)
        offset = header.next_offset
    return list(found)


EXPECTED = [(offset, offset + 1) for offset in range(1, 25, 4)]


def indexes(files: SimulatedFiles) -> dict[Path, bytes]:
    return {path: bytes(files.content(path)) for path in files.paths() if path.suffix == ".txnindex"}


@pytest.mark.parametrize("content", [None, b"", b"\0" * 33, b"\0" * 34, b"\xff" * 68])
@simulated
async def test_an_index_that_is_lost_or_damaged_is_built_again(content: bytes | None) -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    await written(files, clock)
    before = indexes(files)
    assert len(before) > 3
    for path in list(before)[1:3]:
        if content is None:
            files.unlink(path)
        else:
            files.damage(path, content)
    engine = await opened(files, clock)
    assert await aborted(engine) == EXPECTED
    await engine.close()
    assert indexes(files) == before


@simulated
async def test_with_another_index_the_aborted_transactions_are_built_again() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    await written(files, clock)
    before = indexes(files)
    files.unlink(DATA / str(ORDERS) / "aborted-transactions")
    for path in before:
        files.unlink(path)
        if path.with_suffix(".index") in files.paths():
            files.unlink(path.with_suffix(".index"))
    engine = await opened(files, clock)
    assert await aborted(engine) == EXPECTED
    await engine.close()
    assert indexes(files) == before


@simulated
async def test_a_gap_in_the_log_leaves_transactions_open() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    engine = await opened(files, clock)
    first = put(engine, 0)
    put(engine, 0, producer_id=8)
    end(engine, MarkerType.COMMIT, producer_id=8)
    put(engine, 1)
    for sequence in range(2, 8):
        put(engine, sequence)
    await engine.flush()
    await engine.close()
    # The second batch of the transaction is unreadable, and so are the snapshots and the mark of the clean end.
    log = bytearray(files.content(segment_path(0)))
    positions = [header.position for header in rb.iter_headers(bytes(log))]
    log[positions[2] + 30] ^= 0xFF
    files.damage(segment_path(0), bytes(log))
    files.unlink(DATA / "clean-shutdown")
    for path in files.paths():
        if path.suffix == ".producers" or path.name == "recovery-point-offset-checkpoint":
            files.unlink(path)
    states = ProducerStates(clock)
    engine = await opened(files, clock, states)
    assert engine.state(ORDERS).last_stable_offset == first
    assert [one.producer_id for one in states.open_transactions(ORDERS)] == [7, 8], "its marker is lost"
    # Nothing is known of the sequences before the gap; those after it count.
    end(engine, MarkerType.ABORT)
    end(engine, MarkerType.ABORT, producer_id=8)
    assert engine.state(ORDERS).last_stable_offset == engine.state(ORDERS).log_end_offset
    await engine.close()


@simulated
async def test_dump_and_verify_show_transactions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    clock = SimulatedClock()
    await written(RealFilesInSimulatedTime(), clock, data)
    directory = data / "orders-0"
    assert verify_partition(directory).problems == []
    out = io.StringIO()
    first = directory / f"{0:020d}.log"
    dump(first, show_hex=False, out=out)
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in out.getvalue()
    out = io.StringIO()
    dump(first.with_suffix(".txnindex"), show_hex=False, out=out)
    assert "producerId: 7 firstOffset: 1 lastOffset: 2 lastStableOffset: 0" in out.getvalue()
    first.with_suffix(".txnindex").unlink()
    (problem,) = verify_partition(directory).problems
    assert "producer 7 that was aborted at offset 2 is missing" in problem
    wrong = TransactionIndex([AbortedEntry(9, 0, 2, 0)])
    first.with_suffix(".txnindex").write_bytes(wrong.to_bytes())
    (problem,) = verify_partition(directory).problems
    assert "no transaction of producer 9" in problem
    first.with_suffix(".txnindex").write_bytes(b"torn")
    (problem,) = verify_partition(directory).problems
    assert "do not fit" in problem
    with pytest.raises(ValueError, match="is corrupt"):
        dump(first.with_suffix(".txnindex"), show_hex=False, out=out)


def test_an_index_finds_what_overlaps_a_range_and_knows_when_to_stop() -> None:
    index = TransactionIndex([AbortedEntry(1, 5, 9, 3), AbortedEntry(2, 3, 12, 13)])
    found: list[AbortedEntry] = []
    assert not index.collect(0, 20, found)
    assert [entry.producer_id for entry in found] == [1, 2]
    found.clear()
    assert index.collect(10, 13, found), "the last stable offset is past the range"
    assert [entry.producer_id for entry in found] == [2]
    found.clear()
    assert index.collect(0, 4, found)
    assert [entry.producer_id for entry in found] == [2]
    assert index.to_bytes()[:34].hex() == "0000" + "".join(f"{n:016x}" for n in (1, 5, 9, 3))


def test_a_search_passes_over_blocks_of_later_transactions_while_one_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Producer 1 began at 0 and is still open, so no entry ends a search.
    count = 100 * BLOCK_ENTRIES
    entries = [AbortedEntry(2, 2 * number + 1, 2 * number + 2, 0) for number in range(count)]
    index = TransactionIndex(entries)
    looked: list[int] = []
    entry_of = TransactionIndex.__getitem__

    def entry(searched: TransactionIndex, number: int) -> AbortedEntry:
        looked.append(number)
        return entry_of(searched, number)

    monkeypatch.setattr(TransactionIndex, "__getitem__", entry)
    found: list[AbortedEntry] = []
    assert not index.collect(1001, 1010, found)
    assert found == [entry for entry in entries if entry.last_offset >= 1001 and entry.first_offset < 1010]
    # The rest of one block, and one entry of each block after it.
    assert len(looked) <= BLOCK_ENTRIES + 100


def test_a_search_finds_a_long_transaction_among_later_short_ones() -> None:
    random = Random(7)
    entries: list[AbortedEntry] = []
    for number in range(10 * BLOCK_ENTRIES):
        first = random.choice([10 * number, random.randint(0, 10 * number)])
        entries.append(AbortedEntry(number, first, 10 * number + 5, 0))
    index = TransactionIndex(entries)
    for _ in range(200):
        start = random.randint(0, 10 * len(entries))
        end = start + random.randint(1, 500)
        found: list[AbortedEntry] = []
        index.collect(start, end, found)
        assert found == [
            entry for entry in entries if entry.last_offset >= start and entry.first_offset < end
        ]
