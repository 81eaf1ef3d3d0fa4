"""The load of a broker with a replica, and what of it must be there after a restore.

Beside the clients of ``kills``: a group that commits, a compacted topic, a topic whose segments leave the disk for the
bucket, a queue whose records are accepted one by one, by a share group over HTTP, and changes of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx
from stele import AsyncClient
from stele import TopicPartition as StelePartition
from stele.testing import BrokerProcess
from stele.wire import record_batch as rb
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stele.wire.kafka.transactions import InitProducerIdRequest

from app.storage.replica.cut import CutHeader
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_transactions import read
from tests.support.kills import producers
from tests.support.kills.ledger import Content, Ledger, Place
from tests.support.kills.producers import ONCE, PARTITIONS, SIMPLE, TRANSACTIONAL
from tests.support.kills.readers import read_over_kafka, read_with_client
from tests.support.kills.run import KilledBroker
from tests.support.share_groups import configure

from .changes import ChangeCapture

GROUP, SHARE_GROUP = "readers", "workers"
COMPACTED, TIERED, QUEUE = "compacted", "tiered", "queue"
_KEYS = 50
# Numbers of producers that begin again must be new.
_NUMBERS_PER_ROUND = 10_000_000


@dataclass
class TimedLedger(Ledger):
    """Knows when each acknowledgement had come, and what was committed by the group."""

    times_ms: defaultdict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def ack(self, place: Place, base_offset: int, contents: Sequence[Content]) -> None:
        super().ack(place, base_offset, contents)
        now_ms = _now_ms()
        for offset in range(base_offset, base_offset + len(contents)):
            self.times_ms[place].setdefault(offset, now_ms)


def _keyed_contents_of(name: str, first: int, count: int) -> list[Content]:
    """Return records for a compacted topic: each has a key, and some delete it."""
    return [
        replace(content, key=b"key-%d" % (number % _KEYS), value=None if number % 23 == 0 else content.value)
        for number, content in enumerate(producers.contents_of(name, first, count), first)
    ]


@dataclass
class Worker:
    """Takes records of the queue, and accepts most of them; ``first`` is the first that was not done before."""

    first: int = 0
    # By offset, when the answer came; and what was to be accepted, whatever became of it.
    accepted_ms: dict[int, int] = field(default_factory=dict[int, int])
    tried: set[int] = field(default_factory=set[int])

    async def run(self, broker: BrokerProcess, rng: random.Random) -> None:
        async with producers.http_of(broker) as http:
            while True:
                told = await _share(http, "poll", topics=[QUEUE], max_records=rng.randint(1, 50), wait_ms=100)
                if not (records := told["records"]):
                    continue
                records = rng.sample(records, rng.randint(1, len(records)))
                settled = [{name: one[name] for name in ("topic", "partition", "offset")} for one in records]
                # What is not settled stays locked until the broker dies.
                if rng.random() < 0.1:
                    await _share(http, "release", lock=told["lock"], records=settled)
                    continue
                offsets = [one["offset"] for one in records]
                self.tried.update(offsets)
                await _share(http, "ack", lock=told["lock"], records=settled)
                self.accepted_ms |= dict.fromkeys(offsets, _now_ms())

    async def finish(self, broker: BrokerProcess) -> list[int]:
        """Accept all that is left; return its offsets as they came."""
        offsets: list[int] = []
        async with producers.http_of(broker) as http:
            while records := (told := await _share(http, "poll", topics=[QUEUE], max_records=500))["records"]:
                offsets += [one["offset"] for one in records]
                await _share(http, "ack", lock=told["lock"])
        return offsets

    def check(self, left: Sequence[int], stored: Mapping[int, Content], cut: CutHeader) -> None:
        """Compare what was ``left`` with what is ``stored``, and was accepted.

        Raises:
            AssertionError: records are missing, or come again.
        """
        assert len(set(left)) == len(left), f"{QUEUE}: records came twice: {Counter(left).most_common(3)}"
        again = [o for o in left if o < self.first or self.accepted_ms.get(o, cut.time_ms) < cut.time_ms]
        assert not again, (
            f"{QUEUE}: accepted before {cut.time_ms}, the moment of the cut, and came again: {again[:9]}"
        )
        open_ = {offset for offset in stored if offset >= self.first} - self.tried
        assert not (missing := open_ - set(left)), f"{QUEUE}: never accepted and gone: {sorted(missing)[:9]}"


async def _share(http: httpx.AsyncClient, action: str, **body: Any) -> dict[str, Any]:
    start = {"from": "earliest"} if action == "poll" else {}
    answer = await http.post(f"/v1/groups/{SHARE_GROUP}/share/{action}", json={**body, **start})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Checked:
    """What was compared after a restore.

    ``lost`` counts acknowledged records that came after the cut, ``compacted`` offsets that compaction has removed,
    ``accepted`` records of the queue, ``left`` those that came after the restore, and ``changes`` those of PostgreSQL.
    """

    records: int = 0
    lost: int = 0
    compacted: int = 0
    accepted: int = 0
    left: int = 0
    changes: int = 0


class ReplicatedBroker(KilledBroker):
    """A broker with a replica, under load, also by ``changes`` of PostgreSQL if they are given."""

    topics: Mapping[str, int] = {**PARTITIONS, COMPACTED: 1, TIERED: 1, QUEUE: 1}
    configs: Mapping[str, Mapping[str, str]] = {
        COMPACTED: {
            "cleanup.policy": "compact",
            "segment.bytes": "16384",
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": "100",
        },
        # The times of its records are long past.
        TIERED: {"segment.bytes": "16384", "remote.storage.enable": "true", "local.retention.ms": "1000"},
    }

    def __init__(
        self, broker: BrokerProcess, rng: random.Random, number: int, changes: ChangeCapture | None
    ) -> None:
        super().__init__(broker, rng, None)
        self._changes = changes
        # All that was acknowledged is read after each restore.
        self.ledger = self._ledger = TimedLedger(pause_s=rng.choice((0.02, 0.05, 0.1)))
        first = number * _NUMBERS_PER_ROUND
        for producer in self._binary:
            producer.number = first
        self._web.number = self._transactional.number = first
        self._first = first
        self._is_over = threading.Event()
        self._worker = Worker()

    async def set_up(self) -> None:
        async with AsyncClient(self._broker.binary_url) as client:
            known = {topic.topic for topic in await client.topics()}
            if QUEUE in known:
                self._worker.first = await client.list_offset(QUEUE, 0) or 0
        if set(self.topics) <= known:
            with KafkaPeer(self._broker) as peer:
                answer = peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            self._kafka = producers.KafkaOnce(answer.producer_id)
        else:
            await super().set_up()
            with KafkaPeer(self._broker) as peer:
                # However often records are released, or held by a broker that dies.
                configure(peer, SHARE_GROUP, share_delivery_count_limit="10")
        self._kafka.number = self._first

    def _works(self) -> list[Callable[[], Awaitable[None]]]:
        broker, ledger, rng = self._broker, self._ledger, self._rng
        produce = partial(producers.produce_over_kafka, broker, ledger)
        return [
            *super()._works(),
            lambda: produce(f"c-{rng.random()}", COMPACTED, make=_keyed_contents_of, in_flight=4),
            lambda: produce(f"tiered-{rng.random()}", TIERED, in_flight=4),
            lambda: produce(f"queue-{rng.random()}", QUEUE, in_flight=1),
            lambda: self._worker.run(broker, rng),
        ]

    async def load(self, acks: int, between: Callable[[], Awaitable[None]]) -> None:
        """Produce and commit until there are ``acks`` more acknowledgements; after ``between``, kill the broker."""
        if self._changes is not None:
            await asyncio.to_thread(self._changes.begin, self._broker)
        running = self._begin()
        committing = asyncio.create_task(asyncio.to_thread(self._commit))
        try:
            await self._await_acks(running, acks)
            await between()
        finally:
            self._broker.kill()
            self.kills += 1
            self._is_over.set()
            await asyncio.gather(running, committing)
            self._is_over.clear()
            if self._changes is not None:
                await asyncio.to_thread(self._changes.end)

    def _commit(self) -> None:
        """Commit what was read, as fast as it goes, until the broker dies."""
        offset = 0
        with suppress(ConnectionError), KafkaPeer(self._broker) as peer:
            while not self._is_over.is_set():
                fetched = read(peer, SIMPLE, offset)
                batches = bytes(fetched.records or b"")
                if not batches:
                    self._is_over.wait(0.01)
                    continue
                offset = list(rb.iter_headers(batches))[-1].next_offset
                committed = OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset, committed_metadata=None
                )
                topic = OffsetCommitRequestTopic(name=SIMPLE, partitions=[committed])
                peer.call(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)

    # ── after a restore ──

    async def check_restored(self, broker: BrokerProcess, cut: CutHeader) -> Checked:
        """Compare what ``broker`` has with what was acknowledged."""
        checked = Checked()
        whole: dict[Place, dict[int, Content]] = {}
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                place = (topic, partition)
                stored = await read_with_client(broker.binary_url, place)
                over_kafka = await asyncio.to_thread(read_over_kafka, broker, place)
                assert stored == over_kafka, f"{place} is another one over Kafka"
                checked.lost += self._check_place(place, stored, cut)
                checked.records += len(stored)
                whole[place] = stored
        for topic in TRANSACTIONAL:
            first, second = (Counter(c.value for c in whole[topic, at].values()) for at in range(2))
            assert first == second, (
                f"a transaction of {topic} is there in part: {first - second}, {second - first}"
            )
        async with AsyncClient(broker.binary_url) as client:
            committed = await client.committed(GROUP, StelePartition(SIMPLE, 0))
            end = max(whole[SIMPLE, 0], default=-1) + 1
            assert committed is None or committed <= end, (
                f"{committed} is committed, and the log ends at {end}"
            )
        left = await self._worker.finish(broker)
        self._worker.check(left, whole[QUEUE, 0], cut)
        checked.accepted, checked.left = len(self._worker.accepted_ms), len(left)
        if self._changes is not None:
            checked.changes = await asyncio.to_thread(self._changes.check, broker)
        checked.compacted = max(whole[COMPACTED, 0], default=-1) + 1 - len(whole[COMPACTED, 0])
        return checked

    def _check_place(self, place: Place, stored: Mapping[int, Content], cut: CutHeader) -> int:
        """Return how many acknowledged records came after the cut, and are lost."""
        ledger = self.ledger
        acked, times_ms = ledger.acked[place], ledger.times_ms[place]
        if place[0] == COMPACTED:
            early_of_key = {
                acked[offset].key: offset for offset in sorted(acked) if times_ms[offset] < cut.time_ms
            }
            _check_newest(acked, early_of_key, stored)
            # What was replaced is not lost.
            for offset in [offset for offset in acked if offset not in stored and offset <= max(stored)]:
                del acked[offset]
        lost = [offset for offset in acked if offset not in stored]
        early = [offset for offset in lost if times_ms[offset] < cut.time_ms]
        assert not early, (
            f"{place}: {len(early)} records from offset {min(early)} on were acknowledged before {cut.time_ms}, the moment "
            f"of cut {cut.sequence}, and are lost; the first at {times_ms[min(early)]}"
        )
        assert all(offset > max(stored, default=-1) for offset in lost), f"{place} has lost records within"
        # What is there is as it was acknowledged.
        for offset in lost:
            del acked[offset]
        is_dense = place[0] not in (COMPACTED, *TRANSACTIONAL)
        ledger.check(place, stored, is_dense=is_dense, is_once=place[0] in ONCE)
        return len(lost)


def _check_newest(
    acked: Mapping[int, Content], early: Mapping[bytes | None, int], stored: Mapping[int, Content]
) -> None:
    """Fail unless the newest record of each key is ``early``, by its offset, or a later one."""
    newest = {stored[offset].key: offset for offset in sorted(stored)}
    deleted = {content.key for content in acked.values() if content.value is None}
    for key, offset in early.items():
        if key in newest or key not in deleted:
            assert newest.get(key, -1) >= offset, (
                f"{COMPACTED}: {key!r} has the value of offset {newest.get(key)}, and {offset} was acknowledged"
            )
