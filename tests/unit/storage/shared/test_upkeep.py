"""What a broker does in the background, by what it asks of the metadata."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import Retained
from app.storage.shared.options import SharedOptions
from app.storage.shared.store.object_keys import MERGED, WRITTEN, ObjectKeys
from app.storage.shared.store.object_store import LIST_MAX, Buffer, StoredObject
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS
from tests.support.engines import append_synced, open_shared_engine, read_from
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))
SILENT_S = 3_601
DEAD_S = 901


class MetaThatNotesLocks(ModelMeta):
    """Counts how often retention locked a log."""

    locks = 0

    async def retain(
        self, log_id: int, *, retention_s: float | None, retention_bytes: int | None
    ) -> Retained | None:
        self.locks += 1
        return await super().retain(log_id, retention_s=retention_s, retention_bytes=retention_bytes)


class StoreThatCountsLists(ModelStore):
    lists = 0

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        self.lists += 1
        return await super().list_page(prefix, after=after)


@pytest.mark.long
@simulated
async def test_objects_are_found_that_a_broker_stored_after_it_had_counted_as_silent() -> None:
    """It was paused, went on, uploaded, and was killed before its next heartbeat."""
    store = StoreThatCountsLists()
    meta = ModelMeta(SimulatedClock().now_ms)
    forgetful = UpkeepOptions(is_enabled=False, forget_ms=3 * 3_600_000)
    engine = await open_shared_engine(meta, store, 1, replace(OPTIONS, upkeep=forgetful))
    paused = UUID(int=2)
    keys = ObjectKeys(WRITTEN, paused)
    await meta.heartbeat(paused)
    await store.put(keys.next(6), b"before")
    await asyncio.sleep(SILENT_S)
    await engine.upkeep.collect_garbage()
    await asyncio.sleep(DEAD_S)
    assert await engine.upkeep.collect_garbage() == 1
    await store.put(keys.next(5), b"after")
    lists = store.lists
    await engine.upkeep.collect_garbage()
    assert store.lists == lists, "not before it has been silent for twice as long"
    await asyncio.sleep(SILENT_S)
    await engine.upkeep.collect_garbage()
    await asyncio.sleep(DEAD_S)
    assert await engine.upkeep.collect_garbage() == 1
    assert not store.objects
    # Eventually nothing is searched for.
    while silent := await meta.silent_uploaders(SILENT_S):
        await asyncio.sleep(silent[0].silent_s)
        await engine.upkeep.collect_garbage()
    await engine.close()


@simulated
async def test_objects_are_found_whose_uploader_a_promoted_database_has_forgotten() -> None:
    store = StoreThatCountsLists()
    meta = ModelMeta(SimulatedClock().now_ms)
    engine = await open_shared_engine(meta, store, 1, OPTIONS)
    await append_synced(engine, b"kept")
    kept = set(store.objects)
    # More of them than a page of a listing has.
    lost = [UUID(int=number) for number in range(2, 7)]
    for kind in (WRITTEN, MERGED):
        for keys in [ObjectKeys(kind, uploader) for uploader in lost]:
            for _ in range(LIST_MAX // 2):
                await store.put(keys.next(4), b"lost")
    await store.put("w/of somebody else", b"stays")
    await engine.upkeep.collect_garbage()
    lists = store.lists
    await engine.upkeep.collect_garbage()
    assert store.lists == lists, "once for each history of the database"
    await asyncio.sleep(SILENT_S)
    await meta.heartbeat(UUID(int=1))
    await engine.upkeep.collect_garbage()
    await asyncio.sleep(DEAD_S)
    await engine.upkeep.collect_garbage()
    assert set(store.objects) == {*kept, "w/of somebody else"}
    await engine.close()


class StoreThatIsHeldUp(ModelStore):
    """The first upload of a kind is answered after it has been sent a second time."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.held: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.go_on = asyncio.Event()

    async def put(self, key: str, data: Buffer) -> None:
        await super().put(key, data)
        if key.startswith(self._kind) and not self.held.done():
            self.held.set_result(key)
            await self.go_on.wait()
            await super().put(key, data)

    async def taken_by_another_broker(self, meta: ModelMeta, uploader: UUID) -> str:
        """Fence the object and delete its bytes, as for a broker that was silent; then let the upload end."""
        key = await self.held
        assert await meta.fence(uploader, [key]) == [key]
        await self.delete([key])
        await meta.bytes_deleted([key])
        self.go_on.set()
        return key


@simulated
async def test_the_bytes_of_a_fenced_object_are_deleted_again_if_its_uploader_lives() -> None:
    store = StoreThatIsHeldUp(WRITTEN)
    engine = await open_shared_engine(meta := ModelMeta(SimulatedClock().now_ms), store, 1, OPTIONS)
    append = asyncio.create_task(append_synced(engine, b"x"))
    key = await store.taken_by_another_broker(meta, UUID(int=1))
    await append
    assert key in store.objects
    assert len(store.objects) == 2
    await engine.upkeep.collect_garbage()
    await asyncio.sleep(DEAD_S)
    assert await engine.upkeep.collect_garbage() == 1
    assert key not in store.objects
    assert len(store.objects) == 1
    await engine.close()


@simulated
async def test_the_bytes_of_a_fenced_merge_are_deleted_again_if_its_uploader_lives() -> None:
    store = StoreThatIsHeldUp(MERGED)
    eager = UpkeepOptions(is_enabled=False, merge_min_bytes=1, merge_min_age_ms=0)
    options = replace(OPTIONS, upkeep=eager)
    engine = await open_shared_engine(meta := ModelMeta(SimulatedClock().now_ms), store, 1, options)
    for value in (b"x", b"y"):
        await append_synced(engine, value)
    merge = asyncio.create_task(engine.upkeep.merge_one())
    key = await store.taken_by_another_broker(meta, UUID(int=1))
    assert await merge is False
    assert key in store.objects
    await engine.upkeep.collect_garbage()
    await asyncio.sleep(DEAD_S)
    assert await engine.upkeep.collect_garbage() == 1
    assert key not in store.objects
    assert await read_from(engine, 0) == [(0, b"x"), (1, b"y")]
    await engine.close()


@pytest.mark.long
@simulated
async def test_objects_are_found_whose_upload_was_held_up_until_their_bytes_had_been_deleted() -> None:
    store = StoreThatCountsLists()
    engine = await open_shared_engine(meta := ModelMeta(SimulatedClock().now_ms), store, 1, OPTIONS)
    killed = UUID(int=2)
    key = ObjectKeys(WRITTEN, killed).next(6)
    await meta.heartbeat(killed)
    await store.put(key, b"answered")
    for _ in range(2):
        await asyncio.sleep(SILENT_S)
        await engine.upkeep.collect_garbage()
        await asyncio.sleep(DEAD_S)
        assert await engine.upkeep.collect_garbage() == 1
        assert not store.objects
        # The request was sent twice.
        await store.put(key, b"held up")
        await asyncio.sleep(SILENT_S)
    await engine.close()


@simulated
async def test_without_an_object_store_a_silent_broker_is_forgotten_at_once() -> None:
    """Inline objects are stored by the transaction that commits them."""
    clock = SimulatedClock()
    meta = ModelMeta(clock.now_ms)
    engine = SharedEngine(meta, {}, incarnation=UUID(int=1), clock=clock, options=OPTIONS)
    await engine.open()
    await meta.heartbeat(UUID(int=2))
    await asyncio.sleep(SILENT_S)
    await engine.upkeep.collect_garbage()
    # Its own heartbeats begin with its start.
    assert [silent.uploader for silent in await meta.silent_uploaders(SILENT_S)] == [UUID(int=1)]
    await engine.close()


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
