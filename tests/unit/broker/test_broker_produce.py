"""Produces of the broker whose append does not happen at once, or does not happen."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.broker import Broker
from app.broker.fetch import PartitionFetch
from app.broker.produce import Acks
from app.clock import SystemClock
from app.cluster.sqlite import SqliteCatalog
from app.errors import BrokerClosing, OutOfOrderSequence, StorageFull, UnknownTopic
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.storage.files import RealFiles
from tests.support.batches import batch_of
from tests.support.engines import QUIET

TIMEOUT_MS = 30_000
ZSTD = {"compression.type": "zstd"}


@asynccontextmanager
async def broker_at(path: Path) -> AsyncGenerator[tuple[Broker, EmbeddedEngine]]:
    clock = SystemClock()
    settings = Settings(data_dir=path, produce_threads=1)
    engine = EmbeddedEngine(RealFiles(), path, clock=clock, options=QUIET)
    await engine.open()
    broker = Broker(
        engine=engine, catalog=SqliteCatalog(path / "metadata.sqlite"), clock=clock, settings=settings
    )
    await broker.open()
    try:
        yield broker, engine
    finally:
        await broker.close()


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


def test_a_producer_whose_first_batch_found_no_space_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(path: Path) -> None:
        async with broker_at(path) as (broker, engine):
            await broker.create_topic("orders")

            def send(number: int) -> int:
                made = batch(number, producer_id=7)
                return broker.produce("orders", 0, made, acks=Acks.LEADER).base_offset

            def full(*_: object, **__: object) -> None:
                raise StorageFull(path, OSError(errno.ENOSPC, "no space"))

            with monkeypatch.context() as patched:
                patched.setattr(engine, "append", full)
                with pytest.raises(StorageFull):
                    send(0)
            # It was in flight when the first was refused.
            with pytest.raises(OutOfOrderSequence):
                send(1)
            assert [send(0), send(1)] == [0, 10]

    played(story, tmp_path)


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
