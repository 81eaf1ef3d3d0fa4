"""A random history of a data directory: lives that end in a power cut or a crash.

A *life* is a start, a random schedule of the calls of a broker to an engine, and an
end. The power is cut, or the process is killed, in the middle of any call to the file
system, also during the start; or the engine is closed. At the end of a life the
history notes everything that was promised; the next life begins by checking it.
Everything follows from the seed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.broker.producing.producer_state import ProducerStates
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket, PartitionSpec
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition

from .batches import batch_of
from .engines import fetch_of
from .simulated_files import SimulatedFiles
from .simulated_time import SimulatedClock

DATA = Path("/data")
LIVES = 4
PRODUCERS = 2
_OPTIONS = EngineOptions(flush_interval_ms=20, checkpoint_interval_ms=50, retention_interval_ms=80)


@dataclass(slots=True)
class _Stored:
    """A batch that was appended, as it must be read."""

    base_offset: int
    next_offset: int
    data: bytes
    header: rb.BatchHeader
    # Readers must not see it before it is synced.
    is_hidden: bool = False


def _is_synced(ticket: AppendTicket) -> bool:
    """Return whether the sync was promised, and has ended."""
    is_well = ticket.future is None or (ticket.future.done() and ticket.future.exception() is None)
    return ticket.durability is Durability.SYNCED and is_well


@dataclass(slots=True)
class _Partition:
    """What the test knows of one partition."""

    name: TopicPartition
    topic_id: UUID
    config: TopicConfig
    batches: list[_Stored] = field(default_factory=list["_Stored"])
    tickets: list[AppendTicket] = field(default_factory=list[AppendTicket])
    # Promised to survive the loss of power.
    synced_end: int = 0
    # The end of what a reader has seen of batches that are hidden until they are synced.
    seen_end: int = 0
    # Must be there in the next life; after a crash that is more.
    surviving_end: int = 0
    # The log may start here …
    start_min: int = 0
    # … and not after this.
    start_max: int = 0
    # The next sequence of each producer, by its id.
    sequences: dict[int, int] = field(default_factory=dict[int, int])
    is_open: bool = False
    first_producer_id: int = 0
    # The next offset.
    end: int = 0


class PowerCutHistory:
    """One random history; ``run`` raises an ``AssertionError`` if a promise is broken."""

    # Compare the high watermark with its rule, and not only what readers have seen with what is left.
    checks_rule = True

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None:
        self.seed = seed
        self.cuts = 0
        self.records_checked = 0
        # To the file system, over all lives.
        self.calls = 0
        self._random = Random(seed)
        self._files = files or SimulatedFiles()
        self._files.is_cold = lambda: self._random.random() < 0.1
        self._clock = SimulatedClock()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._producer_states: dict[TopicPartition, ProducerStates] = {}
        self._engine: EmbeddedEngine | None = None
        self._survivor: SimulatedFiles | None = None
        self._ended_by_power = False
        self._highest_epoch = -1
        self._was_closed = False

    async def run(self) -> None:
        random = self._random
        for _ in range(random.randint(1, 3)):
            self._new_topic()
        for _ in range(LIVES):
            await self._live()
        # Check what the last life left, without another end.
        engine = await self._open(may_end=False)
        await engine.close()

    # ── a life ──

    async def _live(self) -> None:
        random = self._random
        files = self._files
        self._survivor = None
        # Most ends come in the middle of the work, some during the start.
        ends_after = random.choice((random.randint(1, 40), random.randint(1, 250), random.randint(1, 600)))
        files.alarm(ends_after, self._end)
        engine = await self._open(may_end=True)
        for _ in range(random.randint(1, 60)):
            if self._survivor is not None:
                break
            await self._step(engine)
        if self._survivor is None and random.random() < 0.5:
            self._end()
        # Unless the life has ended already, this is a clean end; the alarm may ring in the middle of it.
        await engine.close()
        self.calls += files.calls
        if self._survivor is None:
            files.alarm(1 << 60, self._end)
            self._was_closed = True
            self._note_promises()
            for partition in self._partitions.values():
                assert all(ticket.done for ticket in partition.tickets), "a close ends all waits"
                partition.surviving_end = partition.synced_end = partition.end
        else:
            self._files = self._survivor
            self.cuts += 1
        for partition in self._partitions.values():
            partition.tickets = []
            partition.is_open = False
        self._engine = None

    def _end(self) -> None:
        """End the life in the middle of a call; what is promised now must be there in the next life."""
        if self._survivor is not None:
            return
        self._was_closed = False
        self._note_promises()
        self._ended_by_power = self._random.random() < 0.75
        if self._ended_by_power:
            self._survivor = self._files.power_cut(self._random)
            for partition in self._partitions.values():
                partition.surviving_end = max(partition.synced_end, partition.seen_end)
        else:
            self._survivor = self._files.crash(self._random)
            for partition in self._partitions.values():
                if partition.is_open:
                    partition.surviving_end = partition.end

    def _note_promises(self) -> None:
        for partition in self._partitions.values():
            for ticket in partition.tickets:
                if _is_synced(ticket):
                    partition.synced_end = max(partition.synced_end, ticket.last_offset + 1)
            if partition.is_open and self._engine is not None:
                state = self._engine.state(partition.name)
                partition.start_max = max(partition.start_max, state.log_start_offset)

    def _new_topic(self) -> list[_Partition]:
        """Choose a topic that the catalog has from now on, before the engine creates it."""
        random = self._random
        topic_id = UUID(int=random.getrandbits(128))
        config = TopicConfig(
            segment_bytes=random.choice((400, 1024, 3000, 1 << 20)),
            segment_ms=random.choice((100, 1 << 40)),
            retention_bytes=random.choice((-1, -1, 3000)),
            retention_ms=random.choice((1 << 40, 1 << 40, 300)),
            index_interval_bytes=random.choice((0, 200, 4096)),
            flush_messages=random.choice((1, 5, 1 << 40)),
            flush_ms=random.choice((-1, 5, 100_000)),
            visibility=random.choice(("synced", "synced", "synced", "appended")),
        )
        # Few names, so that they are used again.
        topic = random.choice(("a", "b"))
        made: list[_Partition] = []
        for number in range(random.randint(1, 2)):
            name = TopicPartition(topic, number)
            if name not in self._partitions:
                partition = _Partition(name, topic_id, config)
                self._partitions[name] = partition
                made.append(partition)
        return made

    def _spec(self, partition: _Partition) -> PartitionSpec:
        producer_state = self._producer_states[partition.name] = ProducerStates(self._clock)
        return PartitionSpec(
            topic_partition=partition.name,
            topic_id=partition.topic_id,
            config=partition.config,
            producer_state=producer_state,
        )

    # ── the start, and what must be true after it ──

    async def _open(self, *, may_end: bool) -> EmbeddedEngine:
        engine = EmbeddedEngine(self._files, DATA, clock=self._clock, options=_OPTIONS)
        start = await engine.open()
        assert start.was_clean or not self._was_closed, "a closed engine has a clean start"
        partitions = list(self._partitions.values())
        await engine.create([self._spec(partition) for partition in partitions])
        if self._survivor is None or not may_end:
            for partition in partitions:
                await self._check(engine, partition)
                partition.is_open = True
                epoch = engine.state(partition.name).leader_epoch
                if not start.was_clean:
                    assert epoch > self._highest_epoch, "the leader epoch rises with each crash"
                assert epoch >= self._highest_epoch
            self._engine = engine
        await engine.start()
        return engine

    async def _check(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        name = partition.name
        state = engine.state(name)
        end = state.log_end_offset
        assert end >= partition.surviving_end, f"{name} ends at {end}, {partition.surviving_end} was promised"
        assert end <= partition.end, f"{name} ends at {end}, only {partition.end} were written"
        assert state.log_start_offset >= min(partition.start_min, end), f"{name}: deleted records are back"
        if partition.surviving_end > partition.start_max:
            assert state.log_start_offset <= partition.start_max, f"{name}: records vanished at the start"
        ends = {0, *(stored.next_offset for stored in partition.batches)}
        # An empty log continues at its start, which may be inside a batch that was deleted.
        assert end in ends or end == state.log_start_offset, f"{name}: half a batch"
        partition.batches = [stored for stored in partition.batches if stored.next_offset <= end]
        partition.end = end
        if end == state.log_start_offset:
            # Deleted batches may have been lost, too; then the states of their producers are unknown.
            partition.batches = []
            partition.first_producer_id += PRODUCERS
        assert state.high_watermark == end, f"{name}: something that was recovered is hidden"
        # The start has synced all that it kept.
        partition.synced_end = partition.surviving_end = partition.seen_end = end
        partition.start_min = partition.start_max = state.log_start_offset
        await self._check_content(engine, partition)
        self._check_producers(partition)

    async def _check_content(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        start = engine.state(partition.name).log_start_offset
        offset, max_bytes = start, self._random.choice((1, 500, 1 << 20))
        expected = [stored for stored in partition.batches if stored.next_offset > start]
        data = b"".join(stored.data for stored in expected)
        read = bytearray()
        while offset < partition.end:
            raw = await self._fetch(engine, partition, offset, max_bytes)
            read += raw
            offset = list(rb.iter_headers(raw))[-1].next_offset
        assert bytes(read) == data, f"{partition.name}: other bytes than were written"
        self.records_checked += partition.end - start
        if expected:
            await self._check_places(engine, partition, expected)

    async def _check_places(
        self, engine: EmbeddedEngine, partition: _Partition, expected: list[_Stored]
    ) -> None:
        """Check that the indexes lead to the right batches."""
        start = engine.state(partition.name).log_start_offset
        stored = self._random.choice(expected)
        offset = max(start, self._random.randrange(stored.base_offset, stored.next_offset))
        raw = await self._fetch(engine, partition, offset, 1)
        assert raw == stored.data, f"{partition.name}: offset {offset} leads to another batch"
        time_ms = stored.header.max_timestamp
        first_offset, first_ms, _ = await engine.offset_for_time(partition.name, time_ms)
        first = next(other for other in expected if other.header.max_timestamp >= time_ms)
        assert first_offset == max(start, first.base_offset), (
            f"{partition.name}: time {time_ms} leads to {first_offset}"
        )
        assert first_ms == first.header.max_timestamp

    async def _fetch(
        self, engine: EmbeddedEngine, partition: _Partition, offset: int, max_bytes: int
    ) -> bytes:
        (read,) = await engine.read([fetch_of(partition.name, offset, max_bytes)], max_bytes)
        if read.error is not None:
            raise AssertionError(f"{partition.name}: offset {offset} cannot be read: {read.error}")
        raw = bytes(read.batches)
        assert raw, f"{partition.name}: nothing at offset {offset}"
        return raw

    def _check_producers(self, partition: _Partition) -> None:
        """Check that the retry of a stored batch is recognized."""
        producer_state = self._producer_states[partition.name]
        partition.sequences = {}
        by_producer: dict[int, list[_Stored]] = {}
        for stored in partition.batches:
            if stored.header.has_producer_id:
                by_producer.setdefault(stored.header.producer_id, []).append(stored)
        for producer_id, batches in by_producer.items():
            last = batches[-1].header
            partition.sequences[producer_id] = last.base_sequence + last.record_count
            for stored in batches[-5:]:
                if stored.base_offset < partition.start_max:
                    continue
                known = producer_state.check(stored.header)
                assert known is not None, f"{partition.name}: a retry of {stored.base_offset} is not known"
                assert known.base_offset == stored.base_offset
                assert known.last_offset == stored.next_offset - 1

    # ── what a broker does ──

    async def _step(self, engine: EmbeddedEngine) -> None:
        random = self._random
        choice = random.random()
        partitions = list(self._partitions.values())
        if choice < 0.6 and partitions:
            partition = random.choice(partitions)
            self._append(engine, partition)
            for _ in range(random.choice((0, 0, 0, 2))):
                self._append(engine, random.choice(partitions))
            if random.random() < 0.3:
                await asyncio.sleep(0)
            if random.random() < 0.3:
                await self._read_on(engine, partition)
        elif choice < 0.7:
            await self._wait_for_acks()
        elif choice < 0.78:
            await asyncio.sleep(random.choice((0.001, 0.01, 0.06, 0.2)))
        elif choice < 0.84:
            await self._flush(engine)
        elif choice < 0.88 and partitions:
            await self._delete_records(engine, random.choice(partitions))
        elif choice < 0.91:
            await engine.enforce_retention()
        elif choice < 0.94 and partitions:
            await self._drop(engine, random.choice(partitions))
        elif choice < 0.97:
            await self._create(engine)
        elif partitions:
            partition = random.choice(partitions)
            await self._read_some(engine, partition)

    async def _read_some(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        if not partition.batches:
            return
        stored = self._random.choice(partition.batches)
        end = engine.state(partition.name).high_watermark
        (read,) = await engine.read([fetch_of(partition.name, stored.base_offset, 1)], 1)
        if engine.state(partition.name).log_start_offset <= stored.base_offset < end:
            assert read.error is None, f"{partition.name}: {read.error}"
            assert read.batches == stored.data, (
                f"{partition.name}: offset {stored.base_offset} leads to another batch"
            )

    async def _read_on(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        """Read from somewhere to the end, and note what was seen of batches that are hidden until they are synced."""
        state = engine.state(partition.name)
        if self._survivor is None and self.checks_rule:
            hidden = [
                stored.base_offset
                for stored in partition.batches
                if stored.is_hidden and stored.base_offset >= state.recovery_point
            ]
            assert state.high_watermark == min(hidden, default=partition.end), partition.name
        offset = self._random.randint(state.log_start_offset, partition.end)
        (read,) = await engine.read([fetch_of(partition.name, offset, 1 << 20)], 1 << 20)
        if self._survivor is not None:
            return
        seen = {header.base_offset for header in rb.iter_headers(read.batches)}
        ends = [
            stored.next_offset
            for stored in partition.batches
            if stored.is_hidden and stored.base_offset in seen
        ]
        partition.seen_end = max(partition.seen_end, *ends, 0)

    def _append(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        random = self._random
        values = [random.randbytes(random.choice((3, 20, 150, 700))) for _ in range(random.randint(1, 3))]
        producer_id = random.randint(-2, PRODUCERS - 1)
        if producer_id >= 0:
            producer_id += partition.first_producer_id
        sync = random.random() < 0.4
        if producer_id < 0:
            batches = bytearray()
            for _ in range(random.choice((1, 1, 2))):
                batches += batch_of(values, timestamp_ms=self._clock.now_ms())
            headers = rb.check_produced(batches)
        else:
            sequence = partition.sequences.get(producer_id, 0)
            batches = batch_of(
                values, timestamp_ms=self._clock.now_ms(), producer_id=producer_id, base_sequence=sequence
            )
            headers = rb.check_produced(batches)
            stored = self._producer_states[partition.name].check(headers[0])
            assert stored is None, f"{partition.name}: a batch that was lost is taken for one that is stored"
            partition.sequences[producer_id] = sequence + len(values)
        sync_later = not sync and random.random() < 0.2
        ticket = engine.append(partition.name, batches, headers, sync=sync, sync_later=sync_later)
        assert ticket.base_offset == partition.end, f"{partition.name}: offsets have a hole"
        assert ticket.last_offset == headers[-1].last_offset
        for header in headers:
            self._highest_epoch = header.partition_leader_epoch
            data = bytes(batches[header.position : header.position + header.size])
            is_hidden = (
                ticket.durability is Durability.SYNCED or sync_later
            ) and partition.config.visibility == "synced"
            partition.batches.append(_Stored(header.base_offset, header.next_offset, data, header, is_hidden))
        partition.end = ticket.last_offset + 1
        partition.tickets.append(ticket)

    async def _wait_for_acks(self) -> None:
        waiting = [
            ticket.future
            for partition in self._partitions.values()
            for ticket in partition.tickets
            if ticket.future is not None and not ticket.done
        ]
        if waiting:
            await asyncio.wait(waiting)

    async def _flush(self, engine: EmbeddedEngine) -> None:
        names = None
        partitions = list(self._partitions.values())
        if partitions and self._random.random() < 0.5:
            partitions = [self._random.choice(partitions)]
            names = [partitions[0].name]
        ends = [partition.end for partition in partitions]
        await engine.flush(names)
        if self._survivor is None:
            for partition, end in zip(partitions, ends, strict=True):
                partition.synced_end = max(partition.synced_end, end)

    async def _delete_records(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        offset = self._random.randint(0, engine.state(partition.name).high_watermark)
        # It is saved before it is answered: an end in between may leave either start.
        partition.start_max = max(partition.start_max, offset)
        start = await engine.delete_records(partition.name, offset)
        assert start >= offset
        if self._survivor is None:
            partition.start_min = max(partition.start_min, start)

    async def _drop(self, engine: EmbeddedEngine, partition: _Partition) -> None:
        del self._partitions[partition.name]
        await engine.drop([partition.name])
        for ticket in partition.tickets:
            assert ticket.done, "a drop ends all waits for the partition"
            assert ticket.future is None or not ticket.future.cancelled(), (
                "a wait ends with a result or an error"
            )

    async def _create(self, engine: EmbeddedEngine) -> None:
        made = self._new_topic()
        await engine.create([self._spec(partition) for partition in made])
        for partition in made:
            partition.is_open = True
