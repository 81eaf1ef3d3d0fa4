"""A random history of brokers that keep a replica: kills, copies, restores, and a bucket that fails.

Everything follows from the seed. ``run`` raises an ``AssertionError`` if a promise is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from random import Random
from uuid import UUID

import pytest

from app.storage.replica import segment_uploads, store_images, store_uploads
from app.storage.replica.options import ReplicaOptions
from app.storage.topic_partition import TopicPartition

from ..compaction import Keyed, batch
from ..simulated_files import SimulatedFiles
from ..simulated_time import SimulatedLoop, before
from .broker import DATA, Broker, Left, commit_row
from .bucket import LATE_S, SimulatedBucket, Weather
from .chain import CutView
from .moments import as_a_start_leaves, logs_of
from .promises import Promises, marker_of
from .restore import restored
from .tables import PAGE_BYTES

_TOPICS = ("a", "b", "c")
_BROKERS_MAX = 2
# Until everything is as it should be again, after the last fault.
_SETTLE_S = 300.0


@contextmanager
def _small_numbers(trusted_bytes: int) -> Generator[None]:
    """Let stores of a few rows have several chunks, and logs of a few records be long ones."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (store_images, store_uploads):
            patch.setattr(module, "CHUNK_BYTES", 2 * PAGE_BYTES)
        patch.setattr(store_images, "_COMPARED_BYTES", 6 * PAGE_BYTES)
        patch.setattr(segment_uploads, "_TRUSTED_BYTES", trusted_bytes)
        yield


class ReplicaHistory:
    """One history."""

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None:
        random = self._random = Random(seed)
        self._files = files or SimulatedFiles()
        self._steps = random.randint(20, 60)
        self.restores = self.kills = self.copies = 0
        self._options = ReplicaOptions(
            interval_ms=random.choice((100, 300)),
            retention_ms=random.choice((1_500, 4_000, 20_000)),
            object_bytes=random.choice((300, 1_000, 1 << 20)),
            segment_bytes=random.choice((500, 1 << 20)),
            uploads=random.choice((1, 2, 4)),
            small_run_bytes=random.choice((0, 200, 1_000)),
            base_cuts=random.choice((2, 5, 1_000)),
            base_bytes_min=random.choice((1, 3_000)),
            request_timeout_ms=1_000,
            retry_ms=20,
            open_timeout_ms=random.choice((500, 3_000)),
            close_timeout_ms=2_000,
            clean_interval_ms=random.choice((200, 400)),
        )
        self._promises = Promises(self._options.retention_ms)
        self.bucket = SimulatedBucket(random, self._promises)
        self._promises.objects = self.bucket.objects
        self._faults = Weather(
            refused=random.choice((0.0, 0.02, 0.2)),
            lost_answer=random.choice((0.0, 0.02, 0.1)),
            late=random.choice((0.0, 0.01, 0.05)),
            never=random.choice((0.0, 0.01)),
        )
        self._locked = random.choice((0.0, 0.0, 0.02, 0.15))
        # What is synced late, a loss of power takes, although the replica has it.
        self._flush_ms = random.choice((20, 2_000, 60_000))
        self._brokers: list[Broker] = []
        self._number = 0
        self._topic_ids = 0
        self._transactions = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._trusted_bytes = random.choice((1, 300, 1 << 20))

    @property
    def cuts(self) -> int:
        return len(self._promises.cuts)

    @property
    def segments_checked(self) -> int:
        return self._promises.segments_checked

    async def run(self) -> None:
        with _small_numbers(self._trusted_bytes):
            try:
                await self._run()
            finally:
                for task in self._tasks:
                    task.cancel()

    async def _run(self) -> None:
        self._files.make_dir(DATA)
        await self._start(Left(self._files))
        for _ in range(self._steps):
            await self._step()
            self._check()
        await self._settle()

    def _check(self) -> None:
        if self._promises.failure is not None:
            raise self._promises.failure

    # ── brokers ──

    async def _start(self, left: Left) -> Broker:
        random = self._random
        self._number += 1
        broker = Broker(
            self._number,
            left,
            bucket=self.bucket,
            promises=self._promises,
            options=self._options,
            random=random,
            flush_ms=self._flush_ms,
        )
        await broker.open()
        for table in broker.tables.values():
            table.locked = self._locked
        self._brokers.append(broker)
        # Records that come before the replica is looked at, in the place of those that are lost.
        for _ in range(random.choice((0, 0, 4, 12))):
            await self._append(broker)
        await broker.replicate()
        return broker

    async def _end(self, broker: Broker) -> Left:
        random = self._random
        self._brokers.remove(broker)
        broker.clock.jump_ms = min(broker.clock.jump_ms, 0)
        if random.random() < 0.2:
            return await broker.close()
        self.kills += 1
        return await broker.die(loses_power=random.random() < 0.6)

    async def _restart(self, broker: Broker) -> None:
        left = await self._end(broker)
        await asyncio.sleep(self._random.choice((0.0, 0.05, 1.0, 5.0)))
        if not self._brokers and self._random.random() < 0.2:
            # And on a copy, at the same time.
            self.copies += 1
            copy = Left(left.files.crash(self._random), left.rows)
            await asyncio.gather(self._start(left), self._start(copy))
        elif not self._brokers or self._random.random() < 0.5:
            await self._start(left)

    async def _copy(self, broker: Broker) -> None:
        if len(self._brokers) < _BROKERS_MAX:
            self.copies += 1
            await self._start(broker.copy())

    async def _restore(self) -> None:
        """Lose all directories, and go on from a cut."""
        if not self._promises.cuts:
            return
        for broker in list(self._brokers):
            await self._end(broker)
        cuts = self._promises.retained()
        cut = self._random.choice((self._random.choice(cuts), cuts[-1]))
        self.restores += 1
        await self._start(self._restored(cut))

    def _restored(self, cut: CutView) -> Left:
        newest = self._promises.newest
        assert newest is not None
        files = SimulatedFiles()
        epoch = max(cut.header["leader_epoch"], newest.header["leader_epoch"])
        rows = restored(cut, self.bucket.objects.get, files, DATA, leader_epoch=epoch)
        return Left(files, rows)

    # ── steps ──

    async def _step(self) -> None:
        random = self._random
        broker = random.choice(self._brokers)
        choice = random.random()
        if choice < 0.25:
            for _ in range(random.choice((1, 1, 4))):
                await self._append(broker)
        elif choice < 0.33:
            await self._burst(broker)
        elif choice < 0.43:
            await self._consume(broker)
        elif choice < 0.51:
            self._begin(self._transaction(broker))
        elif choice < 0.67:
            await asyncio.sleep(random.choice((0.0, 0.01, 0.1, 0.4, 1.5)))
        elif choice < 0.71:
            self._begin(broker.engine.enforce_retention)
        elif choice < 0.75:
            self._begin(broker.engine.compact)
        elif choice < 0.77:
            await self._delete_records(broker)
        elif choice < 0.83:
            await self._create_topic(broker)
        elif choice < 0.86:
            await self._delete_topic(broker)
        elif choice < 0.89:
            self._change_weather()
        elif choice < 0.92:
            await self._jump(broker)
        elif choice < 0.96:
            await self._restart(broker)
        elif choice < 0.98:
            await self._copy(broker)
        else:
            await self._restore()

    def _begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin work of a broker that others happen beside."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                self._promises.failed(error)
                raise

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _change_weather(self) -> None:
        random = self._random
        self.bucket.weather = random.choice((Weather(), self._faults, self._faults, Weather(is_down=True)))

    def _partition(self, broker: Broker) -> TopicPartition | None:
        names = [name for name in broker.partitions if broker.has(name)]
        return self._random.choice(names) if names else None

    async def _append(self, broker: Broker, name: TopicPartition | None = None) -> None:
        random = self._random
        name = name or self._partition(broker)
        if name is None or not broker.has(name):
            return
        keyed = [
            Keyed(
                b"k%d" % random.randrange(4),
                random.randbytes(random.choice((3, 40, 200))),
                broker.clock.now_ms(),
            )
            for _ in range(random.choice((1, 1, 3)))
        ]
        future = broker.append(name, bytearray(batch(keyed)), sync=random.random() < 0.5)
        if future is not None and random.random() < 0.3:
            await future

    async def _jump(self, broker: Broker) -> None:
        """Turn the wall clock of a broker."""
        options = self._options
        ahead_ms = self._random.choice((options.retention_ms, 100_000))
        broker.clock.jump_ms = self._random.choice((0, -700, -5_000, ahead_ms, ahead_ms))
        if broker.clock.jump_ms > 0:
            await asyncio.sleep((options.clean_interval_ms + options.interval_ms) / 1000 * 1.5)

    async def _burst(self, broker: Broker) -> None:
        """Append so much that it is uploaded for a while, and remove some of it meanwhile."""
        random = self._random
        for _ in range(12):
            await self._append(broker)
        await asyncio.sleep(self._options.interval_ms / 1000 * random.choice((0.5, 1, 1.3)))
        choice = random.random()
        if choice < 0.6:
            await self._delete_topic(broker)
        elif choice < 0.85:
            await broker.engine.enforce_retention()
        else:
            await self._restart(broker)

    async def _consume(self, broker: Broker) -> None:
        """Commit what can be read, or forget what was committed."""
        name = self._partition(broker)
        if name is None:
            return
        if self._random.random() < 0.2:
            broker.groups.write(commit_row(broker.partitions[name]), None)
            return
        end = broker.engine.state(name).high_watermark
        written = broker.groups.write(commit_row(broker.partitions[name]), end)
        if self._random.random() < 0.5:
            await asyncio.wait([written], timeout=1)

    def _transaction(self, broker: Broker) -> Callable[[], Awaitable[object]]:
        """Store an outcome, and write its marker after that."""
        self._transactions += 1
        transaction = f"t{self._transactions}"

        async def run() -> None:
            name = self._partition(broker)
            if name is None or broker.is_compacted(name):
                return
            key = broker.partitions[name]
            written = broker.groups.write(f"outcome {transaction}", True)
            await asyncio.wait([written], timeout=1)
            if not (written.done() and broker.is_alive and broker.partitions.get(name) == key):
                return
            broker.append(name, bytearray(batch([Keyed(b"marker", marker_of(transaction))])), sync=False)

        return run

    async def _delete_records(self, broker: Broker) -> None:
        name = self._partition(broker)
        if name is not None:
            state = broker.engine.state(name)
            offset = self._random.randint(state.log_start_offset, state.high_watermark)
            await broker.engine.delete_records(name, offset)

    async def _create_topic(self, broker: Broker) -> None:
        random = self._random
        topic = random.choice(_TOPICS)
        if f"topic {topic}" in broker.catalog.submitted:
            return
        row = {
            "id": self._new_topic_id(),
            "partitions": random.randint(1, 3),
            "segment": random.choice((400, 1_000, 1 << 20)),
            "config": random.choice(("", "r", "b", "b", "c", "c")),
        }
        await broker.create_topic(topic, row)

    async def _delete_topic(self, broker: Broker) -> None:
        topic = self._random.choice(_TOPICS)
        row = broker.catalog.rows.get(f"topic {topic}")
        if row is None:
            return
        await broker.delete_topic(topic)
        if self._random.random() < 0.5:
            # Another one has its name and its paths at once.
            await broker.create_topic(topic, {**row, "id": self._new_topic_id()})
            for number in range(row["partitions"]):
                for _ in range(6):
                    await self._append(broker, TopicPartition(topic, number))

    def _new_topic_id(self) -> str:
        self._topic_ids += 1
        return str(UUID(int=self._topic_ids))

    # ── the end ──

    async def _settle(self) -> None:
        """Let the faults end: the replica follows again, and the bucket has nothing that nobody needs."""
        self.bucket.weather = Weather(delays_s=(0.0, 0.001))
        self._locked = 0.0
        for broker in self._brokers:
            broker.clock.jump_ms = min(broker.clock.jump_ms, 0)
            for table in broker.tables.values():
                table.locked = 0.0
        # Until everything has taken effect.
        await asyncio.sleep(max(LATE_S) if self.bucket.late else 0)
        # Requests without an answer end, and each broker looks for later cuts.
        await asyncio.sleep(
            (self._options.request_timeout_ms + 2 * self._options.clean_interval_ms) / 1000 + 0.5
        )
        self._check()
        if all(broker.replica.status.phase == "overtaken" for broker in self._brokers):
            # By one that is no longer there.
            await self._start(await self._end(self._brokers[0]))
        writers = [broker for broker in self._brokers if broker.replica.status.phase != "overtaken"]
        for broker in self._brokers:
            status = broker.replica.status
            assert status.phase != "stopped", (
                f"broker {broker.number} has stopped to replicate: {status.problem}"
            )
        for broker in writers:
            await self._append(broker)
            await broker.groups.write("last", broker.number)
        await asyncio.sleep(1)
        self._check()
        phases = [broker.replica.status.phase for broker in self._brokers]
        assert phases.count("replicating") == 1, f"{phases}: one broker replicates"
        broker = self._brokers[phases.index("replicating")]
        status = broker.replica.status
        assert status.lag_ms <= self._options.interval_ms + 100, f"the lag falls to the interval: {status}"
        self._check_newest(broker)
        for other in list(self._brokers):
            if other is not broker:
                await self._end(other)
        self._brokers.remove(broker)
        await before(_SETTLE_S, self._last_life(broker))

    def _check_newest(self, broker: Broker) -> None:
        """Check that the newest cut has all that the broker has."""
        newest = self._promises.newest
        assert newest is not None
        assert newest.header["incarnation"] == str(UUID(int=broker.number)), "its cut is the newest"
        moment = self._promises.writers[str(UUID(int=broker.number))].moment
        assert moment is not None
        now = broker.moment()
        assert (now.logs, now.stores) == (moment.logs, moment.stores), "nothing changes any more"

    async def _last_life(self, broker: Broker) -> None:
        left = await broker.close()
        last = self._promises.newest
        self._check()
        broker = await self._start(left)
        # What was written while the clock was ahead is kept for longer.
        ahead_ms = max(0, 0 if last is None else last.header["time_ms"] - broker.clock.now_ms())
        options = self._options
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        for idle_ms in (0, options.retention_ms + ahead_ms, options.retention_ms):
            # At once: in thousands of intervals without a change nothing happens, and they take most of the time.
            loop.hold(idle_ms / 1000)
            await asyncio.sleep((2 * options.clean_interval_ms + options.interval_ms) / 1000 + 0.2)
            self._check()
        self._promises.check_needed()
        newest = self._promises.newest
        assert newest is not None
        assert last is not None
        assert newest.sequence > last.sequence, f"the start has written no cut: {broker.replica.status}"
        strays = self._promises.strays([newest])
        assert not strays, f"{strays} stay in the bucket, and nothing needs them: {broker.replica.status}"
        self._brokers.remove(broker)
        await broker.close()
        self._check()
        await self._check_restore(newest)

    async def _check_restore(self, cut: CutView) -> None:
        """Check that a broker finds in restored files what the cut says."""
        broker = Broker(
            0,
            self._restored(cut),
            bucket=self.bucket,
            promises=self._promises,
            options=self._options,
            random=self._random,
        )
        moment = self._promises.writers[cut.header["incarnation"]].moment
        assert moment is not None
        await broker.open()
        restored = logs_of(broker.engine, broker.files)
        assert restored == as_a_start_leaves(moment.logs), "a restore is what was replicated"
        await broker.engine.close()
