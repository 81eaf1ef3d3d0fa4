"""The simulation of shared storage with transactions (``shared_cluster``).

Producers run transactions at any broker; two of them have the same transactional id and fence each other, some give up
in the middle. Each request is one call of the database, decided by the machine of the brokers (ADR-0055). Readers of
committed records see all of a transaction or nothing, and committed offsets are those of its transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from stele.wire import record_batch as rb

from app.cluster.shared_transactions import TransactionUpdate
from app.errors import DuplicateSequence, OutOfOrderSequence, SteleError, StorageUnavailable
from app.storage.shared.commit_rules import Decision
from app.storage.shared.meta import MetaUnavailable, ObjectWrite, StoreKind
from app.storage.transactional_produce import TransactionalProduce
from app.transactions.messages import ProducerIdentity
from app.transactions.plans import EndPlan, Moment
from app.transactions.shared_requests import Request, Result, abort, end, machine, producer_after, update_of
from app.transactions.states import TransactionState

from .batches import batch_of
from .model_transactions import ModelTransactions
from .shared_cluster import NAMES, PARTITIONS, Cluster, SimulatedBroker, fetch
from .simulated_time import SimulatedClock
from .storage_faults import FaultyMeta

_IDS = ("shared", "shared", "own")
_FIRST_PRODUCER_ID = 1_000
_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Attempt:
    """One transaction, as its producer knows it."""

    transactional_id: str
    batches: set[int] = field(default_factory=set[int])
    offset: int = -1
    # Whether it asked for a commit, and whether it knows that this took effect.
    may_commit: bool = False
    is_committed: bool = False


class TransactionalCluster(Cluster):
    """Brokers with transactions of several producers, and nothing else that appends."""

    transactions_class = ModelTransactions

    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        self.transactions = self.transactions_class(
            self.meta,
            self.store.objects,
            is_inline=self.store_kind is StoreKind.INLINE,
            now_ms=SimulatedClock().now_ms,
        )
        self.meta.watchers.append(self._check_claims)
        self.attempts: list[Attempt] = []
        self.numbers = count()
        self._producer_ids = count(_FIRST_PRODUCER_ID)
        self._epochs: dict[str, ProducerIdentity] = {}
        self._stable = [0] * PARTITIONS

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        return [self._run_all(batches)]

    def transactional_batch(self, value: bytes, producer: ProducerIdentity, base_sequence: int) -> bytearray:
        return batch_of(
            [value],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=base_sequence,
            is_transactional=True,
        )

    async def _run_all(self, transactions: int) -> None:
        running = [self.spawn(TransactionalProducer(self, name).run(transactions)) for name in _IDS]
        await asyncio.wait(running)
        for name in set(_IDS):
            # As the timeout does with what was given up.
            await self.ask(name, abort)

    async def ask(self, transactional_id: str, request: Request) -> Result:
        """Do what ``shared_coordinator`` does for a request, at any broker, until it is answered."""
        fresh_id = next(self._producer_ids)

        def decide(records: Any, now_ms: int) -> TransactionUpdate[Result]:
            now = Moment(now_ms, now_ms)
            result = request(machine(records, transactional_id, now), fresh_id, now)
            return update_of(result, [result])

        while True:
            store = await self._some_store()
            try:
                async with asyncio.timeout(40):
                    return (await store.update([transactional_id], decide)).result
            except (MetaUnavailable, TimeoutError):
                await asyncio.sleep(0.3)

    async def stage(self, producer: ProducerIdentity, group: str, offset: int) -> bool:
        while True:
            store = await self._some_store()
            try:
                async with asyncio.timeout(40):
                    return await store.stage(producer, group, offset)
            except (MetaUnavailable, TimeoutError):
                await asyncio.sleep(0.3)

    async def _some_store(self) -> ModelTransactions:
        broker = await self.some_broker()
        faulty = FaultyMeta.around(cast("Any", self.transactions), self.meta_faults, self.locks, broker.gate)
        return cast("ModelTransactions", faulty)

    # ── checks ──

    def _check_claims(self, objects: Sequence[ObjectWrite], decision: Decision) -> None:
        """A batch gets an offset only in the open transaction of its producer's epoch. (22)"""
        for written, places_of in zip(objects, decision.answer, strict=True):
            for run, run_places in zip(written.runs, places_of, strict=True):
                for header, place in zip(run.headers, run_places.places, strict=False):
                    is_claim = header.is_transactional and not header.is_control
                    if place.error is not None or place.is_duplicate or not is_claim:
                        continue
                    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
                    if not self.transactions.is_open(producer):
                        self.fail(AssertionError(f"a batch of {producer} is outside of its transaction"))

    def check(self) -> None:
        super().check()
        opened = self.meta.open_in_logs()
        ongoing = {
            record.producer_id
            for record in self.transactions.records.values()
            if record.state == TransactionState.ONGOING.value
        }
        assert {key.producer_id for key in opened} <= ongoing, "a transaction hangs"  # (22)
        for producer in self.transactions.pending:
            assert self.transactions.is_open(producer), (
                "offsets wait for a transaction that has ended"
            )  # (24)
        for partition, row in enumerate(sorted(self.meta.live_logs, key=lambda row: row.log_id)):
            firsts = [first for key, first in opened.items() if key.log_id == row.log_id]
            assert row.first_open == min(firsts, default=None), "the log does not know what is open"
            assert row.last_stable >= self._stable[partition], "the last stable offset fell"
            self._stable[partition] = row.last_stable
        for name, record in self.transactions.records.items():
            producer = ProducerIdentity(record.producer_id, record.epoch)
            assert producer >= self._epochs.get(name, producer), "an epoch fell"
            self._epochs[name] = producer

    async def verify(self, broker: SimulatedBroker) -> None:
        await super().verify(broker)
        visible: set[int] = set()
        starts: list[int] = []
        for name in NAMES:
            state = broker.engine.state(name)
            offset = state.log_start_offset
            starts.append(offset)
            while offset < state.high_watermark:
                (read,) = await broker.engine.read([fetch(name, offset, 8_000)], 8_000)
                aborted = [(one.producer_id, one.first_offset, one.last_offset) for one in read.aborted or ()]
                for header in rb.iter_headers(read.batches):
                    offset = header.next_offset
                    is_aborted = any(
                        header.producer_id == producer_id and first <= header.base_offset <= last
                        for producer_id, first, last in aborted
                    )
                    if not header.is_control and not is_aborted:
                        visible.add(header.crc)
        for attempt in self.attempts:
            seen = attempt.batches & visible
            assert attempt.may_commit or not seen, f"{attempt} was not committed and is visible"  # (23)
            if not any(starts):
                assert seen in (set(), attempt.batches), f"only a part of {attempt} is visible"
                assert seen or not attempt.is_committed or not attempt.batches, f"{attempt} is lost"
        for group, offset in self.transactions.committed.items():
            (attempt,) = (attempt for attempt in self.attempts if attempt.offset == offset)
            assert attempt.may_commit, f"the offset of {attempt} is committed"  # (24)
            known = [
                one.offset for one in self.attempts if one.is_committed and one.transactional_id == group
            ]
            assert group != "own" or offset >= max(known, default=-1), "a committed offset is lost"


class TransactionalProducer:
    """Runs one transaction after the other with a transactional id."""

    def __init__(self, cluster: TransactionalCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._bumps_epoch = cluster.random.random() < 0.6
        self._sequences: dict[int, int] = {}

    async def run(self, transactions: int) -> None:
        random = self._cluster.random
        producer: ProducerIdentity | None = None
        for _ in range(transactions):
            if producer is None or random.random() < 0.1:
                producer = await self._begin()
            producer = await self._transact(producer)
            await asyncio.sleep(random.choice((0, 0.01, 1)))

    async def _begin(self) -> ProducerIdentity:
        def begin(transaction: Any, fresh_id: int | None, now: Moment) -> Result:
            return transaction.begin(None, timeout_ms=_TIMEOUT_MS, fresh_id=fresh_id, now=now)

        self._sequences.clear()
        while isinstance(result := await self._cluster.ask(self._id, begin), EndPlan):
            pass
        return producer_after(result)

    async def _transact(self, producer: ProducerIdentity) -> ProducerIdentity | None:
        """Run a transaction; return what the producer goes on with, None if it is fenced or gives up."""
        cluster, random = self._cluster, self._cluster.random
        attempt = Attempt(self._id)
        cluster.attempts.append(attempt)
        try:
            for _ in range(random.randint(1, 3)):
                await self._produce(producer, random.randrange(PARTITIONS), attempt)
            if random.random() < 0.5:
                await self._commit_offset(producer, attempt)
            if random.random() < 0.1:
                return None
            is_commit = attempt.may_commit = random.random() < 0.7

            def request(transaction: Any, fresh_id: int | None, now: Moment) -> Result:
                return end(
                    transaction,
                    producer,
                    commit=is_commit,
                    bumps_epoch=self._bumps_epoch,
                    fresh_id=fresh_id,
                    now=now,
                )

            after = producer_after(await cluster.ask(self._id, request))
        except SteleError:
            # Another producer has begun with the id.
            assert self._id == "shared", "a producer was fenced by nobody"
            return None
        attempt.is_committed = attempt.may_commit
        if self._bumps_epoch:
            self._sequences.clear()
        return after

    async def _commit_offset(self, producer: ProducerIdentity, attempt: Attempt) -> None:
        await self._cluster.ask(
            self._id, lambda transaction, _, now: transaction.add(producer, groups=[self._id], now=now)
        )
        offset = next(self._cluster.numbers)
        attempt.offset = offset
        await self._cluster.stage(producer, self._id, offset)

    async def _produce(self, producer: ProducerIdentity, partition: int, attempt: Attempt) -> None:
        """Append a batch, again and again until it is stored or refused."""
        cluster, name = self._cluster, NAMES[partition]
        if not self._bumps_epoch:
            await cluster.ask(
                self._id, lambda transaction, _, now: transaction.add(producer, partitions=[name], now=now)
            )
        sequence = self._sequences.get(partition, 0)
        value = b"%s %d" % (self._id.encode(), next(cluster.numbers))
        batch = cluster.transactional_batch(value, producer, sequence)
        attempt.batches.add(rb.check_batch(batch).crc)
        self._sequences[partition] = sequence + 1
        produce = TransactionalProduce(transactional_id=self._id, adds_partitions=self._bumps_epoch)
        while True:
            broker = await cluster.some_broker()
            copy = bytearray(batch)
            try:
                ticket = broker.engine.append(
                    name, copy, rb.check_produced(copy), sync=True, transaction=produce
                )
                assert ticket.future is not None
                async with asyncio.timeout(40):
                    await asyncio.shield(ticket.future)
            except DuplicateSequence:
                return
            except (StorageUnavailable, OutOfOrderSequence, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                return
