"""Copies of mirrors: batches as their source has them, whatever comes in between, and how a copy ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID, uuid4

import crc32c
import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch
from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages.mirrors import BATCHES_PER_APPEND_MAX

from app.broker.broker import Broker
from app.broker.producing.copies import CopyState, EndedTransaction
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.errors import (
    InvalidBatch,
    InvalidConfig,
    InvalidRequest,
    MirroredTopic,
    SteleError,
    TopicRecreated,
    UnexpectedEnd,
)
from app.storage.inspection.dump_and_verify import verify
from app.storage.topic_partition import TopicPartition
from app.transactions.request_checks import refused_partitions
from tests.support.batches import batch_of
from tests.unit.broker.test_broker_produce import TIMEOUT_MS, broker_at

ORDERS = TopicPartition("orders", 0)
MIRROR = {"stele.mirror": "prod"}


def copied(
    base_offset: int,
    *values: bytes,
    epoch: int = 3,
    holes: int = 0,
    producer_id: int = -1,
    sequence: int = 0,
    compression: Compression = Compression.NONE,
) -> bytes:
    """Return a batch as a source has it; ``holes`` offsets at its end have no record any more."""
    builder = rb.BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
        compression=compression,
    )
    for value in values:
        builder.append(timestamp_ms=-1, value=value)
    return placed(builder.build(), base_offset, epoch, holes)


def placed(batch: bytearray, base_offset: int, epoch: int = 3, holes: int = 0) -> bytes:
    rb.assign_offsets(batch, 0, base_offset, epoch)
    if holes:
        delta = rb.read_header(batch).last_offset_delta + holes
        batch[23:27] = delta.to_bytes(4, "big")
        sealed(batch)
    return bytes(batch)


def sealed(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c.crc32c(bytes(batch[rb.CRC_START :])).to_bytes(4, "big")
    return batch


def ended(base_offset: int, producer_id: int, marker: MarkerType, *, epoch: int = 3) -> bytes:
    outcome = EndTransactionMarker(type=marker, coordinator_epoch=7)
    return placed(
        marker_batch(outcome, producer_id=producer_id, producer_epoch=0, timestamp_ms=5), base_offset, epoch
    )


# A source that compaction has been over: holes before, within and after batches, an empty batch, three epochs.
SOURCE = [
    copied(4, b"a", b"b", epoch=0),
    copied(9, b"c", epoch=2, holes=3, compression=Compression.GZIP),
    copied(13, b"aborted", epoch=2, producer_id=50),
    copied(14, b"committed", epoch=2, producer_id=51),
    ended(15, 50, MarkerType.ABORT),
    ended(16, 51, MarkerType.COMMIT),
    copied(20, b"last", epoch=6),
]
END = 21


def problems_in(path: Path) -> list[str]:
    found: list[str] = []
    verify(path, report=lambda verified: found.extend(verified.problems))
    return found


async def mirrored(broker: Broker, **configs: str) -> UUID:
    topic = await broker.create_topic("orders", partitions=1, configs={**MIRROR, **configs})
    return topic.topic_id


async def append(
    broker: Broker, topic_id: UUID, *batches: bytes, end: int | None = None, start: int = -1
) -> CopyState:
    expected = broker.log_state("orders", 0).log_end_offset if end is None else end
    return await broker.copies.append(
        "orders",
        topic_id,
        0,
        expected_end=expected,
        log_start_offset=start,
        batches=bytearray(b"".join(batches)),
    )


async def read(
    broker: Broker, offset: int = 0, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> bytes:
    (fetched,) = await broker.fetch(
        [PartitionFetch(topic="orders", partition=0, offset=offset, max_bytes=1 << 20, isolation=isolation)],
        max_bytes=1 << 20,
    )
    if fetched.error is not None:
        raise fetched.error
    return bytes(fetched.batches)


async def test_a_copy_has_the_bytes_of_its_source(tmp_path: Path) -> None:
    path, crashed = tmp_path / "here", tmp_path / "crashed"
    async with broker_at(path) as (broker, _):
        topic_id = await mirrored(
            broker, **{"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}
        )
        state = await append(broker, topic_id, *SOURCE[:3])
        assert state == CopyState(log_start_offset=0, log_end_offset=14, leader_epoch=2)
        for batch in SOURCE[3:]:
            state = await append(broker, topic_id, batch)
        assert state == CopyState(log_start_offset=0, log_end_offset=END, leader_epoch=6)
        assert await read(broker) == b"".join(SOURCE)
        # Clients are shown no epoch below that of a record.
        assert broker.leader_epoch("orders", 0) == 6
        shutil.copytree(path, crashed)
    for again in (path, crashed):
        async with broker_at(again) as (broker, _):
            assert await read(broker) == b"".join(SOURCE)
            assert await read(broker, 17) == SOURCE[-1]
            assert await append(broker, topic_id) == state
            assert broker.epoch_end_offset("orders", 0, 2) == (2, 15)
            assert broker.leader_epoch("orders", 0) >= 6
            (fetched,) = await broker.fetch(
                [PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=1 << 20)], max_bytes=1 << 20
            )
            assert [(one.producer_id, one.first_offset) for one in fetched.aborted or ()] == [(50, 13)]
            # It goes on where it was.
            await append(broker, topic_id, copied(30, b"later", epoch=6))
            assert await read(broker, END) == copied(30, b"later", epoch=6)


async def test_a_copy_may_roll_its_segments_anywhere(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, engine):
        topic_id = await mirrored(broker, **{"segment.bytes": "1024", "retention.ms": "-1"})
        batches = [copied(10 * number, b"x" * 400) for number in range(1, 20)]
        for batch in batches:
            await append(broker, topic_id, batch)
        assert len(list((tmp_path / "orders-0").glob("*.log"))) > 5
        assert await engine.enforce_retention() == 0
        for offset in range(190):
            found = rb.read_header(await read(broker, offset))
            assert found.base_offset == max(10, -(-offset // 10) * 10)
    # Nor is a hole a loss for those who read the files alone.
    assert problems_in(tmp_path) == []
    for _ in range(2):
        async with broker_at(tmp_path) as (broker, _):
            got, offset = b"", 0
            while more := await read(broker, offset):
                got += more
                *_, last = rb.iter_headers(more)
                offset = last.next_offset
            assert got == b"".join(batches)


async def test_holes_may_be_wider_than_the_offsets_of_a_segment(tmp_path: Path) -> None:
    batches = [copied(2**33 * number + 5, b"x") for number in range(3)]
    path, crashed = tmp_path / "here", tmp_path / "crashed"
    async with broker_at(path) as (broker, _):
        topic_id = await mirrored(broker)
        # In one request, and in several.
        await append(broker, topic_id, *batches[:2])
        await append(broker, topic_id, batches[2])
        shutil.copytree(path, crashed)
    assert problems_in(path) == []
    for again in (path, crashed):
        async with broker_at(again) as (broker, _):
            for number, batch in enumerate(batches):
                assert (await read(broker, 2**33 * number)).startswith(batch)
            state = broker.log_state("orders", 0)
            assert (state.log_start_offset, state.log_end_offset) == (0, 2**34 + 6)


async def test_a_copy_begins_where_its_source_does(tmp_path: Path) -> None:
    path, crashed = tmp_path / "here", tmp_path / "crashed"
    async with broker_at(path) as (broker, _):
        topic_id = await mirrored(broker)
        # All that there was has been deleted.
        assert await append(broker, topic_id, start=100) == CopyState(
            log_start_offset=100, log_end_offset=100, leader_epoch=-1
        )
        state = await append(broker, topic_id, copied(103, b"a"), copied(104, b"b"))
        assert (state.log_start_offset, state.log_end_offset) == (100, 105)
        assert (await append(broker, topic_id, start=104)).log_start_offset == 104
        assert await read(broker, 104) == copied(104, b"b")
        # The source has deleted what was not copied yet.
        state = await append(broker, topic_id, copied(2_000, b"c"), start=1_999)
        assert (state.log_start_offset, state.log_end_offset) == (1_999, 2_001)
        shutil.copytree(path, crashed)
    assert problems_in(path) == []
    for again in (path, crashed):
        async with broker_at(again) as (broker, _):
            assert await append(broker, topic_id, start=7) == state
            assert await read(broker, 1_999) == copied(2_000, b"c")


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        (b"".join((copied(5, b"a"), copied(5, b"b"))), "does not follow 6"),
        (copied(0, b"a")[:-1], "not valid"),
        (copied(5, b"a")[:-1] + b"\xff", "not valid"),
        (copied(5, b"a", epoch=2**31 - 1), "leader epoch"),
        (copied(2**63 - 1, b"a"), "does not follow"),
        (b"".join(copied(5 + n, b"") for n in range(BATCHES_PER_APPEND_MAX + 1)), "more than"),
        (copied(1, b"before the end"), "ends at 2"),
    ],
)
async def test_what_no_log_has_is_refused(tmp_path: Path, batches: bytes, reason: str) -> None:
    async with broker_at(tmp_path) as (broker, _):
        topic_id = await mirrored(broker)
        before = await append(broker, topic_id, copied(0, b"a", b"b"))
        with pytest.raises(InvalidBatch, match=reason):
            await append(broker, topic_id, batches)
        assert await append(broker, topic_id) == before
        await append(broker, topic_id, copied(2, b"next"))
    async with broker_at(tmp_path) as (broker, _):
        assert await read(broker) == copied(0, b"a", b"b") + copied(2, b"next")


async def test_only_the_end_that_is_expected_is_written_at(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, copied(0, b"a"))
        with pytest.raises(UnexpectedEnd) as refused:
            await append(broker, topic_id, copied(5, b"b"), end=5)
        assert refused.value.log_end_offset == 1
        with pytest.raises(TopicRecreated):
            await append(broker, uuid4(), copied(1, b"b"))
        ordinary = (await broker.create_topic("plain")).topic_id
        with pytest.raises(InvalidRequest, match="no copy"):
            await broker.copies.append(
                "plain", ordinary, 0, expected_end=0, log_start_offset=-1, batches=bytearray(copied(0, b"a"))
            )
        assert await read(broker) == copied(0, b"a")


async def test_a_large_batch_is_copied_as_it_is(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        topic_id = await mirrored(broker)
        large = copied(70, b"x" * (3 << 20))
        await append(broker, topic_id, large)
        (fetched,) = await broker.fetch(
            [PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=8 << 20)], max_bytes=8 << 20
        )
        assert bytes(fetched.batches) == large


async def test_nothing_else_writes_to_a_copy(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *SOURCE)

        with pytest.raises(MirroredTopic, match="stele mirror promote prod --topic orders"):
            broker.produce("orders", 0, batch_of([b"x"]), acks=Acks.ALL)
        with pytest.raises(MirroredTopic):
            await broker.delete_records("orders", 0, 5)
        refused = await refused_partitions(broker, [ORDERS])
        assert isinstance(refused[ORDERS], MirroredTopic)
        for configs in ({"stele.mirror": None}, {"stele.mirror": ""}, {"stele.mirror": "other"}):
            with pytest.raises(InvalidConfig, match="stele mirror promote"):
                await broker.alter_topic("orders", configs=configs)
        # Other configurations may change.
        await broker.alter_topic("orders", configs={"retention.ms": "-1"})
        with pytest.raises(InvalidConfig, match=r"stele\.mirror"):
            await broker.create_topic("fast", configs={**MIRROR, "stele.storage": "memory"})
        with pytest.raises(InvalidConfig, match="name of a mirror"):
            await broker.create_topic("odd", configs={"stele.mirror": "a b"})
        plain = await broker.create_topic("plain")
        with pytest.raises(InvalidConfig, match="a mirror makes its copies"):
            await broker.alter_topic(plain.name, configs=MIRROR)
        assert await read(broker) == b"".join(SOURCE)


async def test_a_promoted_copy_is_an_ordinary_topic(tmp_path: Path) -> None:
    path, crashed = tmp_path / "here", tmp_path / "crashed"
    async with broker_at(path) as (broker, _):
        topic_id = await mirrored(broker)
        await append(
            broker, topic_id, *SOURCE, copied(25, b"open", producer_id=5_000), copied(26, b"plain", epoch=6)
        )
        assert broker.log_state("orders", 0).last_stable_offset == 25
        assert await broker.copies.promote("orders") == [
            EndedTransaction(topic_partition=ORDERS, producer_id=5_000, first_offset=25)
        ]
        assert broker.topic("orders").configs == {}
        state = broker.log_state("orders", 0)
        assert (state.last_stable_offset, state.log_end_offset) == (28, 28)
        with pytest.raises(InvalidRequest, match="no copy"):
            await append(broker, topic_id, copied(28, b"late"))
        with pytest.raises(InvalidRequest, match="nothing to promote"):
            await broker.copies.promote("orders")
        producer_id, _ = await broker.init_producer_id()
        assert producer_id > 5_000
        pending = broker.produce("orders", 0, batch_of([b"new"]), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == 28
        new = rb.read_header(await read(broker, 28))
        # Its own records begin an epoch, by which those who know the source's can tell them apart.
        assert new.partition_leader_epoch == 7
        shutil.copytree(path, crashed)
    for again in (path, crashed):
        async with broker_at(again) as (broker, _):
            assert (await read(broker)).startswith(b"".join(SOURCE))
            assert rb.read_header(await read(broker, 28)).base_offset == 28
            assert broker.topic("orders").config.mirror == ""
            producer_id, _ = await broker.init_producer_id()
            assert producer_id > 5_000
            pending = broker.produce("orders", 0, batch_of([b"newer"]), acks=Acks.ALL)
            assert (await pending.wait(TIMEOUT_MS)).base_offset == 29


async def test_a_producer_that_was_here_before_is_not_taken_for_one_of_the_source(tmp_path: Path) -> None:
    """Both clusters give out ids from 0 on, and both producers begin with sequence 0."""
    path, crashed = tmp_path / "here", tmp_path / "crashed"
    async with broker_at(path) as (broker, _):
        producer_id, epoch = await broker.init_producer_id()
        topic_id = await mirrored(broker)
        theirs = batch_of([b"theirs"], producer_id=producer_id, producer_epoch=epoch)
        newer = batch_of([b"newer"], producer_id=producer_id, producer_epoch=epoch + 3, base_sequence=9)
        await append(broker, topic_id, placed(theirs, 0), placed(newer, 1))
        await broker.copies.promote("orders")
        shutil.copytree(path, crashed)
    for again in (path, crashed):
        async with broker_at(again) as (broker, _):
            for sequence, offset in ((0, 2), (1, 3)):
                ours = batch_of([b"ours"], producer_id=producer_id, base_sequence=sequence)
                pending = broker.produce("orders", 0, ours, acks=Acks.ALL)
                assert (await pending.wait(TIMEOUT_MS)).base_offset == offset


async def test_a_promotion_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_at(tmp_path) as (broker, engine):
        topic_id = await mirrored(broker)
        await append(broker, topic_id, *SOURCE, copied(25, b"open", producer_id=60))
        real = engine.end_copies

        async def fail(name: TopicPartition) -> None:
            raise SteleError("the disk is full")

        monkeypatch.setattr(engine, "end_copies", fail)
        with pytest.raises(SteleError, match="full"):
            await broker.copies.promote("orders")
        monkeypatch.setattr(engine, "end_copies", real)
        with pytest.raises(MirroredTopic):
            broker.produce("orders", 0, batch_of([b"x"]), acks=Acks.ALL)
        assert await broker.copies.promote("orders") == []
        pending = broker.produce("orders", 0, batch_of([b"new"]), acks=Acks.ALL)
        assert (await pending.wait(TIMEOUT_MS)).base_offset == 27
