"""Retention by time goes by the age of records, whatever their producers say of it."""

from __future__ import annotations

import asyncio
import struct
from random import Random

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.storage.segments.age import RecordAge, Verdict, age_of_batch, judge
from app.storage.topic_config import StorageKind, TopicConfig
from tests.support.batches import ORDERS, batch_of, batch_of_times, spec_of, untimed_first_batch, with_new_crc
from tests.support.engines import append_raw, open_engine, read_from
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated, simulated

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_767_225_600_000


def claiming(batch: bytes | bytearray, *, max_timestamp: int, attributes: int | None = None) -> bytearray:
    """``batch`` with another max timestamp in its header, as a careless producer would seal it."""
    changed = bytearray(batch)
    struct.pack_into(">q", changed, 35, max_timestamp)
    if attributes is not None:
        struct.pack_into(">h", changed, 21, attributes)
    return bytearray(with_new_crc(bytes(changed)))


# ── the verdict ──


@pytest.mark.parametrize(
    ("claimed_ms", "arrival_ms", "records", "verdict"),
    [
        # The claim protects.
        (NOW_MS - DAY_MS + 1, NOW_MS, None, Verdict.KEEP),
        (NOW_MS + 9 * DAY_MS, NOW_MS - DAY_MS, None, Verdict.KEEP),
        # Even a record dated as far ahead as is allowed would be past its time.
        (0, NOW_MS - DAY_MS - HOUR_MS - 1, None, Verdict.DELETE),
        (-1, NOW_MS - DAY_MS - HOUR_MS - 1, None, Verdict.DELETE),
        (NOW_MS + 9 * DAY_MS, NOW_MS - DAY_MS - HOUR_MS - 1, None, Verdict.DELETE),
        # In between the records decide; of live traffic they are not read, since waiting costs little.
        (NOW_MS - 3 * DAY_MS, NOW_MS - HOUR_MS, None, Verdict.READ),
        (0, NOW_MS, None, Verdict.READ),
        (NOW_MS - DAY_MS - 1, NOW_MS - DAY_MS - 1, None, Verdict.KEEP),
        (-1, NOW_MS - DAY_MS - 1, None, Verdict.KEEP),
        # Once they have been read, they alone count.
        (0, NOW_MS, RecordAge(NOW_MS - DAY_MS - 1), Verdict.DELETE),
        (0, NOW_MS, RecordAge(NOW_MS - DAY_MS), Verdict.KEEP),
        # A record without a time counts from its arrival.
        (0, NOW_MS - HOUR_MS, RecordAge(NOW_MS - 9 * DAY_MS, has_untimed=True), Verdict.KEEP),
        (0, NOW_MS - DAY_MS - 1, RecordAge(-1, has_untimed=True), Verdict.DELETE),
    ],
)
def test_the_verdict_weighs_claim_arrival_and_records(
    claimed_ms: int, arrival_ms: int, records: RecordAge | None, verdict: Verdict
) -> None:
    actual = judge(
        claimed_ms=claimed_ms,
        arrival_ms=arrival_ms,
        records=records,
        now_ms=NOW_MS,
        retention_ms=DAY_MS,
        after_max_ms=HOUR_MS,
    )
    assert actual is verdict


@pytest.mark.parametrize("codec", list(Compression))
def test_the_times_of_a_batch_are_those_of_its_records(codec: Compression) -> None:
    builder = rb.BatchBuilder(compression=codec)
    for timestamp_ms in (5, 9, -1, 7):
        builder.append(timestamp_ms=timestamp_ms, value=b"x" * 100)
    batch = claiming(builder.build(), max_timestamp=1, attributes=codec)
    assert age_of_batch(batch) == RecordAge(9, has_untimed=True)


def test_a_batch_that_cannot_be_decoded_counts_by_its_header_and_its_arrival() -> None:
    batch = batch_of([b"x"], timestamp_ms=77)
    batch[rb.HEADER_BYTES] ^= 0x7F
    assert age_of_batch(batch) == RecordAge(77, has_untimed=True)
    assert age_of_batch(with_new_crc(bytes(batch))) == RecordAge(77, has_untimed=True)


# ── fields of a producer's header ──


@pytest.mark.parametrize(
    ("times", "claimed", "stored"),
    [
        ([5, 9], 9, 9),
        # librdkafka, when no record has a time.
        ([-1, -1], 0, -1),
        ([-1, -1], -1, -1),
        # The first record is newer than the claim; whether a later one is newer still is not looked at.
        ([5, 4], 3, 5),
        ([5, 9], 3, 5),
        ([5, 5], -1, 5),
        # It may be true: some records have a time, the first has none.
        ([-1, 9], 9, 9),
        ([5, 9], 70, 70),
    ],
)
def test_a_max_timestamp_that_contradicts_the_base_timestamp_is_corrected(
    times: list[int], claimed: int, stored: int
) -> None:
    batch = claiming(untimed_first_batch(times), max_timestamp=claimed)
    (header,) = rb.check_produced(batch)
    rb.settle_create_time(batch, header)
    actual = rb.check_batch(batch)
    assert (actual.max_timestamp, header.max_timestamp, header.crc) == (stored, stored, actual.crc)
    assert [record.timestamp for record in rb.decode_records(batch)] == times


def test_only_the_broker_stamps_batches() -> None:
    batch = claiming(batch_of_times([5, 6]), max_timestamp=99, attributes=0x08)
    (header,) = rb.check_produced(batch)
    rb.settle_create_time(batch, header)
    assert not rb.check_batch(batch).is_log_append_time
    assert [record.timestamp for record in rb.decode_records(batch)] == [5, 6]


@pytest.mark.parametrize("bit", range(6, 16))
def test_attributes_that_a_producer_has_no_use_for_are_refused(bit: int) -> None:
    attributes = struct.unpack(">h", struct.pack(">H", 1 << bit))[0]
    with pytest.raises(rb.CorruptBatchError, match="attributes"):
        rb.check_produced(claiming(batch_of([b"x"]), max_timestamp=1, attributes=attributes))


# ── retention ──


KINDS: list[StorageKind] = ["disk", "memory"]


@pytest.mark.parametrize("storage", KINDS)
@simulated
async def test_records_without_a_time_are_kept_from_their_arrival_on(storage: StorageKind) -> None:
    clock = SimulatedClock()
    config = TopicConfig(storage=storage, retention_ms=DAY_MS, segment_bytes=1024)
    engine = await open_engine(SimulatedFiles(), [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    for _ in range(3):
        append_raw(engine, claiming(batch_of([b"x" * 900], timestamp_ms=-1), max_timestamp=0), sync=True)
    await asyncio.sleep(23 * 3600)
    await engine.enforce_retention()
    assert len(await read_from(engine, 0)) == 3
    await asyncio.sleep(3 * 3600)
    await engine.enforce_retention()
    assert engine.state(ORDERS).log_start_offset == 3
    await engine.close()


@simulated
async def test_a_segment_without_any_time_does_not_stop_retention_after_a_restart() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    config = TopicConfig(retention_ms=10 * HOUR_MS, segment_bytes=1024)
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    append_raw(engine, batch_of([b"x" * 900], timestamp_ms=-1), sync=True)
    append_raw(engine, batch_of([b"x" * 900], timestamp_ms=clock.now_ms()), sync=True)
    await engine.close()
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    await asyncio.sleep(9 * 3600)
    await engine.enforce_retention()
    assert engine.state(ORDERS).log_start_offset == 0
    await asyncio.sleep(3 * 3600)
    await engine.enforce_retention()
    assert engine.state(ORDERS).log_start_offset == 2
    await engine.close()


@simulated
async def test_live_segments_are_not_read_before_they_are_deleted() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    config = TopicConfig(retention_ms=7 * DAY_MS, segment_bytes=100_000)
    engine = await open_engine(files, [spec_of(ORDERS, clock=clock, config=config)], clock=clock)
    for _ in range(10):
        append_raw(engine, batch_of([b"x" * 90_000], timestamp_ms=clock.now_ms()), sync=True)
        await asyncio.sleep(3600)
    await asyncio.sleep(8 * 86_400)
    before = files.bytes_read.total()
    await engine.enforce_retention()
    assert engine.state(ORDERS).log_start_offset == 10
    # Headers, to confirm what the time index says, and no record.
    assert files.bytes_read.total() - before < 400_000
    await engine.close()


@pytest.mark.every(4)
@pytest.mark.parametrize("storage", KINDS)
@pytest.mark.parametrize("seed", range(60))
def test_no_record_is_deleted_before_its_time_whatever_headers_say(seed: int, storage: StorageKind) -> None:
    run_simulated(lambda: _history(Random(seed), storage), Random(seed))


async def _history(random: Random, storage: StorageKind) -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    retention_ms = random.choice([HOUR_MS, DAY_MS, 7 * DAY_MS])
    config = TopicConfig(
        storage=storage, retention_ms=retention_ms, segment_bytes=random.choice([1024, 5000])
    )
    spec = spec_of(ORDERS, clock=clock, config=config)
    engine = await open_engine(files, [spec], clock=clock)
    # When each record is due, by offset.
    due: dict[int, int] = {}
    for _ in range(60):
        now_ms = clock.now_ms()
        if random.random() < 0.7:
            times = [_time(random, now_ms, retention_ms) for _ in range(random.randint(1, 4))]
            batch = claiming(
                untimed_first_batch(times),
                max_timestamp=random.choice(
                    [-1, 0, 1, times[0], max(times), now_ms, now_ms - 2 * retention_ms]
                ),
                attributes=random.choice([0, 0, 0x08]),
            )
            ticket = append_raw(engine, batch, sync=True)
            if ticket.future is not None:
                await ticket.future
            for offset, time_ms in enumerate(times, ticket.base_offset):
                born_ms = now_ms if time_ms < 0 else time_ms
                due[offset] = born_ms + retention_ms
        elif storage == "disk" and random.random() < 0.2:
            await engine.close()
            engine = await open_engine(files, [spec], clock=clock)
        await asyncio.sleep(random.random() * retention_ms / 1000 / 10)
        await engine.enforce_retention()
        start, now_ms = engine.state(ORDERS).log_start_offset, clock.now_ms()
        early = {offset: due[offset] - now_ms for offset in due if offset < start and due[offset] > now_ms}
        assert not early
    # Nothing stays for good either.
    await asyncio.sleep((2 * retention_ms + 2 * HOUR_MS) / 1000)
    await engine.enforce_retention()
    await engine.enforce_retention()
    state = engine.state(ORDERS)
    assert state.log_start_offset == state.log_end_offset
    await engine.close()


def _time(random: Random, now_ms: int, retention_ms: int) -> int:
    """None, one of long ago, of now, or as far ahead as a topic takes it by default."""
    return random.choice(
        [
            -1,
            now_ms,
            now_ms - random.randint(0, 3 * retention_ms),
            now_ms + random.randint(0, HOUR_MS),
        ]
    )
