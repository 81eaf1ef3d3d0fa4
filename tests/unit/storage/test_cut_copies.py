"""A copy is cut back: what is left is as if the rest had never come, whatever a crash leaves of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch
from stele.wire.isolation_level import IsolationLevel

from app.errors import LogDirFailed, OffsetOutOfRange
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import fetch_of, open_engine, read_batches
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, simulated

# Several segments, of a few batches each.
CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=0, retention_ms=-1, mirror="prod")
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, 7, 50


def history(count: int, word: bytes = b"value") -> list[bytes]:
    """Return batches as a source has them: of every kind, with holes, in several epochs."""
    batches: list[bytes] = []
    offset = sequence = in_transaction = 0
    for number in range(count):
        kind = number % 6
        if kind == 5:
            marker = MarkerType.ABORT if number % 4 else MarkerType.COMMIT
            batch = marker_batch(
                EndTransactionMarker(type=marker, coordinator_epoch=1),
                producer_id=TRANSACTIONAL,
                producer_epoch=0,
                timestamp_ms=5,
            )
        else:
            builder = rb.BatchBuilder(
                producer_id=(producer := (PLAIN, IDEMPOTENT, PLAIN, TRANSACTIONAL, IDEMPOTENT)[kind]),
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence={PLAIN: -1, IDEMPOTENT: sequence, TRANSACTIONAL: in_transaction}[producer],
                is_transactional=producer == TRANSACTIONAL,
            )
            for _ in range(2):
                builder.append(timestamp_ms=1_000 + number, value=word + b"-%d" % number)
            batch = builder.build()
            sequence += 2 * (producer == IDEMPOTENT)
            in_transaction += 2 * (producer == TRANSACTIONAL)
        offset += 3 * (number % 7 == 3)
        rb.assign_offsets(batch, 0, offset, number // 9)
        offset = rb.read_header(batch).next_offset
        batches.append(bytes(batch))
    return batches


HISTORY = history(40)
ENDS = [rb.read_header(batch).next_offset for batch in HISTORY]
OTHERS = history(50, b"other")


async def engine_at(files: SimulatedFiles, config: TopicConfig = CONFIG) -> EmbeddedEngine:
    clock = SimulatedClock()
    return await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)


def copy(engine: EmbeddedEngine, batches: Sequence[bytes]) -> None:
    for batch in batches:
        data = bytearray(batch)
        engine.append(ORDERS, data, list(rb.iter_headers(data)), sync=False, is_copy=True)


async def content(engine: EmbeddedEngine) -> list[bytes]:
    """Return all batches that can be read."""
    found: list[bytes] = []
    offset = engine.state(ORDERS).log_start_offset
    while raw := await read(engine, offset):
        for header in rb.iter_headers(raw):
            found.append(raw[header.position : header.position + header.size])
            offset = header.next_offset
    return found


async def read(engine: EmbeddedEngine, offset: int) -> bytes:
    request = fetch_of(ORDERS, offset, 1000)
    request.isolation = IsolationLevel.READ_UNCOMMITTED
    (fetched,) = await engine.read([request], 1000)
    if fetched.error is not None:
        raise fetched.error
    return bytes(fetched.batches)


async def facts(engine: EmbeddedEngine) -> dict[str, Any]:
    """Return what a log knows of its batches besides their bytes."""
    state = engine.state(ORDERS)
    producers = await engine.producers(ORDERS)
    aborted: set[Any] = set()
    headers, offset = [None], state.log_start_offset
    while headers:
        (committed,) = await engine.read([fetch_of(ORDERS, offset, 1 << 20)], 1 << 20)
        aborted.update(committed.aborted or ())
        headers = list(rb.iter_headers(committed.batches))
        offset = headers[-1].next_offset if headers else offset
    return {
        "end": (state.log_end_offset, state.high_watermark, state.last_stable_offset),
        "epochs": [engine.epoch_end_offset(ORDERS, epoch) for epoch in range(-1, 9)],
        "epoch": engine.last_leader_epoch(ORDERS),
        "producers": sorted(
            (one.producer_id, one.last_sequence, one.last_offset, one.transaction_start_offset)
            for one in producers
        ),
        "aborted": aborted,
        "times": [(await engine.offset_for_time(ORDERS, 1_000 + n))[:2] for n in range(0, 45, 4)],
    }


async def facts_of(batches: Sequence[bytes]) -> dict[str, Any]:
    engine = await engine_at(SimulatedFiles())
    copy(engine, batches)
    found = await facts(engine)
    await engine.close()
    return found


def kept(end_offset: int, batches: Sequence[bytes] = HISTORY) -> list[bytes]:
    return [batch for batch in batches if rb.read_header(batch).next_offset <= end_offset]


@simulated
async def test_what_is_left_is_as_if_the_rest_had_never_come() -> None:
    for offset in range(0, ENDS[-1] + 2, 3):
        files = SimulatedFiles()
        engine = await engine_at(files)
        copy(engine, HISTORY)
        end = await engine.cut_copy(ORDERS, offset)
        left = kept(offset)
        assert end == (rb.read_header(left[-1]).next_offset if left else 0) <= offset
        known = await facts_of(left)
        assert await content(engine) == left
        assert await facts(engine) == known
        crashed = files.crash(Random(offset))
        # It goes on with what the source has since.
        following = OTHERS[len(left) :]
        copy(engine, following)
        assert await content(engine) == left + following
        assert await facts(engine) == await facts_of(left + following)
        await engine.close()
        for later, batches in ((files.crash(Random(0)), left + following), (crashed, left)):
            engine = await engine_at(later)
            assert await content(engine) == batches
            assert await facts(engine) == await facts_of(batches)
            await engine.close()


@pytest.mark.every(5)
@pytest.mark.parametrize("first", range(5))
@simulated
async def test_a_crash_leaves_the_log_up_to_somewhere_after_the_cut(first: int) -> None:
    """At each call to the disk, of the process and of the machine; and then it can be cut again."""
    offset = ENDS[17]
    random = Random(first)
    written = SimulatedFiles()
    engine = await engine_at(written)
    copy(engine, HISTORY)
    # So that a checkpoint has its end.
    await engine.close()
    files = written.crash(random)
    engine = await engine_at(files)
    before = files.calls
    await engine.cut_copy(ORDERS, offset)
    calls = files.calls - before
    assert calls > 30
    await engine.close()
    ends: set[int] = set()
    for number in range(1 + first, calls + 1, 5):
        files = written.crash(random)
        engine = await engine_at(files)
        survivors: list[SimulatedFiles] = []

        def end(files: SimulatedFiles = files, survivors: list[SimulatedFiles] = survivors) -> None:
            survivors.extend([files.crash(random), files.power_cut(random), files.power_cut(random)])

        files.alarm(number, end)
        await engine.cut_copy(ORDERS, offset)
        await engine.close()
        for survivor in survivors:
            engine = await engine_at(survivor)
            found = await content(engine)
            assert found == HISTORY[: len(found)]
            assert len(found) >= 18
            end_offset = engine.state(ORDERS).log_end_offset
            assert end_offset == ENDS[len(found) - 1], "no offset is skipped"
            ends.add(len(found))
            assert await facts(engine) == await facts_of(found)
            assert await engine.cut_copy(ORDERS, offset) == offset
            copy(engine, OTHERS[18:])
            assert await content(engine) == HISTORY[:18] + OTHERS[18:]
            await engine.close()
    assert len(ends) > 2, "some left all, some a part"


@simulated
async def test_a_reader_that_is_past_the_end_is_out_of_range() -> None:
    engine = await engine_at(SimulatedFiles())
    copy(engine, HISTORY)
    waiting = asyncio.create_task(engine.wait({ORDERS: ENDS[-1]}, 1, 10**9))
    await asyncio.sleep(0)
    await engine.cut_copy(ORDERS, ENDS[3])
    await waiting
    with pytest.raises(OffsetOutOfRange) as raised:
        await read_batches(engine, ENDS[-1])
    assert raised.value.log_end_offset == ENDS[3]
    await engine.close()


@simulated
async def test_a_cut_before_the_start_leaves_an_empty_log_there() -> None:
    files = SimulatedFiles()
    engine = await engine_at(files)
    await engine.skip_to(ORDERS, 1_000)
    later = bytearray(batch_of([b"later"]))
    rb.assign_offsets(later, 0, 1_000, 1)
    copy(engine, [bytes(later)])
    # Nothing was before the offset that was skipped to.
    assert await engine.cut_copy(ORDERS, 20) == 0
    state = engine.state(ORDERS)
    assert (state.log_start_offset, state.log_end_offset) == (0, 0)
    crashed = files.crash(Random(0))
    await engine.close()
    for disk in (crashed, files.crash(Random(0))):
        engine = await engine_at(disk)
        state = engine.state(ORDERS)
        assert (state.log_start_offset, state.log_end_offset) == (0, 0)
        await engine.close()


@simulated
async def test_a_compacted_copy_loses_all_because_of_what_later_records_have_removed() -> None:
    config = TopicConfig(
        segment_bytes=700, retention_ms=-1, mirror="prod", cleanup_policy="compact", max_message_bytes=600
    )
    files = SimulatedFiles()
    engine = await engine_at(files, config)
    copy(engine, HISTORY)
    await engine.close()
    # What was compacted before this start is not known.
    engine = await engine_at(files.crash(Random(0)), config)
    assert await engine.cut_copy(ORDERS, ENDS[30]) == 0
    assert await content(engine) == []
    copy(engine, HISTORY)
    assert await content(engine) == HISTORY
    await engine.close()


@simulated
async def test_a_disk_that_fails_stops_the_directory_and_a_start_finds_the_log() -> None:
    files = SimulatedFiles()
    engine = await engine_at(files)
    copy(engine, HISTORY)
    await engine.flush()
    files.fail(Fault(errno=errno.EIO, call=2, kinds=("remove",)))
    with pytest.raises(LogDirFailed):
        await engine.cut_copy(ORDERS, ENDS[3])
    files.heal()
    await engine.close()
    engine = await engine_at(files.crash(Random(0)))
    found = await content(engine)
    assert found == HISTORY[: len(found)]
    assert len(found) >= 4
    await engine.close()


@simulated
async def test_offsets_that_are_left_out_are_no_loss_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    written = SimulatedFiles()
    engine = await engine_at(written)
    copy(engine, HISTORY[:5])
    await engine.close()
    for number in range(1, 60):
        files = written.crash(Random(0))
        engine = await engine_at(files)
        survivors: list[SimulatedFiles] = []

        def end(files: SimulatedFiles = files, survivors: list[SimulatedFiles] = survivors) -> None:
            survivors.extend([files.crash(Random(1)), files.power_cut(Random(1))])

        files.alarm(number, end)
        await engine.skip_to(ORDERS, 1_000)
        await engine.close()
        for survivor in survivors:
            engine = await engine_at(survivor)
            state = engine.state(ORDERS)
            assert (state.log_start_offset, state.log_end_offset) in ((0, ENDS[4]), (1_000, 1_000))
            await engine.close()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
