"""A reader of committed records gets none that was aborted, whatever happens between its load and its last question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.errors import OffsetOutOfRange, StorageUnavailable
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import AbortedFound
from app.storage.shared.options import SharedOptions
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of
from tests.support.engines import open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.shared_cluster import fetch
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

_PRODUCER_ID = 7


class SlowMeta(ModelMeta):
    """Does something before it answers which transactions were aborted."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def aborted(self, log_id: int, offset: int, end_offset: int) -> AbortedFound | None:
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().aborted(log_id, offset, end_offset)


async def with_aborted(meta: ModelMeta) -> SharedEngine:
    """Return an engine whose log has an aborted record, its marker, and a record without a transaction."""
    engine = await open_shared_engine(meta, ModelStore(), 1, SharedOptions())
    aborted = batch_of([b"aborted"], producer_id=_PRODUCER_ID, is_transactional=True)
    marker = marker_batch(
        EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0),
        producer_id=_PRODUCER_ID,
        producer_epoch=0,
        timestamp_ms=1_000,
    )
    for batch in (aborted, marker, batch_of([b"good"])):
        ticket = engine.append(ORDERS, batch, [rb.check_batch(batch)], sync=True)
        assert ticket.future is not None
        await ticket.future
    return engine


@simulated
async def test_records_that_are_deleted_meanwhile_are_out_of_range() -> None:
    meta = SlowMeta(SimulatedClock().now_ms)
    engine = await with_aborted(meta)
    (read,) = await engine.read([fetch(ORDERS, 0, 1_000)], 1_000)
    assert [(entry.first_offset, entry.last_offset) for entry in read.aborted or ()] == [(0, 1)]
    # Another broker deletes them, and with them what is known of their transaction.
    meta.meanwhile = lambda: meta.delete_records(1, 2)
    (read,) = await engine.read([fetch(ORDERS, 0, 1_000)], 1_000)
    assert isinstance(read.error, OffsetOutOfRange)
    assert (read.log_start_offset, bytes(read.batches)) == (2, b"")
    await engine.close()


@pytest.mark.parametrize(
    ("config", "paused_s", "is_refused"),
    [
        (TopicConfig(cleanup_policy="compact"), 50, False),
        (TopicConfig(cleanup_policy="compact"), 70, True),
        (TopicConfig(), 70, False),
    ],
)
def test_a_read_of_a_compacted_log_that_takes_too_long_fails(
    config: TopicConfig, paused_s: float, is_refused: bool
) -> None:
    @simulated
    async def run() -> None:
        meta = SlowMeta(SimulatedClock().now_ms)
        engine = await with_aborted(meta)
        engine.configure(ORDERS, config.enforced())
        meta.meanwhile = lambda: asyncio.sleep(paused_s)
        (read,) = await engine.read([fetch(ORDERS, 0, 1_000)], 1_000)
        assert isinstance(read.error, StorageUnavailable) is is_refused
        assert bool(read.batches) is not is_refused
        meta.meanwhile = None
        (read,) = await engine.read([fetch(ORDERS, 0, 1_000)], 1_000)
        assert read.error is None
        assert read.batches
        await engine.close()

    run()
