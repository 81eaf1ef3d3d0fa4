"""A read never takes records of a log for those of the one that has taken its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest
from stele.wire import record_batch as rb

from app.errors import StorageUnavailable, UnknownTopic
from app.storage.shared.engine import SharedEngine
from app.storage.shared.options import SharedOptions
from app.storage.shared.store.object_store import ByteRange
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import append_raw, append_synced, fetch_of, open_shared_engine, records_of
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))
PAYMENTS = ORDERS._replace(topic="payments")


class _SlowStore(ModelStore):
    """Does something once, before it answers the next GET."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        return await super().get_ranges(key, ranges)


class _World:
    """A writer, and a reader that has nothing cached."""

    def __init__(
        self, meta: ModelMeta, store: _SlowStore, writer: SharedEngine, reader: SharedEngine
    ) -> None:
        self.meta, self.store, self.writer, self.reader = meta, store, writer, reader

    async def close(self) -> None:
        for engine in (self.writer, self.reader):
            await engine.close()


async def _world() -> _World:
    meta, store = ModelMeta(SimulatedClock().now_ms), _SlowStore()
    writer, reader = [await open_shared_engine(meta, store, number, OPTIONS) for number in (1, 2)]
    return _World(meta, store, writer, reader)


async def _append(engine: SharedEngine, key: bytes, value: bytes) -> None:
    builder = rb.BatchBuilder()
    builder.append(timestamp_ms=1_000, key=key, value=value)
    ticket = append_raw(engine, builder.build(), sync=True)
    assert ticket.future is not None
    await ticket.future


@simulated
async def test_a_topic_that_is_recreated_between_plan_and_read_does_not_get_the_records_of_the_one_before() -> (
    None
):
    world = await _world()
    reader = world.reader
    spec = spec_of(PAYMENTS, clock=SimulatedClock(), topic_id=UUID(int=2))
    for engine in (world.writer, reader):
        await engine.create([spec])
    await append_synced(world.writer, b"first")
    await append_synced(world.writer, b"of the topic that is deleted", name=PAYMENTS)
    await reader.refresh([ORDERS, PAYMENTS])

    async def make_anew() -> None:
        await reader.drop([PAYMENTS])
        await reader.create([spec_of(PAYMENTS, clock=SimulatedClock(), topic_id=UUID(int=3))])
        await append_synced(reader, b"of the new topic", name=PAYMENTS)

    world.store.meanwhile = make_anew
    orders, payments = await reader.read([fetch_of(ORDERS, 0, 1_000), fetch_of(PAYMENTS, 0, 1_000)], 10_000)
    assert records_of(bytes(orders.batches), 0) == [(0, b"first")]
    assert isinstance(payments.error, UnknownTopic)
    assert not payments.batches
    await world.close()


async def _newest_by_key(engine: SharedEngine) -> int:
    return await engine.newest_offset(ORDERS, b"key")


async def _newest_of_all(engine: SharedEngine) -> list[int]:
    return list(await engine.newest_offsets(ORDERS, engine.state(ORDERS).high_watermark))


async def _by_time(engine: SharedEngine) -> int:
    return (await engine.offset_for_time(ORDERS, 1_000))[0]


@pytest.mark.parametrize("read", [_newest_by_key, _newest_of_all, _by_time])
@simulated
async def test_what_a_read_found_in_another_history_is_neither_returned_nor_remembered(
    read: Callable[[SharedEngine], Awaitable[object]],
) -> None:
    world = await _world()
    await _append(world.writer, b"other", b"kept")
    standby = world.meta.standby()
    for number in range(4):
        await _append(world.writer, b"key", b"lost %d" % number)
    await world.reader.refresh([ORDERS])

    async def fail_over() -> None:
        world.meta.fail_over(standby)
        for name in (b"key", b"another", b"another", b"another"):
            await _append(world.writer, name, b"new")
        await world.reader.refresh([ORDERS])

    world.store.meanwhile = fail_over
    with pytest.raises(StorageUnavailable, match="another history"):
        await read(world.reader)
    fresh = await open_shared_engine(world.meta, world.store, 3, OPTIONS)
    assert await read(world.reader) == await read(fresh)
    await fresh.close()
    await world.close()
