"""kill -9 in the middle of produce, again and again on the same data, over all protocols, with a ledger of acks.

The ledger lives in this process. After every restart: nothing that was acked is lost or changed, offsets have no
holes, and nothing of an idempotent producer is there twice, though it sends again whatever was not acked when the
broker died. At the end everything is read once more, over each protocol, and is the same record at each.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from stele import AsyncClient
from stele.testing import BrokerProcess
from stele.wire.kafka.transactions import InitProducerIdRequest

from load.pausing import paused
from tests.support.kafka_peer import KafkaPeer
from tests.support.small_disk import SmallDisk
from tests.support.warm_processes import show_stacks

from . import producers
from .ledger import Content, Ledger, Place
from .producers import ONCE, PARTITIONS, TRANSACTIONAL, Refused
from .readers import read_over_kafka, read_with_client

# Small segments and frequent checkpoints: a kill meets rolls and checkpoints too.
_SETTINGS = {
    "STELE_LOG_CHECKPOINT_INTERVAL_MS": "50",
    "STELE_LOG_FLUSH_INTERVAL_MS": "20",
    "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "1000",
    "STELE_IDEMPOTENCY_KEYS_MAX": "1000",
}
_PATIENCE_S = 180.0
# One round, with all its waits and reads, on a busy machine.
_ROUND_S = 600.0
_REFUSED_PAUSE_S = 0.05
_PROTOCOLS = {"binary", "http", "kafka"}
# What is deleted, through the API, to get out of a full disk: more than is kept back (``kept_space``).
_BALLAST = "ballast"
_BALLAST_RECORDS, _BALLAST_BYTES = 40, 500_000
_WAYS_OUT: tuple[Callable[[httpx.AsyncClient], Awaitable[httpx.Response]], ...] = (
    lambda http: http.delete(f"/v1/topics/{_BALLAST}"),
    lambda http: http.delete(f"/v1/topics/{_BALLAST}/records"),
    lambda http: http.patch(f"/v1/topics/{_BALLAST}", json={"configs": {"retention.bytes": 1_000}}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """What a broker has survived: acknowledged records by topic, and writes that a full disk refused."""

    seed: int
    kills: int
    full_disks: int
    acknowledged: dict[str, int]
    refused: dict[str, int]
    read_back: int


class KilledBroker:
    """A broker under load, and what is known of it."""

    # What is produced to, and what differs from the usual configurations of it.
    topics: Mapping[str, int] = PARTITIONS
    configs: Mapping[str, Mapping[str, str]] = {}

    def __init__(self, broker: BrokerProcess, rng: random.Random, disk: SmallDisk | None) -> None:
        self._broker = broker
        self._rng = rng
        self._disk = disk
        self._ledger = Ledger()
        self._seen: dict[Place, dict[int, Content]] = {}
        self._binary = [
            producers.BinaryOnce(partition) for partition in range(PARTITIONS[producers.BINARY_ONCE])
        ]
        self._web = producers.WebOnce()
        self._transactional = producers.KafkaTransactional()
        self.kills = self.full_disks = 0

    @property
    def acknowledged(self) -> int:
        return self._ledger.acks.total()

    async def set_up(self) -> None:
        """Create the topics."""
        async with AsyncClient(self._broker.binary_url) as client:
            for topic, partitions in self.topics.items():
                size = "8192" if topic in ONCE else "65536"
                configs = {"segment.bytes": size, "retention.ms": "-1", **self.configs.get(topic, {})}
                await client.create_topic(topic, partitions=partitions, configs=configs)
        with KafkaPeer(self._broker) as peer:
            answer = peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            self._kafka = producers.KafkaOnce(answer.producer_id)
        if self._disk is not None:
            await self._put_ballast()

    async def _put_ballast(self) -> None:
        configs = {"segment.bytes": 1 << 20, "retention.ms": -1, "retention.bytes": -1}
        async with producers.http_of(self._broker) as http:
            answer = await http.put(f"/v1/topics/{_BALLAST}", json={"partitions": 1})
            assert answer.status_code in (200, 201, 409), answer.text
            answer = await http.patch(f"/v1/topics/{_BALLAST}", json={"configs": configs})
            assert answer.status_code == 200, answer.text
            for _ in range(_BALLAST_RECORDS):
                answer = await http.post(
                    f"/v1/topics/{_BALLAST}/records",
                    content=bytes(_BALLAST_BYTES),
                    headers={"Content-Type": "application/octet-stream"},
                )
                assert answer.status_code == 200, answer.text

    # ── load ──

    def _begin(self) -> asyncio.Future[Any]:
        """Start all clients."""
        return asyncio.gather(*(self._until_the_broker_dies(work) for work in self._works()))

    def _works(self) -> list[Callable[[], Awaitable[None]]]:
        broker, ledger, rng = self._broker, self._ledger, self._rng
        name = f"{self.kills}-{self.full_disks}"
        return [
            lambda: producers.produce_simply(broker, ledger, f"simple-{name}-{rng.random()}"),
            lambda: producers.produce_over_http(broker, ledger, f"web-{name}-{rng.random()}"),
            lambda: producers.produce_over_kafka(broker, ledger, f"kafka-{name}-{rng.random()}"),
            lambda: self._web.run(broker, ledger),
            lambda: self._kafka.run(broker, ledger, rng),
            lambda: self._transactional.run(broker, ledger, rng),
            *(lambda producer=producer: producer.run(broker, ledger, rng) for producer in self._binary),
        ]

    async def _until_the_broker_dies(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Refused as refused:
                if not self._ledger.may_refuse:
                    raise AssertionError(f"refused without a full disk: {refused}") from refused
                self._ledger.refuse(refused.protocol)
                await asyncio.sleep(_REFUSED_PAUSE_S)
            except (ConnectionError, httpx.TransportError, StopAsyncIteration, asyncio.IncompleteReadError):
                return
            else:
                return

    async def _await(self, running: asyncio.Future[Any], is_so: Callable[[], bool], what: str) -> None:
        """Wait until the acknowledgements and refusals are such."""
        moved = self._ledger.moved
        give_up_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            # A producer may have failed.
            if running.done():
                await running
                raise AssertionError(f"the broker has ended: {self._broker.stderr}")
            assert time.monotonic() < give_up_s, (
                f"not within {_PATIENCE_S:g} s: {what}; {self._ledger.acks}, {self._ledger.refusals};"
                f" {self._broker.stderr}"
            )
            moved.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(moved.wait(), 1)
        assert self._broker.is_running, self._broker.stderr

    async def _await_acks(self, running: asyncio.Future[Any], more: int) -> None:
        """Wait for ``more`` acknowledgements, and at least one in each topic."""
        before = self._ledger.acks.copy()

        def are_there() -> bool:
            new = self._ledger.acks - before
            return new.total() >= more and new.keys() == self.topics.keys()

        await self._await(running, are_there, "every producer is acknowledged")

    async def _await_refusals(self, running: asyncio.Future[Any]) -> None:
        before = self._ledger.refusals.copy()
        await self._await(
            running, lambda: (self._ledger.refusals - before).keys() == _PROTOCOLS, "all protocols refuse"
        )

    # ── faults ──

    async def kill(self, before_start: Callable[[], None]) -> None:
        """Kill the broker under load, start it again, and check what is new."""
        running = self._begin()
        await self._await_acks(running, self._rng.randint(1, 2000))
        await self._kill(running)
        before_start()
        self._broker.start()
        await self._check_new()

    async def _kill(self, running: asyncio.Future[Any]) -> None:
        self._broker.kill()
        self.kills += 1
        await running

    async def fill_the_disk(self) -> None:
        """Fill the disk under load, kill the broker, start it on the full disk, and free it through the API."""
        disk, ledger = self._disk, self._ledger
        assert disk is not None
        running = self._begin()
        await self._await_acks(running, self._rng.randint(1, 2000))
        ledger.may_refuse = True
        # Otherwise the other program would take the space that is kept back while a checkpoint uses it (ADR-0068).
        with paused(self._broker.pid):
            await asyncio.to_thread(disk.fill)
        await self._await_refusals(running)
        await self._check_new(is_full=True)
        await self._kill(running)
        self._broker.start()
        await self._check_new(is_full=True)
        running = self._begin()
        await self._await_refusals(running)
        async with producers.http_of(self._broker) as http:
            assert (await http.get("/readyz")).status_code == 507
            answer = await _WAYS_OUT[self.full_disks % len(_WAYS_OUT)](http)
            assert answer.status_code < 300, answer.text
            give_up_s = time.monotonic() + _PATIENCE_S
            while (ready := await http.get("/readyz")).status_code != 200:
                assert time.monotonic() < give_up_s, f"the disk is free, and the broker {ready.text}"
                await asyncio.sleep(_REFUSED_PAUSE_S)
        await self._await_acks(running, 1)
        self.full_disks += 1
        # The other program ends, too.
        disk.free()
        await self._await_acks(running, 1)
        ledger.may_refuse = False
        await self._await_acks(running, self._rng.randint(1, 2000))
        await self._kill(running)
        self._broker.start()
        await self._check_new()
        await self._put_ballast()

    # ── checks ──

    async def _check_new(self, *, is_full: bool = False) -> None:
        """Read what is new since the last time, and hold everything acked against it.

        While the disk ``is_full``, a transaction that cannot end may hide what was committed after it began.
        """
        for place in sorted(self._ledger.acked):
            # Clients still write, and what is acknowledged while this reads is compared the next time.
            until = max(self._ledger.acked[place]) + 1 if is_full else None
            if until is not None and place[0] in TRANSACTIONAL:
                until = min(until, await self._last_stable_offset(place))
            seen = self._seen.setdefault(place, {})
            start = max(seen, default=-1) + 1
            seen |= await read_with_client(self._broker.binary_url, place, start)
            self._check(place, seen, until)

    async def _last_stable_offset(self, place: Place) -> int:
        topic, partition = place
        async with producers.http_of(self._broker) as http:
            answer = await http.get(f"/v1/topics/{topic}")
        assert answer.status_code == 200, answer.text
        return answer.json()["partitions"][partition]["last_stable_offset"]

    def _check(self, place: Place, stored: Mapping[int, Content], until: int | None = None) -> None:
        topic = place[0]
        self._ledger.check(
            place, stored, is_dense=topic not in TRANSACTIONAL, is_once=topic in ONCE, until=until
        )

    async def check_all(self) -> Survived:
        """Read everything over each protocol, and compare that with the acknowledgements and with each other."""
        whole: dict[Place, dict[int, Content]] = {}
        for place in sorted(self._ledger.acked):
            over_binary = await read_with_client(self._broker.binary_url, place)
            over_http = await read_with_client(self._broker.http_url, place)
            over_kafka = await asyncio.to_thread(read_over_kafka, self._broker, place)
            for protocol, stored in (("binary", over_binary), ("HTTP", over_http), ("Kafka", over_kafka)):
                assert stored == over_binary, f"{place} is another one over {protocol}"
                self._check(place, stored)
            whole[place] = over_binary
        for topic in TRANSACTIONAL:
            first, second = (sorted(c.value or b"" for c in whole[topic, at].values()) for at in range(2))
            assert first == second, f"a transaction of {topic} is there in part"
        assert self._ledger.acks.keys() == PARTITIONS.keys()
        return Survived(
            seed=0,
            kills=self.kills,
            full_disks=self.full_disks,
            acknowledged=dict(self._ledger.acks),
            refused=dict(self._ledger.refusals),
            read_back=sum(map(len, whole.values())),
        )


async def _in_time(work: Awaitable[None], broker: BrokerProcess) -> None:
    try:
        async with asyncio.timeout(_ROUND_S):
            await work
    except TimeoutError:
        show_stacks()
        await asyncio.sleep(1)
        raise AssertionError(f"a round took longer than {_ROUND_S:g} s; {broker.stderr}") from None


def _do_nothing() -> None:
    return


async def kill_and_recover(
    data_dir: Path,
    kills: int,
    seed: int,
    *,
    environment: Mapping[str, str] | None = None,
    before_start: Callable[[], None] = _do_nothing,
    disk: SmallDisk | None = None,
    full_disks: int = 0,
    progress: Callable[[str], None] = print,
) -> Survived:
    """Kill a broker ``kills`` times; ``before_start`` is called while it is dead.

    ``full_disks`` times in between, ``disk``, on which its data are, becomes full, with two kills each time.

    Raises:
        AssertionError: an acknowledged record is lost or changed, or the broker does something else that is wrong.
    """
    rng = random.Random(seed)
    broker = BrokerProcess(data_dir, environment={**_SETTINGS, **(environment or {})})
    broker.start()
    try:
        killed = KilledBroker(broker, rng, disk)
        await killed.set_up()
        rounds = kills - 2 * full_disks
        between = rounds // (full_disks + 1)
        for number in range(rounds):
            if number and full_disks and number % between == 0 and number // between <= full_disks:
                await _in_time(killed.fill_the_disk(), broker)
                progress(f"full disk {number // between} of {full_disks}")
            await _in_time(killed.kill(before_start), broker)
            progress(f"kill {killed.kills} of {kills}: {killed.acknowledged} records acknowledged")
        survived = await killed.check_all()
        assert broker.stop() == 0
    finally:
        if broker.is_running:
            broker.kill()
    survived = replace(survived, seed=seed)
    progress(f"{survived}")
    return survived
