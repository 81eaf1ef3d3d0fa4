"""The simulation of shared storage whose database fails over to an asynchronous standby (``shared_cluster``).

The standby lacks what was committed in the last seconds, and gives the same offsets to other records. Its brokers may
be paused or dead meanwhile. What the standby lacks is lost, and no promise covers it; all else must hold, and clients
that compare leader epochs must end with exactly what the logs hold (ADR-0071).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from stele.wire import record_batch as rb

from app.errors import OffsetOutOfRange, OutOfOrderSequence, StorageUnavailable
from app.storage.engine import AppendTicket, PartitionRead
from app.storage.shared.commit_rules import Decision
from app.storage.shared.meta import ObjectWrite

from .shared_cluster import NAMES, PARTITIONS, Cluster, Producer, SimulatedBroker, fetch

# A standby lags by less than the bytes of a dead object are kept.
_LAGS_S = (0.01, 0.3, 3, 20)


class FailoverCluster(Cluster):
    """Its database fails over now and then. Producers are not idempotent, or give up what was lost."""

    steps = 10
    batches = 6

    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        self.meta.watchers.append(self._committed)
        # Partition and offset of each batch that was committed, by its CRC; those that no history has any more.
        self._placed: dict[int, tuple[int, int]] = {}
        self.lost: set[int] = set()
        self._is_failing_over = False
        # Brokers that the standby did not know.
        self._forgotten: set[UUID] = set()
        # By broker, partition and history: the end that the broker knew, and where the next history begins.
        self._known: dict[tuple[SimulatedBroker, int, int], tuple[int, int]] = {}
        self._readers: list[Reader] = []

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        return [*super().actions(), (6, lambda: self.deed(self._fail_over()))]

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        return [
            Producer(self, 0, is_idempotent=False).run(batches),
            Producer(self, 3, is_idempotent=False).run(batches),
            ProducerThatGivesUp(self, 1, is_idempotent=True).run(batches),
        ]

    def _committed(self, objects: Sequence[ObjectWrite], decision: Decision) -> None:
        for written, places_of in zip(objects, decision.answer, strict=True):
            for run, run_places in zip(written.runs, places_of, strict=True):
                if run_places.log is None:
                    continue
                for header, place in zip(run.headers, run_places.places, strict=True):
                    if place.error is None and not place.is_duplicate:
                        self._placed[header.crc] = (run_places.log.partition_id.partition, place.base_offset)
                        self.lost.discard(header.crc)

    async def _fail_over(self) -> None:
        # The standby has the topic, and is one of the database as it is then.
        await self.some_broker()
        if self._is_failing_over:
            return
        self._is_failing_over = True
        standby = self.meta.standby()
        await asyncio.sleep(self.random.choice(_LAGS_S))
        # What the primary has begun ends with it.
        self.locks.drop()
        uploaders = set(self.meta.uploaders)
        self.meta.fail_over(standby)
        self._forgotten |= uploaders - set(self.meta.uploaders)
        self.failovers += 1
        self._is_failing_over = False
        ends = [0] * PARTITIONS
        for row in self.meta.live_logs:
            ends[row.partition_id.partition] = row.next_offset
        for broker in self.brokers:
            if broker.is_open:
                self._note_known(broker, ends)
        for crc, (partition, offset) in self._placed.items():
            if offset >= ends[partition]:
                self.lost.add(crc)
        self.forget_lost(ends)

    def _note_known(self, broker: SimulatedBroker, ends: Sequence[int]) -> None:
        for partition, name in enumerate(NAMES):
            log = broker.engine.log(name)
            key = (broker, partition, log.history)
            # It may not have noticed an earlier failover yet.
            _, begin = self._known.get(key, (0, ends[partition]))
            self._known[key] = (log.next_offset, min(begin, ends[partition]))

    def forget_lost(self, ends: Sequence[int]) -> None:
        """Let no promise cover what is lost."""
        ledger = self.ledger
        ledger.at = {(at, offset): crc for (at, offset), crc in ledger.at.items() if offset < ends[at]}
        ledger.acked = {crc: place for crc, place in ledger.acked.items() if crc not in self.lost}
        ledger.ends = [min(pair) for pair in zip(ledger.ends, ends, strict=True)]

    def note_ack(self, partition: int, ticket: AppendTicket, crc: int) -> None:
        # The answer to a commit may arrive after the failover that has lost it.
        if crc not in self.lost:
            super().note_ack(partition, ticket, crc)

    def is_unknown(self, key: str) -> bool:
        # A broker that started in the lost part, and died before it noticed.
        return any(str(incarnation) in key for incarnation in self._forgotten)

    def is_lost(self, crc: int) -> bool:
        return crc in self.lost

    def follows(self, before: int | None, number: int, producer: tuple[int, int]) -> bool:
        """Return whether a batch may follow another; those between them may be lost."""
        of_lost = (self.ledger.sequences.get(crc) for crc in self.lost)
        numbers = {known[1] for known in of_lost if known is not None and known[0] == producer}
        return before is None or (number > before and all(at in numbers for at in range(before + 1, number)))

    async def consume(self, partition: int) -> None:
        reader = Reader(self, partition)
        self._readers.append(reader)
        await reader.run()

    async def finish(self, broker: SimulatedBroker) -> None:
        for other in self.brokers:
            if other.is_open:
                await other.engine.refresh(NAMES)
                lost = sum(
                    max(0, end - begin) for (of, *_), (end, begin) in self._known.items() if of is other
                )
                reported = other.engine.shared_counts.lost_records
                assert reported >= lost, f"{reported} lost records were reported, not {lost}"
        async with asyncio.timeout(600):
            for reader in self._readers:
                while not await reader.is_complete(broker):
                    await reader.moved()


class ProducerThatGivesUp(Producer):
    """Ends when the log has forgotten a batch of it, as a client begins another epoch then."""

    def must_go_on(self, error: BaseException) -> bool:
        return not (isinstance(error, OutOfOrderSequence) and self.cluster_has_lost())

    def cluster_has_lost(self) -> bool:
        cluster = self._cluster
        assert isinstance(cluster, FailoverCluster)
        return cluster.failovers > 0


class Reader:
    """A client that keeps what it has read, and compares leader epochs (KIP-320)."""

    def __init__(self, cluster: FailoverCluster, partition: int) -> None:
        self._cluster = cluster
        self._partition = partition
        self._offset = 0
        # The leader epoch that it knows, and that of the last batch that it has read.
        self._known_epoch = -1
        self._read_epoch = -1
        self._batches: dict[int, int] = {}
        self._deleted: list[int] = []
        self._moves = asyncio.Event()

    async def moved(self) -> None:
        """Wait until it has read or truncated something."""
        self._moves.clear()
        await self._moves.wait()

    async def run(self) -> None:
        while True:
            broker = await self._cluster.some_broker()
            try:
                async with asyncio.timeout(30):
                    await self._step(broker)
            except TimeoutError:
                continue
            except StorageUnavailable:
                await asyncio.sleep(2)

    async def _step(self, broker: SimulatedBroker) -> None:
        name, engine = NAMES[self._partition], broker.engine
        if self._known_epoch > engine.leader_epoch(name):
            # UNKNOWN_LEADER_EPOCH: this broker does not know yet that the database has failed over.
            await asyncio.sleep(1)
            return
        if self._known_epoch < engine.oldest_leader_epoch(name):
            # FENCED_LEADER_EPOCH.
            await engine.refresh([name])
            self._validate(broker)
            return
        size = self._cluster.random.choice((1, 300, 3_000))
        (read,) = await engine.read([fetch(name, self._offset, size)], size)
        if self._known_epoch < engine.oldest_leader_epoch(name):
            return
        if isinstance(read.error, OffsetOutOfRange):
            assert self._offset < read.log_start_offset, "the end went back within a history"
            # Before a failover that has lost the deletion.
            self._deleted += range(self._offset, read.log_start_offset)
            self._offset = read.log_start_offset
        elif isinstance(read.error, StorageUnavailable):
            raise read.error
        else:
            assert read.error is None, read.error
            if read.batches:
                self._note(read)
            else:
                await engine.wait({name: self._offset}, 1, 5_000)

    def _validate(self, broker: SimulatedBroker) -> None:
        """Truncate to where the log diverges from what was read."""
        name, engine = NAMES[self._partition], broker.engine
        if self._read_epoch >= 0:
            _, end_offset = engine.epoch_end_offset(name, self._read_epoch)
        else:
            # It has read nothing: a deletion has moved it, which the failover may have lost.
            end_offset = engine.state(name).high_watermark
        self._offset = min(self._offset, end_offset)
        self._batches = {at: crc for at, crc in self._batches.items() if at < end_offset}
        self._deleted = [at for at in self._deleted if at < end_offset]
        self._known_epoch = engine.leader_epoch(name)
        self._moves.set()

    def _note(self, read: PartitionRead) -> None:
        raw = bytes(read.batches)
        for header in rb.iter_headers(raw):
            rb.check_batch(raw, header.position)
            assert header.partition_leader_epoch >= self._read_epoch, "an epoch fell"
            self._read_epoch = header.partition_leader_epoch
            self._batches[header.base_offset] = header.crc
            self._offset = header.next_offset
        self._moves.set()

    async def is_complete(self, broker: SimulatedBroker) -> bool:
        """Compare with the log, once it has read all of it."""
        name = NAMES[self._partition]
        await broker.engine.refresh([name])
        state = broker.engine.state(name)
        if self._known_epoch < broker.engine.oldest_leader_epoch(name) or self._offset < state.high_watermark:
            return False
        for (at, offset), crc in self._cluster.ledger.at.items():
            if at == self._partition and offset >= state.log_start_offset and offset not in self._deleted:
                assert self._batches.get(offset) == crc, f"a reader has skipped offset {offset}"
        return True
