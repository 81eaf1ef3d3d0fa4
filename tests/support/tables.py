"""Compacted topics in this process: brokers whose passes a test begins itself, and the table they must have."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.settings import Settings
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine, EngineOptions
from tests.support.simulated_time import RealFilesInSimulatedTime

Row = tuple[bytes, bytes | None]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}


@asynccontextmanager
async def open_table_broker(
    path: Path, *, table_memory_bytes_max: int = 1 << 20
) -> AsyncGenerator[tuple[Broker, EmbeddedEngine]]:
    """A broker and its engine, whose ``compact`` runs the passes."""
    clock = SystemClock()
    engine = EmbeddedEngine(
        RealFilesInSimulatedTime(),
        path,
        clock=clock,
        options=EngineOptions(
            cleaner=CleanerOptions(is_enabled=False), table_memory_bytes_max=table_memory_bytes_max
        ),
    )
    await engine.open()
    broker = Broker(
        engine=engine,
        catalog=SqliteCatalog(path / "metadata.sqlite"),
        clock=clock,
        settings=Settings(data_dir=path),
    )
    await broker.open()
    await engine.start()
    try:
        yield broker, engine
    finally:
        await broker.close()


def put(broker: Broker, topic: str, partition: int, rows: Iterable[Row], *, at_ms: int = 1_000) -> int:
    """Append a batch, not synced yet; return the offset of its last record."""
    builder = rb.BatchBuilder()
    for key, value in rows:
        builder.append(timestamp_ms=at_ms, key=key, value=value)
    return broker.produce(topic, partition, builder.build(), acks=Acks.LEADER).result().last_offset


async def compact(broker: Broker, engine: EmbeddedEngine) -> int:
    """Sync all records, without which none is compacted, and run the passes that are due."""
    await broker.flush()
    return await engine.compact()


def random_rows(random: Random, *, keys: int, count: int) -> list[Row]:
    return [
        (
            b"k%d" % random.randrange(keys),
            None if random.random() < 0.2 else random.randbytes(random.randint(0, 60)),
        )
        for _ in range(count)
    ]


def apply(table: dict[bytes, bytes], rows: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """As a reader does: a later record replaces an earlier one, a null value deletes the key."""
    for key, value in rows:
        assert key is not None
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
