"""Consume with a lease, produce and settle the lease in one transaction: each record is handled exactly once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from stele.wire import record_batch as rb

from app.broker.producing.produce import Acks
from app.broker.reading.fetch import records_from
from app.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    LeaseFenced,
    SteleError,
    TransactionFenced,
)
from app.groups.base.messages import CommitRequest, Results
from app.groups.leases.lease import Polled, PollRequest
from app.groups.leases.manager import LeaseManager
from app.transactions.messages import ProducerIdentity
from tests.support.simulated_time import run_simulated, simulated
from tests.support.transactions import TIMEOUT_MS, TransactionBench

INPUT = "input"


class Processing(TransactionBench):
    """Clients of one group move the records of ``input`` to ``orders``, each with a transactional id of its own."""

    leases: LeaseManager

    async def open(self) -> Processing:
        await super().open()
        self.leases = LeaseManager(broker=self.broker, coordinator=self.groups, clock=self.clock)
        if not self.broker.has_topic(INPUT):
            await self.broker.create_topic(INPUT, partitions=2)
        return self

    async def close(self) -> None:
        self.leases.close()
        await super().close()

    async def fill(self, count: int) -> list[bytes]:
        values = [b"%d" % number for number in range(count)]
        for number, value in enumerate(values):
            batch = rb.BatchBuilder()
            batch.append(timestamp_ms=self.clock.now_ms(), value=value)
            await self.broker.produce(INPUT, number % 2, batch.build(), acks=Acks.LEADER).wait(1000)
        return values

    async def begin_safely(self, transactional_id: str) -> ProducerIdentity:
        while True:
            try:
                return await self.begin(transactional_id)
            except ConcurrentTransactions:
                await asyncio.sleep(0.1)

    async def poll(self, **request: Any) -> Polled:
        return await self.leases.poll(
            PollRequest(group="g", topics=frozenset([INPUT]), max_partitions=1, **request)
        )

    async def stage(self, polled: Polled, transactional_id: str, producer: ProducerIdentity) -> None:
        async def stage(request: CommitRequest) -> Results:
            return await self.transactions.commit_offsets(
                transactional_id, producer, request, adds_group=True
            )

        assert polled.lease is not None
        await self.leases.stage_acknowledgement(
            "g", polled.lease.token(), producer_id=producer.producer_id, stage=stage
        )

    def move(self, polled: Polled, transactional_id: str, producer: ProducerIdentity) -> None:
        values = [
            bytes(record.value or b"")
            for leased, fetched in polled.fetched
            for records in records_from(fetched, leased.offset)
            for record in records
            if record.offset < leased.next_offset
        ]
        self.produce(producer, 0, *values, transactional_id=transactional_id)

    def lag(self) -> int:
        parts = [(INPUT, 0), (INPUT, 1)]
        ends = [self.broker.log_state(*part).last_stable_offset for part in parts]
        committed = self.groups.committed("g", parts)
        return sum(end - max(0, offset.offset) for end, offset in zip(ends, committed, strict=True))


async def client(bench: Processing, name: str, random: Random) -> None:
    """Move records until the broker stops or all are moved; sometimes give up, be slow or die."""
    producer = await bench.begin_safely(name)
    while bench.lag():
        polled = await bench.poll(max_records=random.randint(1, 4), lease_ms=500, wait_ms=1000)
        if polled.lease is None:
            continue
        try:
            steps = [
                lambda polled=polled, producer=producer: bench.move(polled, name, producer),
                None,
            ]
            if random.random() < 0.5:
                steps.reverse()
            for step in steps:
                if step is None:
                    await bench.stage(polled, name, producer)
                else:
                    step()
                if random.random() < 0.2:
                    # Longer than the lease.
                    await asyncio.sleep(1)
            if random.random() < 0.1:
                # As if it had died: its next life aborts the transaction, or its timeout does.
                if random.random() < 0.5:
                    await asyncio.sleep(TIMEOUT_MS / 1000 + 20)
                producer = await bench.begin_safely(name)
                continue
            producer = await bench.end(producer, commit=random.random() < 0.7, transactional_id=name)
        except LeaseFenced:
            producer = await bench.end(producer, commit=False, transactional_id=name)
        except (TransactionFenced, InvalidTransactionState, ConcurrentTransactions):
            producer = await bench.begin_safely(name)


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_moved_exactly_once(tmp_path: Path, seed: int) -> None:
    random = Random(seed)

    async def run() -> None:
        bench = await Processing(tmp_path).open()
        values = await bench.fill(30)
        for _ in range(10):
            clients = [asyncio.ensure_future(client(bench, name, random)) for name in ("t1", "t2", "t3")]
            # The broker stops in the middle of it.
            await asyncio.wait(clients, timeout=random.choice([0.05, 0.5, 5, 1000]))
            for task in clients:
                task.cancel()
            ended = await asyncio.gather(*clients, return_exceptions=True)
            wrong = [
                error
                for error in ended
                if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError)
            ]
            assert not wrong, wrong
            await bench.close()
            await bench.open()
        # The last life runs until all is moved.
        await asyncio.wait_for(client(bench, "t1", random), 3600)
        content = await bench.content(0)
        assert sorted(content.committed, key=int) == values
        for parity in range(2):
            # In the order of each partition.
            assert [value for value in content.committed if int(value) % 2 == parity] == values[parity::2]
        await bench.close()

    run_simulated(run, random)


@simulated
async def test_a_fenced_producer_cannot_stage_and_leaves_the_lease_in_force(tmp_path: Path) -> None:
    bench = await Processing(tmp_path).open()
    await bench.fill(1)
    old = await bench.begin("t")
    await bench.begin("t")
    polled = await bench.poll()
    with pytest.raises(SteleError):
        await bench.stage(polled, "t", old)
    assert polled.lease is not None
    await bench.leases.ack("g", polled.lease.token())
    assert bench.lag() == 0
    await bench.close()


@simulated
async def test_the_timeout_of_a_transaction_gives_its_lease_back(tmp_path: Path) -> None:
    bench = await Processing(tmp_path).open()
    await bench.fill(1)
    producer = await bench.begin("t")
    await bench.stage(await bench.poll(), "t", producer)
    assert (await bench.poll()).lease is None
    polled = await bench.poll(wait_ms=bench.settings.fetch_wait_ms_max)
    if polled.lease is None:
        await asyncio.sleep(TIMEOUT_MS / 1000)
        polled = await bench.poll()
    assert [leased.deliveries for leased, _ in polled.fetched] == [2]
    await bench.close()
