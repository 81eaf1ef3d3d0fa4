"""Readers see what waits for a sync when it is synced: what ADR-0036 promises of one partition."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch
from stele.wire.isolation_level import IsolationLevel

from app.errors import LogDirFailed, OffsetOutOfRange
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import PartitionFetch
from app.storage.logs.high_watermark import HighWatermark
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import QUIET, append, append_raw, open_engine, read_batches, read_from
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import FOREVER_MS, SimulatedClock, simulated

_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_ABORT = EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0)
PRODUCER = 7


async def opened(
    config: TopicConfig | None = None,
    *,
    options: EngineOptions = QUIET,
    files: SimulatedFiles | None = None,
) -> EmbeddedEngine:
    clock = SimulatedClock()
    spec = spec_of(ORDERS, clock=clock, config=config or TopicConfig(retention_ms=-1))
    return await open_engine(files or SimulatedFiles(), [spec], clock=clock, options=options)


def bounds(engine: EmbeddedEngine) -> tuple[int, int, int]:
    """Return last stable offset, high watermark and log end offset."""
    state = engine.state(ORDERS)
    return state.last_stable_offset, state.high_watermark, state.log_end_offset


def begin_transaction(engine: EmbeddedEngine) -> None:
    append_raw(engine, batch_of([b"t"], producer_id=PRODUCER, is_transactional=True))


def abort_transaction(engine: EmbeddedEngine) -> None:
    marker = marker_batch(_ABORT, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=1)
    engine.append(ORDERS, marker, [rb.read_header(marker)], sync=False)


# ── the rule ──


def test_a_log_without_waits_is_visible_to_its_end() -> None:
    mark = HighWatermark()
    mark.appended(100)
    assert mark.offset(5) == 5
    mark.sync_begins()
    mark.appended(100)
    assert mark.offset(9) == 9
    assert mark.sync_ends() == 0


def test_what_is_appended_during_a_sync_waits_for_the_next_one() -> None:
    mark = HighWatermark()
    mark.appended(10)
    mark.appended(20)
    mark.hold_back(1, 20)
    mark.sync_begins()
    mark.appended(300)
    mark.appended(4000)
    mark.hold_back(3, 4000)
    mark.appended(50000)
    assert mark.offset(5) == 1
    # 1, and 2, which waits for no sync and now for nothing before it.
    assert mark.sync_ends() == 320
    assert mark.offset(5) == 3
    mark.sync_begins()
    assert mark.offset(5) == 3
    assert mark.sync_ends() == 54000
    assert mark.offset(5) == 5


def test_a_sync_that_failed_makes_nothing_visible() -> None:
    mark = HighWatermark()
    mark.appended(10)
    mark.hold_back(0, 10)
    mark.sync_begins()
    mark.appended(10)
    mark.hold_back(1, 10)
    mark.sync_begins()
    assert mark.offset(2) == 0


# ── reads ──


@pytest.mark.parametrize("is_cold", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("isolation", [_COMMITTED, _UNCOMMITTED], ids=lambda isolation: isolation.name)
@simulated
async def test_no_isolation_level_shows_what_waits_for_a_sync(
    isolation: IsolationLevel, is_cold: bool
) -> None:
    files = SimulatedFiles()
    files.is_cold = lambda: is_cold
    engine = await opened(files=files)
    append(engine, b"seen")
    append(engine, b"waits", sync=True)
    request = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=1000, isolation=isolation)
    (read,) = await engine.read([request], 1000)
    assert [header.base_offset for header in rb.iter_headers(read.batches)] == [0]
    # While the disk is read, the sync ends.
    assert read.high_watermark == (2 if is_cold else 1)
    await engine.close()


@simulated
async def test_a_batch_that_waits_for_a_sync_is_read_after_it() -> None:
    engine = await opened()
    append(engine, b"seen")
    ticket = append(engine, b"waits", sync=True)
    append(engine, b"after")
    assert bounds(engine) == (1, 1, 3)
    assert await read_from(engine, 0) == [(0, b"seen")]
    # Hidden offsets exist: a reader there waits, and is not out of range.
    assert await read_batches(engine, 1) == await read_batches(engine, 3) == b""
    with pytest.raises(OffsetOutOfRange) as error:
        await read_batches(engine, 4)
    assert error.value.log_end_offset == 1, "a reader that goes on there misses nothing"
    assert ticket.future is not None
    await ticket.future
    assert bounds(engine) == (3, 3, 3)
    assert await read_from(engine, 0) == [(0, b"seen"), (1, b"waits"), (2, b"after")]
    await engine.close()


@simulated
async def test_batches_of_producers_that_do_not_wait_are_visible_at_once() -> None:
    engine = await opened()
    for number in range(3):
        append(engine, b"%d" % number)
        assert bounds(engine) == (number + 1,) * 3
    await engine.close()


@simulated
async def test_a_topic_can_show_what_is_appended() -> None:
    engine = await opened(TopicConfig(retention_ms=-1, visibility="appended"))
    append(engine, b"a", sync=True)
    assert bounds(engine) == (1, 1, 1)
    assert await read_from(engine, 0) == [(0, b"a")]
    engine.configure(ORDERS, replace(TopicConfig(), visibility="synced"))
    append(engine, b"b", sync=True)
    assert bounds(engine) == (1, 1, 2)
    await engine.flush()
    assert bounds(engine) == (2, 2, 2)
    await engine.close()


@simulated
async def test_an_acknowledgement_that_waits_for_flush_messages_hides_its_batch() -> None:
    engine = await opened(TopicConfig(retention_ms=-1, flush_messages=2))
    append(engine, b"a")
    ticket = append(engine, b"b")
    assert bounds(engine) == (1, 1, 2)
    assert ticket.future is not None
    await ticket.future
    assert bounds(engine) == (2, 2, 2)
    await engine.close()


@simulated
async def test_a_sync_that_is_asked_for_later_hides_its_batch_for_no_longer_than_the_interval() -> None:
    config = TopicConfig(retention_ms=-1, flush_ms=10**9)
    engine = await opened(config, options=replace(QUIET, flush_interval_ms=100))
    batch = batch_of([b"a"])
    engine.append(ORDERS, batch, rb.check_produced(batch), sync=False, sync_later=True)
    assert bounds(engine) == (0, 0, 1)
    # Its producer does not come back.
    await engine.wait({ORDERS: 0}, 1, FOREVER_MS)
    assert bounds(engine) == (1, 1, 1)
    await engine.close()


@simulated
async def test_a_sync_that_fails_leaves_its_batches_hidden() -> None:
    files = SimulatedFiles()
    engine = await opened(files=files)
    append(engine, b"seen")
    ticket = append(engine, b"lost", sync=True)
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    assert ticket.future is not None
    with pytest.raises(LogDirFailed):
        await ticket.future
    assert bounds(engine) == (1, 1, 2)
    assert await read_from(engine, 0) == [(0, b"seen")]
    await engine.close()


@simulated
async def test_records_are_deleted_up_to_the_high_watermark() -> None:
    engine = await opened()
    append(engine, b"seen")
    append(engine, b"waits", sync=True)
    assert await engine.delete_records(ORDERS, 2) == 1
    await engine.flush()
    assert await engine.delete_records(ORDERS, 2) == 2
    await engine.close()


@simulated
async def test_all_that_a_start_keeps_is_visible() -> None:
    files = SimulatedFiles()
    engine = await opened(files=files)
    append(engine, b"waits", sync=True)
    await engine.close()
    engine = await opened(files=files)
    assert bounds(engine) == (1, 1, 1)
    await engine.close()


# ── transactions ──


@simulated
async def test_a_transaction_that_began_in_a_hidden_batch_does_not_lower_the_last_stable_offset() -> None:
    engine = await opened()
    append(engine, b"seen")
    append(engine, b"waits", sync=True)
    begin_transaction(engine)
    assert bounds(engine) == (1, 1, 3)
    await engine.flush()
    assert bounds(engine) == (2, 3, 3)
    await engine.close()


@simulated
async def test_a_hidden_marker_ends_its_transaction_for_readers_at_once() -> None:
    engine = await opened()
    begin_transaction(engine)
    append(engine, b"waits", sync=True)
    assert bounds(engine) == (0, 1, 2)
    abort_transaction(engine)
    assert bounds(engine) == (1, 1, 3)
    request = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=1000, isolation=_COMMITTED)
    (read,) = await engine.read([request], 1000)
    assert read.batches
    assert [tuple(aborted) for aborted in read.aborted or ()] == [(PRODUCER, 0, 2)]
    await engine.close()


# ── waits ──


@simulated
async def test_readers_are_woken_by_the_sync_and_not_by_the_append() -> None:
    engine = await opened()
    readable: list[TopicPartition] = []
    engine.observe_appends(readable.append)
    waits = [
        asyncio.create_task(engine.wait({ORDERS: 0}, 1, FOREVER_MS, isolation=isolation))
        for isolation in (_COMMITTED, _UNCOMMITTED)
    ]
    watch = engine.waiters.watch()
    watch.add(ORDERS)
    await asyncio.sleep(0)
    ticket = append(engine, b"waits", sync=True)
    append(engine, b"after")
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    assert (watch.take(), readable) == ([], [])
    assert ticket.future is not None
    await ticket.future
    await asyncio.gather(*waits)
    assert (watch.take(), readable) == ([ORDERS], [ORDERS])
    await engine.close()


@simulated
async def test_a_wait_for_bytes_counts_what_a_sync_makes_visible() -> None:
    engine = await opened()
    size = len(batch_of([b"a"]))
    wait = asyncio.create_task(engine.wait({ORDERS: 0}, 3 * size, FOREVER_MS))
    await asyncio.sleep(0)
    append(engine, b"a", sync=True)
    append(engine, b"b")
    await engine.flush()
    await asyncio.sleep(0)
    assert not wait.done()
    append(engine, b"c", sync=True)
    await asyncio.sleep(0)
    assert not wait.done()
    await wait
    assert bounds(engine) == (3, 3, 3)
    await engine.close()


@simulated
async def test_the_end_of_a_transaction_wakes_readers_of_committed_records_before_its_marker_is_visible() -> (
    None
):
    engine = await opened()
    begin_transaction(engine)
    append(engine, b"waits", sync=True)
    wait = asyncio.create_task(engine.wait({ORDERS: 0}, 1, FOREVER_MS, isolation=_COMMITTED))
    await asyncio.sleep(0)
    assert not wait.done()
    abort_transaction(engine)
    # No sync has ended yet: simulated syncs take a turn of the loop of their own.
    assert bounds(engine) == (1, 1, 3)
    await wait
    await engine.close()
