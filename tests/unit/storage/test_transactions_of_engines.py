"""Transactional batches and markers in a log: what readers of committed records see, with each engine.

``World`` is that of the contract suite, without topics in memory, which transactions refuse. The random histories run two shared engines over the same metadata,
and compare what each serves with what was told to the producers.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch
from stele.wire.isolation_level import IsolationLevel

from app.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced, SteleError
from app.storage.engine import AppendTicket, LogEngine, PartitionRead
from app.storage.shared.engine import SharedEngine, SharedOptions
from app.storage.shared.meta import StoreKind
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import append, fetch_of
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore
from tests.unit.storage.test_engine_contract import SharedWorld, World, local_world, stored

OTHER = TopicPartition("orders", 1)
COMMIT, ABORT = MarkerType.COMMIT, MarkerType.ABORT
SEEDS = 30


@pytest.fixture(params=["simulated disk", "shared"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "shared":
        return SharedWorld("shared", SimulatedClock(), ModelMeta(SimulatedClock().now_ms), ModelStore())
    return local_world(request.param, tmp_path)


def produced(
    engine: LogEngine,
    producer_id: int,
    value: bytes,
    sequence: int,
    *,
    epoch: int = 0,
    name: TopicPartition = ORDERS,
    is_transactional: bool = True,
) -> AppendTicket:
    batch = rb.build_rows(
        [(1_000, None, value, [])],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return engine.append(name, batch, rb.check_produced(batch), sync=True, needs_state=is_transactional)


def ended(
    engine: LogEngine, producer_id: int, how: MarkerType, *, epoch: int, name: TopicPartition = ORDERS
) -> AppendTicket:
    batch = marker_batch(
        EndTransactionMarker(type=how, coordinator_epoch=1),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=1_000,
    )
    return engine.append(name, batch, [rb.read_header(batch)], sync=True)


async def done(ticket: AppendTicket) -> AppendTicket:
    await stored(ticket)
    if ticket.future is not None:
        await ticket.future
    return ticket


async def read(
    engine: LogEngine, offset: int, *, max_bytes: int = 1 << 20, name: TopicPartition = ORDERS
) -> PartitionRead:
    (found,) = await engine.read([fetch_of(name, offset, max_bytes)], max_bytes)
    if found.error is not None:
        raise found.error
    return found


def offsets_of(found: PartitionRead) -> list[int]:
    return [header.base_offset for header in rb.iter_headers(found.batches)]


@simulated
async def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(world: World) -> None:
    engine = await world.open()
    await done(append(engine, b"before", sync=True))
    await done(produced(engine, 7, b"a", 0))
    await done(produced(engine, 8, b"b", 0))
    await done(append(engine, b"after", sync=True))
    assert (engine.state(ORDERS).last_stable_offset, engine.state(ORDERS).high_watermark) == (1, 4)
    found = await read(engine, 0)
    assert (offsets_of(found), found.last_stable_offset, found.aborted) == ([0], 1, ())
    assert offsets_of(await read(engine, 1)) == []
    uncommitted = replace(fetch_of(ORDERS, 0, 1 << 20), isolation=IsolationLevel.READ_UNCOMMITTED)
    (all_of_it,) = await engine.read([uncommitted], 1 << 20)
    assert (offsets_of(all_of_it), all_of_it.aborted) == ([0, 1, 2, 3], None)

    await done(ended(engine, 8, ABORT, epoch=1))
    assert engine.state(ORDERS).last_stable_offset == 1
    await done(ended(engine, 7, COMMIT, epoch=1))
    assert engine.state(ORDERS).last_stable_offset == 6
    found = await read(engine, 0)
    assert offsets_of(found) == [0, 1, 2, 3, 4, 5]
    assert found.aborted is not None
    assert [tuple(aborted)[:3] for aborted in found.aborted] == [(8, 2, 4)]
    # A transaction that does not overlap what is read is not listed: a client would drop records that count.
    batch_bytes = len(all_of_it.batches) // 4
    assert list((await read(engine, 0, max_bytes=2 * batch_bytes)).aborted or ()) == []
    assert list((await read(engine, 5)).aborted or ()) == []
    await engine.close()


@simulated
async def test_the_end_of_a_transaction_wakes_readers_of_committed_records(world: World) -> None:
    engine = await world.open()
    await done(produced(engine, 7, b"a", 0))
    waiting = asyncio.create_task(engine.wait({ORDERS: 0}, 1 << 20, 10**9))
    await asyncio.sleep(1)
    await done(append(engine, b"after", sync=True))
    await asyncio.sleep(1)
    assert not waiting.done()
    await done(ended(engine, 7, COMMIT, epoch=1))
    await asyncio.sleep(1)
    assert waiting.done()
    assert offsets_of(await read(engine, 0)) == [0, 1, 2]
    await engine.close()


@simulated
async def test_a_marker_fences_what_comes_late_and_begins_new_sequences(world: World) -> None:
    engine = await world.open()
    await done(produced(engine, 7, b"a", 0))
    with pytest.raises(InvalidTransactionState):
        await done(produced(engine, 7, b"outside", 1, is_transactional=False))
    repeated = await done(produced(engine, 7, b"a", 0))
    assert (repeated.is_repeat, repeated.base_offset) == (True, 0)
    await done(ended(engine, 7, COMMIT, epoch=1))
    with pytest.raises(ProducerFenced):
        await done(produced(engine, 7, b"late", 1))
    with pytest.raises(OutOfOrderSequence):
        await done(produced(engine, 7, b"b", 1, epoch=1))
    await done(produced(engine, 7, b"b", 0, epoch=1))
    view = await engine.producer(ORDERS, 7)
    assert view is not None
    assert (view.epoch, view.transaction_start_offset) == (1, 2)
    with pytest.raises(OutOfOrderSequence):
        await done(produced(engine, 9, b"unknown", 5))
    await engine.close()


@simulated
async def test_deleting_records_moves_the_last_stable_offset_past_an_open_transaction(world: World) -> None:
    engine = await world.open()
    await done(produced(engine, 7, b"a", 0))
    await done(append(engine, b"after", sync=True))
    assert await engine.delete_records(ORDERS, 2) == 2
    assert engine.state(ORDERS).last_stable_offset == 2
    await engine.close()


# ── several brokers ──


class _Broker:
    """A shared engine of its own, over what all of them share."""

    def __init__(self, world: SharedWorld) -> None:
        self.engine = SharedEngine(
            world.meta,
            {StoreKind.OBJECTS: world.store},
            incarnation=uuid4(),
            clock=world.clock,
            options=SharedOptions(
                linger_ms=10,
                poll_interval_ms=50,
                upkeep=UpkeepOptions(merge_min_bytes=1, merge_claim_ms=0, merged_bytes_max=600),
            ),
        )
        self.world = world

    async def open(self) -> None:
        await self.engine.open()
        await self.engine.create([spec_of(ORDERS, clock=self.world.clock)])
        await self.engine.start()


def _shared_world() -> SharedWorld:
    return SharedWorld("shared", SimulatedClock(), ModelMeta(SimulatedClock().now_ms), ModelStore())


@simulated
async def test_other_brokers_learn_of_open_transactions_and_of_their_ends() -> None:
    world = _shared_world()
    one, two = _Broker(world), _Broker(world)
    await one.open()
    await two.open()
    await done(produced(one.engine, 7, b"a", 0))
    waiting = asyncio.create_task(two.engine.wait({ORDERS: 0}, 1, 10**9))
    await asyncio.sleep(1)
    assert not waiting.done()
    assert (two.engine.state(ORDERS).last_stable_offset, two.engine.state(ORDERS).high_watermark) == (0, 1)
    await done(ended(one.engine, 7, ABORT, epoch=1))
    await asyncio.sleep(1)
    assert waiting.done()
    found = await read(two.engine, 0)
    assert (offsets_of(found), list(found.aborted or ())) == ([0, 1], [(7, 0, 1)])
    # The batch of a broker that did not know of the end.
    with pytest.raises(ProducerFenced):
        await done(produced(two.engine, 7, b"late", 1))
    for broker in (one, two):
        await broker.engine.close()


def _committed(found: PartitionRead) -> list[tuple[int, bytes | None]]:
    """Return what a client of Kafka delivers: it drops the batches of aborted transactions, by their list."""
    upcoming = sorted(found.aborted or (), key=lambda aborted: aborted.first_offset)
    dropping: set[int] = set()
    records: list[tuple[int, bytes | None]] = []
    for header in rb.iter_headers(found.batches):
        while upcoming and upcoming[0].first_offset <= header.base_offset:
            dropping.add(upcoming.pop(0).producer_id)
        if header.is_control:
            dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            records += [(record.offset, record.value) for record in rb.decode_records(found.batches, header)]
    assert not [aborted for aborted in upcoming if aborted.last_offset < found.last_stable_offset]
    return records


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(SEEDS))
@simulated
async def test_random_transactions_are_read_whole_or_not_at_all_at_every_broker(seed: int) -> None:
    random, world = Random(seed), _shared_world()
    brokers = [_Broker(world), _Broker(world)]
    for broker in brokers:
        await broker.open()
    committed: dict[int, bytes] = {}
    open_now: dict[int, dict[int, bytes]] = {}
    epochs = dict.fromkeys(range(4), 0)
    sequences = dict.fromkeys(range(4), 0)
    stable = [0, 0]
    for step in range(60):
        at = random.randrange(2)
        engine, producer_id = brokers[at].engine, random.randrange(4)
        value = b"%d of %d" % (step, producer_id)
        match random.choices(["produce", "end", "late", "merge", "read"], [8, 4, 1, 2, 4])[0]:
            case "produce" if producer_id == 0:
                ticket = await done(append(engine, value, sync=True))
                committed[ticket.base_offset] = value
            case "produce":
                ticket = await done(
                    produced(engine, producer_id, value, sequences[producer_id], epoch=epochs[producer_id])
                )
                sequences[producer_id] += 1
                open_now.setdefault(producer_id, {})[ticket.base_offset] = value
            case "end" if producer_id in open_now:
                how = random.choice([COMMIT, ABORT])
                epochs[producer_id] += 1
                sequences[producer_id] = 0
                await done(ended(engine, producer_id, how, epoch=epochs[producer_id]))
                records = open_now.pop(producer_id)
                committed.update(records if how is COMMIT else {})
            case "late" if epochs[producer_id]:
                with pytest.raises(SteleError):
                    await done(produced(engine, producer_id, b"late", 0, epoch=epochs[producer_id] - 1))
            case "merge":
                await engine.upkeep.merge_all()
            case _:
                await engine.refresh([ORDERS])
                offset = random.randint(0, engine.state(ORDERS).high_watermark)
                found = await read(engine, offset, max_bytes=random.choice([1, 300, 1 << 20]))
                first_open = min((min(records) for records in open_now.values()), default=None)
                assert found.last_stable_offset == (
                    found.high_watermark if first_open is None else first_open
                )
                assert found.last_stable_offset >= stable[at]
                stable[at] = found.last_stable_offset
                headers = list(rb.iter_headers(found.batches))
                end = headers[-1].next_offset if headers else offset
                assert end <= max(found.last_stable_offset, offset)
                begin = headers[0].base_offset if headers else offset
                expected = [item for item in sorted(committed.items()) if begin <= item[0] < end]
                assert _committed(found) == expected, f"seed {seed}, step {step}"
    for broker in brokers:
        await broker.engine.close()
