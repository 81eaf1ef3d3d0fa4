"""Engines over a simulated disk, and the calls of a broker to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from stele.wire import record_batch as rb

from app.storage.cleaner import CleanerOptions
from app.storage.disk.files import Files
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket, LogEngine, PartitionFetch, PartitionSpec
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import StoreKind
from app.storage.shared.options import SharedOptions
from app.storage.topic_partition import TopicPartition

from .batches import ORDERS, batch_of, spec_of
from .model_meta import ModelMeta
from .simulated_files import SimulatedFiles
from .simulated_time import SimulatedClock
from .storage_faults import ModelStore

DATA = Path("/data")
# So long that nothing happens in the background unless a test asks for it.
QUIET = EngineOptions(
    flush_interval_ms=10**9,
    checkpoint_interval_ms=10**9,
    retention_interval_ms=10**9,
    cleaner=CleanerOptions(is_enabled=False),
)


def segment_path(base_offset: int, suffix: str = ".log", name: TopicPartition = ORDERS) -> Path:
    return DATA / str(name) / f"{base_offset:020d}{suffix}"


async def open_shared_engine(
    meta: ModelMeta, store: ModelStore, number: int, options: SharedOptions
) -> SharedEngine:
    """Return the engine of broker ``number`` on models, with ``ORDERS``."""
    clock = SimulatedClock()
    engine = SharedEngine(
        meta, {StoreKind.OBJECTS: store}, incarnation=UUID(int=number), clock=clock, options=options
    )
    await engine.open()
    await engine.create([spec_of(ORDERS, clock=clock)])
    await engine.start()
    return engine


async def open_engine(
    files: Files,
    specs: Sequence[PartitionSpec],
    *,
    clock: SimulatedClock,
    options: EngineOptions = QUIET,
    path: Path = DATA,
    engine_class: type[EmbeddedEngine] = EmbeddedEngine,
) -> EmbeddedEngine:
    """Return a started engine with the partitions open, as a broker has it."""
    if isinstance(files, SimulatedFiles):
        files.now_ms = clock.now_ms
    engine = engine_class(files, path, clock=clock, options=options)
    await engine.open()
    await engine.create(specs)
    await engine.start()
    # The first checkpoint is made.
    await asyncio.sleep(0.1)
    return engine


def append(
    engine: LogEngine,
    *values: bytes,
    name: TopicPartition = ORDERS,
    sync: bool = False,
    at_ms: int = 1_000,
) -> AppendTicket:
    """Append one batch."""
    return append_raw(engine, batch_of(values, timestamp_ms=at_ms), name=name, sync=sync)


def append_raw(
    engine: LogEngine, batches: bytearray, *, name: TopicPartition = ORDERS, sync: bool = False
) -> AppendTicket:
    return engine.append(name, batches, rb.check_produced(batches), sync=sync)


async def append_synced(engine: LogEngine, *values: bytes, name: TopicPartition = ORDERS) -> AppendTicket:
    ticket = append(engine, *values, name=name, sync=True)
    if ticket.future is not None:
        await ticket.future
    return ticket


def fetch_of(name: TopicPartition, offset: int, max_bytes: int) -> PartitionFetch:
    return PartitionFetch(topic=name.topic, partition=name.partition, offset=offset, max_bytes=max_bytes)


async def read_batches(
    engine: LogEngine, offset: int, *, max_bytes: int = 1 << 30, name: TopicPartition = ORDERS
) -> bytes:
    """Fetch once; raise the error of the result, if any."""
    (read,) = await engine.read([fetch_of(name, offset, max_bytes)], max_bytes)
    if read.error is not None:
        raise read.error
    return bytes(read.batches)


def records_of(raw: bytes, offset: int) -> list[tuple[int, bytes | None]]:
    """Return offsets and values from ``offset`` on in fetched bytes, as a careful consumer reads them.

    Raises:
        CorruptBatchError: a batch is not whole, or does not follow the one before.
    """
    records: list[tuple[int, bytes | None]] = []
    position, expected = 0, -1
    while position < len(raw):
        header = rb.check_batch(raw, position)
        follows = header.base_offset == expected if expected >= 0 else header.base_offset <= offset
        if not follows or header.last_offset < offset:
            raise rb.CorruptBatchError(f"base offset is {header.base_offset}", position=position)
        records += [(record.offset, record.value) for record in rb.decode_records(raw, header)]
        position, expected = position + header.size, header.next_offset
    return [(at, value) for at, value in records if at >= offset]


async def read_from(
    engine: LogEngine, offset: int, *, max_bytes: int = 1 << 30, name: TopicPartition = ORDERS
) -> list[tuple[int, bytes | None]]:
    """Return offsets and values from ``offset`` to the end of the log, fetch by fetch.

    Raises:
        CorruptLog, OffsetOutOfRange, CorruptBatchError: see ``read_batches`` and ``records_of``.
    """
    records: list[tuple[int, bytes | None]] = []
    while raw := await read_batches(engine, offset, max_bytes=max_bytes, name=name):
        records += records_of(raw, offset)
        offset = records[-1][0] + 1
    return records


async def read_one(
    engine: LogEngine, offset: int, *, name: TopicPartition = ORDERS
) -> list[tuple[int, bytes | None]]:
    """Return offsets and values from ``offset`` to the end of its batch."""
    return records_of(await read_batches(engine, offset, max_bytes=1, name=name), offset)
