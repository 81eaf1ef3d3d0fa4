"""What a broker knows of the ends of logs that others append to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.storage.shared.meta import LogRow
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS
from tests.support.engines import append_synced, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))


class MetaWithALateAnswer(ModelMeta):
    """Its next answer about the ends of logs takes a minute."""

    is_next_late = False

    async def log_rows(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        rows = await super().log_rows(log_ids)
        if self.is_next_late:
            self.is_next_late = False
            await asyncio.sleep(60)
        return rows


@simulated
async def test_a_refresh_tells_of_an_end_that_a_poll_was_the_first_to_notice() -> None:
    meta, store = MetaWithALateAnswer(SimulatedClock().now_ms), ModelStore()
    writer, reader = [await open_shared_engine(meta, store, number, OPTIONS) for number in (1, 2)]
    await append_synced(writer, b"a")
    assert reader.state(ORDERS).high_watermark == 0
    meta.is_next_late = True
    assert await reader.refresh([ORDERS])
    assert reader.state(ORDERS).high_watermark == 1
    assert not await reader.refresh([ORDERS])
    for engine in (writer, reader):
        await engine.close()
