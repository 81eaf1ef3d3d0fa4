"""The metadata begin another history, which may lack what a broker knew (ADR-0071)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.errors import OffsetOutOfRange, StorageUnavailable
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import CommitAnswer, LogRow, MetaUnavailable, ObjectWrite
from app.storage.shared.options import SharedOptions
from app.storage.shared.store.objects import Buffer, ObjectStoreError, StoredObject
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS
from tests.support.engines import append_synced, open_shared_engine, read_batches, records_of
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))


async def _two_engines() -> tuple[ModelMeta, SharedEngine, SharedEngine]:
    meta, store = ModelMeta(SimulatedClock().now_ms), ModelStore()
    first, second = [await open_shared_engine(meta, store, number, OPTIONS) for number in (1, 2)]
    return meta, first, second


@simulated
async def test_a_refresh_takes_over_what_a_promoted_standby_has_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meta, writer, reader = await _two_engines()
    await append_synced(writer, b"kept")
    standby = meta.standby()
    await append_synced(writer, b"lost 1")
    await append_synced(writer, b"lost 2")
    await reader.refresh([ORDERS])
    meta.fail_over(standby)
    await append_synced(writer, b"new 1")
    await append_synced(writer, b"new 2")
    await append_synced(writer, b"new 3")
    with caplog.at_level(logging.ERROR):
        await reader.refresh([ORDERS])
    assert "orders-0 are lost: offsets 1 to 2" in caplog.text
    assert reader.shared_counts.lost_records == 2
    assert reader.state(ORDERS).high_watermark == 4
    for engine in (writer, reader):
        assert records_of(await read_batches(engine, 0), 0) == [
            (0, b"kept"),
            (1, b"new 1"),
            (2, b"new 2"),
            (3, b"new 3"),
        ]
        await engine.close()


@simulated
async def test_epochs_say_where_the_log_diverges_from_what_a_reader_has() -> None:
    meta, writer, reader = await _two_engines()
    await append_synced(writer, b"kept")
    standby = meta.standby()
    await append_synced(writer, b"lost")
    old = writer.leader_epoch(ORDERS)
    meta.fail_over(standby)
    await append_synced(writer, b"new 1")
    await append_synced(writer, b"new 2")
    await reader.refresh([ORDERS])
    assert reader.oldest_leader_epoch(ORDERS) > old
    assert reader.epoch_end_offset(ORDERS, old) == (old, 1)
    epochs = [header.partition_leader_epoch for header in rb.iter_headers(await read_batches(reader, 0))]
    assert epochs == [old, reader.leader_epoch(ORDERS), reader.leader_epoch(ORDERS)]
    for engine in (writer, reader):
        await engine.close()


@simulated
async def test_a_reader_past_the_end_of_the_new_history_is_told_so() -> None:
    meta, writer, reader = await _two_engines()
    standby = meta.standby()
    await append_synced(writer, b"lost")
    await reader.refresh([ORDERS])
    meta.fail_over(standby)
    await reader.refresh([ORDERS])
    with pytest.raises(OffsetOutOfRange):
        await read_batches(reader, 1)
    for engine in (writer, reader):
        await engine.close()


@simulated
async def test_a_history_that_lost_nothing_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    meta, writer, reader = await _two_engines()
    await append_synced(writer, b"a")
    meta.fail_over(meta.standby())
    await append_synced(writer, b"b")
    with caplog.at_level(logging.WARNING):
        await reader.refresh([ORDERS])
    assert (reader.shared_counts.histories, reader.shared_counts.lost_records) == (1, 0)
    assert "lost" not in caplog.text
    for engine in (writer, reader):
        await engine.close()


class _MetaOfASession(ModelMeta):
    durability = Durability.REPLICATED

    def _row(self, log_id: int) -> LogRow | None:
        row = super()._row(log_id)
        return None if row is None else replace(row, durability=self.durability)


class _StoreWithoutSyncs(ModelStore):
    is_durable = False


@pytest.mark.parametrize(
    ("of_session", "store", "expected"),
    [
        (Durability.REPLICATED, ModelStore, Durability.REPLICATED),
        (Durability.SYNCED, ModelStore, Durability.SYNCED),
        (Durability.APPENDED, ModelStore, Durability.APPENDED),
        (Durability.REPLICATED, _StoreWithoutSyncs, Durability.SYNCED),
    ],
)
@simulated
async def test_a_receipt_says_what_the_session_and_the_store_promise(
    of_session: Durability, store: type[ModelStore], expected: Durability
) -> None:
    meta = _MetaOfASession(SimulatedClock().now_ms)
    meta.durability = of_session
    engine = await open_shared_engine(meta, store(), 1, OPTIONS)
    ticket = await append_synced(engine, b"a")
    assert ticket.durability is expected
    await engine.close()


class _StoreThatIsGone(ModelStore):
    is_gone = False

    async def put(self, key: str, data: Buffer) -> None:
        self._refuse()
        await super().put(key, data)

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        self._refuse()
        return await super().list_page(prefix, after=after)

    def _refuse(self) -> None:
        if self.is_gone:
            raise ObjectStoreError("nobody answers")


@simulated
async def test_a_broker_whose_store_takes_nothing_stalls_after_ten_seconds_until_it_is_back() -> None:
    store = _StoreThatIsGone()
    options = replace(OPTIONS, upkeep=UpkeepOptions(probe_interval_ms=2_000))
    engine = await open_shared_engine(ModelMeta(SimulatedClock().now_ms), store, 1, options)
    await append_synced(engine, b"a")
    store.is_gone = True
    waiting = asyncio.ensure_future(append_synced(engine, b"b"))
    await asyncio.sleep(9)
    assert engine.stall is None
    await asyncio.sleep(2)
    assert "has taken no object" in str(engine.stall)
    assert engine.shared_counts.upload_age_ms > 10_000
    with pytest.raises(StorageUnavailable):
        await waiting
    # No producer finds out when the store is back: the broker asks it.
    store.is_gone = False
    await asyncio.sleep(3)
    assert engine.stall is None
    await engine.close()


class _MetaThatIsGone(ModelMeta):
    is_gone = False

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        if self.is_gone:
            raise MetaUnavailable("nobody answers")
        return await super().commit_objects(objects, computed=computed)


@simulated
async def test_a_broker_whose_commits_hang_stalls_after_ten_seconds_until_they_succeed() -> None:
    meta = _MetaThatIsGone(SimulatedClock().now_ms)
    engine = await open_shared_engine(meta, ModelStore(), 1, OPTIONS)
    meta.is_gone = True
    waiting = asyncio.ensure_future(append_synced(engine, b"a"))
    await asyncio.sleep(11)
    assert "has waited for its commit" in str(engine.stall)
    meta.is_gone = False
    await waiting
    assert engine.stall is None
    assert engine.shared_counts.commit_age_ms < 1_000
    await engine.close()
