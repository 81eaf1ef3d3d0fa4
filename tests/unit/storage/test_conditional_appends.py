"""Appends that depend on the end of the log, with each engine."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.errors import StorageFull, UnexpectedEnd
from app.storage.engine import AppendTicket, LogEngine
from app.storage.shared.engine import SharedEngine
from tests.support.batches import ORDERS, batch_of
from tests.support.engines import append, read_from
from tests.support.late_engine import LateEngine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore
from tests.unit.storage.test_engine_contract import LocalWorld, SharedWorld, World, local_world, stored

SEEDS = 20
PRODUCER = 7
# Base offset and whether it was stored before; or the end that was expected, and the actual one.
Outcome = tuple[int, bool] | tuple[str, int | str, int]


@pytest.fixture(params=["simulated disk", "real disk", "memory", "shared"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "shared":
        return SharedWorld("shared", SimulatedClock(), ModelMeta(SimulatedClock().now_ms), ModelStore())
    return local_world(request.param, tmp_path)


def begin(engine: LogEngine, batch: bytearray, expected_end: int | None) -> AppendTicket | UnexpectedEnd:
    try:
        return engine.append(ORDERS, batch, rb.check_produced(batch), sync=True, expected_end=expected_end)
    except UnexpectedEnd as error:
        return error


async def end(begun: AppendTicket | UnexpectedEnd) -> Outcome:
    if isinstance(begun, AppendTicket):
        try:
            if begun.future is not None:
                await begun.future
            return begun.base_offset, begun.is_repeat
        except UnexpectedEnd as error:
            begun = error
    assert (begun.topic, begun.partition) == ORDERS
    return "refused", begun.expected, begun.log_end_offset


async def outcome(engine: LogEngine, batch: bytearray, expected_end: int | None) -> Outcome:
    return await end(begin(engine, batch, expected_end))


@simulated
async def test_a_batch_is_stored_at_the_expected_end_alone_as_a_whole_or_not_at_all(world: World) -> None:
    engine = await world.open()
    assert await outcome(engine, batch_of([b"early"]), 1) == ("refused", 1, 0)
    assert await outcome(engine, batch_of([b"a", b"b"]), 0) == (0, False)
    for wrong in (0, 1, 3):
        assert await outcome(engine, batch_of([b"x", b"y"]), wrong) == ("refused", wrong, 2)
    assert await outcome(engine, batch_of([b"c"]), 2) == (2, False)
    assert await read_from(engine, 0) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await engine.close()


@simulated
async def test_of_many_appends_with_the_same_end_the_first_is_stored(world: World) -> None:
    engine = await world.open()
    begun = [begin(engine, batch_of([b"%d" % number]), 0) for number in range(20)]
    assert [await end(one) for one in begun] == [(0, False), *[("refused", 0, 1)] * 19]
    assert await read_from(engine, 0) == [(0, b"0")]
    await engine.close()


@simulated
async def test_the_end_is_that_after_all_appends_before_it(world: World) -> None:
    """They are on their way together, with one commit."""
    engine = await world.open()
    begun = [
        begin(engine, batch_of([b"a", b"b"]), None),
        begin(engine, batch_of([b"refused"]), 1),
        begin(engine, batch_of([b"c"]), 2),
        begin(engine, batch_of([b"refused"]), 2),
        begin(engine, batch_of([b"d"]), None),
        begin(engine, batch_of([b"e"]), 4),
    ]
    assert [await end(one) for one in begun] == [
        (0, False),
        ("refused", 1, 2),
        (2, False),
        ("refused", 2, 3),
        (3, False),
        (4, False),
    ]
    assert [value for _, value in await read_from(engine, 0)] == [b"a", b"b", b"c", b"d", b"e"]
    await engine.close()


@simulated
async def test_a_retry_is_answered_with_its_offset_wherever_the_log_ends_now(world: World) -> None:
    """So a producer that has lost the answer learns that its own batch moved the end."""
    engine = await world.open()
    first = batch_of([b"a", b"b"], producer_id=PRODUCER)
    assert await outcome(engine, bytearray(first), 0) == (0, False)
    await stored(append(engine, b"of another"))
    for expected_end in (0, 3, 99, None):
        assert await outcome(engine, bytearray(first), expected_end) == (0, True)
    # A refused batch leaves its sequence to the next one, also after a repeat.
    second = batch_of([b"c"], producer_id=PRODUCER, base_sequence=2)
    assert await outcome(engine, bytearray(second), 2) == ("refused", 2, 3)
    assert await outcome(engine, bytearray(second), 3) == (3, False)
    assert [value for _, value in await read_from(engine, 0)] == [b"a", b"b", b"of another", b"c"]
    await engine.close()


@simulated
async def test_control_records_and_deleted_records_count(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("topics in memory have no transactions")
    engine = await world.open()
    transactional = batch_of([b"a"], producer_id=PRODUCER, is_transactional=True)
    assert await outcome(engine, transactional, 0) == (0, False)
    marker = marker_batch(
        EndTransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=0),
        producer_id=PRODUCER,
        producer_epoch=0,
        timestamp_ms=1_000,
    )
    await stored(engine.append(ORDERS, marker, [rb.read_header(marker)], sync=True))
    assert await outcome(engine, batch_of([b"b"]), 1) == ("refused", 1, 2)
    assert await outcome(engine, batch_of([b"b"]), 2) == (2, False)
    assert await engine.delete_records(ORDERS, 3) == 3
    assert await outcome(engine, batch_of([b"c"]), 0) == ("refused", 0, 3)
    assert await outcome(engine, batch_of([b"c"]), 3) == (3, False)
    await engine.close()


@simulated
async def test_the_end_is_the_same_after_a_restart(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("a restart empties topics in memory")
    engine = await world.open()
    assert await outcome(engine, batch_of([b"a"]), 0) == (0, False)
    await engine.close()
    engine = await world.open()
    assert await outcome(engine, batch_of([b"x"]), 0) == ("refused", 0, 1)
    assert await outcome(engine, batch_of([b"b"]), 1) == (1, False)
    await engine.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@simulated
async def test_random_appends_have_the_outcomes_of_a_model(world: World, seed: int) -> None:
    random = Random(seed)
    engine = await world.open()
    log: list[bytes] = []
    # Of the idempotent producer: values, first sequence, base offset.
    sent: list[tuple[list[bytes], int, int]] = []
    sequence = number = 0
    for _ in range(15):
        begun: list[AppendTicket | UnexpectedEnd] = []
        expected: list[Outcome] = []
        for _ in range(random.randint(1, 6)):
            number += 1
            values = [b"%d %d" % (number, at) for at in range(random.randint(1, 3))]
            expected_end = random.choice([None, len(log), len(log), len(log) + random.randint(-3, 3)])
            if expected_end is not None and expected_end < 0:
                expected_end = None
            is_idempotent = random.random() < 0.4
            if is_idempotent and sent and random.random() < 0.4:
                values, first, base_offset = random.choice(sent[-5:])
                batch = batch_of(values, producer_id=PRODUCER, base_sequence=first)
                begun.append(begin(engine, batch, expected_end))
                expected.append((base_offset, True))
                continue
            batch = batch_of(values, producer_id=PRODUCER if is_idempotent else -1, base_sequence=sequence)
            begun.append(begin(engine, batch, expected_end))
            if expected_end is not None and expected_end != len(log):
                expected.append(("refused", expected_end, len(log)))
                continue
            expected.append((len(log), False))
            if is_idempotent:
                sent.append((values, sequence, len(log)))
                sequence += len(values)
            log += values
        assert [await end(one) for one in begun] == expected
    assert await read_from(engine, 0) == list(enumerate(log))
    await engine.close()


@simulated
async def test_exactly_one_of_two_brokers_stores_a_batch_at_an_end() -> None:
    world = SharedWorld("shared", SimulatedClock(), ModelMeta(SimulatedClock().now_ms), ModelStore())
    brokers: list[SharedEngine] = [await world.open(), await world.open()]
    for expected_end in range(20):
        begun = [begin(broker, batch_of([b"x"]), expected_end) for broker in brokers]
        outcomes = [await end(one) for one in begun]
        refusal = ("refused", expected_end, expected_end + 1)
        assert outcomes in ([(expected_end, False), refusal], [refusal, (expected_end, False)])
    # One that always knows the end is never refused, whichever broker it asks.
    for expected_end in range(20, 40):
        assert await outcome(brokers[expected_end % 2], batch_of([b"x"]), expected_end) == (
            expected_end,
            False,
        )
    for broker in brokers:
        await broker.close()


@simulated
async def test_an_engine_that_gives_offsets_later_compares_the_end_when_it_does(tmp_path: Path) -> None:
    world = local_world("simulated disk", tmp_path)
    engine = await world.open(engine_class=LateEngine)
    assert isinstance(engine, LateEngine)
    engine.may_commit.clear()
    begun = [begin(engine, batch_of([b"%d" % at]), expected_end) for at, expected_end in enumerate((0, 0, 1))]
    assert all(isinstance(one, AppendTicket) for one in begun)
    engine.may_commit.set()
    assert [await end(one) for one in begun] == [(0, False), ("refused", 0, 1), (1, False)]
    await engine.close()


@simulated
async def test_a_full_disk_leaves_the_end_where_it_is(tmp_path: Path) -> None:
    world: LocalWorld = local_world("simulated disk", tmp_path)
    assert isinstance(world.files, SimulatedFiles)
    engine = await world.open()
    assert await outcome(engine, batch_of([b"a"]), 0) == (0, False)
    world.files.fail(Fault(errno=errno.ENOSPC, kinds=("write",), times=1))
    with pytest.raises(StorageFull):
        begin(engine, batch_of([b"b"]), 1)
    assert await outcome(engine, batch_of([b"x"]), 2) == ("refused", 2, 1)
    assert await outcome(engine, batch_of([b"b"]), 1) == (1, False)
    assert await read_from(engine, 0) == [(0, b"a"), (1, b"b")]
    await engine.close()


@simulated
async def test_a_refused_batch_is_not_admitted_to_its_transaction(tmp_path: Path) -> None:
    engine = await local_world("simulated disk", tmp_path).open()
    admitted: list[int] = []
    for expected_end, batch in ((1, batch_of([b"x"], producer_id=7)), (0, batch_of([b"a"], producer_id=8))):
        header = rb.check_batch(batch)
        try:
            engine.append(
                ORDERS,
                batch,
                [header],
                sync=True,
                expected_end=expected_end,
                admit=lambda header: admitted.append(header.producer_id),
            )
        except UnexpectedEnd:
            continue
    assert admitted == [8]
    await engine.close()
