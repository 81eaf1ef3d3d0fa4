"""Numbers of a segment, a run or a batch never stand for the records that were deleted from it."""

from __future__ import annotations

from random import Random

import pytest

from app.storage.engine import LogEngine
from app.storage.shared.engine import SharedEngine
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of_times, spec_of
from tests.support.engines import DATA, append_raw, open_engine, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

CONFIGS: dict[str, TopicConfig | None] = {
    "one segment": TopicConfig(retention_ms=-1, index_interval_bytes=1),
    "several segments": TopicConfig(retention_ms=-1, segment_bytes=400, index_interval_bytes=100),
    "memory": TopicConfig(retention_ms=-1, storage="memory"),
    "shared": None,
}


async def _open(config: TopicConfig | None) -> LogEngine:
    """Return an engine with this configuration; None: a shared one."""
    clock = SimulatedClock()
    if config is None:
        options = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False, merge_min_bytes=1))
        return await open_shared_engine(ModelMeta(clock.now_ms), ModelStore(), 1, options)
    return await open_engine(SimulatedFiles(), [spec_of(ORDERS, clock=clock, config=config)], clock=clock)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@simulated
async def test_the_newest_time_and_look_ups_leave_out_deleted_records(config: TopicConfig | None) -> None:
    for seed in range(30):
        random, engine = Random(seed), await _open(config)
        times: list[int] = []
        for _ in range(random.randint(1, 12)):
            batch = [random.randint(1, 1_000) for _ in range(random.randint(1, 4))]
            append_raw(engine, batch_of_times(batch), sync=True)
            times += batch
            if random.random() < 0.3:
                # Of a shared engine, what comes after it is in another run.
                await engine.flush()
        await engine.flush()
        if isinstance(engine, SharedEngine) and random.random() < 0.5:
            await engine.upkeep.merge_all()
        start = 0
        while start < len(times):
            start = random.randint(start, len(times))
            assert await engine.delete_records(ORDERS, start) == start
            left = list(enumerate(times))[start:]
            assert await engine.max_timestamp(ORDERS) == max((at for _, at in left), default=-1), seed
            for at in (0, 500, random.randint(0, 1_000), 1_001):
                expected = next(((offset, time) for offset, time in left if time >= at), (-1, -1))
                assert (await engine.offset_for_time(ORDERS, at))[:2] == expected, (seed, start, at)
            start += random.random() < 0.5
        await engine.close()


@simulated
async def test_corrupt_bytes_of_deleted_records_disturb_no_look_up() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    config = CONFIGS["one segment"]
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    for at in (9_000, 1_000, 2_000):
        append_raw(engine, batch_of_times([at]), sync=True)
    await engine.flush()
    await engine.delete_records(ORDERS, 1)
    path = DATA / str(ORDERS) / f"{0:020d}.log"
    # In the records of the first batch.
    files.content(path)[64] ^= 0xFF
    assert await engine.max_timestamp(ORDERS) == 2_000
    assert (await engine.offset_for_time(ORDERS, 1_500))[:2] == (2, 2_000)
    await engine.close()
