"""Produces of the broker whose append does not happen at once, or does not happen."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.messages import Durability

from app.broker.broker import Broker
from app.broker.producing.produce import Acks, PendingProduce
from app.broker.producing.recompress import Preparation, PreparedBatches
from app.broker.reading.fetch import PartitionFetch
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import (
    BrokerClosing,
    MissingKey,
    OutOfOrderSequence,
    RequestTimedOut,
    SteleError,
    StorageFull,
    UnknownTopic,
)
from app.settings import Settings
from app.storage.disk.files import Buffer, RealFile, RealFiles
from app.storage.embedded import EmbeddedEngine
from app.storage.logs.log import DiskLog
from tests.support.batches import batch_of
from tests.support.engines import QUIET, read_from
from tests.support.late_engine import LateEngine

TIMEOUT_MS = 30_000
ZSTD = {"compression.type": "zstd"}


AnyEngine = TypeVar("AnyEngine", bound=EmbeddedEngine)


@asynccontextmanager
async def broker_with(
    path: Path, engine_class: type[AnyEngine], *, queue_bytes_max: int = 64 << 20
) -> AsyncGenerator[tuple[Broker, AnyEngine]]:
    clock = SystemClock()
    settings = Settings(data_dir=path, produce_threads=1, produce_queue_bytes_max=queue_bytes_max)
    engine = engine_class(RealFiles(), path, clock=clock, options=QUIET)
    await engine.open()
    broker = Broker(
        engine=engine, catalog=SqliteCatalog(path / "metadata.sqlite"), clock=clock, settings=settings
    )
    await broker.open()
    try:
        yield broker, engine
    finally:
        await broker.close()


def broker_at(path: Path) -> AbstractAsyncContextManager[tuple[Broker, EmbeddedEngine]]:
    return broker_with(path, EmbeddedEngine)


def played(story: Callable[[Path], Awaitable[None]], path: Path) -> None:
    async def play() -> None:
        await story(path)

    asyncio.run(play())


def batch(number: int, *, producer_id: int = -1, timestamp_ms: int = 1_700_000_000_000) -> bytearray:
    return batch_of(
        [b"%d" % number] * 10, producer_id=producer_id, base_sequence=10 * number, timestamp_ms=timestamp_ms
    )


async def stored(broker: Broker, topic: str) -> tuple[set[int], list[bytes | None]]:
    (fetched,) = await broker.fetch(
        [PartitionFetch(topic=topic, partition=0, offset=0, max_bytes=1 << 20)], max_bytes=1 << 20
    )
    batches = bytes(fetched.batches)
    headers = list(rb.iter_headers(batches))
    values = [record.value for header in headers for record in rb.decode_records(batches, header)]
    return {header.compression for header in headers}, values


@pytest.mark.parametrize("engine_class", [EmbeddedEngine, LateEngine], ids=["placed at once", "placed later"])
async def test_a_producer_whose_first_batch_found_no_space_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_class: type[EmbeddedEngine]
) -> None:
    async with broker_with(tmp_path, engine_class) as (broker, _):
        await broker.create_topic("orders")

        async def send(*numbers: int) -> list[int | type[Exception]]:
            """Send batches without waiting in between; return their base offsets, or the errors."""

            async def wait(pending: PendingProduce) -> int | type[Exception]:
                try:
                    return (await pending.wait(TIMEOUT_MS)).base_offset
                except SteleError as error:
                    return type(error)

            waits: list[Awaitable[int | type[Exception]]] = []
            for number in numbers:
                try:
                    pending = broker.produce("orders", 0, batch(number, producer_id=7), acks=Acks.LEADER)
                except SteleError as error:
                    refused: asyncio.Future[int | type[Exception]] = (
                        asyncio.get_running_loop().create_future()
                    )
                    refused.set_result(type(error))
                    waits.append(refused)
                else:
                    waits.append(wait(pending))
            return list(await asyncio.gather(*waits))

        append = DiskLog.append

        def full_once(*_: object, **__: object) -> None:
            monkeypatch.setattr(DiskLog, "append", append)
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(DiskLog, "append", full_once)
        # The second was in flight when the first was refused.
        assert await send(0, 1) == [StorageFull, OutOfOrderSequence]
        assert await send(0, 1) == [0, 10]


def test_a_shutdown_appends_what_waits_to_be_compressed(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with broker_at(path) as (broker, _):
            await broker.create_topic("orders", configs=ZSTD)
            waiting = [broker.produce("orders", 0, batch(n), acks=Acks.LEADER) for n in range(20)]
            assert not any(pending.done for pending in waiting)
            broker.begin_close()
            with pytest.raises(BrokerClosing):
                broker.produce("orders", 0, batch(20), acks=Acks.LEADER)
        assert [pending.result().base_offset for pending in waiting] == list(range(0, 200, 10))
        async with broker_at(path) as (broker, _):
            codecs, values = await stored(broker, "orders")
            assert codecs == {Compression.ZSTD}
            assert values == [b"%d" % number for number in range(20) for _ in range(10)]

    played(story, tmp_path)


def test_a_topic_made_again_gets_nothing_that_waited_for_its_predecessor(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with broker_at(path) as (broker, _):
            await broker.create_topic("orders", configs=ZSTD)
            # Long enough in their thread that the topic is deleted first.
            waiting = [
                broker.produce("orders", 0, batch_of([b"x" * 100] * 5000), acks=Acks.LEADER)
                for _ in range(50)
            ]
            await broker.delete_topic("orders")
            await broker.create_topic("orders")
            for pending in waiting[:-1]:
                await asyncio.wait((pending.future,) if pending.future is not None else ())
            with pytest.raises(UnknownTopic):
                await waiting[-1].wait(TIMEOUT_MS)
            assert await stored(broker, "orders") == (set(), [])

    played(story, tmp_path)


async def test_batches_that_waited_while_their_topic_became_compacted_need_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_altered = threading.Event()
    run = Preparation.run

    def run_when_altered(
        self: Preparation, batches: bytearray, headers: Sequence[rb.BatchHeader]
    ) -> PreparedBatches:
        is_altered.wait()
        return run(self, batches, headers)

    monkeypatch.setattr(Preparation, "run", run_when_altered)
    async with broker_at(tmp_path) as (broker, _):
        await broker.create_topic("orders", configs=ZSTD)
        keyed = rb.BatchBuilder()
        keyed.append(timestamp_ms=1_700_000_000_000, key=b"k", value=b"kept")
        keyless, kept = (
            broker.produce("orders", 0, batches, acks=Acks.LEADER) for batches in (batch(0), keyed.build())
        )
        await broker.alter_topic("orders", configs={"cleanup.policy": "compact"})
        is_altered.set()
        with pytest.raises(MissingKey):
            await keyless.wait(TIMEOUT_MS)
        await kept.wait(TIMEOUT_MS)
        assert (await stored(broker, "orders"))[1] == [b"kept"]


def test_a_receipt_with_acks_all_is_synced(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with broker_at(path) as (broker, _):
            await broker.create_topic("orders", configs=ZSTD)
            for sync_later in (False, True):
                pending = broker.produce("orders", 0, batch(0), acks=Acks.ALL, sync_later=sync_later)
                receipt = await pending.wait(TIMEOUT_MS)
                assert receipt.durability.label == "synced"
                state = broker.log_state("orders", 0)
                assert state.recovery_point == state.log_end_offset

    played(story, tmp_path)


# ── an engine that gives offsets later ──


async def test_readers_learn_of_an_append_when_it_has_its_offsets(tmp_path: Path) -> None:
    async with broker_with(tmp_path, LateEngine) as (broker, engine):
        await broker.create_topic("orders")
        engine.may_commit.clear()
        with broker.subscribe_tail("orders") as tail:
            pending = broker.produce("orders", 0, batch(0), acks=Acks.LEADER)
            assert not pending.done
            assert (tail.take(), broker.counts.appended_records) == ([], 0)
            engine.may_commit.set()
            receipt = await pending.wait(TIMEOUT_MS)
            assert (receipt.base_offset, receipt.last_offset) == (0, 9)
            assert (tail.take(), broker.counts.appended_records) == ([0], 10)
            assert len((await stored(broker, "orders"))[1]) == 10


async def test_a_sync_that_was_put_off_begins_after_the_append_has_its_offsets(tmp_path: Path) -> None:
    async with broker_with(tmp_path, LateEngine) as (broker, engine):
        await broker.create_topic("orders")
        engine.may_commit.clear()
        pending = broker.produce("orders", 0, batch(0), acks=Acks.ALL, sync_later=True)
        with pytest.raises(RequestTimedOut, match="the sync of orders-0"):
            await pending.wait(1)
        engine.may_commit.set()
        receipt = await pending.wait(TIMEOUT_MS)
        assert (receipt.last_offset, receipt.durability) == (9, Durability.SYNCED)
        assert broker.log_state("orders", 0).recovery_point == 10


async def test_batches_of_an_idempotent_producer_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with broker_with(tmp_path, LateEngine) as (broker, engine):
        await broker.create_topic("orders")
        engine.may_commit.clear()
        # A retry, while the first time is on its way, is answered with the same offsets.
        waiting = [
            broker.produce("orders", 0, batch(number, producer_id=7), acks=Acks.LEADER)
            for number in (0, 1, 0, 2)
        ]
        assert broker.produce_queue.requests == 0
        broker.begin_close()
        engine.may_commit.set()
    assert [pending.result().base_offset for pending in waiting] == [0, 10, 0, 20]
    assert broker.counts.appended_records == 30


async def test_large_batches_are_appended_in_turn_without_a_long_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = RealFile.write_at

    def counted(self: RealFile, position: int, buffers: Sequence[Buffer]) -> None:
        written.append(sum(map(len, buffers)))
        write(self, position, buffers)

    monkeypatch.setattr(RealFile, "write_at", counted)
    size = 5 << 20
    async with broker_with(tmp_path, EmbeddedEngine) as (broker, engine):
        await broker.create_topic("orders", partitions=1, configs={"max.message.bytes": str(2 * size)})
        pending = [
            broker.produce("orders", 0, batch_of([value]), acks=Acks.ALL)
            for value in (b"first", b"a" * size, b"between", b"b" * size, b"last")
        ]
        assert [each.done for each in pending[1:]] == [False] * 4
        produced = [await each.wait(TIMEOUT_MS) for each in pending]
        assert [each.base_offset for each in produced] == list(range(5))
        assert max(written) <= 1 << 20
        assert sum(written) > 2 * size
        values = [value for _, value in await read_from(engine, 0)]
        assert values == [b"first", b"a" * size, b"between", b"b" * size, b"last"]


async def test_a_large_batch_waits_for_room_and_keeps_no_receive_buffer(tmp_path: Path) -> None:
    large, small = batch_of([bytes(3 << 20)]), batch(0)
    async with broker_with(tmp_path, EmbeddedEngine, queue_bytes_max=len(large)) as (broker, _):
        for topic in ("orders", "other"):
            await broker.create_topic(topic, partitions=1, configs={"max.message.bytes": str(4 << 20)})
        received = large + bytes(2 * len(large))
        pending = broker.produce("orders", 0, memoryview(received)[: len(large)], acks=Acks.LEADER)
        # A buffer that is referred to cannot be resized.
        received.clear()
        assert broker.is_produce_queue_full
        assert broker.must_wait_for_room("other", large)
        assert not broker.must_wait_for_room("other", small)
        await pending.wait(TIMEOUT_MS)
        assert not broker.must_wait_for_room("other", large)
