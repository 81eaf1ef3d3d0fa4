"""When appends are written: at once after a pause, and otherwise at most one object per linger."""

from __future__ import annotations

import asyncio

from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS
from tests.support.engines import append, append_synced, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

LINGER_MS = 250
OPTIONS = SharedOptions(linger_ms=LINGER_MS, upkeep=UpkeepOptions(is_enabled=False))


@simulated
async def test_an_append_after_a_pause_waits_for_none_and_those_after_it_share_an_object() -> None:
    clock = SimulatedClock()
    meta = ModelMeta(clock.now_ms)
    engine = await open_shared_engine(meta, ModelStore(), 1, OPTIONS)
    for _ in range(2):
        begun_ms, before = clock.monotonic_ms(), len(meta.objects)
        # In one turn of the event loop, as the partitions of a request.
        tickets = [append(engine, value, name=ORDERS, sync=True) for value in (b"a", b"b")]
        for ticket in tickets:
            assert ticket.future is not None
            await ticket.future
        assert clock.monotonic_ms() - begun_ms < LINGER_MS
        assert len(meta.objects) - before == 1
        later = [asyncio.create_task(append_synced(engine, b"c"))]
        await asyncio.sleep(0.1)
        later.append(asyncio.create_task(append_synced(engine, b"d")))
        await asyncio.gather(*later)
        assert LINGER_MS <= clock.monotonic_ms() - begun_ms < 2 * LINGER_MS
        assert len(meta.objects) - before == 2
        # A pause.
        await asyncio.sleep(60)
    await engine.close()
