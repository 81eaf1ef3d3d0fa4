"""A partition that was deleted after its name was looked up is an unknown topic in every call of an engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from stele.wire import record_batch as rb

from app.errors import UnknownTopic
from app.storage.disk.files import Files
from app.storage.engine import LogEngine
from app.storage.shared.options import SharedOptions
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import open_engine, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore


def append(engine: LogEngine) -> object:
    batch = batch_of([b"a"])
    return engine.append(ORDERS, batch, rb.check_produced(batch), sync=False)


CALLS: dict[str, Callable[[LogEngine], object]] = {
    "append": append,
    "state": lambda engine: engine.state(ORDERS),
    "configure": lambda engine: engine.configure(ORDERS, TopicConfig()),
    "offset_for_time": lambda engine: engine.offset_for_time(ORDERS, 0),
    "max_timestamp": lambda engine: engine.max_timestamp(ORDERS),
    "producers": lambda engine: engine.producers(ORDERS),
    "producer": lambda engine: engine.producer(ORDERS, 1),
    "epoch_end_offset": lambda engine: engine.epoch_end_offset(ORDERS, 0),
    "delete_records": lambda engine: engine.delete_records(ORDERS, 0),
    "newest_offset": lambda engine: engine.newest_offset(ORDERS, b"k"),
    "newest_offsets": lambda engine: engine.newest_offsets(ORDERS, 0),
    "compacted_until": lambda engine: engine.compacted_until(ORDERS),
}


async def embedded() -> LogEngine:
    clock = SimulatedClock()
    files = cast("Files", SimulatedFiles())
    return await open_engine(files, [spec_of(ORDERS, clock=clock)], clock=clock)


async def shared() -> LogEngine:
    return await open_shared_engine(ModelMeta(SimulatedClock().now_ms), ModelStore(), 1, SharedOptions())


@pytest.mark.parametrize("opened", [embedded, shared])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@simulated
async def test_a_call_about_a_deleted_partition_raises_unknown_topic(
    call: Callable[[LogEngine], object], opened: Callable[[], Awaitable[LogEngine]]
) -> None:
    engine = await opened()
    await engine.drop([ORDERS])

    async def called() -> None:
        result = call(engine)
        if isinstance(result, Awaitable):
            await result

    with pytest.raises(UnknownTopic):
        await called()
    await engine.close()
