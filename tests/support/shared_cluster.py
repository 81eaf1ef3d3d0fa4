"""Several brokers over one model of shared storage, their clients, and ledgers of what they promised.

A run follows from its seed: brokers die, restart and pause, calls fail or take long, records are deleted,
runs merged, garbage collected. Producers and consumers note what they were told, and every broken promise is
an ``AssertionError``. The numbers of invariants are those of ADR-0041.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast
from uuid import UUID

from stele.wire import record_batch as rb

from app.errors import (
    DuplicateSequence,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    StorageUnavailable,
)
from app.storage.engine import AppendTicket, PartitionFetch, PartitionRead
from app.storage.shared.commit_rules import Decision
from app.storage.shared.committer import CommitOptions
from app.storage.shared.compactor import CompactorOptions
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import MetaUnavailable, ObjectWrite, StoreKind
from app.storage.shared.options import SharedOptions
from app.storage.shared.store.object_store import ObjectStoreError
from app.storage.shared.upkeep import UpkeepOptions
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition

from .batches import batch_of, spec_of
from .model_meta import ModelMeta
from .simulated_time import SimulatedClock, run_simulated
from .storage_faults import Faults, FaultyMeta, FaultyStore, Gate, Locks, ModelStore

TOPIC_ID = UUID(int=77)
PARTITIONS = 2
NAMES = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
BUFFERED_BYTES_MAX = 20_000
_YEARS_MS = 10 * 365 * 24 * 3_600_000
_DEAD_MS = 90_000
# Longer than heartbeats fail in a row and the last upload of a dead broker takes, together.
_SILENT_MS = 150_000

OPTIONS = SharedOptions(
    linger_ms=5,
    object_bytes=1_500,
    buffered_bytes_max=BUFFERED_BYTES_MAX,
    cache_bytes_max=4_000,
    loads_max=4,
    poll_interval_ms=5_000,
    idle_poll_interval_ms=20_000,
    commit=CommitOptions(retry_ms=50, upload_timeout_ms=4_000, commit_timeout_ms=8_000),
    upkeep=UpkeepOptions(
        is_enabled=False,
        heartbeat_interval_ms=20_000,
        merge_min_bytes=1,
        merge_min_age_ms=0,
        merge_claim_ms=1,
        merged_bytes_max=1_000,
        dead_ms=_DEAD_MS,
        silent_ms=_SILENT_MS,
    ),
    compaction=CompactorOptions(is_enabled=False, wait_bytes=1, wait_ms=0, claim_ms=1),
)


@dataclass(slots=True)
class Ledger:
    """What was promised: batches by their CRC, which is that of their only value, and by their offset."""

    at: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    acked: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    # Partition and next offset, of acked batches.
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    # Producer with its epoch, and number, of each idempotent batch.
    sequences: dict[int, tuple[tuple[int, int], int]] = field(
        default_factory=dict[int, tuple[tuple[int, int], int]]
    )

    def see(self, partition: int, base_offset: int, crc: int) -> None:
        """Note that a broker has shown a batch at an offset. (2, 11)"""
        known = self.at.setdefault((partition, base_offset), crc)
        assert known == crc, f"two batches at offset {base_offset} of partition {partition}"

    def ack(self, partition: int, base_offset: int, next_offset: int, crc: int) -> None:
        """Note an acknowledgement."""
        self.see(partition, base_offset, crc)
        self.acked[crc] = (partition, base_offset)
        self.ends[partition] = max(self.ends[partition], next_offset)


class SimulatedBroker:
    """One incarnation of a broker."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.gate = Gate()
        self.incarnation = UUID(int=number)
        self.clock = SimulatedClock()
        self.clock.jump_ms = cluster.random.choice((0, 0, -_YEARS_MS, _YEARS_MS))
        self._meta = FaultyMeta.around(cluster.meta, cluster.meta_faults, cluster.locks, self.gate)
        self.engine = cluster.engine_class(
            self._meta,
            {cluster.store_kind: FaultyStore(cluster.store, cluster.store_faults, self.gate)},
            incarnation=self.incarnation,
            clock=self.clock,
            options=cluster.options,
        )
        self._config = cluster.config
        self._opened = asyncio.Event()
        self._some_opened = cluster.some_opened
        # Of each partition: history, log start and high watermark as they were seen last.
        self.seen = [(0, 0, 0)] * PARTITIONS

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    async def opened(self) -> None:
        await self._opened.wait()

    async def begin_version(self, producer_id: int) -> int:
        """Begin a version of a named producer, as the catalog does."""
        return await cast("ModelMeta", self._meta).begin_version(producer_id)

    async def open(self) -> None:
        await self._until_available(lambda: self.engine.open())
        specs = [spec_of(name, clock=self.clock, topic_id=TOPIC_ID, config=self._config) for name in NAMES]
        await self._until_available(lambda: self.engine.create(specs))
        await self.engine.start()
        self._opened.set()
        self._some_opened.set()

    async def _until_available(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        wait_s = 0.1
        while True:
            try:
                await work()
            except StorageUnavailable:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 2)
            else:
                return

    def ends(self) -> list[int]:
        """Return the ends of all partitions, as this broker knows them."""
        return [self.engine.state(name).high_watermark for name in NAMES]

    def check(self) -> None:
        """Offsets only rise at one broker (6, 12), and its memory is bounded (19)."""
        if not self.is_open:
            return
        for partition, name in enumerate(NAMES):
            state = self.engine.state(name)
            seen_in, start, end = self.seen[partition]
            history = self.engine.log(name).history
            assert history >= seen_in, "the history fell"
            assert state.high_watermark >= end or history > seen_in, "the high watermark fell"
            assert state.log_start_offset >= start or history > seen_in, "the log start fell"
            self.seen[partition] = (history, state.log_start_offset, state.high_watermark)
        assert self.engine.buffered_bytes <= BUFFERED_BYTES_MAX


class Cluster:
    """Brokers, clients and ledgers of one run.

    It has ``steps`` faults and other events, and each of its producers sends so many ``batches``. Many short runs
    find more in the same time than some long ones.
    """

    steps = 8
    batches = 5

    def __init__(
        self,
        seed: int,
        *,
        engine_class: type[SharedEngine] = SharedEngine,
        meta_class: type[ModelMeta] = ModelMeta,
    ) -> None:
        self.random = Random(seed)
        self.options = OPTIONS
        self.config = TopicConfig()
        self.engine_class = engine_class
        self.meta = meta_class(SimulatedClock().now_ms)
        self.meta.watchers.append(self._check_epochs)
        # Without an object store, the bytes are in the metadata.
        self.store_kind = self.random.choice((StoreKind.OBJECTS, StoreKind.OBJECTS, StoreKind.INLINE))
        self.store = ModelStore(self.meta.inline if self.store_kind is StoreKind.INLINE else {})
        self.locks = Locks()
        delays_s = self.random.choice(((0.0,), (0.0, 0.0, 0.003), (0.0, 0.01, 0.3)))
        rates = (0.0, 0.02, 0.1, 0.3)
        self.meta_faults = Faults(self.random, self.random.choice(rates), delays_s)
        self.store_faults = Faults(self.random, self.random.choice(rates), delays_s)
        self.ledger = Ledger()
        # How often the database has gone back: what was promised before may no longer hold.
        self.failovers = 0
        self.brokers: list[SimulatedBroker] = []
        self.some_opened = asyncio.Event()
        self._next_broker = 1
        self._work: set[asyncio.Task[None]] = set()
        # What happens beside the clients.
        self._deeds: set[asyncio.Task[None]] = set()
        self._consumers: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[None] | None = None

    # ── tasks ──

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` beside everything else; its failure ends the run."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the run, also from where an exception would be taken for one of the broker."""
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)

    # ── brokers ──

    def start_broker(self) -> SimulatedBroker:
        broker = SimulatedBroker(self, self._next_broker)
        self._next_broker += 1
        self.brokers.append(broker)
        self.spawn(broker.open())
        return broker

    async def some_broker(self) -> SimulatedBroker:
        while True:
            ready = [broker for broker in self.brokers if broker.is_open]
            if ready:
                return self.random.choice(ready)
            self.some_opened.clear()
            await self.some_opened.wait()

    def kill(self, broker: SimulatedBroker) -> None:
        broker.gate.kill()
        self.brokers.remove(broker)

    # ── the run ──

    async def run(self, *, steps: int, batches: int) -> None:
        self._failure = asyncio.get_running_loop().create_future()
        for _ in range(self.random.choice((1, 2, 2, 3))):
            self.start_broker()
        producers = [self.spawn(work) for work in self.producers(batches)]
        self._consumers = [self.spawn(self.consume(partition)) for partition in range(PARTITIONS)]
        story = asyncio.create_task(self._story(steps, producers))
        await asyncio.wait((story, self._failure), return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        story.result()

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        """Return the work of the producers, each of which sends so many batches."""
        return [
            Producer(self, 0, is_idempotent=False).run(batches),
            Producer(self, 1, is_idempotent=True).run(batches),
            self._run_job(2, batches),
        ]

    async def _run_job(self, number: int, batches: int) -> None:
        """Run a named producer: versions that begin while those before them still send."""
        earlier: list[asyncio.Task[None]] = []
        for _ in range(self.random.choice((1, 2, 2, 3))):
            epoch = await self._begin_version(number)
            producer = Producer(self, number, is_idempotent=True, epoch=epoch)
            running = self.spawn(producer.run(batches))
            earlier.append(running)
            await asyncio.wait((running,), timeout=self.random.choice((0.001, 0.01, 0.3, 30)))
        await asyncio.wait(earlier)

    async def _begin_version(self, producer_id: int) -> int:
        while True:
            broker = await self.some_broker()
            try:
                async with asyncio.timeout(40):
                    return await broker.begin_version(producer_id)
            except (MetaUnavailable, TimeoutError):
                await asyncio.sleep(0.3)

    def batch(
        self, values: list[bytes], *, producer_id: int, base_sequence: int, producer_epoch: int = 0
    ) -> bytearray:
        """Return a batch with these values, each of which is unique."""
        return batch_of(
            values, producer_id=producer_id, base_sequence=base_sequence, producer_epoch=producer_epoch
        )

    def _check_epochs(self, objects: Sequence[ObjectWrite], decision: Decision) -> None:
        """No batch of an earlier version gets an offset once the next has begun. (21)"""
        for written, places_of in zip(objects, decision.answer, strict=True):
            for run, run_places in zip(written.runs, places_of, strict=True):
                for header, place in zip(run.headers, run_places.places, strict=False):
                    newest = self.meta.named_epochs.get(header.producer_id)
                    if newest is None or place.error is not None or place.is_duplicate:
                        continue
                    if header.producer_epoch < newest:
                        self.fail(AssertionError(f"epoch {header.producer_epoch} was stored after {newest}"))

    def note_ack(self, partition: int, ticket: AppendTicket, crc: int) -> None:
        """Note an acknowledgement in the ledger."""
        self.ledger.ack(partition, ticket.base_offset, ticket.last_offset + 1, crc)

    def is_unknown(self, key: str) -> bool:
        """Return whether the metadata have forgotten the broker that stored an object."""
        return False

    def is_lost(self, crc: int) -> bool:
        """Return whether the metadata have lost a batch that was committed."""
        return False

    def follows(self, before: int | None, number: int, producer: tuple[int, int]) -> bool:
        """Return whether a batch of a producer may follow another in a log."""
        return before is None or number == before + 1

    def acked(self, partition: int, ticket: AppendTicket, batch: bytearray) -> None:
        """Note what was acknowledged, beside the ledger."""

    async def _story(self, steps: int, producers: list[asyncio.Task[None]]) -> None:
        long_pause_at = self.random.randrange(5 * steps)
        for step in range(steps):
            if step == long_pause_at:
                await self._take_for_dead()
            self._act()
            await asyncio.sleep(self.random.choice((0, 0.002, 0.02, 0.5, 20)))
            self.check()
        # Everything heals, and what was promised must hold.
        for faults in (self.meta_faults, self.store_faults):
            faults.rate, faults.is_down, faults.delays_s = 0.0, False, (0.0,)
        for broker in self.brokers:
            broker.gate.resume()
        if not self.brokers:
            self.start_broker()
        _, unfinished = await asyncio.wait(producers, timeout=600)
        assert not unfinished, "a producer gets no further"
        # Those at dead brokers never end.
        if self._deeds:
            await asyncio.wait(set(self._deeds), timeout=60)
        await self.locks.free()
        self.check()
        fresh = self.start_broker()
        for broker in self.brokers:
            await self.verify(broker)
        await self.finish(fresh)
        await self._retire(fresh)
        await self._collect(fresh)
        await self.verify(fresh)
        self.check()

    async def finish(self, broker: SimulatedBroker) -> None:
        """Do the final work, after the last fault."""

    def _act(self) -> None:
        """Do one thing at random."""
        actions = self.actions()
        weights = [weight for weight, _ in actions]
        (action,) = self.random.choices([action for _, action in actions], weights)
        if self.brokers:
            action()

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        """Return what may happen, with weights."""
        random = self.random
        return [
            (3, lambda: self._kill_and_restart()),
            (3, lambda: self._any().gate.pause(random.choice((0.01, 3, 20, 200)))),
            (2, lambda: self._outage(random.choice((self.meta_faults, self.store_faults)))),
            (4, lambda: self.upkeep(lambda engine: engine.upkeep.merge_one())),
            (2, lambda: self.upkeep(lambda engine: engine.upkeep.collect_garbage())),
            (2, lambda: self.deed(self.delete_records())),
            (3, lambda: self.deed(self._list_offsets())),
        ]

    def _any(self) -> SimulatedBroker:
        return self.random.choice(self.brokers)

    def _kill_and_restart(self) -> None:
        self.kill(self._any())
        self.start_broker()

    async def _take_for_dead(self) -> None:
        """Pause a broker for so long that another one deletes the objects that it has not committed."""
        broker = await self.some_broker()
        broker.gate.pause_at_commit(2 * (_DEAD_MS + _SILENT_MS) / 1000)
        other = self.start_broker()
        await other.opened()
        for wait_ms in (_SILENT_MS, _DEAD_MS):
            await asyncio.sleep(wait_ms / 1000 + 5)
            for _ in range(5):
                try:
                    await other.engine.upkeep.collect_garbage()
                except (MetaUnavailable, ObjectStoreError):
                    continue
                break

    def _outage(self, faults: Faults) -> None:
        faults.is_down = True
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.choice((0.1, 3, 15)), lambda: setattr(faults, "is_down", False))

    def upkeep(self, work: Callable[[SharedEngine], Coroutine[Any, Any, object]]) -> None:
        broker = self._any()

        async def run() -> None:
            try:
                await work(broker.engine)
            except (MetaUnavailable, ObjectStoreError):
                return

        if broker.is_open:
            self.deed(run())

    def deed(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.spawn(work)
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)

    async def delete_records(self) -> None:
        broker = await self.some_broker()
        partition = self.random.randrange(PARTITIONS)
        offset = self.random.randint(0, broker.engine.state(NAMES[partition]).high_watermark)
        try:
            start = await broker.engine.delete_records(NAMES[partition], offset)
        except StorageUnavailable:
            return
        assert start >= offset or self.failovers, "deleted records are still there"

    async def _list_offsets(self) -> None:
        """A refreshed end covers every acknowledgement before it. (7)"""
        broker = await self.some_broker()
        ends, failovers = list(self.ledger.ends), self.failovers
        try:
            await broker.engine.refresh(NAMES)
        except StorageUnavailable:
            return
        if self.failovers > failovers:
            return
        for name, end in zip(NAMES, ends, strict=True):
            assert broker.engine.state(name).high_watermark >= end, "an acknowledged record is past the end"

    # ── checks ──

    def check(self) -> None:
        """Check what the metadata, the store and the brokers hold right now."""
        for broker in self.brokers:
            broker.check()
        for row in self.meta.live_logs:
            runs = self.meta.runs_of[row.log_id]
            expected = runs[0].base_offset if runs else row.log_start
            assert expected <= row.log_start, "records are missing at the log start"
            for run in runs:
                assert run.base_offset == expected, "runs overlap or leave a gap"  # (2, 3)
                expected = run.last_offset + 1
                found = self.meta.objects.get(run.object.key)
                assert found is not None, f"no row has object {run.object.key}"
                assert found.state == "c", (
                    f"a run names object {run.object.key}, which is not committed"
                )  # (8)
                assert run.object.key in self.store.objects, f"object {run.object.key} is gone"  # (9)
            assert expected == row.next_offset, "records are missing at the log end"
            assert row.size_bytes == sum(run.length for run in runs)

    async def verify(self, broker: SimulatedBroker) -> None:
        """Read everything at one broker. (1, 3, 4, 5)"""
        await broker.opened()
        await broker.engine.refresh(NAMES)
        shown: dict[int, tuple[int, int]] = {}
        for partition, name in enumerate(NAMES):
            state = broker.engine.state(name)
            offset = state.log_start_offset
            order: dict[tuple[int, int], int] = {}
            while offset < state.high_watermark:
                (read,) = await broker.engine.read([fetch(name, offset, 8_000)], 8_000)
                assert read.error is None, read.error
                offset = self.check_read(partition, offset, read)
                for header in rb.iter_headers(read.batches):
                    if header.is_control:
                        # The same in each partition of a transaction.
                        continue
                    assert header.crc not in shown, "a batch is stored twice"
                    shown[header.crc] = (partition, header.base_offset)
                    if header.crc in self.ledger.sequences:
                        producer, number = self.ledger.sequences[header.crc]
                        assert self.follows(order.get(producer), number, producer), (
                            "batches of a producer out of order"
                        )
                        order[producer] = number
            for crc, (at, base_offset) in self.ledger.acked.items():
                if at == partition and base_offset >= state.log_start_offset:
                    assert shown.get(crc) == (at, base_offset), f"acknowledged offset {base_offset} is lost"

    def check_read(self, partition: int, offset: int, read: PartitionRead) -> int:
        """Check the batches of one read and return the next offset."""
        raw = bytes(read.batches)
        assert raw, f"nothing is returned at offset {offset}"
        expected = -1
        for header in rb.iter_headers(raw):
            rb.check_batch(raw, header.position)
            assert header.base_offset <= offset if expected < 0 else header.base_offset == expected
            self.ledger.see(partition, header.base_offset, header.crc)
            expected = header.next_offset
        assert expected > offset
        return expected

    async def _retire(self, fresh: SimulatedBroker) -> None:
        """Let all end but one broker: what follows takes long, and they would do nothing but poll."""
        for consumer in self._consumers:
            consumer.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        for other in [broker for broker in self.brokers if broker is not fresh]:
            # What it has abandoned, nobody else need find.
            await other.engine.upkeep.collect_garbage()
            await other.engine.close()
            self.brokers.remove(other)

    async def _collect(self, broker: SimulatedBroker) -> None:
        """Objects without runs go in the end. (10)"""
        for _ in range(2):
            await broker.engine.upkeep.merge_one()
            await broker.engine.upkeep.merge_one()
            # Each look at the objects of a silent broker comes after twice the silence of the one before it.
            await asyncio.sleep(max(_DEAD_MS, _SILENT_MS, self.meta.longest_silence_ms) / 1000 + 1)
            await broker.engine.upkeep.collect_garbage()
        await asyncio.sleep(_DEAD_MS / 1000 + 1)
        await broker.engine.upkeep.collect_garbage()
        named = {run.object.key for runs in self.meta.runs_of.values() for run in runs}
        left = [key for key in self.store.objects if key not in named and not self.is_unknown(key)]
        assert not left, f"objects without runs are left: {left}"

    # ── consumers ──

    async def consume(self, partition: int) -> None:
        """Read a partition from its start, now at this broker and now at that one."""
        name, offset = NAMES[partition], 0
        while True:
            broker = await self.some_broker()
            size = self.random.choice((1, 300, 3_000))
            try:
                async with asyncio.timeout(30):
                    (read,) = await broker.engine.read([fetch(name, offset, size)], size)
                    if isinstance(read.error, OffsetOutOfRange):
                        assert offset < read.log_start_offset, "the end went back"
                        offset = read.log_start_offset
                    elif isinstance(read.error, StorageUnavailable):
                        await asyncio.sleep(2)
                    else:
                        assert read.error is None, read.error
                        if read.batches:
                            offset = self.check_read(partition, offset, read)
                        else:
                            await broker.engine.wait({name: offset}, 1, 5_000)
            except TimeoutError:
                continue


class Producer:
    """Sends numbered batches, some at a time, and sends again what was not acknowledged.

    It ends when a later version of it has fenced it.
    """

    def __init__(self, cluster: Cluster, number: int, *, is_idempotent: bool, epoch: int = 0) -> None:
        self._cluster = cluster
        self._number = number
        self._partition = number % PARTITIONS
        self._is_idempotent = is_idempotent
        self._epoch = epoch
        self._is_fenced = False

    async def run(self, batches: int) -> None:
        cluster, random = self._cluster, self._cluster.random
        unacked: dict[int, tuple[bytearray, rb.BatchHeader]] = {}
        sequence = 0
        for number in range(batches):
            values = [
                b"%d %d %d %d" % (self._number, self._epoch, number, at)
                for at in range(random.choice((1, 1, 3)))
            ]
            values[0] += b"x" * random.choice((0, 40, 400))
            batch = cluster.batch(
                values,
                producer_id=self._number if self._is_idempotent else -1,
                base_sequence=sequence,
                producer_epoch=self._epoch,
            )
            sequence += len(values)
            header = rb.check_batch(batch)
            unacked[number] = (batch, header)
            if self._is_idempotent:
                cluster.ledger.sequences[header.crc] = ((self._number, self._epoch), number)
        while unacked and not self._is_fenced:
            broker = await cluster.some_broker()
            for number in await self._send(broker, dict(list(unacked.items())[: random.randint(1, 4)])):
                del unacked[number]
            if not self._is_idempotent:
                # Sent again, they would be stored twice, so each is sent once.
                for number in list(unacked)[:4]:
                    del unacked[number]
            await asyncio.sleep(random.choice((0, 0.01, 1)))

    def must_go_on(self, error: BaseException) -> bool:
        """Return whether an error is one after which the batch is sent again."""
        return True

    async def _send(
        self, broker: SimulatedBroker, chunk: dict[int, tuple[bytearray, rb.BatchHeader]]
    ) -> list[int]:
        """Send batches without waiting in between; return those that are stored."""
        sent: list[tuple[int, AppendTicket, rb.BatchHeader]] = []
        for number, (batch, header) in chunk.items():
            copy = bytearray(batch)
            try:
                ticket = broker.engine.append(
                    NAMES[self._partition], copy, rb.check_produced(copy), sync=True
                )
            except StorageUnavailable:
                break
            sent.append((number, ticket, header))
        waiting = [ticket.future for _, ticket, _ in sent if ticket.future is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=40)
        stored: list[int] = []
        last_offset, last_crc = -1, 0
        for number, ticket, header in sent:
            future = ticket.future
            if future is None or not future.done():
                # The broker is dead or paused.
                continue
            error = future.exception()
            if isinstance(error, DuplicateSequence):
                stored.append(number)
            elif error is None:
                assert (
                    ticket.is_repeat or ticket.base_offset > last_offset or self._cluster.is_lost(last_crc)
                ), "appends changed their order"  # (5)
                if ticket.last_offset > last_offset:
                    last_offset, last_crc = ticket.last_offset, header.crc
                self._cluster.note_ack(self._partition, ticket, header.crc)
                self._cluster.acked(self._partition, ticket, chunk[number][0])
                stored.append(number)
            elif isinstance(error, ProducerFenced):
                assert self._epoch < self._cluster.meta.named_epochs.get(self._number, 0), error
                self._is_fenced = True
            elif not self.must_go_on(error):
                self._is_fenced = True
            else:
                assert isinstance(error, StorageUnavailable | OutOfOrderSequence), error
        return stored


def fetch(name: TopicPartition, offset: int, max_bytes: int) -> PartitionFetch:
    return PartitionFetch(topic=name.topic, partition=name.partition, offset=offset, max_bytes=max_bytes)


def simulate(
    seed: int,
    *,
    steps: int | None = None,
    batches: int | None = None,
    engine_class: type[SharedEngine] = SharedEngine,
    meta_class: type[ModelMeta] = ModelMeta,
    cluster_class: type[Cluster] = Cluster,
) -> None:
    """Run one seed, as long as the kind of cluster says. Raises ``AssertionError`` if a promise is broken."""
    run_simulated(
        lambda: cluster_class(seed, engine_class=engine_class, meta_class=meta_class).run(
            steps=cluster_class.steps if steps is None else steps,
            batches=cluster_class.batches if batches is None else batches,
        )
    )
