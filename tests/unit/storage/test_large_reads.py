"""Reads that would hold the event loop for long are done by a thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from stele.wire import record_batch as rb

from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.composition import open_broker
from app.settings import Settings
from app.storage.segments.reader import READ_NOW_BYTES, Extent


async def test_a_large_batch_is_read_by_a_thread_and_a_small_one_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    read = Extent.read

    def noted(extent: Extent) -> bytes:
        threads.append(threading.current_thread())
        return read(extent)

    monkeypatch.setattr(Extent, "read", noted)
    broker = await open_broker(Settings(data_dir=tmp_path))
    try:
        configs = {"max.message.bytes": str(2 * READ_NOW_BYTES)}
        await broker.create_topic("orders", partitions=1, configs=configs)
        for value in (b"small", b"x" * READ_NOW_BYTES):
            produced = broker.produce("orders", 0, rb.build_values([value], 1_000), acks=Acks.LEADER)
            await produced.wait(30_000)
        for offset, size in ((0, 0), (1, READ_NOW_BYTES)):
            request = PartitionFetch(topic="orders", partition=0, offset=offset, max_bytes=1)
            (fetched,) = await broker.fetch([request], max_bytes=1)
            assert fetched.error is None
            assert len(fetched.batches) > size
            assert len(threads) == offset
    finally:
        await broker.close()
    assert threading.main_thread() not in threads
