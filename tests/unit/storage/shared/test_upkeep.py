"""What a broker does in the background, by what it asks of the metadata."""

from __future__ import annotations

from app.storage.shared.meta import Retained
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS
from tests.support.engines import append_synced, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))


class MetaThatNotesLocks(ModelMeta):
    """Counts how often retention locked a log."""

    locks = 0

    async def retain(
        self, log_id: int, *, retention_s: float | None, retention_bytes: int | None
    ) -> Retained | None:
        self.locks += 1
        return await super().retain(log_id, retention_s=retention_s, retention_bytes=retention_bytes)


@simulated
async def test_retention_locks_only_logs_of_which_something_has_expired() -> None:
    meta = MetaThatNotesLocks(SimulatedClock().now_ms)
    engine = await open_shared_engine(meta, ModelStore(), 1, OPTIONS)
    engine.configure(ORDERS, TopicConfig(retention_ms=-1, retention_bytes=1_000_000))
    await append_synced(engine, b"a")
    await append_synced(engine, b"b")
    assert await engine.enforce_retention() == 0
    assert meta.locks == 0
    engine.configure(ORDERS, TopicConfig(retention_ms=-1, retention_bytes=1))
    assert await engine.enforce_retention() == 1
    assert meta.locks == 1
    assert engine.state(ORDERS).log_start_offset == 1
    await engine.close()
