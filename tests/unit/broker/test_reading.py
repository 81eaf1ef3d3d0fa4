"""What the broker reads of its partitions, whatever its engine offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.broker.broker import Broker
from app.broker.reading.fetch import PartitionFetch
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import InvalidRequest, UnknownPartition, UnknownTopic
from app.settings import Settings
from app.storage.disk.files import RealFiles
from app.storage.embedded import EmbeddedEngine
from tests.support.engines import QUIET


async def open_broker(path: Path) -> Broker:
    clock, settings = SystemClock(), Settings(data_dir=path)
    engine = EmbeddedEngine(RealFiles(), path, clock=clock, options=QUIET)
    await engine.open()
    catalog = SqliteCatalog(path / "metadata.sqlite")
    broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings)
    await broker.open()
    await engine.start()
    return broker


async def test_an_engine_without_files_has_no_segments_and_nothing_to_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await open_broker(tmp_path / "data")
    await broker.create_topic("orders", partitions=1)
    assert broker.storage.segment_count("orders", 0) == len(await broker.storage.segments("orders", 0)) == 1
    assert await broker.storage.disk_space() is not None
    monkeypatch.setattr(EmbeddedEngine, "disk_views", None)
    assert broker.storage.segment_count("orders", 0) == 0
    assert await broker.storage.segments("orders", 0) == []
    assert await broker.storage.disk_space() is None
    with pytest.raises(InvalidRequest, match="orders-0 has no files"):
        await broker.storage.verify("orders", 0, lambda: False)
    with pytest.raises(UnknownPartition):
        await broker.storage.segments("orders", 1)
    await broker.close()


async def test_partitions_that_cannot_be_read_have_their_errors_in_their_places(tmp_path: Path) -> None:
    broker = await open_broker(tmp_path / "data")
    await broker.create_topic("orders", partitions=1)
    asked = [("nowhere", 0), ("orders", 0), ("orders", 7)]
    reads = await broker.fetch(
        [PartitionFetch(topic=topic, partition=at, offset=0, max_bytes=100) for topic, at in asked],
        max_bytes=100,
    )
    assert [(read.topic, read.partition) for read in reads] == asked
    nowhere, there, beyond = (read.error for read in reads)
    assert isinstance(nowhere, UnknownTopic)
    assert there is None
    assert isinstance(beyond, UnknownPartition)
    await broker.close()
