"""The write buffer packs appends by partition, in order, and counts what is not committed."""

from __future__ import annotations

import asyncio
from uuid import UUID

import crc32c
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.storage.engine import AppendTicket
from app.storage.shared.log import SharedLog
from app.storage.shared.meta import LogRow, PartitionId
from app.storage.shared.write_buffer import QueuedAppend, WriteBuffer
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import batch_of
from tests.support.object_footers import read_footer
from tests.support.simulated_time import simulated


def log_of(partition: int) -> SharedLog:
    row = LogRow(
        log_id=partition + 1,
        partition_id=PartitionId(UUID(int=5), partition),
        log_start=0,
        next_offset=0,
        size_bytes=0,
        unmerged_bytes=0,
        merged_until=0,
    )
    return SharedLog(TopicPartition("orders", partition), TopicConfig(), row)


def append_of(log: SharedLog, batches: bytearray) -> QueuedAppend:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return QueuedAppend(
        log=log,
        batches=batches,
        headers=rb.check_produced(batches),
        ticket=AppendTicket(durability=Durability.NONE, future=future),
        future=future,
        log_append_time_ms=-1,
    )


@simulated
async def test_a_rotation_has_the_appends_of_each_partition_together_in_their_order() -> None:
    buffer = WriteBuffer(object_bytes=1 << 20, buffered_bytes_max=1 << 20)
    assert buffer.take() is None
    logs = [log_of(0), log_of(1)]
    sent = [
        append_of(logs[0], batch_of([b"a", b"b"], timestamp_ms=7)),
        append_of(logs[1], batch_of([b"c"])),
        append_of(
            logs[0], batch_of([b"d"], timestamp_ms=5, producer_id=9, producer_epoch=2, base_sequence=4)
        ),
    ]
    for append in sent:
        buffer.add(append)
    rotation = buffer.take()
    assert rotation is not None
    assert buffer.is_empty
    packed = rotation.pack()
    runs = read_footer(packed.data)
    assert runs == packed.runs
    assert [(run.partition, run.offset_count, run.max_timestamp_ms) for run in runs] == [
        (0, 3, 7),
        (1, 1, 1000),
    ]
    assert [tuple(extent) for extent in runs[0].sequences] == [(2, 9, 2, 4, 1)]
    for run in runs:
        raw = packed.data[run.position : run.position + run.length]
        assert crc32c.crc32c(raw) == run.crc
        assert len(rb.check_produced(raw)) == (2 if run.partition == 0 else 1)
    for append in sent:
        assert packed.data[append.position : append.position + append.size] == append.batches


@simulated
async def test_bytes_count_until_their_rotation_has_ended() -> None:
    buffer = WriteBuffer(object_bytes=2_000, buffered_bytes_max=4_000)
    assert buffer.has_room(1 << 30), "nothing else is buffered"
    buffer.add(append_of(log_of(0), batch_of([b"x" * 1_000])))
    assert not buffer.is_full
    buffer.add(append_of(log_of(0), batch_of([b"x" * 1_000])))
    assert buffer.is_full
    first = buffer.take()
    assert first is not None
    assert buffer.has_room(500)
    assert not buffer.has_room(2_000)
    buffer.add(append_of(log_of(0), batch_of([b"y"])))
    second = buffer.take()
    assert second is not None
    assert (first.number, second.number) == (0, 1)
    buffer.release(first)
    assert buffer.has_room(2_000)
    buffer.release(second)
    assert buffer.buffered_bytes == 0
