"""Snapshots of the table of a compacted topic, while records are written and passes run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pytest
from stele.wire.record_batch import RecordView

from app.api.records.form import RecordForm
from app.api.records.table_streams import table_events, table_lines
from app.api.records.tail_streams import Shown
from app.broker.broker import Broker
from app.errors import CorruptLog, InvalidRequest, SteleError, TopicNotCompacted, TopicRecreated
from app.query import table
from app.query.filters import Filter
from app.query.table import TableSnapshot, part_starts
from app.query.tail_reads import TailReads
from app.storage import key_reader
from app.storage.disk.pace import WorkAborted
from app.storage.embedded import EmbeddedEngine
from app.storage.keys.newest_offsets import NewestOffsets
from tests.support.tables import COMPACTED, Row, apply, compact, open_table_broker, put, random_rows

TOPIC = "users"
SEEDS = range(6)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Broker, EmbeddedEngine]]:
    async with open_table_broker(tmp_path / "data") as (broker, engine):
        await broker.create_topic(TOPIC, partitions=2, configs=COMPACTED)
        yield broker, engine


class Writer:
    """Writes random rows, and remembers all of them by partition and offset."""

    def __init__(self, broker: Broker, random: Random) -> None:
        self._broker = broker
        self._random = random
        self.rows: dict[int, list[Row]] = {0: [], 1: []}

    async def write(self, batches: int) -> None:
        for _ in range(batches):
            partition = self._random.randrange(2)
            rows = random_rows(self._random, keys=9, count=self._random.randint(1, 5))
            self.rows[partition] += rows
            last = put(self._broker, TOPIC, partition, rows)
            assert last == len(self.rows[partition]) - 1

    def table(self, partition: int, position: int) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        apply(table, self.rows[partition][:position])
        return table


def rows_of(records: list[RecordView]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


async def read_snapshot(
    snapshot: TableSnapshot, meanwhile: Callable[[], Awaitable[object]]
) -> dict[int, list[RecordView]]:
    found: dict[int, list[RecordView]] = {0: [], 1: []}
    async with aclosing(snapshot.slices()) as slices:
        async for partition, records in slices:
            if isinstance(records, SteleError):
                raise records
            found[partition] += records
            await meanwhile()
    return found


def read_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_GROWTH", 3)
    monkeypatch.setattr(table, "_PART_OFFSETS_MIN", 2)


@pytest.mark.every(3)
@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_snapshot_is_the_table_at_its_positions_whatever_happens_meanwhile(
    opened: tuple[Broker, EmbeddedEngine], seed: int, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_long:
        read_in_small_parts(monkeypatch)
    broker, engine = opened
    random = Random(seed)
    writer = Writer(broker, random)
    await writer.write(30)
    if random.random() < 0.5:
        await compact(broker, engine)
    await writer.write(10)
    snapshot = TableSnapshot(broker, TOPIC, [0, 1], reader=broker.decoded.reader())
    ends = {partition: len(rows) for partition, rows in writer.rows.items()}

    async def meanwhile() -> None:
        if random.random() < 0.2:
            # What the snapshot shall return next is replaced before it is read.
            await writer.write(10)
            await compact(broker, engine)

    found = await read_snapshot(snapshot, meanwhile)
    assert snapshot.is_complete
    for partition, records in found.items():
        position = snapshot.positions[partition]
        assert ends[partition] <= position <= len(writer.rows[partition])
        offsets = [record.offset for record in records]
        assert len(offsets) == len(set(offsets))
        changes = [offset for offset in offsets if offset >= ends[partition]]
        assert changes == sorted(changes)
        assert offsets[len(offsets) - len(changes) :] == changes, "changes follow"
        assert is_long or offsets == sorted(offsets)
        read: dict[bytes, bytes] = {}
        apply(read, rows_of(records))
        assert read == writer.table(partition, position)


@pytest.mark.parametrize("rows", [0, 30])
async def test_a_snapshot_has_nothing_of_another_topic_that_has_the_name_meanwhile(
    opened: tuple[Broker, EmbeddedEngine], rows: int
) -> None:
    broker, _ = opened
    row: Row = (b"of the old topic", b"v")
    put(broker, TOPIC, 0, [row])
    snapshot = TableSnapshot(broker, TOPIC, [0, 1], reader=broker.decoded.reader())
    found: list[RecordView] = []
    async with aclosing(snapshot.slices()) as slices:
        async for _, records in slices:
            if isinstance(records, SteleError):
                assert isinstance(records, TopicRecreated)
                break
            found += records
            await broker.delete_topic(TOPIC)
            await broker.create_topic(TOPIC, partitions=2, configs=COMPACTED)
            for number in range(rows):
                put(broker, TOPIC, 1, [(b"%d" % number, b"of the new topic")])
    assert rows_of(found) == [row]
    assert not snapshot.is_complete


@pytest.mark.parametrize("offsets", [0, 1, 1023, 65_535, 65_536, 4_194_304, 10**9])
def test_the_newest_part_of_a_log_is_small_and_all_parts_together_are_read_almost_once(offsets: int) -> None:
    starts = part_starts(7, 7 + offsets)
    assert starts[0] == 7
    assert starts == sorted(starts)
    sizes = [7 + offsets - start for start in starts]
    assert sizes[-1] < 65_536
    assert min(sizes) >= 1024 or len(sizes) == 1
    assert sum(sizes[1:]) <= offsets / 63


class Rows:
    """A topic whose segments are sealed, with a key per record."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self.broker = broker
        self.path = path

    async def write(self) -> None:
        for number in range(60):
            put(self.broker, TOPIC, 0, [(b"k%d" % number, b"v" * 100)])
        await self.broker.flush()

    def snapshot(self) -> TableSnapshot:
        return TableSnapshot(self.broker, TOPIC, [0], reader=self.broker.decoded.reader())

    def lines(self) -> AsyncGenerator[bytes]:
        reader = self.broker.decoded.reader()
        shown = Shown(Filter(), RecordForm(), 0, TailReads(self.broker), reader)
        return table_lines(self.broker, self.snapshot(), shown)

    def files(self, suffix: str) -> list[int]:
        """The base offsets of segments that have such a file."""
        return sorted(int(path.stem) for path in self.path.rglob(f"{TOPIC}-0/*{suffix}"))


@pytest.fixture
async def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rows]:
    read_in_small_parts(monkeypatch)
    async with open_table_broker(tmp_path / "data") as (broker, _):
        await broker.create_topic(TOPIC, partitions=1, configs=COMPACTED)
        rows = Rows(broker, tmp_path)
        await rows.write()
        yield rows


async def test_the_newest_rows_come_before_older_segments_are_read(rows: Rows) -> None:
    """The key indexes tell which segments were read."""
    *sealed, _ = rows.files(".log")
    assert len(sealed) > 4
    found: list[int] = []
    indexed: list[list[int]] = []
    async with aclosing(rows.snapshot().slices()) as slices:
        async for _, records in slices:
            assert not isinstance(records, SteleError)
            found += [record.offset for record in records]
            indexed.append([offset for offset in sealed if offset in rows.files(".keyindex")])
    assert found == [*range(58, 60), *range(54, 58), *range(40, 54), *range(40)], "by part, then by offset"
    # The two records of the first part are in the active segment.
    assert indexed[0] == []
    assert 0 < len(indexed[-1]) == len(sealed)
    assert any(0 < len(known) < len(sealed) for known in indexed)


async def test_a_part_of_the_log_that_cannot_be_read_ends_the_table_after_the_rows_before_it(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = InvalidRequest("made up")
    find = rows.broker.keyed.newest_offsets

    async def find_or_fail(topic: str, partition: int, end: int, *, start_offset: int) -> NewestOffsets:
        if not start_offset:
            raise error
        return await find(topic, partition, end, start_offset=start_offset)

    monkeypatch.setattr(rows.broker.keyed, "newest_offsets", find_or_fail)
    lines = [json.loads(line) for line in b"".join([block async for block in rows.lines()]).splitlines()]
    assert [line["offset"] for line in lines[:20]] == [*range(58, 60), *range(54, 58), *range(40, 54)]
    assert [line.get("error", {}).get("detail") for line in lines[20:-1]] == ["made up"]
    assert lines[-1] == {"end": {"reason": "failed", "records": 20, "positions": {}}}


class Gate:
    """Holds up the look for the newest records of the whole log, after the first parts."""

    def __init__(self, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.is_reached, self.was_cancelled = asyncio.Event(), False, False
        self._find = rows.broker.keyed.newest_offsets
        monkeypatch.setattr(rows.broker.keyed, "newest_offsets", self.find)
        monkeypatch.setattr(table, "PROGRESS_S", 0)

    async def find(self, topic: str, partition: int, end: int, *, start_offset: int) -> NewestOffsets:
        if not start_offset:
            self.is_reached = True
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        return await self._find(topic, partition, end, start_offset=start_offset)


async def test_rows_are_sent_before_a_wait_and_progress_during_it(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rows, monkeypatch)
    async with aclosing(rows.lines()) as blocks:
        known: list[dict[str, Any]] = []
        while len(known) < 20:
            known += [
                line for line in map(json.loads, (await anext(blocks)).splitlines()) if "offset" in line
            ]
        assert [json.loads(await anext(blocks)) for _ in range(3)] == [
            {"progress": {"partition": 0, "records": 20}}
        ] * 3
        gate.opened.set()
        rest = [json.loads(line) for line in b"".join([block async for block in blocks]).splitlines()]
    assert [line["offset"] for line in rest if "offset" in line] == [*range(40)]
    assert rest[-1] == {"end": {"reason": "end", "records": 60, "positions": {"0": 60}}}


async def test_a_reader_hears_while_only_tombstones_are_read(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(rows.broker, TOPIC, 0, [(b"k%d" % number, None) for number in range(60)])
    find = rows.broker.keyed.newest_offsets

    async def found(*where: Any, **given: Any) -> NewestOffsets:
        newest = await find(*where, **given)
        # From now on: the keys are known.
        monkeypatch.setattr(table, "PROGRESS_S", 0)
        monkeypatch.setattr(rows.broker.keyed, "newest_offsets", find)
        return newest

    monkeypatch.setattr(table, "_PART_OFFSETS_MIN", 1024)
    monkeypatch.setattr(rows.broker.keyed, "newest_offsets", found)
    assert [item async for item in rows.snapshot().slices()] == [(0, [])]


async def test_events_have_comments_for_progress(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(rows, monkeypatch)
    reader = rows.broker.decoded.reader()
    shown = Shown(Filter(), RecordForm(), 0, TailReads(rows.broker), reader)
    ended: list[bool] = []
    events = table_events(
        rows.broker,
        rows.broker.topic(TOPIC),
        rows.snapshot(),
        only=None,
        shown=shown,
        on_end=lambda: ended.append(True),
    )
    async with aclosing(events):
        text = b""
        while text.count(b'data: {"partition":') < 20:
            text += await anext(events)
        assert [await anext(events) for _ in range(3)] == [b": reading\n\n"] * 3
        gate.opened.set()
        while not ended:
            text += await anext(events)
    assert text.count(b'data: {"partition":') == 60
    assert b'data: {"records":60,"positions":{"0":60}}' in text


async def test_a_client_that_leaves_ends_the_look_for_the_newest_records(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rows, monkeypatch)
    lines = rows.lines()
    while not gate.is_reached:
        await anext(lines)
    await lines.aclose()
    assert gate.was_cancelled


async def test_its_thread_ends_then(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PROGRESS_S", 0)
    begun, ended = threading.Event(), threading.Event()

    class EndlessPace:
        def __init__(self, aborted: threading.Event) -> None:
            self._aborted = aborted

        def __call__(self, size: int) -> None:
            begun.set()
            assert self._aborted.wait(60), "the reader has left"
            ended.set()
            raise WorkAborted

    monkeypatch.setattr(key_reader, "Pace", EndlessPace)
    slices = rows.snapshot().slices()
    assert await anext(slices) == (0, [])
    assert await asyncio.to_thread(begun.wait, 60)
    await slices.aclose()
    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_quiet_snapshot_has_each_key_once_and_no_tombstone(
    opened: tuple[Broker, EmbeddedEngine],
) -> None:
    broker, _ = opened
    put(broker, TOPIC, 0, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"4")])

    async def nothing() -> None:
        pass

    snapshot = TableSnapshot(broker, TOPIC, [0], reader=broker.decoded.reader())
    found = await read_snapshot(snapshot, nothing)
    assert rows_of(found[0]) == [(b"a", b"3"), (b"c", b"4")]
    assert snapshot.positions == {0: 5}
    with_tombstones = TableSnapshot(broker, TOPIC, [0], reader=broker.decoded.reader(), with_tombstones=True)
    found = await read_snapshot(with_tombstones, nothing)
    assert rows_of(found[0]) == [(b"a", b"3"), (b"b", None), (b"c", b"4")]


async def test_a_table_of_which_no_newest_record_can_be_found_ends_with_the_reason(
    opened: tuple[Broker, EmbeddedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = opened
    put(broker, TOPIC, 0, [(b"a", b"1")])
    error = CorruptLog(path=Path("log"), position=0, offset=0, next_offset=1, reason="made up")

    async def fail(*_arguments: object, **_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(broker.keyed, "newest_offsets", fail)
    snapshot = TableSnapshot(broker, TOPIC, [0], reader=broker.decoded.reader())
    assert [item async for item in snapshot.slices()] == [(0, error)]
    assert not snapshot.is_complete


async def test_a_topic_that_is_not_compacted_has_no_table(opened: tuple[Broker, EmbeddedEngine]) -> None:
    broker, _ = opened
    await broker.create_topic("plain", partitions=1)
    with pytest.raises(TopicNotCompacted, match=r"cleanup\.policy=compact"):
        TableSnapshot(broker, "plain", [0], reader=broker.decoded.reader())


async def test_records_before_the_log_start_are_not_in_the_table(
    opened: tuple[Broker, EmbeddedEngine],
) -> None:
    broker, _ = opened
    for number in range(10):
        put(broker, TOPIC, 0, [(b"k%d" % number, b"v")])
    await broker.delete_records(TOPIC, 0, 7)

    async def nothing() -> None:
        pass

    found_rows = await read_snapshot(
        TableSnapshot(broker, TOPIC, [0], reader=broker.decoded.reader()), nothing
    )
    assert rows_of(found_rows[0]) == [(b"k7", b"v"), (b"k8", b"v"), (b"k9", b"v")]
    assert await broker.newest_record(TOPIC, b"k6", broker.decoded.reader()) is None
    found = await broker.newest_record(TOPIC, b"k7", broker.decoded.reader())
    assert found is not None
    assert found.record.offset == 7


async def test_the_newest_timestamp_wins_among_partitions_and_then_the_higher_partition(
    opened: tuple[Broker, EmbeddedEngine],
) -> None:
    broker, _ = opened
    assert await broker.newest_record(TOPIC, b"a", broker.decoded.reader()) is None
    put(broker, TOPIC, 0, [(b"a", b"old")], at_ms=1)
    put(broker, TOPIC, 1, [(b"a", b"same time")], at_ms=1)
    found = await broker.newest_record(TOPIC, b"a", broker.decoded.reader())
    assert found is not None
    assert (found.partition, found.record.value) == (1, b"same time")
    put(broker, TOPIC, 0, [(b"a", None)], at_ms=2)
    found = await broker.newest_record(TOPIC, b"a", broker.decoded.reader())
    assert found is not None
    assert (found.partition, found.record.value, found.record.offset) == (0, None, 1)
    found = await broker.newest_record(TOPIC, b"a", broker.decoded.reader(), partition=1)
    assert found is not None
    assert found.record.value == b"same time"


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_key_is_found_where_the_model_has_it(
    opened: tuple[Broker, EmbeddedEngine], seed: int
) -> None:
    broker, engine = opened
    random = Random(seed)
    writer = Writer(broker, random)
    for _ in range(3):
        await writer.write(20)
        if random.random() < 0.7:
            await compact(broker, engine)
        for partition, rows in writer.rows.items():
            last = {key: offset for offset, (key, _) in enumerate(rows)}
            for number in range(10):
                key = b"k%d" % number
                found = await broker.newest_record(TOPIC, key, broker.decoded.reader(), partition=partition)
                assert (found.record.offset if found else None) == last.get(key)
                assert found is None or found.record.value == rows[last[key]][1]


async def test_more_keys_than_fit_at_once_take_several_passes_and_the_result_is_bounded(
    tmp_path: Path,
) -> None:
    # 24 bytes a slot: the keys of a map of 4 KiB are some 130; the offsets of 500 keys fit, of 600 not.
    async with open_table_broker(tmp_path / "data", table_memory_bytes_max=4096) as (broker, _):
        await broker.create_topic(TOPIC, partitions=1, configs=COMPACTED)
        for round_ in range(2):
            for start in range(0, 500, 50):
                rows: list[Row] = [(b"k%d" % n, b"%d" % round_) for n in range(start, start + 50)]
                put(broker, TOPIC, 0, rows)
        newest = await broker.keyed.newest_offsets(TOPIC, 0, 1000)
        assert list(newest) == list(range(500, 1000))
        assert await broker.keyed.newest_offsets(TOPIC, 0, 1000) is newest, "it is remembered"
        put(broker, TOPIC, 0, [(b"more%d" % n, b"") for n in range(100)])
        with pytest.raises(InvalidRequest, match="STELE_TABLE_MEMORY_BYTES_MAX"):
            await broker.keyed.newest_offsets(TOPIC, 0, 1100)
