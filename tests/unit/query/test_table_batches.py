"""Pages of batches of the table, while records are written and passes run; batches with the newest record of a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.errors import InvalidRequest, OffsetOutOfRange, TopicNotCompacted, UnknownPartition
from app.query.table_batches import TableBatches, newest_batch, table_batches
from app.storage.embedded import EmbeddedEngine
from tests.support.compaction import Keyed, Stored, batch, records_of
from tests.support.tables import COMPACTED, Row, apply, compact, open_table_broker, put, random_rows

TOPIC = "users"
SEEDS = range(4)
TIMEOUT_MS = 60_000


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Broker, EmbeddedEngine]]:
    async with open_table_broker(tmp_path / "data") as (broker, engine):
        await broker.create_topic(TOPIC, partitions=2, configs=COMPACTED)
        yield broker, engine


async def produce(broker: Broker, rows: list[Row], codec: Compression) -> None:
    built = batch([Keyed(key, value) for key, value in rows], compression=codec)
    await broker.produce(TOPIC, 0, bytearray(built), acks=Acks.LEADER).wait(TIMEOUT_MS)


def rows_of(records: list[Stored]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", SEEDS)
async def test_pages_end_with_the_table_at_the_next_offset_of_the_last(
    opened: tuple[Broker, EmbeddedEngine], seed: int
) -> None:
    broker, engine = opened
    random = Random(seed)
    rows: list[Row] = []

    async def write(batches: int) -> None:
        for _ in range(batches):
            # Some batches are filtered on the event loop, some in a thread.
            more = random_rows(random, keys=300, count=random.choice((1, 3, 200)))
            await produce(broker, more, random.choice((Compression.NONE, Compression.ZSTD)))
            rows.extend(more)

    await write(30)
    table: dict[bytes, bytes] = {}
    with_tombstones = seed % 2 == 0
    first_end = len(rows)
    page = TableBatches(batches=[], next_offset=0, end_offset=-1, is_last=False)
    while not page.is_last:
        start = page.next_offset
        page = await table_batches(
            broker,
            TOPIC,
            0,
            offset=start,
            end_offset=page.end_offset,
            max_bytes=random.choice((1, 500, 20_000)),
            with_tombstones=with_tombstones,
        )
        assert page.end_offset == first_end
        assert page.batches or page.is_last
        stored = [record for record in records_of(b"".join(page.batches)) if record.offset >= start]
        if not with_tombstones:
            assert all(record.value is not None for record in stored if record.offset < first_end)
        assert all(record.offset < page.next_offset for record in stored)
        apply(table, rows_of(stored))
        if random.random() < 0.3:
            await write(5)
            await compact(broker, engine)
    expected: dict[bytes, bytes] = {}
    apply(expected, rows[: page.next_offset])
    assert table == expected


async def test_a_batch_whose_records_all_belong_to_the_table_is_the_stored_one(
    opened: tuple[Broker, EmbeddedEngine],
) -> None:
    broker, _ = opened
    put(broker, TOPIC, 0, [(b"a", b"1"), (b"b", b"2")])
    put(broker, TOPIC, 0, [(b"c", b"3"), (b"a", b"4"), (b"d", None)])
    put(broker, TOPIC, 0, [(b"c", b"5")])
    page = await table_batches(broker, TOPIC, 0, offset=0, max_bytes=1 << 20)
    whole = await table_batches(broker, TOPIC, 0, offset=0, end_offset=2, max_bytes=1 << 20)
    (fetched,) = await broker.fetch(
        [PartitionFetch(topic=TOPIC, partition=0, offset=0, max_bytes=1)], max_bytes=1
    )
    assert whole.batches[0] == fetched.batches
    headers = list(rb.iter_headers(b"".join(page.batches)))
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers] == [
        (0, 1, 1),
        (2, 4, 1),
        (5, 5, 1),
    ]
    assert rows_of(records_of(b"".join(page.batches))) == [(b"b", b"2"), (b"a", b"4"), (b"c", b"5")]
    assert (page.next_offset, page.end_offset, page.is_last) == (6, 6, True)
    with_tombstones = await table_batches(broker, TOPIC, 0, offset=0, max_bytes=1 << 20, with_tombstones=True)
    assert rows_of(records_of(b"".join(with_tombstones.batches))) == [
        (b"b", b"2"),
        (b"a", b"4"),
        (b"d", None),
        (b"c", b"5"),
    ]


async def test_an_empty_partition_is_one_empty_page(opened: tuple[Broker, EmbeddedEngine]) -> None:
    broker, _ = opened
    page = await table_batches(broker, TOPIC, 1, offset=0, max_bytes=100)
    assert page == TableBatches(batches=[], next_offset=0, end_offset=0, is_last=True)


async def test_invalid_requests_are_refused(opened: tuple[Broker, EmbeddedEngine]) -> None:
    broker, _ = opened
    await broker.create_topic("plain", partitions=1)
    with pytest.raises(TopicNotCompacted):
        await table_batches(broker, "plain", 0, offset=0, max_bytes=1)
    with pytest.raises(UnknownPartition):
        await table_batches(broker, TOPIC, 2, offset=0, max_bytes=1)
    with pytest.raises(OffsetOutOfRange):
        await table_batches(broker, TOPIC, 0, offset=0, end_offset=1, max_bytes=1)
    for offset, end_offset in ((-1, -1), (0, -2)):
        with pytest.raises(InvalidRequest):
            await table_batches(broker, TOPIC, 0, offset=offset, end_offset=end_offset, max_bytes=1)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
async def test_the_newest_record_of_a_key_is_a_batch_of_its_own(
    opened: tuple[Broker, EmbeddedEngine], codec: Compression
) -> None:
    broker, engine = opened
    records = [Keyed(b"k%d" % number, b"v" * 90) for number in range(100)]
    records[7] = Keyed(b"ada", b"London", timestamp_ms=7_000, headers=(("h", b"1"), ("h", None)))
    built = bytearray(batch(records, compression=codec))
    await broker.produce(TOPIC, 1, built, acks=Acks.LEADER).wait(TIMEOUT_MS)
    for _ in range(2):
        found = await newest_batch(broker, TOPIC, b"ada")
        assert found is not None
        partition, raw = found
        assert partition == 1
        assert records_of(raw) == [Stored(7, b"ada", b"London", 7_000, (("h", b"1"), ("h", None)))]
        put(broker, TOPIC, 1, [(b"other", b"1" * 1000)] * 2)
        await compact(broker, engine)
    assert await newest_batch(broker, TOPIC, b"nobody") is None
    assert await newest_batch(broker, TOPIC, b"ada", partition=0) is None
    put(broker, TOPIC, 1, [(b"ada", None)], at_ms=8_000)
    found = await newest_batch(broker, TOPIC, b"ada")
    assert found is not None
    assert rows_of(records_of(found[1])) == [(b"ada", None)]


async def test_the_batch_of_a_key_keeps_the_type_of_its_timestamp(
    opened: tuple[Broker, EmbeddedEngine],
) -> None:
    broker, _ = opened
    configs = {**COMPACTED, "message.timestamp.type": "LogAppendTime"}
    await broker.create_topic("stamped", partitions=1, configs=configs)
    put(broker, "stamped", 0, [(b"a", b"1"), (b"b", b"2")])
    for topic, is_stamped in (("stamped", True), (TOPIC, False)):
        put(broker, topic, 0, [(b"a", b"1"), (b"b", b"2")])
        found = await newest_batch(broker, topic, b"b")
        assert found is not None
        header = rb.check_batch(found[1])
        assert header.is_log_append_time is is_stamped
        assert (records_of(found[1])[0].timestamp_ms != 1_000) is is_stamped
