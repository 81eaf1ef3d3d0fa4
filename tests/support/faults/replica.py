"""Brokers that lose their directory under load and are restored from a bucket, again and again.

::

    clients ──▶ broker ──▶ proxy: 503, 429, late, lost ──▶ SeaweedFS, versitygw (kill -9) or a directory
                  │ kill -9, the directory is deleted
                  ▼
               stele restore ──▶ the next broker

After each restore: what was acknowledged before the moment of the cut is there, at its offset; what is there of what
came later is as it was; nothing is there twice, offsets have no holes, transactions are whole, and no group has committed
an offset past the end. The newest value of each key of a compacted topic is there, and so are segments that were in the
bucket alone. A queue delivers all that was not accepted, and nothing that was. Apache Kafka's tool reads every segment.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stele import Client
from stele.testing import BrokerProcess

from app.storage.replica.chain import CutChain
from app.storage.replica.cut import CutHeader
from app.storage.segments.remote_segments import REMOTE_SEGMENTS
from app.storage.shared.store.object_store import ObjectStoreError
from app.storage.shared.store.urls import open_object_store
from load.postgres_server import PostgresServer
from tests.support.dumped_segments import dump_all
from tests.support.kills import producers
from tests.support.postgres import postgres_bin
from tests.support.warm_processes import run_stele

from .buckets import Bucket, bucket
from .changes import ChangeCapture
from .mixed_load import COMPACTED, TIERED, ReplicatedBroker

_INTERVAL_MS = 300
_SETTINGS = {
    "STELE_LOG_CHECKPOINT_INTERVAL_MS": "50",
    "STELE_LOG_CLEANER_BACKOFF_MS": "200",
    "STELE_LOG_FLUSH_INTERVAL_MS": "200",
    "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "500",
    "STELE_REPLICA_INTERVAL_MS": str(_INTERVAL_MS),
}
# Until the replica has gone on, on a busy machine and through the faults of its store.
_PATIENCE_S = 240.0
_POLL_S = 0.1
# A JVM reads the segments after one of so many restores.
_RESTORES_PER_DUMP = 4


@dataclass(kw_only=True)
class Restored:
    """What has survived, and how often each thing happened.

    ``counts``: ``restores`` of which ``dumped`` were read by Apache Kafka's tool; ``copies`` of the directory on which
    another broker started; kills of brokers and of the store; ``rounds_tiered`` and ``rounds_compacted``, in which
    segments had left the disk and records had been compacted away; conditional PUTs that lost; and the sums of
    ``Checked``.
    """

    seed: int
    store: str
    counts: Counter[str] = field(default_factory=Counter[str])
    acknowledged: Counter[str] = field(default_factory=Counter[str])
    failed_requests: Counter[str] = field(default_factory=Counter[str])
    # From the last acknowledgement to the cut.
    lag_ms_max: int = 0


class ReplicaRun:
    """A run of restores in ``path``; with ``changes`` of PostgreSQL, Apache Kafka's tool reads segments, too."""

    def __init__(self, path: Path, store: Bucket, restored: Restored, changes: ChangeCapture | None) -> None:
        self._path = path
        self._bucket = store
        self._changes = changes
        self._rng = random.Random(restored.seed)
        self._store = open_object_store(store.url)
        self._number = 0
        self._restored = restored

    async def run(self, is_over: Callable[[], bool], progress: Callable[[str], None]) -> None:
        """Lose the directory and restore it until ``is_over``."""
        broker = self._broker(self._path / "data-0")
        await asyncio.to_thread(broker.start)
        try:
            while not is_over():
                broker = await self._round(broker)
                progress(f"{self._restored}")
        finally:
            if broker.is_running:
                broker.kill()

    async def _round(self, broker: BrokerProcess) -> BrokerProcess:
        """Return the broker on the restored directory."""
        rng, restored = self._rng, self._restored
        try:
            if restored.counts["restores"] and rng.random() < 0.3:
                await self._start_on_a_copy(broker)
            killed = ReplicatedBroker(broker, rng, self._number, self._changes)
            self._number += 1
            await killed.set_up()
            self._bucket.fail(rng.choice((0.0, 0.03, 0.1)))
            await killed.load(rng.randint(200, 3_000), self._passes_for_a_while)
            restored.counts["kills"] += killed.kills
        finally:
            if broker.is_running:
                broker.kill()
        restored.acknowledged.update(killed.ledger.acks)
        restored.counts["rounds_tiered"] += (broker.data_dir / f"{TIERED}-0" / REMOTE_SEGMENTS).exists()
        shutil.rmtree(broker.data_dir)
        # Its last requests may still arrive.
        await asyncio.to_thread(self._bucket.fail, 0.0)
        target = self._path / f"data-{self._number}"
        header = await self._restore(target)
        if self._changes is not None and restored.counts["restores"] % _RESTORES_PER_DUMP == 0:
            read = await asyncio.to_thread(dump_all, target, compacted=frozenset((f"{COMPACTED}-0",)))
            restored.counts += Counter(dumped=1, dumped_segments=read)
        after = self._broker(target)
        await asyncio.to_thread(after.start)
        try:
            checked = await killed.check_restored(after, header)
        except BaseException:
            after.kill()
            raise
        restored.counts += Counter(restores=1, rounds_compacted=checked.compacted > 0, **asdict(checked))
        last_ms = max(max(times.values()) for times in killed.ledger.times_ms.values())
        restored.lag_ms_max = max(restored.lag_ms_max, last_ms - header.time_ms)
        return after

    def _broker(self, data_dir: Path) -> BrokerProcess:
        environment = {**_SETTINGS, "STELE_REPLICATE_TO": self._bucket.url_of_broker}
        return BrokerProcess(data_dir, environment=environment)

    async def _passes_for_a_while(self) -> None:
        """Let cuts be written under load; in some rounds the store dies, or does not answer at all in the end."""
        rng = self._rng
        await self._await_cuts(3)
        await asyncio.sleep(rng.random() * 2)
        if (server := self._bucket.server) is not None and rng.random() < 0.4:
            server.kill()
            self._restored.counts["store_kills"] += 1
            await asyncio.sleep(rng.random() * 2)
            if rng.random() < 0.3:
                # Until the directory is lost.
                return
            await asyncio.to_thread(server.start)
            await self._await_cuts(1)
        if rng.random() < 0.2:
            self._bucket.answer_nothing()
            await asyncio.sleep(rng.random() * 2)

    async def _start_on_a_copy(self, broker: BrokerProcess) -> None:
        """Start another broker on a copy of the directory, which takes the replica over, and end it again."""
        first = (await self._newest_that(lambda newest: newest.generation > 0)).generation
        copy = self._path / "copy"
        # As a snapshot of a volume would be while nobody writes.
        broker.kill()
        shutil.copytree(broker.data_dir, copy)
        await asyncio.to_thread(broker.start)
        taken = (await self._newest_that(lambda newest: newest.generation > first)).generation
        other = self._broker(copy)
        await asyncio.to_thread(other.start)
        try:
            await self._newest_that(lambda newest: newest.generation > taken)
            await asyncio.to_thread(_write_one, broker)
            give_up_s = time.monotonic() + _PATIENCE_S
            while "is written by another broker" not in broker.stderr:
                assert time.monotonic() < give_up_s, broker.stderr
                await asyncio.sleep(_POLL_S)
            newest = await self._newest()
            assert newest is not None
            assert newest.generation > taken, f"an overtaken broker writes cut {newest.sequence}"
        finally:
            other.kill()
            shutil.rmtree(copy)
        broker.kill()
        await asyncio.to_thread(broker.start)
        await self._newest_that(lambda now: now.generation > newest.generation)
        self._restored.counts += Counter(copies=1, kills=2)

    # ── the bucket ──

    def _chain(self) -> CutChain:
        return CutChain(self._store)

    async def _newest(self) -> CutHeader | None:
        give_up_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                sequences = await self._chain().sequences()
                return (await self._chain().read(sequences[-1])).header if sequences else None
            except ObjectStoreError:
                # SeaweedFS serves before it finds all objects again.
                if time.monotonic() > give_up_s:
                    raise
            await asyncio.sleep(_POLL_S)

    async def _newest_that(self, is_so: Callable[[CutHeader], bool]) -> CutHeader:
        """Return the newest cut as soon as it is so."""
        give_up_s = time.monotonic() + _PATIENCE_S
        while (newest := await self._newest()) is None or not is_so(newest):
            assert time.monotonic() < give_up_s, f"the replica does not go on after {newest}"
            await asyncio.sleep(_POLL_S)
        return newest

    async def _await_cuts(self, count: int) -> None:
        newest = await self._newest()
        sequence = -1 if newest is None else newest.sequence
        await self._newest_that(lambda newest: newest.sequence >= sequence + count)

    async def _restore(self, target: Path) -> CutHeader:
        arguments = ("restore", self._bucket.url, "--data-dir", str(target), "--format", "json")
        done = await asyncio.to_thread(lambda: run_stele(*arguments, timeout=_PATIENCE_S))
        assert done.returncode == 0, f"no restore: {done.stderr.decode()}"
        document = json.loads(done.stdout)
        header = (await self._chain().read(document["sequence"])).header
        assert header.time_ms == document["at"], document
        return header

    async def close(self) -> None:
        await self._store.close()


def _write_one(broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client:
        client.produce(producers.WEB, b"by a broker that was overtaken")


def lose_and_restore(
    path: Path,
    restored: Restored,
    *,
    is_over: Callable[[Restored], bool],
    progress: Callable[[str], None] = print,
    is_whole: bool = True,
) -> None:
    """Lose directories and restore them until ``is_over``; note in ``restored`` what happened.

    If it ``is_whole``, changes of PostgreSQL are a part of the load, and Apache Kafka's tool reads segments.

    Raises:
        AssertionError: a promise was broken.
    """

    async def run(store: Bucket, changes: ChangeCapture | None) -> None:
        replica = ReplicaRun(path, store, restored, changes)
        try:
            await replica.run(lambda: is_over(restored), progress)
        finally:
            await replica.close()
            if changes is not None:
                restored.counts["changes_copied_again"] += changes.copied_again
            if store.proxy is not None:
                restored.failed_requests.update(
                    {fault.name: count for fault, count in store.proxy.failed.items()}
                )
                restored.counts["lost_conditions"] += store.proxy.lost_conditions

    with ExitStack() as stack:
        store = stack.enter_context(bucket(restored.store, path, restored.seed))
        changes = None
        if is_whole:
            pg = stack.enter_context(PostgresServer(postgres_bin()))
            changes = ChangeCapture(pg, path / "cdc.log", random.Random(restored.seed))
        asyncio.run(run(store, changes))
