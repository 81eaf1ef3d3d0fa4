"""The name of a producer is known until 30 days after its last use, however long ago its version began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.broker.broker import Broker
from app.broker.producing import producers
from app.broker.producing.produce import Acks
from app.cluster.catalog import NamedProducer
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import ProducerFenced, StorageUnavailable
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from tests.support.batches import batch_of
from tests.support.engines import QUIET
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, simulated

DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def few_counts_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not let months pass in the steps of 10 s in which producers are counted, which these tests are not about."""
    monkeypatch.setattr(producers, "_LIMIT_INTERVAL_MS", DAY_S * 1000)


@asynccontextmanager
async def broker_at(path: Path, catalog: SqliteCatalog | None = None) -> AsyncGenerator[Broker]:
    clock = SimulatedClock()
    settings = Settings(data_dir=path, produce_threads=1)
    engine = EmbeddedEngine(RealFilesInSimulatedTime(), path, clock=clock, options=QUIET)
    await engine.open()
    catalog = catalog or SqliteCatalog(path / "metadata.sqlite")
    broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings)
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


async def write(broker: Broker, producer: NamedProducer, number: int, topic: str = "orders") -> None:
    batch = batch_of(
        [b"change"],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=number,
    )
    await broker.produce(topic, 0, batch, acks=Acks.LEADER).wait(30_000)


@simulated
async def test_a_connector_that_has_run_for_longer_is_fenced_by_its_next_run(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as broker:
        await broker.create_topic("orders")
        first = await broker.begin_producer_version("cdc", 1)
        for number in range(80):
            await write(broker, first, number)
            await asyncio.sleep(DAY_S / 2)
    async with broker_at(tmp_path) as broker:
        second = await broker.begin_producer_version("cdc", 2)
        # It finds what the first one has written by its id.
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
        with pytest.raises(ProducerFenced):
            await write(broker, first, 80)
        await write(broker, second, 0)


@simulated
async def test_what_partitions_have_forgotten_still_counts_after_a_restart(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as broker:
        await broker.create_topic("orders")
        await broker.create_topic("deleted")
        first = await broker.begin_producer_version("cdc", 1)
        other = await broker.begin_producer_version("other", 1)
        for number in range(20):
            await write(broker, first, number)
            await write(broker, other, number, "deleted")
            await asyncio.sleep(DAY_S)
        await broker.delete_topic("deleted")
        # Longer than a partition remembers a producer.
        await asyncio.sleep(3 * DAY_S)
        assert not await broker.producers("orders", 0)
    async with broker_at(tmp_path) as broker:
        # 28 days after the last batches, 48 after the versions began.
        await asyncio.sleep(25 * DAY_S)
        assert (await broker.begin_producer_version("cdc", 2)).producer_id == first.producer_id
        assert (await broker.begin_producer_version("other", 2)).producer_id == other.producer_id


@simulated
async def test_a_name_that_is_no_longer_used_is_forgotten(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as broker:
        await broker.create_topic("orders")
        first = await broker.begin_producer_version("job", 1)
        await write(broker, first, 0)
        await asyncio.sleep(29 * DAY_S)
        assert (await broker.begin_producer_version("job", 2)).producer_id == first.producer_id
        # The beginning of a version is a use, too.
        await asyncio.sleep(29 * DAY_S)
        assert (await broker.begin_producer_version("job", 3)).producer_id == first.producer_id
        await asyncio.sleep(32 * DAY_S)
        again = await broker.begin_producer_version("job", 1)
        assert again.producer_id != first.producer_id
        assert not again.is_resumed


class UnreachableCatalog(SqliteCatalog):
    is_reachable = False

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        if not self.is_reachable:
            raise StorageUnavailable("a call to the catalog", "it is restarted")
        return super().forget_named_producers(now_ms=now_ms, kept_ms=kept_ms, last_uses=last_uses)


@simulated
async def test_names_are_forgotten_later_if_the_catalog_cannot_be_reached(tmp_path: Path) -> None:
    catalog = UnreachableCatalog(tmp_path / "metadata.sqlite")
    async with broker_at(tmp_path, catalog) as broker:
        first = await broker.begin_producer_version("job", 1)
        await asyncio.sleep(40 * DAY_S)
        catalog.is_reachable = True
        await asyncio.sleep(DAY_S)
        assert (await broker.begin_producer_version("job", 2)).producer_id != first.producer_id
