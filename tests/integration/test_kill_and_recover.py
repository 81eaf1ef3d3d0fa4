"""kill -9 in the middle of produce, again and again on the same data, over all listeners, with a ledger of acks.

The ledger lives in this process. After every restart: nothing that was acked is
lost or changed, offsets have no holes, and nothing of an idempotent producer is
there twice, though it sends again whatever was not acked when the broker died.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from stele import AsyncClient
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.framing import FrameReader
from stele.wire.record_batch import build_rows

from app.tcp.kafka.schemas import produce as produce_schema
from app.tcp.kafka.schemas.init_producer_id import InitProducerIdRequest
from load.postgres_server import PostgresServer
from tests.support import kafka_peer
from tests.support.batches import batch_of
from tests.support.postgres import postgres_bin

ROUNDS = 15
SHARED_ROUNDS = 2
TORTURE_ROUNDS = int(os.environ.get("STELE_TORTURE_ROUNDS", "200"))
IDEMPOTENT_PARTITIONS = 3
TOPICS = {"simple", "web", "idempotent", "kafka", "kafka-idempotent"}
IN_FLIGHT = 64
KAFKA_IN_FLIGHT = 5
KAFKA_PRODUCE, KAFKA_VERSION = produce_schema.API, 9

Place = tuple[str, int]


@dataclass
class Ledger:
    """What the broker has acked, and what it was seen to hold."""

    acked: defaultdict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    seen: defaultdict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    acks: int = 0
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def ack(self, place: Place, base_offset: int, values: list[bytes]) -> None:
        for offset, value in enumerate(values, base_offset):
            assert self.acked[place].setdefault(offset, value) == value, (
                f"offset {offset} of {place} given twice"
            )
        async with self.moved:
            self.acks += len(values)
            self.moved.notify_all()


class Peer:
    """A connection of the binary protocol that knows frames and nothing else."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def answers(self) -> AsyncIterator[m.Response | m.ErrorResponse]:
        """Until the connection ends."""
        while data := await self._reader.read(65536):
            for frame_type, body in self._frames.feed(data):
                yield m.decode_response(frame_type, body)


@asynccontextmanager
async def peer_of(broker: BrokerProcess) -> AsyncGenerator[Peer]:
    reader, writer = await asyncio.open_connection(broker.host, broker.binary_port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def produce_simply(broker: BrokerProcess, ledger: Ledger, name: str) -> None:
    """ADR-0009 produces, many in flight, each acked when it is in the log."""
    waiting: list[bytes] = []
    number = 0
    async with peer_of(broker) as peer:

        def send(count: int) -> None:
            nonlocal number
            values = [f"{name}-{number + i}".encode() for i in range(count)]
            number += count
            waiting.extend(values)
            peer.writer.write(
                b"".join(m.ProduceRequest(topic="simple", data=value).encode() for value in values)
            )

        send(IN_FLIGHT)
        async for answer in peer.answers():
            assert isinstance(answer, m.ProduceResponse), answer
            await ledger.ack(("simple", 0), answer.offset, [waiting.pop(0)])
            send(1)


@dataclass
class IdempotentProducer:
    """One producer of one partition: numbers its records, and sends again what was not acked."""

    partition: int
    producer_id: int = -1
    sequence: int = 0
    number: int = 0
    unacked: list[bytes] = field(default_factory=list[bytes])

    async def run(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        async with peer_of(broker) as peer:
            answers = peer.answers()
            if self.producer_id < 0:
                peer.writer.write(m.InitProducerIdRequest().encode())
                identity = await anext(answers)
                assert isinstance(identity, m.InitProducerIdResponse), identity
                self.producer_id = identity.producer_id
            while True:
                if not self.unacked:
                    count = rng.randint(1, 20)
                    self.unacked = [f"idem-{self.partition}-{self.number + i}".encode() for i in range(count)]
                    self.number += count
                peer.writer.write(self._request(rng.choice([1, m.ACKS_ALL])))
                answer = await anext(answers)
                assert isinstance(answer, m.ProduceBatchResponse), answer
                await ledger.ack(("idempotent", self.partition), answer.base_offset, self.unacked)
                self.sequence += len(self.unacked)
                self.unacked = []

    def _request(self, acks: int) -> bytes:
        rows = [(1_700_000_000_000, None, value, list[tuple[str, bytes | None]]()) for value in self.unacked]
        batch = build_rows(rows, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence)
        return m.ProduceBatchRequest(
            topic="idempotent", partition=self.partition, acks=acks, batches=batch
        ).encode()


async def produce_over_http(broker: BrokerProcess, ledger: Ledger, name: str) -> None:
    """JSON and NDJSON in turn, acked when synced."""
    async with httpx.AsyncClient(base_url=broker.http_url) as http:
        for number in range(1_000_000):
            values = [f"{name}-{number}-{i}" for i in range(5)]
            if number % 2:
                lines = "".join(f'{{"value":"{value}"}}\n' for value in values)
                answer = await http.post(
                    "/v1/topics/web/records", content=lines, headers={"content-type": "application/x-ndjson"}
                )
                base_offset = int(answer.text.partition('"offset":')[2].partition(",")[0])
            else:
                answer = await http.post(
                    "/v1/topics/web/records", json={"records": [{"value": value} for value in values]}
                )
                base_offset = answer.json()["records"][0]["offset"]
            assert answer.status_code == 200, answer.text
            await ledger.ack(("web", 0), base_offset, [value.encode() for value in values])


@asynccontextmanager
async def kafka_connection_of(
    broker: BrokerProcess,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(broker.host, broker.kafka_port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def kafka_produced(reader: asyncio.StreamReader) -> int:
    """The first offset in the next response. Raises ``IncompleteReadError`` when the broker is gone."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    _, response = kafka_peer.read_response(await reader.readexactly(size), KAFKA_PRODUCE, KAFKA_VERSION)
    done = kafka_peer.only_partition(response)
    assert done.error_code == ErrorCode.NONE, done
    return done.base_offset


async def produce_over_kafka(broker: BrokerProcess, ledger: Ledger, name: str) -> None:
    """Batches over the Kafka listener, many in flight, acked in turn when in the log and when synced."""
    waiting: list[list[bytes]] = []
    number = 0
    async with kafka_connection_of(broker) as (reader, writer):

        def send() -> None:
            nonlocal number
            values = [f"{name}-{number}-{i}".encode() for i in range(1 + number % 3)]
            waiting.append(values)
            request = kafka_peer.produce("kafka", batch_of(values), acks=-1 if number % 4 == 0 else 1)
            writer.write(kafka_peer.request_frame(request, KAFKA_VERSION, correlation=number))
            number += 1

        for _ in range(IN_FLIGHT):
            send()
        while True:
            await ledger.ack(("kafka", 0), await kafka_produced(reader), waiting.pop(0))
            send()


@dataclass
class KafkaIdempotentProducer:
    """As ``IdempotentProducer``, over the Kafka listener with five batches in flight, as Kafka's clients do it."""

    producer_id: int
    sequence: int = 0
    number: int = 0
    # Sequence and values of what was sent and not acked, in order.
    unacked: list[tuple[int, list[bytes]]] = field(default_factory=list[tuple[int, list[bytes]]])

    async def run(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        async with kafka_connection_of(broker) as (reader, writer):
            for sequence, values in self.unacked:
                writer.write(self._request(sequence, values, rng))
            while True:
                while len(self.unacked) < KAFKA_IN_FLIGHT:
                    values = [f"k-idem-{self.number + i}".encode() for i in range(rng.randint(1, 20))]
                    self.number += len(values)
                    self.unacked.append((self.sequence, values))
                    writer.write(self._request(self.sequence, values, rng))
                    self.sequence += len(values)
                base_offset = await kafka_produced(reader)
                _, values = self.unacked[0]
                await ledger.ack(("kafka-idempotent", 0), base_offset, values)
                del self.unacked[0]

    def _request(self, sequence: int, values: list[bytes], rng: random.Random) -> bytes:
        batch = batch_of(values, producer_id=self.producer_id, base_sequence=sequence)
        request = kafka_peer.produce("kafka-idempotent", batch, acks=rng.choice([1, -1]))
        return kafka_peer.request_frame(request, KAFKA_VERSION)


async def until_the_broker_dies(work: object) -> None:
    assert asyncio.iscoroutine(work)
    with suppress(ConnectionError, httpx.TransportError, StopAsyncIteration, asyncio.IncompleteReadError):
        await work


async def verify(broker: BrokerProcess, ledger: Ledger) -> None:
    """Read what is new since the last time, and hold everything acked against it."""
    async with AsyncClient(broker.binary_url) as client:
        for place, acked in ledger.acked.items():
            seen = ledger.seen[place]
            while True:
                fetched = await client.fetch(*place, len(seen))
                if not fetched.records:
                    break
                for record in fetched.records:
                    assert record.offset == len(seen), f"a hole in {place} before {record.offset}"
                    assert record.value is not None
                    seen.append(record.value)
            for offset, value in acked.items():
                assert offset < len(seen), f"offset {offset} of {place} was acked and is lost"
                assert seen[offset] == value, f"offset {offset} of {place} holds another record"
            if place[0] in ("idempotent", "kafka-idempotent"):
                assert len(set(seen)) == len(seen), f"{place} holds a record twice"


async def kill_and_recover(
    data_dir: Path,
    rounds: int,
    seed: int,
    *,
    environment: Mapping[str, str] | None = None,
    before_start: Callable[[], None] = lambda: None,
) -> None:
    """Kill a broker ``rounds`` times; ``before_start`` is called while it is dead."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    ledger = Ledger()
    producers = [IdempotentProducer(partition) for partition in range(IDEMPOTENT_PARTITIONS)]
    # Small segments and frequent checkpoints: a kill meets rolls and checkpoints too.
    settings = {"STELE_LOG_CHECKPOINT_INTERVAL_MS": "50", "STELE_LOG_FLUSH_INTERVAL_MS": "20"}
    settings |= environment or {}
    with run_broker(data_dir, environment=settings) as broker:
        async with AsyncClient(broker.binary_url) as client:
            await client.create_topic(
                "idempotent", partitions=IDEMPOTENT_PARTITIONS, configs={"segment.bytes": "8192"}
            )
            await client.create_topic("simple", configs={"segment.bytes": "65536"})
            await client.create_topic("kafka", configs={"segment.bytes": "65536", "retention.ms": "-1"})
            await client.create_topic(
                "kafka-idempotent", configs={"segment.bytes": "8192", "retention.ms": "-1"}
            )
        with kafka_peer.KafkaPeer(broker) as peer:
            kafka_producer = KafkaIdempotentProducer(
                peer.call(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4
                ).producer_id
            )
        for number in range(rounds):
            enough = ledger.acks + rng.randint(1, 2000)
            works = [
                produce_simply(broker, ledger, f"simple-{number}"),
                produce_over_http(broker, ledger, f"web-{number}"),
                *(producer.run(broker, ledger, rng) for producer in producers),
                produce_over_kafka(broker, ledger, f"kafka-{number}"),
                kafka_producer.run(broker, ledger, rng),
            ]
            running = asyncio.gather(*map(until_the_broker_dies, works))
            async with ledger.moved:
                # A producer may be slow to begin on a busy machine; each must have been acked once.
                while not running.done() and (
                    ledger.acks < enough or {topic for topic, _ in ledger.acked} != TOPICS
                ):
                    await asyncio.wait_for(ledger.moved.wait(), 30)
            assert broker.is_running, broker.stderr
            broker.kill()
            await running
            before_start()
            broker.start()
            await verify(broker, ledger)
        # What was last read piece by piece is read once more as a whole.
        ledger.seen.clear()
        await verify(broker, ledger)
        assert broker.stop() == 0
    assert {topic for topic, _ in ledger.acked} == TOPICS
    print(f"{rounds} kills, {ledger.acks} records acked")


async def test_nothing_acked_is_lost_or_doubled_by_kills_in_the_middle_of_produce(tmp_path: Path) -> None:
    await kill_and_recover(tmp_path, ROUNDS, random.randrange(2**32))


async def test_nothing_acked_is_lost_or_doubled_when_the_broker_keeps_no_records(tmp_path: Path) -> None:
    def empty() -> None:
        """Delete what the broker has on this machine, except for the catalog and the groups."""
        for path in tmp_path.iterdir():
            if not path.name.startswith(("metadata.sqlite", "groups.sqlite")):
                assert path.is_file(), "there is no partition here"
                path.unlink()

    with PostgresServer(postgres_bin(), fsync="off") as server:
        shared = {"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": server.dsn}
        await kill_and_recover(
            tmp_path, SHARED_ROUNDS, random.randrange(2**32), environment=shared, before_start=empty
        )


@pytest.mark.torture
async def test_nothing_acked_is_lost_or_doubled_by_very_many_kills(tmp_path: Path) -> None:
    await kill_and_recover(tmp_path, TORTURE_ROUNDS, random.randrange(2**32))
