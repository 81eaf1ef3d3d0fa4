"""Searches over a broker in this process: order, limit, continuation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.composition import open_broker
from app.query.filters import make_filter
from app.query.searching import OffsetRange, Order, Progress, Search
from app.settings import Settings

# Records of each of two partitions, whose timestamps take turns.
COUNT = 100


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    await opened.create_topic("orders", partitions=2, configs={"stele.storage": "memory"})
    for number in range(COUNT):
        for partition in (0, 1):
            value = f"{'odd' if number % 2 else 'even'} {number}".encode()
            batch = rb.build_values([value], 1000 + 2 * number + partition)
            opened.produce("orders", partition, batch, acks=Acks.LEADER)
    yield opened
    await opened.close()


async def run(
    broker: Broker,
    ranges: list[OffsetRange],
    *,
    value: str = "",
    order: Order = "oldest",
    limit: int = 10_000,
) -> tuple[list[tuple[int, int]], Search]:
    """Partition and offset of each match, and the search after its end."""
    search = Search(
        broker,
        "orders",
        ranges,
        wanted=make_filter(value=[value]),
        order=order,
        limit=limit,
        reader=broker.decoded.reader(),
    )
    matches: list[tuple[int, int]] = []
    async with aclosing(search.found()) as steps:
        async for step in steps:
            if not isinstance(step, Progress):
                matches += [(match.partition, match.record.offset) for match in step]
    return matches, search


def whole() -> list[OffsetRange]:
    return [OffsetRange(0, 0, COUNT), OffsetRange(1, 0, COUNT)]


def in_order(matches: Sequence[tuple[int, int]], order: Order) -> list[tuple[int, int]]:
    """Sorted by the timestamps of the records."""
    return sorted(matches, key=lambda match: (match[1], match[0]), reverse=order == "newest")


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_each_partition_is_in_order_and_nothing_is_missed(broker: Broker, order: Order) -> None:
    matches, search = await run(broker, whole(), value="odd", order=order)
    expected = [offset for offset in range(COUNT) if offset % 2]
    for partition in (0, 1):
        offsets = [offset for number, offset in matches if number == partition]
        assert offsets == (expected if order == "oldest" else expected[::-1])
    assert (search.ending, search.left) == ("end", [])
    assert (search.progress.offsets, search.progress.scanned, search.progress.matched) == (200, 200, 100)


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_the_first_matches_are_the_oldest_or_newest_of_all_partitions(
    broker: Broker, order: Order
) -> None:
    matches, _ = await run(broker, whole(), order=order, limit=6)
    offsets = [0, 1, 2] if order == "oldest" else [COUNT - 1, COUNT - 2, COUNT - 3]
    assert matches == in_order([(partition, offset) for offset in offsets for partition in (0, 1)], order)


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_what_is_left_at_the_limit_is_what_another_search_finds(broker: Broker, order: Order) -> None:
    ranges, seen = whole(), list[tuple[int, int]]()
    for _ in range(2 * COUNT):
        matches, search = await run(broker, ranges, order=order, limit=7)
        seen += matches
        ranges = [
            OffsetRange(offset_range.partition, offset_range.start, offset_range.end)
            for offset_range in search.left
        ]
        if search.ending == "end":
            break
        assert (search.ending, len(matches)) == ("limit", 7)
    assert len(seen) == len(set(seen)) == 2 * COUNT
    assert seen == in_order(seen, order)


async def test_a_partition_that_is_not_there_fails_the_search_and_not_the_others(broker: Broker) -> None:
    matches, search = await run(broker, [OffsetRange(0, 0, COUNT), OffsetRange(7, 0, COUNT)])
    assert {partition for partition, _ in matches} == {0}
    assert search.ending == "failed"
    assert len(search.progress.errors) == 1
