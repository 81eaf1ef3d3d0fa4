"""Pages of several reads, between which the log grows: no page goes on after the ends that it tells.

Other answers over several reads (searches, polls, CONSUME) tell no end, and a FETCH of each protocol is one read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stele.wire import record_batch as rb

from app.api.records.page import read_page
from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import Fetched, PartitionFetch
from app.composition import open_broker
from app.settings import Settings

RECORD = b"x" * 100_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    await opened.create_topic("orders", partitions=1)
    yield opened
    await opened.close()


def produce(broker: Broker) -> None:
    broker.produce("orders", 0, rb.build_values([RECORD], 1000), acks=Acks.LEADER)


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_page_tells_the_ends_that_its_last_read_saw(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    reads: list[Fetched] = []
    fetch = broker.fetch

    async def fetch_and_grow(requests: Sequence[PartitionFetch], **given: Any) -> list[Fetched]:
        fetched = await fetch(requests, **given)
        reads.extend(fetched)
        produce(broker)
        return fetched

    for _ in range(3):
        produce(broker)
    monkeypatch.setattr(broker, "fetch", fetch_and_grow)
    request = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=2**20)
    page = await read_page(
        broker,
        request,
        limit=5,
        min_bytes=1,
        wait_ms=0,
        is_whole=is_whole,
        reader=broker.decoded.reader(),
    )
    assert len(reads) == 5, "one record in each"
    assert page.next_offset == 5 > reads[0].high_watermark
    assert page.high_watermark == page.last_stable_offset == reads[-1].high_watermark == 7
