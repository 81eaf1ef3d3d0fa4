"""What is refused after the catalog has stored it takes nothing from brokers that use it already."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from app.broker.catalog_thread import CatalogThread
from app.broker.placement import Placement
from app.broker.producing.producer_state import ProducerStates
from app.broker.topics import Topics
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import StorageUnavailable
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import LogRow, MetaUnavailable
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_partition import TopicPartition
from tests.support.engines import append_synced, open_shared_engine, read_batches, records_of
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=0, upkeep=UpkeepOptions(is_enabled=False))


class _Meta(ModelMeta):
    """Cannot be reached by the next call of ``create_logs``, and another broker goes on meanwhile."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def create_logs(self, topic_id: UUID, partitions: int) -> list[LogRow]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
            raise MetaUnavailable("nobody answers")
        return await super().create_logs(topic_id, partitions)


class _Broker:
    def __init__(self, engine: SharedEngine, catalog: Path) -> None:
        clock = SimulatedClock()
        self.engine = engine
        self.topics = Topics(
            catalog=CatalogThread(SqliteCatalog(catalog)),
            engine=engine,
            make_producer_state=lambda _: ProducerStates(clock),
            partitions_max=100,
        )

    async def create(self, partitions: int) -> None:
        await self.topics.create(
            "payments",
            placement=Placement(partitions=partitions),
            default_partitions=1,
            broker_ids=[1, 2],
            configs={},
        )

    async def grow(self, partitions: int) -> None:
        await self.topics.alter("payments", partitions=partitions, configs={})


@asynccontextmanager
async def _brokers(meta: _Meta, catalog: Path) -> AsyncGenerator[tuple[_Broker, _Broker]]:
    store = ModelStore()
    engines = [await open_shared_engine(meta, store, number, OPTIONS) for number in (1, 2)]
    yield _Broker(engines[0], catalog), _Broker(engines[1], catalog)
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["creation", "growth"])
async def test_records_that_another_broker_took_meanwhile_are_kept(tmp_path: Path, is_new: bool) -> None:
    meta = _Meta(SimulatedClock().now_ms)
    partition = TopicPartition("payments", 0 if is_new else 1)
    async with _brokers(meta, tmp_path / "metadata.sqlite") as (first, second):
        if not is_new:
            await first.create(1)
            await second.topics.refresh()

        async def use_it() -> None:
            await second.topics.refresh()
            await append_synced(second.engine, b"acknowledged", name=partition)

        meta.meanwhile = use_it
        with pytest.raises(StorageUnavailable):
            await (first.create(1) if is_new else first.grow(2))
        for broker in (first, second):
            await broker.topics.refresh()
            assert broker.topics.topic("payments").partitions == partition.partition + 1
            batches = await read_batches(broker.engine, 0, name=partition)
            assert records_of(batches, 0) == [(0, b"acknowledged")]
