"""Dead letters of one partition: written after the record is given up for good, and again after an error (KIP-1191)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cluster.share_group_store import SharePartitionRecord
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import StorageUnavailable
from app.groups.base.share_state import Acknowledgement, OffsetRange, RecordState, ShareLimits, StoredRange
from app.groups.share.dead_letters import Origin, letter_headers, origin_of, own_headers, reason
from app.groups.share.durable_partition import DurableSharePartition
from app.storage.topic_partition import TopicPartition
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated

REJECT = 3
LIMITS = ShareLimits(delivery_count=2, lock_ms=30_000, locks=2_000, has_dead_letters=True)


class Letters:
    """Takes letters as the broker would, once ``gate`` is set; the first ``failures`` times it fails instead."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.written: list[int] = []
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, group: str, partition: TopicPartition, records: Sequence[StoredRange]) -> None:
        assert (group, partition) == ("g", TopicPartition("orders", 0))
        self.calls += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("a letter", "in this test")
        self.written += [offset for one in records for offset in range(one.first, one.last + 1)]


async def opened(bench: GroupBench, letters: Letters) -> DurableSharePartition:
    await bench.open()
    bench.coordinator.table.write_dead_letters = letters.write
    record = SharePartitionRecord(
        group="g",
        topic="orders",
        topic_id=bench.topics["orders"].topic_id,
        partition=0,
        state_epoch=0,
        start_offset=0,
    )
    return DurableSharePartition(record, bench.coordinator.table, limits=lambda: LIMITS, freed=lambda: None)


def stored_in(path: Path) -> SharePartitionRecord:
    store = SqliteGroupStore(path / "groups.sqlite")
    (record,) = store.open().share_partitions
    store.close()
    return record


def take(shared: DurableSharePartition, last: int) -> None:
    shared.acquire(
        "a",
        read_from=0,
        read_to=last + 1,
        batches=[OffsetRange(0, last)],
        records_max=last + 1,
        is_strict=True,
    )


def reject(shared: DurableSharePartition, first: int, last: int) -> asyncio.Future[None]:
    return shared.acknowledge("a", [Acknowledgement(first=first, last=last, types=[REJECT])])


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


@simulated
async def test_a_rejection_is_answered_before_its_letter_is_written(bench: GroupBench) -> None:
    letters = Letters()
    letters.gate.clear()
    shared = await opened(bench, letters)
    take(shared, 9)
    await reject(shared, 0, 1)
    await bench.written()
    assert letters.written == []
    assert shared.records.start_offset == 0
    letters.gate.set()
    await bench.written()
    assert letters.written == [0, 1]
    assert shared.records.start_offset == 2
    await bench.close()
    assert stored_in(bench.path).start_offset == 2


@simulated
async def test_a_record_that_was_delivered_too_often_gets_a_letter(bench: GroupBench) -> None:
    letters = Letters()
    shared = await opened(bench, letters)
    for _ in range(LIMITS.delivery_count):
        take(shared, 0)
        assert letters.written == []
        await asyncio.sleep(31)
    await bench.written()
    assert letters.written == [0]
    await bench.close()


@simulated
async def test_letters_are_written_again_until_the_storage_takes_them(
    bench: GroupBench, caplog: pytest.LogCaptureFixture
) -> None:
    letters = Letters(failures=3)
    shared = await opened(bench, letters)
    take(shared, 9)
    with caplog.at_level(logging.WARNING):
        await reject(shared, 0, 0)
        await asyncio.sleep(0.5)
        assert letters.calls == 1
        # More to do does not hurry what has failed.
        await reject(shared, 1, 1)
        await asyncio.sleep(60)
    assert letters.written == [0, 1]
    assert letters.calls == 4
    assert [record.args[1] for record in caplog.records if record.args] == [1000, 2000, 4000]  # type: ignore[index]
    assert shared.records.start_offset == 2
    await bench.close()


@simulated
async def test_a_restart_goes_on_with_letters_that_were_not_written(bench: GroupBench) -> None:
    letters = Letters()
    letters.gate.clear()
    shared = await opened(bench, letters)
    take(shared, 1500)
    await reject(shared, 0, 1200)
    await bench.written()
    # Without a close, as after kill -9.
    again = Letters()
    stored = stored_in(bench.path)
    assert [kept.state for kept in stored.records] == [RecordState.ARCHIVING]
    await bench.open()
    bench.coordinator.table.write_dead_letters = again.write
    await bench.written()
    restored = bench.coordinator.shares.existing("g").partition("orders", 0)
    assert restored is not None
    assert again.written == list(range(1201))
    assert again.calls == 3
    assert restored.records.start_offset == 1201
    await bench.close()


@simulated
async def test_a_reset_forgets_the_letters_under_way(bench: GroupBench) -> None:
    letters = Letters()
    letters.gate.clear()
    shared = await opened(bench, letters)
    take(shared, 9)
    await reject(shared, 0, 3)
    await bench.written()
    assert letters.calls == 1
    await shared.reset(0)
    take(shared, 9)
    await reject(shared, 2, 2)
    letters.gate.set()
    await bench.written()
    assert letters.written == [0, 1, 2, 3, 2]
    assert shared.records.start_offset == 0
    assert shared.records.finished_count == 1
    await bench.close()


def test_a_letter_says_what_it_is_about() -> None:
    origin = Origin(partition=TopicPartition("orders", 3), offset=42, group="packers")
    headers = letter_headers(origin, delivery_count=5, message=reason(5, limit=5))
    assert dict(headers) == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"42",
        "__dlq.errors.group": b"packers",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"delivered 5 times, which is the limit, and never accepted",
    }
    assert origin_of([("trace", b"1"), *headers]) == origin
    assert own_headers([("trace", b"1"), *headers]) == [("trace", b"1")]
    assert reason(1, limit=5) == "rejected by a consumer"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("__dlq.errors.topic", b"orders")],
        [
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"x"),
            ("__dlq.errors.offset", b"1"),
            ("__dlq.errors.group", b"g"),
        ],
    ],
)
def test_what_is_not_a_letter_has_no_origin(headers: list[tuple[str, bytes | None]]) -> None:
    assert origin_of(headers) is None
