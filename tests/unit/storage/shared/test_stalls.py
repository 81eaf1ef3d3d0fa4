"""A broker whose writes do not succeed is not ready for clients, and it is again when they do."""

from __future__ import annotations

import asyncio

import pytest
from stele.wire import record_batch as rb

from app.errors import StorageUnavailable
from app.storage.disk.files import Buffer
from app.storage.shared.committer import CommitOptions
from app.storage.shared.engine import SharedEngine
from app.storage.shared.options import SharedOptions
from app.storage.shared.store.object_store import ObjectStoreError, StoredObject
from tests.support.batches import ORDERS, batch_of
from tests.support.engines import open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

COMMIT = CommitOptions()
OPTIONS = SharedOptions(linger_ms=0, commit=COMMIT)


class Outage(ModelStore):
    """A store that cannot be reached while ``is_back`` is not set; with ``hangs``, it does not even refuse."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.is_back = asyncio.Event()
        self.is_back.set()
        self._hangs = hangs

    async def _reach(self) -> None:
        if self._hangs:
            await self.is_back.wait()
        if not self.is_back.is_set():
            raise ObjectStoreError("it cannot be reached")

    async def put(self, key: str, data: Buffer) -> None:
        await self._reach()
        await super().put(key, data)

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        await self._reach()
        return await super().list_page(prefix, after=after)


async def append(engine: SharedEngine) -> None:
    batch = batch_of([b"x"])
    ticket = engine.append(ORDERS, batch, [rb.check_batch(batch)], sync=True)
    assert ticket.future is not None
    await ticket.future


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
@simulated
async def test_a_broker_without_its_object_store_is_not_ready_until_it_is_back(hangs: bool) -> None:
    store = Outage(hangs=hangs)
    engine = await open_shared_engine(ModelMeta(SimulatedClock().now_ms), store, 1, OPTIONS)
    await append(engine)
    store.is_back.clear()
    waiting = asyncio.ensure_future(append(engine))
    await asyncio.sleep(COMMIT.stalled_ms / 1000 - 1)
    assert engine.stall is None, "a store may be slow for a moment"
    await asyncio.sleep(2)
    assert isinstance(engine.stall, StorageUnavailable)
    with pytest.raises(StorageUnavailable):
        await waiting
    # No client tries again, and the broker notices all the same that the store is back.
    await asyncio.sleep(60)
    assert isinstance(engine.stall, StorageUnavailable)
    store.is_back.set()
    await asyncio.sleep(5)
    assert engine.stall is None
    await append(engine)
    await engine.close()
