"""Acknowledgements of a share group: answered when they are stored, and kept over a restart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cluster.group_store import DeleteGroup, DeleteTopicOffsets, StoredGroups
from app.cluster.share_group_store import DeleteSharePartitions, SharePartitionRecord, StoredRecords
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import CoordinatorNotAvailable, GroupStoreFailed, InvalidRecordState
from app.groups.base.share_state import Acknowledgement, AcquiredRange, OffsetRange, ShareLimits
from app.groups.share.durable_partition import DurableSharePartition
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated

ACCEPT, RELEASE, RENEW = 1, 2, 4
LIMITS = ShareLimits(delivery_count=3, lock_ms=30_000, locks=100)


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


class Queue:
    """One partition over the store of ``bench``. ``freed`` counts how often waiting members would wake."""

    def __init__(self, bench: GroupBench, stored: SharePartitionRecord | None = None) -> None:
        self.freed = 0
        self.shared = DurableSharePartition(
            stored
            or SharePartitionRecord(
                group="g",
                topic="orders",
                topic_id=bench.topics["orders"].topic_id,
                partition=0,
                state_epoch=0,
                start_offset=0,
            ),
            bench.coordinator.table,
            limits=lambda: LIMITS,
            freed=self.free,
        )

    def free(self) -> None:
        self.freed += 1

    def take(self, member: str, first: int, last: int) -> list[AcquiredRange]:
        return self.shared.acquire(
            member,
            read_from=first,
            read_to=last + 1,
            batches=[OffsetRange(first, last)],
            records_max=100,
            is_strict=True,
        )

    def say(self, member: str, first: int, last: int, kind: int) -> asyncio.Future[None]:
        return self.shared.acknowledge(member, [Acknowledgement(first=first, last=last, types=[kind])])


def stored_in(path: Path) -> StoredGroups:
    """What a broker would find that starts after this one was killed."""
    store = SqliteGroupStore(path / "groups.sqlite")
    stored = store.open()
    store.close()
    return stored


@simulated
async def test_what_was_answered_is_known_after_a_crash(bench: GroupBench) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 9)
    await queue.say("a", 0, 2, ACCEPT)
    await queue.say("a", 5, 6, ACCEPT)
    await queue.say("a", 7, 7, RELEASE)
    # Without a close: the rest is still acquired.
    (record,) = stored_in(bench.path).share_partitions
    assert (record.group, record.topic, record.start_offset) == ("g", "orders", 3)
    await bench.open()
    again = Queue(bench, record)
    assert again.take("b", 3, 12) == [AcquiredRange(3, 4, 1), AcquiredRange(7, 7, 2), AcquiredRange(8, 12, 1)]
    with pytest.raises(InvalidRecordState):
        again.say("a", 3, 4, ACCEPT)
    await bench.close()


@simulated
async def test_acknowledgements_during_a_write_share_the_next_one(bench: GroupBench) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 9)
    first, *others = [queue.say("a", offset, offset, ACCEPT) for offset in range(10)]
    assert queue.shared.records.start_offset == 0
    await first
    assert queue.shared.records.start_offset == 1
    assert not any(other.done() for other in others)
    await asyncio.gather(*others)
    assert queue.shared.records.start_offset == 10
    await bench.close()


@simulated
async def test_a_member_keeps_the_records_of_an_acknowledgement_that_was_not_stored(
    bench: GroupBench,
) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 1)
    bench.break_store()
    with pytest.raises(GroupStoreFailed):
        await queue.say("a", 0, 0, ACCEPT)
    bench.mend_store()
    assert queue.take("b", 0, 1) == []
    await queue.say("a", 0, 0, ACCEPT)
    assert queue.shared.records.start_offset == 1
    await bench.close()


@simulated
async def test_records_whose_lock_ends_wake_the_members_that_wait(bench: GroupBench) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 0)
    queue.take("a", 1, 1)
    await asyncio.sleep(20)
    await queue.say("a", 1, 1, RENEW)
    assert queue.freed == 0
    await asyncio.sleep(11)
    assert queue.freed == 1
    assert queue.take("b", 0, 1) == [AcquiredRange(0, 0, 2)]
    await queue.say("a", 1, 1, ACCEPT)
    await bench.close()


@simulated
async def test_records_of_a_member_whose_acknowledgement_fails_after_it_left_are_free(
    bench: GroupBench,
) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 0)
    bench.break_store()
    accepted = queue.say("a", 0, 0, ACCEPT)
    queue.shared.release_member("a")
    assert queue.take("b", 0, 0) == []
    with pytest.raises(GroupStoreFailed):
        await accepted
    bench.mend_store()
    assert queue.freed >= 1
    assert queue.take("b", 0, 0) == [AcquiredRange(0, 0, 2)]
    await bench.close()


@simulated
async def test_a_closed_partition_refuses_and_writes_nothing(bench: GroupBench) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 2)
    first, second = queue.say("a", 0, 0, ACCEPT), queue.say("a", 1, 1, ACCEPT)
    queue.shared.close(CoordinatorNotAvailable("closed by the test"))
    await first
    with pytest.raises(CoordinatorNotAvailable):
        await second
    with pytest.raises(CoordinatorNotAvailable):
        queue.say("a", 2, 2, ACCEPT)
    (record,) = stored_in(bench.path).share_partitions
    assert record.start_offset == 1
    await bench.close()


@simulated
async def test_a_reset_begins_a_new_epoch(bench: GroupBench) -> None:
    queue = Queue(await bench.open())
    queue.take("a", 0, 9)
    await queue.say("a", 3, 5, ACCEPT)
    await queue.shared.reset(2)
    (record,) = stored_in(bench.path).share_partitions
    assert (record.start_offset, record.state_epoch, record.records) == (2, 1, ())
    assert queue.take("b", 2, 4) == [AcquiredRange(2, 4, 1)]
    await bench.close()


def test_deletions_remove_what_they_name(tmp_path: Path, bench: GroupBench) -> None:
    orders = bench.topics["orders"].topic_id

    def record(group: str, partition: int = 0) -> SharePartitionRecord:
        return SharePartitionRecord(
            group=group,
            topic="orders",
            topic_id=orders,
            partition=partition,
            state_epoch=3,
            start_offset=7,
            records=(StoredRecords(8, 9, 2, 0), StoredRecords(12, 12, 0, 4)),
        )

    store = SqliteGroupStore(tmp_path / "groups.sqlite")
    store.open()
    store.write([record("g"), record("g", 1), record("h"), record("i")])
    assert list(stored_in(tmp_path).share_partitions) == [
        record("g"),
        record("g", 1),
        record("h"),
        record("i"),
    ]
    store = SqliteGroupStore(tmp_path / "groups.sqlite")
    store.open()
    store.write([DeleteGroup(group="g"), DeleteSharePartitions(group="h", topic_id=orders)])
    store.write([DeleteTopicOffsets(topic="orders", besides=orders)])
    assert list(stored_in(tmp_path).share_partitions) == [record("i")]
    store = SqliteGroupStore(tmp_path / "groups.sqlite")
    store.open()
    store.write([DeleteTopicOffsets(topic="orders", besides=None)])
    assert not stored_in(tmp_path).share_partitions


_ACCEPTING = """
import asyncio, sys
from pathlib import Path
from tests.support.groups import GroupBench
from tests.unit.groups.test_durable_share_partition import ACCEPT, Queue

async def accept_each() -> None:
    queue = Queue(await GroupBench(Path(sys.argv[1])).open())
    first = 0
    while True:
        queue.take("a", first, first + 9)
        # Not in order, so that the start lags behind what is accepted.
        for offset in range(first + 9, first - 1, -1):
            await queue.say("a", offset, offset, ACCEPT)
            print(offset, flush=True)
        first += 10

asyncio.run(accept_each())
"""


def test_an_accept_that_was_answered_survives_a_kill(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'clients' / 'python'}"}
    with subprocess.Popen(
        [sys.executable, "-c", _ACCEPTING, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(35)]
        process.kill()
        answered += [int(line) for line in process.stdout.read().split()]
    (record,) = stored_in(tmp_path).share_partitions
    accepted = {
        offset for kept in record.records if kept.state == 2 for offset in range(kept.first, kept.last + 1)
    }
    assert not [offset for offset in answered if offset >= record.start_offset and offset not in accepted]
