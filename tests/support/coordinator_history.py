"""A random history of transactions: lives of a broker that end in a power cut or a crash, at any write.

In each life producers run transactions of both generations (EndTxn before version 5, and from then
on), two of them with the same transactional id; some give up in the middle. A *life* ends in a call to the file
system, or around a write of the store. The next one begins with a check of all that was promised until
then; what happens in the first after that moment happens to nobody. Everything follows from the seed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from app.broker.producing.produce import Acks
from app.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    SteleError,
    TransactionFenced,
)
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EngineOptions
from app.transactions.messages import ProducerIdentity

from .simulated_files import SimulatedFiles
from .transactions import TIMEOUT_MS, TransactionBench

LIVES = 3
IDS: Sequence[str] = ("shared", "shared", "own")
PARTITIONS = 3
_OPTIONS = EngineOptions(
    flush_interval_ms=20,
    checkpoint_interval_ms=50,
    retention_interval_ms=10**9,
    cleaner=CleanerOptions(is_enabled=False),
)
_EXPECTED = (ConcurrentTransactions, InvalidTransactionState, ProducerFenced, TransactionFenced)


@dataclass(slots=True)
class Attempt:
    """One transaction, as its producer knows it."""

    transactional_id: str
    producer: ProducerIdentity
    bumps_epoch: bool
    # A retry after a restart finds all its data.
    is_synced: bool
    values: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    offset: int = -1
    # Whether it asked for a commit or an abort, and whether that may still take effect.
    end: bool | None = None
    answer: ProducerIdentity | None = None

    @property
    def may_commit(self) -> bool:
        return self.end is True

    @property
    def is_committed(self) -> bool:
        return self.end is True and self.answer is not None


class TransactionHistory:
    """One random history; ``run`` raises an ``AssertionError`` if an invariant is broken."""

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None:
        self.seed = seed
        self.cuts = 0
        self.commits = 0
        # Retries after a restart that found out how a transaction had ended.
        self.retries = 0
        self._random = Random(seed)
        self._files: SimulatedFiles = files or SimulatedFiles()
        self._survivor: SimulatedFiles | None = None
        self._attempts: list[Attempt] = []
        self._number = 0
        # The end that was requested last with an id, while nobody else has used the id.
        self._last_end: dict[str, Attempt] = {}
        # By id: what a producer gets that began earlier than the last one.
        self._fenced_below: dict[str, int] = {}
        self._root = Path()
        self._databases = Path()

    async def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="stele-transactions-") as root:
            self._root = Path(root)
            self._databases = self._root / "0"
            self._databases.mkdir()
            for _ in range(LIVES):
                await self._live()
            bench = await self._bench().open()
            await self._check(bench)
            await self._check_all_end(bench)
            await bench.close()

    # ── a life ──

    def _bench(self) -> TransactionBench:
        return TransactionBench(self._databases, self._files, _OPTIONS)

    async def _live(self) -> None:
        random: Random = self._random
        files: SimulatedFiles = self._files
        self._survivor = None
        next_databases = self._root / str(self.cuts + 1)
        bench = self._bench()

        def end() -> None:
            if self._survivor is None:
                is_power = random.random() < 0.75
                self._survivor = files.power_cut(random) if is_power else files.crash(random)
                bench.copy_databases(next_databases)

        files.alarm(random.choice((random.randint(1, 120), random.randint(80, 900))), end)
        await bench.open()
        if self._survivor is None:
            await self._check(bench)
            await self._retry(bench)
            await self._check(bench)
        if self._survivor is None:
            tasks = [asyncio.create_task(self._produce(bench, name)) for name in IDS]
            tasks.append(asyncio.create_task(self._watch(bench)))
            await asyncio.gather(*tasks)
        end()
        await bench.close()
        survivor: SimulatedFiles | None = self._survivor
        assert survivor is not None
        self._files, self._databases = survivor, next_databases
        self.cuts += 1

    @property
    def _is_over(self) -> bool:
        return self._survivor is not None

    # ── a producer ──

    async def _produce(self, bench: TransactionBench, transactional_id: str) -> None:
        random = self._random
        producer: ProducerIdentity | None = None
        sequences: dict[int, int] = {}
        for _ in range(random.randint(2, 14)):
            await asyncio.sleep(random.choice((0, 0.001, 0.01, 0.1)))
            if self._is_over:
                return
            is_fenced = producer is not None and producer.epoch < self._fenced_below.get(transactional_id, -1)
            try:
                if producer is None or random.random() < 0.1:
                    is_fenced = False
                    expected = None if producer is None or random.random() < 0.5 else producer
                    self._last_end.pop(transactional_id, None)
                    producer = await bench.begin(transactional_id, expected)
                    if self._is_over:
                        return
                    sequences.clear()
                    self._fenced_below[transactional_id] = producer.epoch
                    continue
                producer = await self._transact(bench, transactional_id, producer, sequences)
                assert not is_fenced or self._is_over, "a producer that was fenced ended a transaction"
            except _EXPECTED:
                # Another producer has begun, or its begin is being carried out.
                producer = None

    async def _transact(
        self,
        bench: TransactionBench,
        transactional_id: str,
        producer: ProducerIdentity,
        sequences: dict[int, int],
    ) -> ProducerIdentity | None:
        """Run one transaction; return what the producer continues with."""
        random = self._random
        attempt = Attempt(
            transactional_id, producer, bumps_epoch=random.random() < 0.5, is_synced=random.random() < 0.6
        )
        self._attempts.append(attempt)
        self._last_end.pop(transactional_id, None)
        for _ in range(random.randint(1, 4)):
            partition = random.randrange(PARTITIONS)
            if not attempt.bumps_epoch:
                await bench.add(producer, partition, transactional_id=transactional_id)
                if self._is_over:
                    return None
            self._number += 1
            value = b"%s %d" % (transactional_id.encode(), self._number)
            acks = Acks.ALL if attempt.is_synced else random.choice((Acks.NONE, Acks.LEADER))
            pending = bench.produce(
                producer,
                partition,
                value,
                transactional_id=transactional_id,
                sequence=sequences.get(partition, 0),
                adds=attempt.bumps_epoch,
                acks=acks,
            )
            sequences[partition] = sequences.get(partition, 0) + 1
            if self._is_over:
                return None
            attempt.values.setdefault(partition, []).append(value)
            if attempt.is_synced:
                await pending.wait(10_000)
        if random.random() < 0.5:
            self._number += 1
            offset = self._number
            await bench.commit_offset(
                producer, offset, transactional_id=transactional_id, adds=attempt.bumps_epoch
            )
            attempt.offset = offset
        if self._is_over or random.random() < 0.1:
            return None
        return await self._end(bench, attempt, sequences)

    async def _end(
        self, bench: TransactionBench, attempt: Attempt, sequences: dict[int, int]
    ) -> ProducerIdentity | None:
        attempt.end = self._random.random() < 0.7
        self._last_end[attempt.transactional_id] = attempt
        try:
            answer = await bench.end(
                attempt.producer,
                commit=attempt.end,
                bumps_epoch=attempt.bumps_epoch,
                transactional_id=attempt.transactional_id,
            )
        except SteleError:
            if not self._is_over:
                attempt.end = None
                if self._last_end.get(attempt.transactional_id) is attempt:
                    del self._last_end[attempt.transactional_id]
            raise
        if self._is_over:
            return None
        attempt.answer = answer
        self.commits += attempt.end
        assert answer == (attempt.producer.producer_id, attempt.producer.epoch + attempt.bumps_epoch)
        if attempt.bumps_epoch:
            sequences.clear()
        return answer

    # ── readers ──

    async def _watch(self, bench: TransactionBench) -> None:
        """Read all partitions up to their ends of the same moment, a few times.

        Which transactions have ended is the same in all of them. A reader sees the end of one in each partition
        when the transactions before it have ended there, too.
        """
        stable = [0] * PARTITIONS
        for _ in range(self._random.randint(1, 6)):
            await asyncio.sleep(self._random.choice((0.001, 0.01, 0.05)))
            states = bench.stable_offsets()
            assert all(new >= old for (new, _), old in zip(states, stable, strict=True)), "it went back"
            stable = [offset for offset, _ in states]
            # Those that ended until that moment.
            attempts = [(attempt, attempt.is_committed) for attempt in self._attempts]
            visible: set[bytes] = set()
            for partition, (_, end_offset) in enumerate(states):
                visible.update((await bench.content(partition, until=end_offset)).committed)
            if self._is_over:
                return
            for attempt, was_committed in attempts:
                self._check_attempt(attempt, visible, was_committed=was_committed)

    def _check_attempt(self, attempt: Attempt, visible: set[bytes], *, was_committed: bool) -> bool:
        """Check that all of a transaction is visible or nothing; return whether it is."""
        values = {value for values in attempt.values.values() for value in values}
        seen = values & visible
        assert seen in (set(), values), f"{attempt}: only {seen} is visible"
        assert seen or not was_committed or not values, f"{attempt} is lost"
        assert not seen or attempt.may_commit, f"{attempt} is visible"
        return bool(seen)

    async def _check(self, bench: TransactionBench) -> None:
        """Check all promises, while no producer runs."""
        stable = bench.stable_offsets()
        visible: set[bytes] = set()
        for partition, (offset, end_offset) in enumerate(stable):
            content = await bench.content(partition)
            assert await bench.read_committed(partition) == content.committed_before(offset)
            visible.update(content.committed)
            still_open = content.open
            assert bool(still_open) == (offset < end_offset)
            for producer_id in still_open:
                known = await bench.transactions.list(producer_ids=[producer_id], states=["Ongoing"])
                assert len(known) == 1, f"producer {producer_id} hangs in partition {partition}"
        if self._is_over:
            return
        offsets: dict[str, int] = dict.fromkeys(IDS, -1)
        for attempt in self._attempts:
            is_visible = self._check_attempt(attempt, visible, was_committed=attempt.is_committed)
            if is_visible and attempt.offset >= 0:
                offsets[attempt.transactional_id] = attempt.offset
            if attempt.end and attempt.answer is None and not is_visible:
                # It did not happen, unless its producer asks again.
                if self._last_end.get(attempt.transactional_id) is not attempt:
                    attempt.end = None
            elif is_visible and attempt.answer is None:
                assert attempt.end
        for transactional_id, offset in offsets.items():
            assert bench.committed_offset(transactional_id) == offset, transactional_id

    async def _retry(self, bench: TransactionBench) -> None:
        """Ask again how transactions ended, as producers do whose connection was lost."""
        for transactional_id, attempt in list(self._last_end.items()):
            is_certain = attempt.is_synced or attempt.answer is not None
            if not is_certain or self._random.random() < 0.3:
                del self._last_end[transactional_id]
                continue
            assert attempt.end is not None
            answer = await bench.end(
                attempt.producer,
                commit=attempt.end,
                bumps_epoch=attempt.bumps_epoch,
                transactional_id=transactional_id,
            )
            if self._is_over:
                return
            self.retries += 1
            assert attempt.answer in (None, answer), f"{attempt}: another answer, {answer}"
            assert answer == (attempt.producer.producer_id, attempt.producer.epoch + attempt.bumps_epoch)
            attempt.answer = answer

    async def _check_all_end(self, bench: TransactionBench) -> None:
        """Check that transactions end that were abandoned."""
        await asyncio.sleep(TIMEOUT_MS / 1000 + 11)
        assert bench.transactions.counts.open == 0
        assert all(stable == end for stable, end in bench.stable_offsets())
        await self._check(bench)
