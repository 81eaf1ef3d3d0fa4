"""Produces of the broker that depend on the end of their partition."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.errors import InvalidRequest, UnexpectedEnd
from app.storage.embedded import EmbeddedEngine
from app.storage.engine import PartitionFetch
from tests.support.batches import batch_of
from tests.support.engines import read_from
from tests.support.late_engine import LateEngine
from tests.unit.broker.test_broker_produce import TIMEOUT_MS, ZSTD, broker_at, broker_with


async def outcome(
    broker: Broker, *values: bytes, end: int | None, acks: Acks = Acks.ALL, sync_later: bool = False
) -> tuple[int | str, ...]:
    """Append a batch; return its base offset, or the end that was expected and the actual one."""
    try:
        pending = broker.produce(
            "orders", 0, batch_of(values), acks=acks, expected_end=end, sync_later=sync_later
        )
        return ((await pending.wait(TIMEOUT_MS)).base_offset,)
    except UnexpectedEnd as error:
        return error.expected, error.log_end_offset


@pytest.mark.parametrize("engine_class", [EmbeddedEngine, LateEngine], ids=["placed at once", "placed later"])
@pytest.mark.parametrize("storage", ["disk", "memory"])
async def test_a_produce_is_stored_at_the_end_that_it_expects(
    tmp_path: Path, engine_class: type[EmbeddedEngine], storage: str
) -> None:
    async with broker_with(tmp_path, engine_class) as (broker, _):
        await broker.create_topic("orders", partitions=1, configs={"stele.storage": storage})
        assert await outcome(broker, b"a", b"b", end=0) == (0,)
        for acks in (Acks.ALL, Acks.LEADER):
            for sync_later in (False, True):
                assert await outcome(broker, b"x", end=0, acks=acks, sync_later=sync_later) == (0, 2)
        assert await outcome(broker, b"c", end=2, sync_later=True) == (2,)
        # What was refused is not counted.
        assert (broker.counts.appended_batches, broker.counts.appended_records) == (2, 3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"partition": -1}, "needs a partition"),
        ({"acks": Acks.NONE}, "needs acks 1 or all"),
        ({"expected_end": -1}, "0 or more"),
        ({"batches": batch_of([b"a"]) + batch_of([b"b"])}, "has one record batch, not 2"),
    ],
)
async def test_what_cannot_be_conditional_is_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    async with broker_at(tmp_path) as (broker, _):
        await broker.create_topic("orders", partitions=1)
        given: dict[str, Any] = {
            "partition": 0,
            "acks": Acks.ALL,
            "expected_end": 0,
            "batches": batch_of([b"a"]),
            **changed,
        }
        with pytest.raises(InvalidRequest, match=reason):
            broker.produce("orders", **given)
        assert broker.log_state("orders", 0).log_end_offset == 0


async def test_batches_that_wait_for_a_thread_are_compared_in_their_turn(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, engine):
        await broker.create_topic("orders", partitions=1, configs=ZSTD)
        pending = [
            broker.produce("orders", 0, batch_of([value]), acks=Acks.LEADER, expected_end=end)
            for value, end in ((b"a", None), (b"x", 0), (b"b", 1), (b"y", 1), (b"c", 2), (b"d", None))
        ]
        ends: list[int | None] = []
        for each in pending:
            try:
                await each.wait(TIMEOUT_MS)
                ends.append(None)
            except UnexpectedEnd as error:
                ends.append(error.log_end_offset)
        assert ends == [None, 1, None, 2, None, None]
        assert [value for _, value in await read_from(engine, 0)] == [b"a", b"b", b"c", b"d"]


async def test_a_large_batch_that_is_refused_leaves_nothing_of_what_was_written_ahead(tmp_path: Path) -> None:
    size = 3 << 20
    large = os.urandom(size)
    async with broker_at(tmp_path) as (broker, _):
        await broker.create_topic("orders", partitions=1, configs={"max.message.bytes": str(2 * size)})
        assert await outcome(broker, b"a", end=0) == (0,)
        assert await outcome(broker, large, end=0) == (0, 1)
        assert await outcome(broker, b"b", end=1) == (1,)
        assert await outcome(broker, large, end=1) == (1, 2)
    # It was the last one.
    async with broker_at(tmp_path) as (broker, engine):
        assert await outcome(broker, large, end=2) == (2,)
        assert await read_from(engine, 0) == [(0, b"a"), (1, b"b"), (2, large)]


async def test_a_refusal_may_name_an_end_that_readers_do_not_see_yet(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        await broker.create_topic("orders", partitions=1)
        pending = broker.produce("orders", 0, batch_of([b"a"]), acks=Acks.ALL, sync_later=True)
        assert broker.log_state("orders", 0).high_watermark == 0
        assert await outcome(broker, b"x", end=0) == (0, 1)
        # They see it once it is synced: a long poll waits for that.
        await pending.wait(TIMEOUT_MS)
        request = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=1 << 20)
        (read,) = await broker.fetch([request], max_bytes=1 << 20, max_wait_ms=TIMEOUT_MS)
        assert [record.value for record in rb.decode_records(bytes(read.batches))] == [b"a"]
        assert await outcome(broker, b"b", end=1) == (1,)
