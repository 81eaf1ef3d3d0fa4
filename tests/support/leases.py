"""Leases over a real broker and a real group store on simulated time, and transactions of producers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.producing.transaction_gate import MarkerOrder
from app.broker.reading.fetch import records_from
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import SteleError
from app.groups.base.messages import CommitRequest, Results
from app.groups.base.parking import answer
from app.groups.coordinator import GroupCoordinator
from app.groups.lag import group_lag
from app.groups.leases.lease import Polled, PollRequest
from app.groups.leases.manager import LeaseManager
from app.groups.table import GroupTable
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce

from .engines import QUIET
from .simulated_time import RealFilesInSimulatedTime, SimulatedClock

TOPIC = "orders"


class OpenGate:
    """Admits every transactional batch."""

    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: rb.BatchHeader
    ) -> None:
        pass


class LeaseBench:
    """A broker with the topic ``orders``, its groups and leases. ``restart`` forgets what is not durable."""

    broker: Broker
    coordinator: GroupCoordinator
    leases: LeaseManager

    def __init__(self, path: Path, **settings: Any) -> None:
        self._path = path
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        self._settings = Settings(data_dir=path, **settings)
        self._clock = SimulatedClock()
        self._sequences: Counter[tuple[int, int]] = Counter()

    async def open(self) -> None:
        engine = EmbeddedEngine(RealFilesInSimulatedTime(), self._path, clock=self._clock, options=QUIET)
        await engine.open()
        self.broker = Broker(
            engine=engine,
            catalog=SqliteCatalog(self._path / "metadata.sqlite"),
            clock=self._clock,
            settings=self._settings,
        )
        await self.broker.open()
        self.broker.set_transaction_gate(OpenGate())
        self.coordinator = GroupCoordinator(
            GroupTable(
                store=SqliteGroupStore(self._path / "groups.sqlite"),
                clock=self._clock,
                settings=self._settings,
                topic=self.broker.topic,
            )
        )
        await self.coordinator.open()
        self.leases = LeaseManager(broker=self.broker, coordinator=self.coordinator, clock=self._clock)

    async def close(self) -> None:
        self.coordinator.begin_close()
        self.leases.close()
        await self.coordinator.close()
        await self.broker.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    # ── records ──

    async def produce(self, *values: str, partition: int = 0, producer_id: int = -1) -> int:
        """Append one batch, in the open transaction of a producer if there is one; returns its first offset."""
        is_transactional = producer_id >= 0
        builder = rb.BatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=self._sequences[producer_id, partition] if is_transactional else -1,
            is_transactional=is_transactional,
        )
        for value in values:
            builder.append(timestamp_ms=self.broker.now_ms(), value=value.encode())
        self._sequences[producer_id, partition] += len(values)
        pending = self.broker.produce(
            TOPIC,
            partition,
            builder.build(),
            acks=Acks.LEADER,
            transaction=TransactionalProduce(transactional_id="t", adds_partitions=True)
            if is_transactional
            else None,
        )
        return (await pending.wait(1000)).base_offset

    def mark(self, producer_id: int, *partitions: int, commit: bool) -> None:
        """Append the markers of a transaction."""
        marker = EndTransactionMarker(
            type=MarkerType.COMMIT if commit else MarkerType.ABORT, coordinator_epoch=0
        )
        self.broker.append_markers(
            [
                MarkerOrder(
                    topic_partition=TopicPartition(TOPIC, partition),
                    producer_id=producer_id,
                    producer_epoch=0,
                    marker=marker,
                )
                for partition in partitions
            ]
        )

    # ── leases ──

    async def poll(self, **request: Any) -> Polled:
        return await self.leases.poll(PollRequest(group="g", topics=frozenset([TOPIC]), **request))

    async def stage(self, token: str, *, producer_id: int = 7) -> None:
        async def stage(request: CommitRequest) -> Results:
            return await self.coordinator.stage_offsets(request, producer_id=producer_id, producer_epoch=0)

        await self.leases.stage_acknowledgement("g", token, producer_id=producer_id, stage=stage)

    def end(self, producer_id: int = 7, *, commit: bool) -> asyncio.Future[None]:
        """End the offsets of a transaction, as the transaction coordinator does."""
        ending = self.coordinator.end_offsets(producer_id, commit=commit)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: SteleError | None) -> None:
            if error is None:
                ending.apply()
            answer(future, error)

        self.coordinator.table.persist(ending.changes, ended)
        return future

    def committed(self, partition: int = 0) -> int:
        (found,) = self.coordinator.committed("g", [(TOPIC, partition)])
        return found.offset

    async def lag(self) -> list[int]:
        return [partition.lag for partition in await group_lag(self.broker, self.coordinator, "g")]


def values(polled: Polled) -> list[str]:
    """Return the values of the leased records, in the order of partition and offset."""
    found: list[tuple[int, int, str]] = []
    for leased, fetched in polled.fetched:
        found += [
            (leased.partition, one.offset, bytes(one.value or b"").decode())
            for records in records_from(fetched, leased.offset)
            for one in records
            if one.offset < leased.next_offset
        ]
    return [value for _, _, value in sorted(found)]


def token(polled: Polled) -> str:
    assert polled.lease is not None
    return polled.lease.token()


def sent_values(batches: bytes | bytearray) -> Sequence[str]:
    """Return the values of all records in the bytes that a listener sends."""
    return [
        bytes(record.value or b"").decode()
        for header in rb.iter_headers(batches)
        for record in rb.decode_records(batches, header)
    ]


@asynccontextmanager
async def lease_bench(path: Path, *, partitions: int = 1, **settings: Any) -> AsyncGenerator[LeaseBench]:
    bench = LeaseBench(path, **settings)
    await bench.open()
    await bench.broker.create_topic(TOPIC, partitions=partitions)
    try:
        yield bench
    finally:
        await bench.close()
