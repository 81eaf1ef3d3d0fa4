"""Copies of a mirror on shared storage: what they have, and what several brokers make of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import MarkerType
from stele.wire.isolation_level import IsolationLevel

from app.broker.broker import Broker
from app.broker.producing.copies import CopyState, EndedTransaction
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import InvalidBatch, InvalidRequest, MirroredTopic, UnexpectedEnd
from app.settings import Settings
from app.storage.shared.compactor import CompactorOptions
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import CopyPhase, StoreKind
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import batch_of
from tests.support.model_meta import ModelMeta
from tests.support.storage_faults import ModelStore
from tests.unit.broker.test_broker_produce import TIMEOUT_MS
from tests.unit.broker.test_copies import END, ORDERS, SOURCE, append, copied, ended, mirrored, read

OPTIONS = SharedOptions(
    linger_ms=1,
    poll_interval_ms=10,
    idle_poll_interval_ms=10,
    upkeep=UpkeepOptions(is_enabled=False, merge_min_bytes=1, merge_min_age_ms=0, merge_claim_ms=1),
    compaction=CompactorOptions(is_enabled=False, wait_bytes=1, wait_ms=0, claim_ms=1),
)


class Storage:
    """What brokers share; the catalog, too, which they open one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = ModelMeta(SystemClock().now_ms)
        self.store = ModelStore()
        self._incarnations = itertools.count(1)

    @asynccontextmanager
    async def broker(self) -> AsyncGenerator[tuple[Broker, SharedEngine]]:
        clock, settings = SystemClock(), Settings(data_dir=self.path, produce_threads=1)
        engine = SharedEngine(
            self.meta,
            {StoreKind.OBJECTS: self.store},
            incarnation=UUID(int=next(self._incarnations)),
            clock=clock,
            options=OPTIONS,
        )
        await engine.open()
        catalog = SqliteCatalog(self.path / "metadata.sqlite")
        broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings)
        await broker.open()
        await engine.start()
        try:
            yield broker, engine
        finally:
            await broker.close()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


async def read_all(broker: Broker, offset: int = 0) -> bytes:
    found = b""
    while more := await read(broker, offset):
        found += more
        *_, last = rb.iter_headers(more)
        offset = last.next_offset
    return found


async def committed(broker: Broker, offset: int = 0) -> list[bytes | None]:
    """Return the values that a reader of committed records sees."""
    (fetched,) = await broker.fetch(
        [PartitionFetch(topic="orders", partition=0, offset=offset, max_bytes=1 << 20)], max_bytes=1 << 20
    )
    assert fetched.error is None
    aborted = [(one.producer_id, one.first_offset, one.last_offset) for one in fetched.aborted or ()]
    raw = bytes(fetched.batches)
    return [
        record.value
        for header in rb.iter_headers(raw)
        if not header.is_control
        and not any(
            header.is_transactional
            and header.producer_id == producer_id
            and first <= header.base_offset < last
            for producer_id, first, last in aborted
        )
        for record in rb.decode_records(raw, header)
    ]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_copy_has_the_bytes_of_its_source(storage: Storage, at_once: bool) -> None:
    async with storage.broker() as (broker, engine):
        topic_id = await mirrored(
            broker, **{"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}
        )
        assert await append(broker, topic_id) == CopyState(
            log_start_offset=0, log_end_offset=0, leader_epoch=-1
        )
        for batch in (b"".join(SOURCE),) if at_once else SOURCE:
            await append(broker, topic_id, batch)
        state = await append(broker, topic_id)
        assert state == CopyState(log_start_offset=0, log_end_offset=END, leader_epoch=6)
        assert await read_all(broker) == b"".join(SOURCE)
        assert await read(broker, 10) == b"".join(SOURCE[1:])
        assert await committed(broker) == [b"a", b"b", b"c", b"committed", b"last"]
        assert broker.leader_epoch("orders", 0) == 6
        (row,) = storage.meta.live_logs
        runs = [(run.base_offset, run.last_offset) for run in storage.meta.runs_of[row.log_id]]
        # Holes belong to what follows them: runs stay adjacent.
        assert (
            runs == [(0, 20)]
            if at_once
            else [(0, 5), (6, 12), (13, 13), (14, 14), (15, 15), (16, 16), (17, 20)]
        )
    # Another broker, which has only what is stored; then the same once runs are merged, and once they are cleaned.
    for _ in range(3):
        async with storage.broker() as (broker, engine):
            assert await read_all(broker) == b"".join(SOURCE)
            for offset in range(END):
                found = rb.read_header(await read(broker, offset))
                assert found.next_offset > offset
            assert await read(broker, 17) == SOURCE[-1]
            assert await append(broker, topic_id) == state
            assert broker.epoch_end_offset("orders", 0, 2) == (2, 15)
            assert await committed(broker) == [b"a", b"b", b"c", b"committed", b"last"]
            assert (await broker.list_offset("orders", 0, -1, isolation=IsolationLevel.READ_COMMITTED))[
                0
            ] == END
            await engine.upkeep.merge_all()
            assert await append(broker, topic_id) == state
    assert [run.is_merged for run in storage.meta.runs_of[row.log_id]] == [True]


async def test_a_copy_goes_on_after_a_merge_and_merges_again(storage: Storage) -> None:
    parts = [copied(10 * number, b"x" * 50, epoch=number // 3) for number in range(9)]
    async with storage.broker() as (broker, engine):
        topic_id = await mirrored(broker)
        for at, part in enumerate(parts):
            await append(broker, topic_id, part)
            if at % 2:
                await engine.upkeep.merge_all()
        assert await read_all(broker) == b"".join(parts)
    async with storage.broker() as (broker, _):
        assert await read_all(broker) == b"".join(parts)
        assert [await read(broker, offset) for offset in (71, 80)] == [parts[8]] * 2
        assert broker.epoch_end_offset("orders", 0, 1) == (1, 60)


async def test_a_compacted_copy_is_cleaned(storage: Storage) -> None:
    def keyed(offset: int, key: bytes, value: bytes) -> bytes:
        builder = rb.BatchBuilder()
        builder.append(timestamp_ms=5, key=key, value=value)
        batch = builder.build()
        rb.assign_offsets(batch, 0, offset, 4)
        return bytes(batch)

    last = [keyed(40, b"one", b"new"), keyed(55, b"two", b"new")]
    async with storage.broker() as (broker, engine):
        topic_id = await mirrored(broker, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        await append(broker, topic_id, keyed(3, b"one", b"old"), keyed(9, b"two", b"old"))
        await append(broker, topic_id, last[0])
        assert await engine.compact() == 1
        await append(broker, topic_id, last[1])
        await engine.upkeep.merge_all()
        assert await engine.compact() == 1
        assert await engine.newest_offset(ORDERS, b"two") == 55
    # The one that has written them may show them for a while.
    async with storage.broker() as (broker, engine):
        assert await read_all(broker) == b"".join(last)
        assert await engine.newest_offset(ORDERS, b"one") == 40
        assert (await append(broker, topic_id)).log_end_offset == 56


async def test_a_copy_begins_where_its_source_does(storage: Storage) -> None:
    async with storage.broker() as (broker, _):
        topic_id = await mirrored(broker)
        assert await append(broker, topic_id, start=100) == CopyState(
            log_start_offset=100, log_end_offset=100, leader_epoch=-1
        )
        # A transaction whose marker the source has deleted before it was copied.
        state = await append(
            broker, topic_id, copied(103, b"a"), copied(104, b"b"), copied(105, b"open", producer_id=9)
        )
        assert (state.log_start_offset, state.log_end_offset) == (100, 106)
        assert (await append(broker, topic_id, start=104)).log_start_offset == 104
        assert await read(broker, 104) == copied(104, b"b") + copied(105, b"open", producer_id=9)
        assert broker.log_state("orders", 0).last_stable_offset == 105
        state = await append(broker, topic_id, copied(2_000, b"c"), start=1_999)
        assert (state.log_start_offset, state.log_end_offset) == (1_999, 2_001)
        assert broker.log_state("orders", 0).last_stable_offset == 2_001
    async with storage.broker() as (broker, _):
        assert await append(broker, topic_id, start=7) == state
        assert await read(broker, 1_999) == copied(2_000, b"c")


async def test_readers_of_committed_records_stop_at_an_open_transaction_within_a_run(
    storage: Storage,
) -> None:
    batches = [
        copied(3, b"plain"),
        copied(7, b"open", producer_id=9),
        copied(9, b"after"),
        copied(12, b"more", producer_id=9, sequence=1),
    ]
    async with storage.broker() as (broker, engine):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *batches)
        for _ in range(2):
            assert await committed(broker) == [b"plain"]
            assert await read(broker, 0, IsolationLevel.READ_COMMITTED) == batches[0]
            await engine.upkeep.merge_all()
        await append(broker, topic_id, ended(13, 9, MarkerType.ABORT))
        assert await committed(broker) == [b"plain", b"after"]
        assert broker.log_state("orders", 0).last_stable_offset == 14


async def test_only_one_of_two_brokers_stores_a_batch(storage: Storage) -> None:
    async with storage.broker() as (one, engine):
        topic_id = await mirrored(one)
        await append(one, topic_id, SOURCE[0])
        async with storage.broker() as (two, other):
            # Both know the end, and go on from it at the same moment.
            assert (await append(two, topic_id)).log_end_offset == 6
            outcomes = await asyncio.gather(
                append(one, topic_id, *SOURCE[1:]), append(two, topic_id, *SOURCE[1:]), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {CopyState, UnexpectedEnd}
            for broker in (one, two):
                assert (await append(broker, topic_id)).log_end_offset == END
                assert await read_all(broker) == b"".join(SOURCE)
            # One that is behind stores nothing, and then knows.
            await append(two, topic_id, copied(30, b"x", epoch=6))
            with pytest.raises(UnexpectedEnd):
                await append(one, topic_id, copied(30, b"x", epoch=6), end=END)
            state = await append(one, topic_id)
            assert (state.log_end_offset, state.leader_epoch) == (31, 6)
            # Of several batches none is stored, also if the last would fit.
            with pytest.raises(UnexpectedEnd):
                await append(one, topic_id, copied(22, b"y", epoch=6), copied(31, b"z", epoch=6), end=END)
            assert (await append(two, topic_id)).log_end_offset == 31
            assert engine.state(ORDERS).log_end_offset == other.state(ORDERS).log_end_offset == 31


async def test_a_promoted_copy_is_an_ordinary_topic_at_every_broker(storage: Storage) -> None:
    async with storage.broker() as (broker, engine):
        topic_id = await mirrored(broker)
        await append(
            broker, topic_id, *SOURCE, copied(25, b"open", producer_id=5_000), copied(26, b"plain", epoch=6)
        )
        with pytest.raises(MirroredTopic):
            broker.produce("orders", 0, batch_of([b"x"]), acks=Acks.ALL)
        async with storage.broker() as (late, _):
            assert (await append(late, topic_id)).log_end_offset == 27
            assert await broker.copies.promote("orders") == [
                EndedTransaction(topic_partition=ORDERS, producer_id=5_000, first_offset=25)
            ]
            # This one does not know of the promotion yet; what it would copy is refused all the same.
            assert (await append(late, topic_id)).log_end_offset == 28
            with pytest.raises(InvalidRequest, match="is being promoted"):
                await append(late, topic_id, copied(28, b"late", epoch=6))
            with pytest.raises(InvalidRequest, match="is being promoted"):
                await append(late, topic_id, start=500)
        assert broker.topic("orders").configs == {}
        state = broker.log_state("orders", 0)
        assert (state.last_stable_offset, state.log_end_offset) == (28, 28)
        with pytest.raises(InvalidRequest, match="nothing to promote"):
            await broker.copies.promote("orders")
        producer_id, _ = await broker.init_producer_id()
        assert producer_id > 5_000
        # Nothing is known of the producers of the source, whose ids mean others here.
        pending = broker.produce("orders", 0, batch_of([b"new"], producer_id=50), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == 28
        assert rb.read_header(await read(broker, 28)).partition_leader_epoch == 7
        assert broker.epoch_end_offset("orders", 0, 6) == (6, 27)
        await engine.upkeep.merge_all()
    async with storage.broker() as (broker, _):
        found = await read_all(broker)
        assert found.startswith(b"".join(SOURCE))
        assert rb.read_header(await read(broker, 28)).partition_leader_epoch == 7
        assert await committed(broker, 20) == [b"last", b"plain", b"new"]
        pending = broker.produce("orders", 0, batch_of([b"newer"]), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == 29
        assert rb.read_header(await read(broker, 29)).partition_leader_epoch == 7


async def test_epochs_of_the_own_histories_follow_those_of_the_source(storage: Storage) -> None:
    storage.meta.history = 40
    async with storage.broker() as (broker, _):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *SOURCE)
        assert await broker.copies.promote("orders") == []
        pending = broker.produce("orders", 0, batch_of([b"new"]), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == END
        assert rb.read_header(await read(broker, END)).partition_leader_epoch == 40
    (row,) = storage.meta.live_logs
    assert row.copy_phase is CopyPhase.ENDED
    storage.meta.history = 50
    async with storage.broker() as (broker, _):
        pending = broker.produce("orders", 0, batch_of([b"newer"]), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == END + 1
        assert rb.read_header(await read(broker, END + 1)).partition_leader_epoch == 50
        assert broker.epoch_end_offset("orders", 0, 45) == (40, END + 1)
        assert (await read_all(broker)).startswith(b"".join(SOURCE))


async def test_an_epoch_ahead_of_the_clock_is_refused(storage: Storage) -> None:
    async with storage.broker() as (broker, _):
        topic_id = await mirrored(broker)
        with pytest.raises(InvalidBatch, match="ahead of the clock"):
            await append(broker, topic_id, copied(0, b"a", epoch=2**30))
        assert (await append(broker, topic_id)).log_end_offset == 0


async def test_a_copy_goes_on_after_the_database_has_gone_back(storage: Storage) -> None:
    async with storage.broker() as (broker, _):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *SOURCE[:2], copied(17, b"open", epoch=3, producer_id=70))
        standby = storage.meta.standby()
        await append(broker, topic_id, ended(18, 70, MarkerType.ABORT, epoch=4), copied(19, b"x", epoch=9))
        storage.meta.fail_over(standby)
        # What was lost of the copy is copied again, from where it ends now.
        assert await append(broker, topic_id) == CopyState(
            log_start_offset=0, log_end_offset=18, leader_epoch=3
        )
        with pytest.raises(UnexpectedEnd):
            await append(broker, topic_id, copied(20, b"y", epoch=9), end=20)
        await append(broker, topic_id, ended(18, 70, MarkerType.ABORT, epoch=4), SOURCE[-1])
        assert await committed(broker) == [b"a", b"b", b"c", b"last"]
        assert broker.epoch_end_offset("orders", 0, 4) == (4, 20)
        # Another broker knows the same.
        async with storage.broker() as (other, _):
            assert await read_all(other) == await read_all(broker)
            assert (await append(other, topic_id)).leader_epoch == 6


async def test_copies_are_no_activity_of_other_clients(storage: Storage) -> None:
    async with storage.broker() as (broker, _):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *SOURCE)
        assert broker.counts.copied_batches == broker.counts.appended_batches == len(SOURCE)
        await broker.create_topic("others", partitions=1, configs={})
        await broker.produce("others", 0, batch_of([b"x"]), acks=Acks.ALL).wait(TIMEOUT_MS)
        assert broker.counts.appended_batches == len(SOURCE) + 1
        assert broker.counts.copied_batches == len(SOURCE)
