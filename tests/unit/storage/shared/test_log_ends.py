"""What a broker knows of the ends of logs that others append to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from stele.wire.record_batch import check_produced

from app.errors import UnexpectedEnd
from app.storage.shared.meta import KnownLog, LogRow
from app.storage.shared.options import SharedOptions
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, batch_of, spec_of
from tests.support.engines import append_synced, open_shared_engine
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(linger_ms=10, upkeep=UpkeepOptions(is_enabled=False))


class MetaWithALateAnswer(ModelMeta):
    """Its next answer about the ends of logs takes a minute."""

    is_next_late = False

    async def moved_logs(self, known: Sequence[KnownLog]) -> dict[int, LogRow]:
        rows = await super().moved_logs(known)
        if self.is_next_late:
            self.is_next_late = False
            await asyncio.sleep(60)
        return rows


@simulated
async def test_a_refresh_tells_of_an_end_that_a_poll_was_the_first_to_notice() -> None:
    meta, store = MetaWithALateAnswer(SimulatedClock().now_ms), ModelStore()
    writer, reader = [await open_shared_engine(meta, store, number, OPTIONS) for number in (1, 2)]
    await append_synced(writer, b"a")
    assert reader.state(ORDERS).high_watermark == 0
    meta.is_next_late = True
    assert await reader.refresh([ORDERS])
    assert reader.state(ORDERS).high_watermark == 1
    assert not await reader.refresh([ORDERS])
    for engine in (writer, reader):
        await engine.close()


class MetaThatNotesPolls(ModelMeta):
    """Keeps the partitions that it was asked for, question by question."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock.now_ms)
        self.polls: list[set[int]] = []

    async def moved_logs(self, known: Sequence[KnownLog]) -> dict[int, LogRow]:
        self.polls.append({log.log_id for log in known})
        return await super().moved_logs(known)


@simulated
async def test_partitions_that_are_followed_are_polled_as_often_as_those_that_are_waited_for() -> None:
    clock = SimulatedClock()
    meta = MetaThatNotesPolls(clock)
    options = replace(OPTIONS, idle_poll_interval_ms=60_000)
    writer, reader = [await open_shared_engine(meta, ModelStore(), number, options) for number in (1, 2)]
    followed, seen = [ORDERS], asyncio.Queue[TopicPartition]()
    reader.observe_appends(seen.put_nowait, lambda: followed)
    # After the first poll, which asks for all logs.
    await asyncio.sleep(0.06)
    begun_ms = clock.monotonic_ms()
    await append_synced(writer, b"a")
    assert await seen.get() == ORDERS
    assert clock.monotonic_ms() - begun_ms <= options.poll_interval_ms
    followed.clear()
    meta.polls.clear()
    await asyncio.sleep(0.5)
    assert not any(meta.polls)
    for engine in (writer, reader):
        await engine.close()


@simulated
async def test_a_poll_for_very_many_waiting_readers_asks_for_some_and_the_next_for_others() -> None:
    meta = MetaThatNotesPolls(SimulatedClock())
    options = replace(OPTIONS, idle_poll_interval_ms=60_000)
    engine = await open_shared_engine(meta, ModelStore(), 1, options)
    names = [TopicPartition("many", number) for number in range(2_500)]
    await engine.create([spec_of(name, clock=SimulatedClock(), topic_id=UUID(int=2)) for name in names])
    await asyncio.sleep(0.06)
    watch = engine.waiters.watch()
    for name in names:
        watch.add(name)
    meta.polls.clear()
    await asyncio.sleep(0.16)
    assert [len(poll) for poll in meta.polls] == [1_000, 1_000, 1_000]
    assert len(frozenset[int]().union(*meta.polls)) == 2_500
    watch.close()
    await engine.close()


@simulated
async def test_a_refused_append_tells_waiting_readers_of_the_end_that_it_has_found() -> None:
    """No later poll would: the broker knows that end already."""
    meta, store = ModelMeta(SimulatedClock().now_ms), ModelStore()
    options = replace(OPTIONS, poll_interval_ms=3_600_000)
    writer, reader = [await open_shared_engine(meta, store, number, options) for number in (1, 2)]
    waiting = asyncio.create_task(reader.wait({ORDERS: 0}, 1, 7 * 24 * 3_600_000))
    await append_synced(writer, b"a")
    batch = batch_of([b"b"])
    ticket = reader.append(ORDERS, batch, check_produced(batch), sync=True, expected_end=0)
    assert ticket.future is not None
    with pytest.raises(UnexpectedEnd):
        await ticket.future
    async with asyncio.timeout(60):
        await waiting
    for engine in (writer, reader):
        await engine.close()
