"""Snapshots of the table of a compacted topic, while records are written and passes run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from stele.wire.record_batch import RecordView

from app.broker.broker import Broker
from app.errors import CorruptLog, InvalidRequest, SteleError, TopicNotCompacted
from app.query.table import TableSnapshot
from app.storage.embedded import EmbeddedEngine
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


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_snapshot_is_the_table_at_its_positions_whatever_happens_meanwhile(
    opened: tuple[Broker, EmbeddedEngine], seed: int
) -> None:
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
        assert offsets == sorted(set(offsets))
        table: dict[bytes, bytes] = {}
        apply(table, rows_of(records))
        assert table == writer.table(partition, position)


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

    async def fail(*_arguments: object) -> NoReturn:
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
