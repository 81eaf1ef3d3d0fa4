"""The contract of ``LogEngine`` for appends, producers and ends, with offsets at once and later.

Time is simulated.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.errors import (
    DuplicateSequence,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    SteleError,
    StorageFull,
)
from app.storage.embedded import EmbeddedEngine
from app.storage.engine import AppendTicket
from app.storage.logs.log import DiskLog
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import open_engine, read_from
from tests.support.late_engine import LateEngine
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import FOREVER_MS, SimulatedClock, before, simulated

CONFIG = TopicConfig(retention_ms=-1)
PRODUCER = 7

engines = pytest.mark.parametrize(
    "engine_class", [EmbeddedEngine, LateEngine], ids=["placed at once", "placed later"]
)


@asynccontextmanager
async def opened(engine_class: type[EmbeddedEngine]) -> AsyncGenerator[EmbeddedEngine]:
    clock = SimulatedClock()
    engine = await open_engine(
        SimulatedFiles(),
        [spec_of(ORDERS, clock=clock, config=CONFIG)],
        clock=clock,
        engine_class=engine_class,
    )
    try:
        yield engine
    finally:
        await engine.close()


def batch(sequence: int, *values: bytes, epoch: int = 0, is_transactional: bool = False) -> bytearray:
    return batch_of(
        values or [b"x"],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def begin(
    engine: EmbeddedEngine, batches: bytearray, *, sync: bool = False, needs_state: bool = False
) -> AppendTicket | SteleError:
    """Append without waiting; return the ticket, or the error if it comes at once."""
    try:
        return engine.append(ORDERS, batches, rb.check_produced(batches), sync=sync, needs_state=needs_state)
    except SteleError as error:
        return error


async def end(begun: AppendTicket | SteleError) -> tuple[int, bool] | type[SteleError]:
    """Return the base offset, and whether it is that of an earlier time; or the type of the error."""
    if isinstance(begun, SteleError):
        return type(begun)
    if begun.future is not None:
        try:
            await begun.future
        except SteleError as error:
            return type(error)
    return begun.base_offset, begun.is_repeat


async def appended(engine: EmbeddedEngine, *batches: bytearray) -> list[tuple[int, bool] | type[SteleError]]:
    """Append ``batches`` without waiting in between."""
    begun = [begin(engine, each) for each in batches]
    return [await end(each) for each in begun]


@engines
@simulated
async def test_batches_of_a_producer_are_checked_in_the_order_of_the_appends(
    engine_class: type[EmbeddedEngine],
) -> None:
    async with opened(engine_class) as engine:
        assert await appended(
            engine, batch(0, b"a", b"b"), batch(2, b"c"), batch(4, b"e"), batch(3, b"d"), batch(4, b"e")
        ) == [(0, False), (2, False), OutOfOrderSequence, (3, False), (4, False)]
        values = [value for _, value in await read_from(engine, 0)]
        assert values == [b"a", b"b", b"c", b"d", b"e"]


@engines
@simulated
async def test_a_retry_gets_the_offsets_of_the_first_time_even_before_they_are_known(
    engine_class: type[EmbeddedEngine],
) -> None:
    async with opened(engine_class) as engine:
        assert await appended(engine, batch(0, b"a", b"b"), batch(0, b"a", b"b"), batch(2), batch(2)) == [
            (0, False),
            (0, True),
            (2, False),
            (2, True),
        ]
        for sequence in range(3, 8):
            assert await appended(engine, batch(sequence)) == [(sequence, False)]
        assert await appended(engine, batch(0, b"a", b"b")) == [DuplicateSequence]
        assert engine.state(ORDERS).high_watermark == 8


@engines
@simulated
async def test_a_retry_that_asks_for_a_sync_is_done_when_the_first_time_is_synced(
    engine_class: type[EmbeddedEngine],
) -> None:
    async with opened(engine_class) as engine:
        await appended(engine, batch(0))
        assert engine.state(ORDERS).recovery_point == 0
        retry = begin(engine, batch(0), sync=True)
        assert isinstance(retry, AppendTicket)
        assert await end(retry) == (0, True)
        assert (retry.durability, engine.state(ORDERS).recovery_point) == (Durability.SYNCED, 1)


@engines
@simulated
async def test_an_older_epoch_is_fenced_and_a_gap_after_an_unknown_state_is_refused(
    engine_class: type[EmbeddedEngine],
) -> None:
    async with opened(engine_class) as engine:
        assert await end(begin(engine, batch(3), needs_state=True)) is OutOfOrderSequence
        assert await appended(engine, batch(3), batch(0, epoch=1), batch(4)) == [
            (0, False),
            (1, False),
            ProducerFenced,
        ]
        view = await engine.producer(ORDERS, PRODUCER)
        assert view is not None
        assert (view.epoch, view.last_sequence, view.last_offset) == (1, 0, 1)
        assert await engine.producers(ORDERS) == [view]
        assert await engine.producer(ORDERS, PRODUCER + 1) is None


@engines
@simulated
async def test_after_a_full_disk_later_batches_do_not_take_the_place_of_the_refused_one(
    engine_class: type[EmbeddedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = DiskLog.append

    def full_once(*_: object, **__: object) -> None:
        monkeypatch.setattr(DiskLog, "append", append)
        raise OSError(errno.ENOSPC, "no space")

    async with opened(engine_class) as engine:
        monkeypatch.setattr(DiskLog, "append", full_once)
        assert await appended(engine, batch(0), batch(1)) == [StorageFull, OutOfOrderSequence]
        assert await appended(engine, batch(0), batch(1)) == [(0, False), (1, False)]


@engines
@simulated
async def test_a_batch_is_admitted_when_it_is_stored_and_only_then(
    engine_class: type[EmbeddedEngine],
) -> None:
    admitted: list[int] = []

    def admit(header: rb.BatchHeader) -> None:
        if header.base_sequence == 1:
            raise InvalidTransactionState("shop", "it has ended")
        admitted.append(header.base_sequence)

    async with opened(engine_class) as engine:

        async def send(sequence: int) -> tuple[int, bool] | type[SteleError]:
            batches = batch(sequence, is_transactional=True)
            try:
                ticket = engine.append(ORDERS, batches, rb.check_produced(batches), sync=False, admit=admit)
            except SteleError as error:
                return type(error)
            return await end(ticket)

        assert [await send(sequence) for sequence in (0, 0, 1)] == [
            (0, False),
            (0, True),
            InvalidTransactionState,
        ]
        assert admitted == [0]
        assert engine.state(ORDERS).log_end_offset == 1


@engines
@simulated
async def test_a_sync_may_be_asked_for_before_the_offsets_are_known(
    engine_class: type[EmbeddedEngine],
) -> None:
    async with opened(engine_class) as engine:
        tickets = [begin(engine, batch(sequence)) for sequence in range(3)]
        for ticket in tickets:
            assert isinstance(ticket, AppendTicket)
            engine.sync(ORDERS, ticket)
            assert not ticket.done
        assert [await end(ticket) for ticket in tickets] == [(0, False), (1, False), (2, False)]
        assert engine.state(ORDERS).recovery_point == 3
        refused = begin(engine, batch(9))
        if isinstance(refused, AppendTicket):
            engine.sync(ORDERS, refused)
        assert await end(refused) is OutOfOrderSequence


@engines
@simulated
async def test_observers_learn_what_is_readable_when_it_is(engine_class: type[EmbeddedEngine]) -> None:
    async with opened(engine_class) as engine:
        seen: list[tuple[TopicPartition, int]] = []
        engine.observe_appends(lambda name: seen.append((name, engine.state(name).log_end_offset)))
        await appended(engine, batch(0), batch(0), batch(1), batch(5))
        assert seen == [(ORDERS, 1), (ORDERS, 2)]
        await engine.delete_records(ORDERS, 1)
        engine.wake_all()
        assert len(seen) == 2


# ── ends that other brokers move ──


@simulated
async def test_an_engine_that_has_its_partitions_to_itself_has_nothing_to_refresh() -> None:
    async with opened(EmbeddedEngine) as engine:
        await appended(engine, batch(0))
        assert not await engine.refresh([ORDERS, TopicPartition("unknown", 0)])


@simulated
async def test_a_refresh_brings_the_ends_of_other_brokers() -> None:
    async with opened(LateEngine) as engine:
        assert isinstance(engine, LateEngine)
        seen: list[TopicPartition] = []
        engine.observe_appends(seen.append)
        engine.append_elsewhere(ORDERS, batch_of([b"a", b"b"]))
        assert engine.state(ORDERS).high_watermark == 0
        assert await read_from(engine, 0) == []
        assert seen == []
        assert await engine.refresh([ORDERS])
        assert not await engine.refresh([ORDERS])
        assert (engine.state(ORDERS).high_watermark, seen) == (2, [ORDERS])
        assert await read_from(engine, 0) == [(0, b"a"), (1, b"b")]
        # A reader that knows more than this broker is not out of range.
        engine.append_elsewhere(ORDERS, batch_of([b"c", b"d"]))
        assert await read_from(engine, 3) == [(3, b"d")]
        with pytest.raises(OffsetOutOfRange):
            await read_from(engine, 5)
        engine.append_elsewhere(ORDERS, batch_of([b"e"]))
        await before(1, asyncio.create_task(engine.wait({ORDERS: 4}, 1, FOREVER_MS)))
        # An append of this broker comes after those of others.
        engine.append_elsewhere(ORDERS, batch_of([b"f"]))
        assert await appended(engine, batch(0)) == [(6, False)]
        assert engine.state(ORDERS).high_watermark == 7
