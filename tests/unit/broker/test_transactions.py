"""Transactional batches and markers through the broker: the gate, fences, waits and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType
from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import LATEST_TIMESTAMP

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.producing.transaction_gate import MarkerOrder
from app.broker.reading.fetch import PartitionFetch
from app.broker.virtual import MAX_TIMESTAMP
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import (
    CoordinatorFenced,
    InvalidBatch,
    InvalidRequest,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    UnknownPartition,
)
from app.settings import Settings
from app.storage.disk.files import RealFiles
from app.storage.embedded import EmbeddedEngine
from app.storage.engine import AbortedTransaction, PartitionRead
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from tests.support.batches import batch_of
from tests.support.engines import QUIET

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
ORDERS = TopicPartition("orders", 0)
TV1 = TransactionalProduce(transactional_id="shop", adds_partitions=False)
TV2 = TransactionalProduce(transactional_id="shop", adds_partitions=True)


class OpenGate:
    """Admits every batch, until ``refusal`` is set."""

    def __init__(self) -> None:
        self.admitted: list[tuple[TopicPartition, int]] = []
        self.refusal: Exception | None = None

    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: rb.BatchHeader
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.admitted.append((topic_partition, header.producer_id))


class Shop:
    """A broker with the topic ``orders`` of two partitions, and its gate."""

    def __init__(self, broker: Broker, gate: OpenGate) -> None:
        self.broker = broker
        self.gate = gate

    def produce(
        self,
        *values: bytes,
        producer_id: int = 7,
        epoch: int = 0,
        sequence: int = 0,
        transaction: TransactionalProduce | None = TV1,
        timestamp_ms: int = 1_000,
        topic: str = "orders",
        partition: int = 0,
    ) -> int:
        """Append a batch; it is transactional with ``transaction``. Returns its base offset."""
        batch = batch_of(
            values,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transaction is not None,
            timestamp_ms=timestamp_ms,
        )
        pending = self.broker.produce(topic, partition, batch, acks=Acks.LEADER, transaction=transaction)
        return pending.result().base_offset

    def end(
        self, kind: MarkerType, *, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 1
    ) -> int:
        """Append a marker to orders-0; returns its offset, -1 if it was there."""
        order = MarkerOrder(
            topic_partition=ORDERS,
            producer_id=producer_id,
            producer_epoch=epoch,
            marker=EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch),
        )
        (ticket,) = self.broker.append_markers([order])
        assert ticket.done
        return ticket.base_offset

    async def read(
        self,
        offset: int = 0,
        isolation: IsolationLevel = COMMITTED,
        *,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
    ) -> PartitionRead:
        request = PartitionFetch(
            topic="orders", partition=0, offset=offset, max_bytes=1 << 20, isolation=isolation
        )
        (read,) = await self.broker.fetch(
            [request], max_bytes=1 << 20, min_bytes=min_bytes, max_wait_ms=max_wait_ms
        )
        assert read.error is None
        return read

    @property
    def last_stable_offset(self) -> int:
        return self.broker.log_state("orders", 0).last_stable_offset


@asynccontextmanager
async def shop_at(path: Path) -> AsyncGenerator[Shop]:
    clock = SystemClock()
    engine = EmbeddedEngine(RealFiles(), path, clock=clock, options=QUIET)
    await engine.open()
    broker = Broker(
        engine=engine,
        catalog=SqliteCatalog(path / "metadata.sqlite"),
        clock=clock,
        settings=Settings(data_dir=path),
    )
    await broker.open()
    await engine.start()
    gate = OpenGate()
    broker.set_transaction_gate(gate)
    try:
        if not broker.has_topic("orders"):
            await broker.create_topic("orders", partitions=2)
        yield Shop(broker, gate)
    finally:
        await broker.close()


def bases_of(read: PartitionRead) -> list[int]:
    return [header.base_offset for header in rb.iter_headers(read.batches)]


async def test_committed_readers_see_a_transaction_when_its_marker_is_there(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"before", producer_id=-1, transaction=None)
        shop.produce(b"a", b"b")
        shop.produce(b"after", producer_id=-1, transaction=None)
        assert shop.last_stable_offset == 1
        read = await shop.read()
        assert bases_of(read) == [0]
        assert (read.last_stable_offset, read.high_watermark, read.aborted) == (1, 4, ())
        assert bases_of(await shop.read(2)) == [], "between the two offsets there is nothing, and no error"
        uncommitted = await shop.read(isolation=UNCOMMITTED)
        assert bases_of(uncommitted) == [0, 1, 3]
        assert uncommitted.aborted is None
        assert shop.end(MarkerType.COMMIT) == 4
        assert bases_of(await shop.read()) == [0, 1, 3, 4]
        assert (await shop.read()).aborted == ()
        shop.produce(b"c", sequence=2)
        assert shop.end(MarkerType.ABORT) == 6
        read = await shop.read()
        assert list(read.aborted or ()) == [AbortedTransaction(7, 5, 6)]
        assert shop.last_stable_offset == 7


async def test_a_batch_needs_a_transactional_id_a_gate_and_a_topic_on_disk(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        with pytest.raises(InvalidBatch, match="no transactional id"):
            shop.broker.produce(
                "orders", 0, batch_of([b"a"], producer_id=7, is_transactional=True), acks=Acks.LEADER
            )
        with pytest.raises(InvalidBatch, match="needs a producer id"):
            shop.produce(b"a", producer_id=-1)
        await shop.broker.create_topic("cache", partitions=1, configs={"stele.storage": "memory"})
        with pytest.raises(InvalidRequest, match=r"stele\.storage=disk"):
            shop.produce(b"a", topic="cache")
        shop.gate.refusal = InvalidTransactionState("shop", "the partition is not in it")
        with pytest.raises(InvalidTransactionState):
            shop.produce(b"a")
        assert shop.broker.log_state("orders", 0).log_end_offset == 0


async def test_a_client_cannot_write_a_marker(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        builder = rb.BatchBuilder(producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)
        builder.append(timestamp_ms=1, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")
        with pytest.raises(InvalidBatch, match="only the broker"):
            shop.broker.produce("orders", 0, builder.build(), acks=Acks.LEADER, transaction=TV1)


async def test_a_retry_is_answered_before_the_gate_is_asked(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        first = shop.produce(b"a")
        shop.gate.refusal = InvalidTransactionState("shop", "it is over")
        assert shop.produce(b"a") == first
        assert shop.broker.log_state("orders", 0).log_end_offset == 1


async def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a")
        with pytest.raises(InvalidTransactionState, match="producer 7 has an open transaction"):
            shop.produce(b"b", sequence=1, transaction=None)
        shop.end(MarkerType.COMMIT)
        assert shop.produce(b"b", sequence=1, transaction=None) == 2


async def test_a_marker_with_a_higher_epoch_fences_and_begins_at_sequence_0(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a", transaction=TV2)
        assert shop.end(MarkerType.ABORT, epoch=1) == 1
        with pytest.raises(ProducerFenced):
            shop.produce(b"b", sequence=1, transaction=TV2)
        with pytest.raises(OutOfOrderSequence):
            shop.produce(b"b", epoch=1, sequence=1, transaction=TV2)
        assert shop.produce(b"b", epoch=1, transaction=TV2) == 2
        with pytest.raises(ProducerFenced):
            shop.end(MarkerType.COMMIT, epoch=0)
        with pytest.raises(CoordinatorFenced):
            shop.end(MarkerType.COMMIT, epoch=1, coordinator_epoch=0)
        assert shop.end(MarkerType.COMMIT, epoch=32767) == 3


async def test_without_state_a_producer_of_the_new_kind_begins_with_sequence_0(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        with pytest.raises(OutOfOrderSequence):
            shop.produce(b"a", sequence=5, transaction=TV2)
        assert shop.produce(b"a", sequence=5, transaction=TV1) == 0


async def test_a_marker_is_appended_once(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a")
        assert shop.end(MarkerType.COMMIT) == 1
        assert shop.end(MarkerType.COMMIT) == -1
        assert shop.broker.log_state("orders", 0).log_end_offset == 2


async def test_markers_are_refused_together_before_one_is_appended(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a")
        marker = EndTransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=1)
        orders = [
            MarkerOrder(topic_partition=name, producer_id=7, producer_epoch=0, marker=marker)
            for name in (ORDERS, TopicPartition("orders", 9))
        ]
        with pytest.raises(UnknownPartition):
            shop.broker.append_markers(orders)
        assert shop.last_stable_offset == 0


async def test_the_marker_wakes_a_committed_long_poll_and_open_batches_do_not(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"first")
        # More bytes than the marker has, and fewer than marker and transaction together.
        polling = asyncio.create_task(shop.read(min_bytes=100, max_wait_ms=30_000))
        uncommitted = asyncio.create_task(shop.read(offset=1, isolation=UNCOMMITTED, max_wait_ms=30_000))
        await asyncio.sleep(0)
        shop.produce(b"x" * 1000, sequence=1)
        assert bases_of(await uncommitted) == [1]
        # Everything that the batch could have woken has run.
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(10)))
        assert not polling.done()
        shop.end(MarkerType.COMMIT)
        read = await polling
        assert bases_of(read) == [0, 1, 2]
        assert read.last_stable_offset == 3


async def test_a_committed_poll_at_the_last_stable_offset_waits(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"first")
        waiting = asyncio.create_task(shop.broker.wait_for_append({("orders", 0): 0}, 30_000))
        at_once = shop.broker.wait_for_append({("orders", 0): 0}, 30_000, isolation=UNCOMMITTED)
        await at_once
        assert not waiting.done()
        shop.end(MarkerType.ABORT)
        await waiting


async def test_a_watch_leaves_out_open_batches_as_its_isolation_says(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        watch = shop.broker.watch()
        watch.add(ORDERS)
        watch.isolation = COMMITTED
        shop.produce(b"a")
        assert watch.take() == []
        watch.isolation = UNCOMMITTED
        assert watch.take() == [ORDERS], "it may have missed something"
        watch.isolation = COMMITTED
        shop.end(MarkerType.COMMIT)
        assert watch.take() == [ORDERS]
        shop.produce(b"plain", producer_id=-1, transaction=None)
        assert watch.take() == [ORDERS]
        watch.close()


async def test_offsets_are_listed_up_to_the_last_stable_one(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"old", producer_id=-1, transaction=None, timestamp_ms=1_000)
        shop.produce(b"new", timestamp_ms=2_000)
        for at, committed, uncommitted in (
            (LATEST_TIMESTAMP, (1, -1), (2, -1)),
            (MAX_TIMESTAMP, (-1, -1), (1, 2_000)),
            (1_500, (-1, -1), (1, 2_000)),
            (500, (0, 1_000), (0, 1_000)),
        ):
            assert (await shop.broker.list_offset("orders", 0, at))[:2] == committed
            assert (await shop.broker.list_offset("orders", 0, at, isolation=UNCOMMITTED))[:2] == uncommitted


async def test_records_of_an_open_transaction_can_be_deleted(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a", b"b")
        shop.produce(b"c", sequence=2)
        assert await shop.broker.delete_records("orders", 0, 1) == 1
        assert shop.last_stable_offset == 1
        shop.end(MarkerType.ABORT)
        read = await shop.read(1)
        assert bases_of(read) == [0, 2, 3]
        assert list(read.aborted or ()) == [AbortedTransaction(7, 0, 3)]


async def test_open_transactions_survive_a_restart_and_are_listed(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        shop.produce(b"a")
        shop.produce(b"b", producer_id=8, epoch=3, partition=1)
    async with shop_at(tmp_path) as shop:
        listed = shop.broker.open_transactions()
        assert [(one.topic_partition.partition, one.producer_id) for one in listed] == [(0, 7), (1, 8)]
        (one,) = shop.broker.open_transactions(TopicPartition("orders", 1))
        assert (one.producer_epoch, one.first_offset, one.coordinator_epoch) == (3, 0, -1)
        assert shop.last_stable_offset == 0
        (view,) = await shop.broker.producers("orders", 1)
        assert view.transaction_start_offset == 0
        with pytest.raises(UnknownPartition):
            shop.broker.open_transactions(TopicPartition("orders", 9))
