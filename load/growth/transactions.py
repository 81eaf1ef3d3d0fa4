"""Measure transactional ids, and reads over aborted transactions.

Each producer has a connection of its own, and a record of each transaction is in one partition.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from stele.broker_process import BrokerProcess
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka import produce
from stele.wire.kafka import transactions as t
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from stele.wire.record_batch import BatchBuilder, last_position, read_header

from ..decoded_reads import ask
from ..process_usage import raise_open_files
from .costs import Costs, Point
from .peers import Peer, new_names, peers_of, temporary_topic
from .tables import make_compacted, read_table

SIZES, ABORTED = (10, 100, 1_000), (100, 1_000, 100_000)
# Of a broker that looks often enough for transactions past their timeout.
ENVIRONMENT = {"STELE_TRANSACTION_CHECK_INTERVAL_MS": "200"}
_PARTITIONS = 10
_LONG_MS, _SHORT_MS = 600_000, 5_000
# Producers that abort transactions at the same time.
_ABORTING = 50
_FETCH_BYTES = 1 << 20
_LOOK_S = 0.25


@dataclass(slots=True)
class Transactor(Peer):
    """A producer with transactions."""

    topic: str = ""
    partition: int = 0
    transactional_id: str = ""
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin_id(self, timeout_ms: int = _LONG_MS) -> None:
        request = t.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        answer = await self.call(t.INIT_PRODUCER_ID_API, 2, request)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    async def begin(self) -> None:
        """Begin a transaction with a record."""
        added = t.AddPartitionsToTxnTopic(name=self.topic, partitions=[self.partition])
        request = t.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[added],
        )
        answer = await self.call(t.ADD_PARTITIONS_TO_TXN_API, 3, request)
        _check(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        builder.append(
            timestamp_ms=time.time_ns() // 1_000_000, key=b"key-%d" % self.sequence, value=b"v" * 100
        )
        self.sequence += 1
        data = produce.PartitionProduceData(index=self.partition, records=bytes(builder.build()))
        records = produce.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[produce.TopicProduceData(name=self.topic, partition_data=[data])],
        )
        answer = await self.call(produce.PRODUCE_API, 9, records)
        _check(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, is_commit: bool) -> None:
        request = t.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        await self.call(t.END_TXN_API, 3, request)

    async def transact(self, *, is_commit: bool) -> None:
        await self.begin()
        await self.end(is_commit=is_commit)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"a transaction was answered with error {E(code).name}")


class Transactors:
    """Producers that do the same at the same time."""

    def __init__(self, name: str, peers: Sequence[Peer], topic: str, partitions: int) -> None:
        self._name, self._calls = name, count()
        self.all = [
            Transactor(peer.reader, peer.writer, topic, number % partitions)
            for number, peer in enumerate(peers)
        ]

    async def begin_new_ids(self) -> int:
        """Begin ids that the broker does not know, unless the series has run before."""
        call = next(self._calls)
        for number, each in enumerate(self.all):
            each.transactional_id = f"{self._name}-{number}-{call}"
        return len(await asyncio.gather(*(each.begin_id() for each in self.all)))

    async def transact(self) -> int:
        return len(await asyncio.gather(*(each.transact(is_commit=True) for each in self.all)))

    async def begin(self) -> None:
        """Begin transactions that nobody ends."""
        await asyncio.gather(*(each.begin_id(_SHORT_MS) for each in self.all))
        await asyncio.gather(*(each.begin() for each in self.all))

    async def expire(self) -> int:
        """Return when all transactions have been aborted for their age."""
        await asyncio.sleep(_SHORT_MS / 1000)
        request = t.ListTransactionsRequest(
            state_filters=["Ongoing", "PrepareAbort"],
            producer_id_filters=[each.producer_id for each in self.all],
        )
        while True:
            answer = await self.all[0].call(t.LIST_TRANSACTIONS_API, 1, request)
            if not answer.transaction_states:
                return len(self.all)
            await asyncio.sleep(_LOOK_S)

    async def abort(self, transactions: int) -> None:
        """Abort so many transactions, and commit one after them."""

        async def run(each: Transactor) -> None:
            for _ in range(transactions // len(self.all)):
                await each.transact(is_commit=False)

        await asyncio.gather(*map(run, self.all))
        await self.all[0].transact(is_commit=True)


async def transactional_ids(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure so many producers; the broker needs ``ENVIRONMENT``. A unit is an id, or its transaction."""
    raise_open_files()
    points: list[Point] = []
    for size in sizes:
        async with (
            peers_of(costs.subject, size) as peers,
            temporary_topic(costs.subject, _PARTITIONS) as topic,
        ):
            producers = Transactors(f"ids-{size}", peers, topic, _PARTITIONS)
            points.append(await costs.of("InitProducerId", size, producers.begin_new_ids))
            points.append(await costs.of("transactions", size, producers.transact))
            await producers.begin()
            cost = await costs.cost(producers.expire)
            await producers.begin()
            holds_ms = await costs.holds_ms(producers.expire)
            points.append(Point(what="transactions that expire", size=size, cost=cost, holds_ms=holds_ms))
    return points


async def _fetch(peer: Peer, topic: str, size: int) -> int:
    """Read what is committed, to the end of the partition."""
    offset, end = 0, 1
    while offset < end:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
                    ],
                )
            ],
        )
        (partition,) = (await peer.call(FETCH_API, 11, request)).responses[0].partitions
        _check(partition.error_code)
        end = partition.last_stable_offset
        offset = read_header(partition.records, last_position(partition.records)).next_offset
    return size


def _pages(broker: BrokerProcess, topic: str, size: int) -> int:
    """Read pages until one has the record."""
    offset = 0
    while True:
        answer = ask(broker.http_port, "GET", f"/v1/topics/{topic}/partitions/0/records?from={offset}")
        head, _, body = answer.partition(b"\r\n\r\n")
        if json.loads(body)["records"]:
            return size
        offset = int(head.lower().partition(b"next-offset: ")[2].split()[0])


async def aborted(costs: Costs, sizes: Sequence[int] = ABORTED) -> list[Point]:
    """Measure reads of a partition with so many aborted transactions; a unit is one of them."""
    points: list[Point] = []
    broker = costs.broker

    async def pages() -> int:
        return await asyncio.to_thread(_pages, broker, topic, size)

    async def table() -> int:
        await read_table(broker, topic, 1)
        return size

    for size in sizes:
        topic = next(new_names)
        await asyncio.to_thread(make_compacted, broker, topic)
        async with peers_of(costs.subject, _ABORTING, timeout_s=None) as peers:
            producers = Transactors(f"aborted-{size}", peers, topic, 1)
            await producers.begin_new_ids()
            await producers.abort(size)
            points.append(await costs.of("Fetch", size, partial(_fetch, peers[0], topic, size)))
        points.append(await costs.of("pages over HTTP", size, pages))
        points.append(await costs.of("the table", size, table))
        await asyncio.to_thread(ask, broker.http_port, "DELETE", f"/v1/topics/{topic}")
    return points
