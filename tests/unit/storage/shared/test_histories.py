"""The metadata begin another history, which may lack what a broker knew (ADR-0071)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.errors import OffsetOutOfRange
from app.storage.engine import SharedStorageCounts
from app.storage.shared.engine import SharedEngine
from app.storage.shared.histories import Histories
from app.storage.shared.log import SharedLog
from app.storage.shared.meta import LogRow, Meta, PartitionId
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
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


ROW = LogRow(
    log_id=1,
    partition_id=PartitionId(UUID(int=1), 0),
    log_start=0,
    next_offset=5,
    size_bytes=0,
    unmerged_bytes=0,
    merged_until=0,
    history=1,
)


class LaterMeta:
    """Metadata in which history 7 has begun since history 5 was noticed."""

    async def log_rows(self, log_ids: Sequence[int]) -> Mapping[int, LogRow]:
        return dict.fromkeys(log_ids, replace(ROW, history=7))


async def no_heartbeat() -> None:
    pass


async def test_a_later_history_than_the_one_that_was_noticed_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = SharedLog(TopicPartition("orders", 0), TopicConfig(), ROW)
    histories = Histories(
        meta=cast("Meta", LaterMeta()),
        logs={log.topic_partition: log},
        on_adopted=lambda _: None,
        heartbeat=no_heartbeat,
        counts=SharedStorageCounts(),
    )
    with caplog.at_level(logging.INFO):
        await histories.adopt(5)
    assert "taken over 1 logs from history 7 of the database" in caplog.text


def test_an_answer_from_a_promoted_standby_changes_nothing_until_its_history_is_adopted() -> None:
    """Otherwise what others have appended in that history counts as lost."""
    log = SharedLog(TopicPartition("orders", 0), TopicConfig(), ROW)
    row = replace(ROW, history=2, next_offset=9, epochs=((1, 0), (2, 5)))
    log.update(row)
    assert log.next_offset == 5
    assert log.adopt(row) is None
    assert (log.history, log.next_offset) == (2, 9)
