"""What a broker that has nothing cached asks of the store, and what it answers while the store is slow or fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.errors import CorruptLog, StorageUnavailable
from app.storage.engine import OFFSET_MAX, PartitionFetch
from app.storage.shared.engine import SharedEngine
from app.storage.shared.options import SharedOptions
from app.storage.shared.runs.object_reads import ReadOptions
from app.storage.shared.store.object_store import ByteRange, ObjectNotFound, ObjectStoreError
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OBJECTS = 80
ROUND_TRIP_S = 0.05
READ = ReadOptions()
OPTIONS = SharedOptions(linger_ms=0, read=READ, upkeep=UpkeepOptions(is_enabled=False))
PAYMENTS = ORDERS._replace(partition=1)


class RemoteStore(ModelStore):
    """A store that is a round trip away; ``before`` may fail or hold a GET, ``after`` may change its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: Counter[str] = Counter()
        self.running = 0
        self.running_max = 0
        self.before: Callable[[str], Awaitable[object]] | None = None
        self.after: Callable[[str, bytes], bytes] | None = None

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        self.gets[key] += 1
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            await asyncio.sleep(ROUND_TRIP_S)
            if self.before is not None:
                await self.before(key)
            parts = await super().get_ranges(key, ranges)
        finally:
            self.running -= 1
        return parts if self.after is None else [self.after(key, part) for part in parts]

    @property
    def written(self) -> list[str]:
        """Return the keys in the order in which they were written."""
        return sorted(self.objects)


async def append(engine: SharedEngine, name: TopicPartition, value: bytes, *, at_ms: int) -> None:
    batch = batch_of([value], timestamp_ms=at_ms)
    ticket = engine.append(name, batch, [rb.check_batch(batch)], sync=True)
    assert ticket.future is not None
    await ticket.future


@asynccontextmanager
async def cold_engine(store: RemoteStore, options: SharedOptions = OPTIONS) -> AsyncGenerator[SharedEngine]:
    """Yield an engine that has read nothing of what another one wrote: ``OBJECTS`` objects with one record each.

    Record ``n`` has the time 1,000 + ``n``.
    """
    meta = ModelMeta(SimulatedClock().now_ms)
    writer = await open_shared_engine(meta, store, 1, OPTIONS)
    await writer.create([spec_of(PAYMENTS, clock=SimulatedClock())])
    for number in range(OBJECTS):
        await append(writer, ORDERS, b"%d" % number, at_ms=1_000 + number)
    await append(writer, PAYMENTS, b"payment", at_ms=1_000)
    reader = await open_shared_engine(meta, store, 2, options)
    await reader.create([spec_of(PAYMENTS, clock=SimulatedClock())])
    store.gets.clear()
    store.running_max = 0
    yield reader
    await reader.close()
    await writer.close()


def flipped(data: bytes) -> bytes:
    """Return an object with another bit in its first batch."""
    return data[:60] + bytes([data[60] ^ 1]) + data[61:]


def request(
    offset: int = 0,
    *,
    until_offset: int = OFFSET_MAX,
    max_bytes: int = 1 << 20,
    name: TopicPartition = ORDERS,
) -> PartitionFetch:
    return PartitionFetch(
        topic=name.topic,
        partition=name.partition,
        offset=offset,
        max_bytes=max_bytes,
        until_offset=until_offset,
    )


def offsets_of(batches: bytes | bytearray) -> list[int]:
    return [header.base_offset for header in rb.iter_headers(batches)]


async def read_all(engine: SharedEngine) -> None:
    (read,) = await engine.read([request()], 1 << 20)
    assert offsets_of(read.batches) == list(range(OBJECTS))


async def read_one(engine: SharedEngine) -> None:
    (read,) = await engine.read([request(7, until_offset=8)], 1 << 20)
    assert offsets_of(read.batches) == [7]


async def read_ten(engine: SharedEngine) -> None:
    (read,) = await engine.read([request(7, until_offset=17)], 1 << 20)
    assert offsets_of(read.batches) == list(range(7, 17))


async def read_few_bytes(engine: SharedEngine) -> None:
    (read,) = await engine.read([request(7, max_bytes=1)], 1)
    assert offsets_of(read.batches) == [7]


async def find_time(engine: SharedEngine) -> None:
    assert (await engine.offset_for_time(ORDERS, 1_042))[0] == 42


async def read_at_the_end(engine: SharedEngine) -> None:
    (read,) = await engine.read([request(OBJECTS)], 1 << 20)
    assert (read.error, bytes(read.batches)) == (None, b"")


async def find_no_time(engine: SharedEngine) -> None:
    assert (await engine.offset_for_time(ORDERS, 1_000 + OBJECTS))[0] == -1


async def find_newest_time(engine: SharedEngine) -> None:
    assert await engine.max_timestamp(ORDERS) == 1_000 + OBJECTS - 1


async def read_two_partitions(engine: SharedEngine) -> None:
    orders, payments = await engine.read([request(until_offset=3), request(name=PAYMENTS)], 1 << 20)
    assert offsets_of(orders.batches) == [0, 1, 2]
    assert offsets_of(payments.batches) == [0]


# What each kind of read asks of the store, and how many round trips it waits for.
_PER_ROUND_TRIP = READ.ahead
KINDS: list[tuple[str, Callable[[SharedEngine], Awaitable[None]], int, int]] = [
    ("all records", read_all, OBJECTS, -(-OBJECTS // _PER_ROUND_TRIP)),
    ("one record", read_one, 1, 1),
    ("ten records", read_ten, 10, 1),
    ("the first batch", read_few_bytes, 1, 1),
    ("the offset of a time", find_time, 1, 1),
    ("a time after all records", find_no_time, 0, 0),
    ("the newest time", find_newest_time, 0, 0),
    ("the end of the log", read_at_the_end, 0, 0),
    ("two partitions", read_two_partitions, 4, 1),
]


@pytest.mark.parametrize(
    ("read", "gets", "round_trips"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS]
)
def test_a_cold_read_gets_each_object_that_it_needs_once_and_several_at_a_time(
    read: Callable[[SharedEngine], Awaitable[None]], gets: int, round_trips: int
) -> None:
    @simulated
    async def run() -> None:
        store = RemoteStore()
        async with cold_engine(store) as engine:
            begun_s = asyncio.get_running_loop().time()
            await read(engine)
            # By the clock of the simulation, which stands still while anything works.
            took_s = asyncio.get_running_loop().time() - begun_s
            assert sum(store.gets.values()) == gets
            assert max(store.gets.values(), default=0) <= 1
            assert took_s == pytest.approx(round_trips * ROUND_TRIP_S, abs=ROUND_TRIP_S / 2)
            assert store.running_max <= READ.ahead

    run()


@simulated
async def test_a_read_ends_with_what_it_has_while_the_next_object_does_not_come() -> None:
    store = RemoteStore()
    async with cold_engine(store) as engine:
        stuck, held = store.written[5], asyncio.Event()

        async def hold(key: str) -> None:
            if key == stuck:
                await held.wait()

        store.before = hold
        begun_s = asyncio.get_running_loop().time()
        orders, payments = await engine.read([request(), request(name=PAYMENTS)], 1 << 20)
        assert asyncio.get_running_loop().time() - begun_s == pytest.approx(READ.answer_after_ms / 1000)
        assert (orders.error, offsets_of(orders.batches)) == (None, [0, 1, 2, 3, 4])
        assert payments.error is None
        held.set()
        (rest,) = await engine.read([request(5)], 1 << 20)
        assert offsets_of(rest.batches) == list(range(5, OBJECTS))


@simulated
async def test_a_read_that_has_nothing_waits_for_the_store_and_then_fails_so_that_it_can_be_repeated() -> (
    None
):
    store = RemoteStore()
    async with cold_engine(store) as engine:

        async def hold(key: str) -> None:
            await asyncio.Event().wait()

        store.before = hold
        begun_s = asyncio.get_running_loop().time()
        (read,) = await engine.read([request(max_bytes=1000)], 1000)
        assert isinstance(read.error, StorageUnavailable)
        assert READ.timeout_ms / 2000 < asyncio.get_running_loop().time() - begun_s < READ.timeout_ms / 500
        store.before = None
        (read,) = await engine.read([request(max_bytes=1000)], 1000)
        assert read.error is None
        assert read.batches


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS, ids=[kind[0] for kind in KINDS])
def test_a_read_succeeds_though_three_in_ten_of_its_requests_fail(
    kind: tuple[str, Callable[[SharedEngine], Awaitable[None]], int, int], seed: int
) -> None:
    @simulated
    async def run() -> None:
        store, random = RemoteStore(), Random(seed)
        # Long enough that no read ends early.
        patient = replace(OPTIONS, read=replace(READ, answer_after_ms=60_000))
        async with cold_engine(store, patient) as engine:

            async def fail(key: str) -> None:
                if random.random() < 0.3:
                    raise ObjectStoreError("503 SlowDown")

            store.before = fail
            await kind[1](engine)

    run()


@pytest.mark.parametrize("what", ["fails", "is gone", "is damaged"])
def test_what_was_read_before_a_failure_is_the_answer_and_the_failure_that_of_the_next_read(
    what: str,
) -> None:
    @simulated
    async def run() -> None:
        store = RemoteStore()
        async with cold_engine(store) as engine:
            broken = store.written[3]

            async def fail(key: str) -> None:
                if key == broken and what == "fails":
                    raise ObjectStoreError("403 AccessDenied")
                if key == broken and what == "is gone":
                    raise ObjectNotFound(key)

            store.before = fail
            if what == "is damaged":
                store.after = lambda key, data: flipped(data) if key == broken else data
            (read,) = await engine.read([request()], 1 << 20)
            assert (read.error, offsets_of(read.batches)) == (None, [0, 1, 2])
            (read,) = await engine.read([request(3)], 1 << 20)
            assert isinstance(read.error, StorageUnavailable if what == "fails" else CorruptLog)
            store.before = store.after = None
            (read,) = await engine.read([request(3)], 1 << 20)
            assert offsets_of(read.batches) == list(range(3, OBJECTS))

    run()


@simulated
async def test_an_object_that_arrives_damaged_is_loaded_once_more() -> None:
    store = RemoteStore()
    async with cold_engine(store) as engine:
        damaged = {store.written[0]}

        def damage(key: str, data: bytes) -> bytes:
            if key not in damaged:
                return data
            damaged.remove(key)
            return flipped(data)

        store.after = damage
        await read_one_from(engine, 0)
        assert not damaged
        assert store.gets[store.written[0]] == 2


async def read_one_from(engine: SharedEngine, offset: int) -> None:
    (read,) = await engine.read([request(offset, until_offset=offset + 1)], 1 << 20)
    assert (read.error, offsets_of(read.batches)) == (None, [offset])


@simulated
async def test_a_reader_that_gives_up_leaves_the_loads_of_others_alone() -> None:
    store = RemoteStore()
    async with cold_engine(store) as engine:
        first = asyncio.create_task(engine.read([request()], 1 << 20))
        await asyncio.sleep(ROUND_TRIP_S / 2)
        second = asyncio.create_task(engine.read([request()], 1 << 20))
        await asyncio.sleep(0)
        first.cancel()
        (read,) = await second
        assert offsets_of(read.batches) == list(range(OBJECTS))
        assert set(store.gets.values()) == {1}
