"""Reads go on while requests to a real S3 server fail in all the ways in which stores fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from uuid import UUID

import httpx
import pytest
from stele.wire import record_batch as rb

from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import StoreKind
from app.storage.shared.options import SharedOptions
from app.storage.shared.runs.object_reads import ReadOptions
from app.storage.shared.store.object_store import ObjectStore
from app.storage.shared.store.urls import open_object_store
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import append_synced, fetch_of
from tests.support.faults.links import LinkLoop
from tests.support.faults.store_proxy import StoreFault, StoreMood, StoreProxy
from tests.support.model_meta import ModelMeta
from tests.support.s3_servers import moto, use_test_credentials
from tests.support.simulated_time import SimulatedClock

pytestmark = pytest.mark.long

OBJECTS = 40
OPTIONS = SharedOptions(
    linger_ms=0,
    upkeep=UpkeepOptions(is_enabled=False),
    # Long enough that no read ends early, and short tries, or a request without an answer takes seconds.
    read=ReadOptions(answer_after_ms=300_000, timeout_ms=120_000, try_timeout_ms=1_000),
)
# A slow answer is no fault of a read, and what is late of a PUT is lost of a GET.
FAULTS = [fault for fault in StoreFault if fault not in (StoreFault.SLOW, StoreFault.LATE)]


@pytest.fixture(scope="module")
def store_url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, moto() as url:
        use_test_credentials(patch)
        yield url


@pytest.fixture
def proxy(store_url: str) -> Iterator[StoreProxy]:
    endpoint = httpx.URL(httpx.URL(store_url).params["endpoint"])
    assert endpoint.port is not None
    with LinkLoop() as loop:
        yield StoreProxy(loop, "store", (endpoint.host, endpoint.port), Random(7))


@pytest.fixture
def store(store_url: str, proxy: StoreProxy) -> ObjectStore:
    endpoint = httpx.URL(store_url).params["endpoint"]
    return open_object_store(store_url.replace(endpoint, f"http://127.0.0.1:{proxy.port}"))


@asynccontextmanager
async def cold_engine(store: ObjectStore, options: SharedOptions = OPTIONS) -> AsyncGenerator[SharedEngine]:
    """Yield an engine that has read nothing of ``OBJECTS`` objects with one record each."""
    meta, engines = ModelMeta(SimulatedClock().now_ms), list[SharedEngine]()
    for _ in range(2):
        engine = SharedEngine(
            meta,
            {StoreKind.OBJECTS: store},
            incarnation=UUID(bytes=Random().randbytes(16)),
            clock=SimulatedClock(),
            options=options,
        )
        await engine.open()
        await engine.create([spec_of(ORDERS, clock=SimulatedClock())])
        await engine.start()
        if not engines:
            for number in range(OBJECTS):
                await append_synced(engine, b"%d" % number)
            await engine.flush()
        engines.append(engine)
    assert await engines[1].refresh([ORDERS]) is False
    yield engines[1]
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
async def test_a_read_succeeds_though_three_in_ten_requests_fail(
    fault: StoreFault, proxy: StoreProxy, store: ObjectStore
) -> None:
    async with cold_engine(store) as engine:
        proxy.mood = StoreMood(faults=(fault,), probability=0.3)
        (read,) = await engine.read([fetch_of(ORDERS, 0, 1 << 20)], 1 << 20)
        assert read.error is None
        offsets = [header.base_offset for header in rb.iter_headers(read.batches)]
        assert offsets == list(range(OBJECTS))
        assert proxy.failed[fault] > 0


async def test_a_read_of_one_record_makes_one_request(proxy: StoreProxy, store: ObjectStore) -> None:
    async with cold_engine(store) as engine:
        proxy.requests.clear()
        (read,) = await engine.read([replace(fetch_of(ORDERS, 3, 1 << 20), until_offset=4)], 1 << 20)
        assert [header.base_offset for header in rb.iter_headers(read.batches)] == [3]
        assert proxy.requests == {"GET": 1}
        proxy.requests.clear()
        (read,) = await engine.read([fetch_of(ORDERS, 0, 1 << 20)], 1 << 20)
        assert proxy.requests == {"GET": OBJECTS - 1}
