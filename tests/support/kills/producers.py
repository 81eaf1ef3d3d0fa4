"""Clients that write over all protocols until the broker dies; those that may, send again what was not acknowledged.

Each ``run`` ends with a ``ConnectionError`` or the like when the broker dies, and with ``Refused`` when it refuses a
write, which it may do while its disk is full.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
from stele.testing import BrokerProcess
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.framing import FrameReader
from stele.wire.kafka.produce import PRODUCE_API
from stele.wire.record_batch import build_rows

from tests.support import kafka_peer
from tests.support.kafka_transactions import TransactionalPeer

from .ledger import Content, Ledger

SIMPLE, WEB, WEB_ONCE, BINARY_ONCE = "simple", "web", "web-once", "idempotent"
KAFKA, KAFKA_ONCE, KAFKA_TRANSACTIONAL = "kafka", "kafka-idempotent", "kafka-transactional"
PARTITIONS = {SIMPLE: 1, WEB: 1, WEB_ONCE: 2, BINARY_ONCE: 3, KAFKA: 1, KAFKA_ONCE: 1, KAFKA_TRANSACTIONAL: 2}
TRANSACTIONAL = (WEB_ONCE, KAFKA_TRANSACTIONAL)
ONCE = (BINARY_ONCE, KAFKA_ONCE, *TRANSACTIONAL)
_IN_FLIGHT = 64
_KAFKA_IN_FLIGHT = 5
_KAFKA_PRODUCE, _KAFKA_VERSION = PRODUCE_API, 9
# No answer takes so long: without one, the broker hangs.
_ANSWER_S = 300.0
_TIME_MS = 1_700_000_000_000
# What a client of Kafka repeats by itself.
_RETRIABLE = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Refused(Exception):
    """The broker does not store a record now."""

    def __init__(self, protocol: str, answer: object) -> None:
        super().__init__(f"{protocol}: {answer}")
        self.protocol = protocol


def _check_code(protocol: str, code: int, answer: object) -> None:
    if code:
        assert ErrorCode(code) in _RETRIABLE, f"{protocol} refuses with {ErrorCode(code).name}: {answer}"
        raise Refused(protocol, ErrorCode(code).name)


def contents_of(name: str, first: int, count: int) -> list[Content]:
    """Return records with keys, headers and times of their own, also of bytes that are no text."""
    return [
        Content(
            value=f"{name}-{number}".encode() + bytes(number % 200),
            key=None if number % 3 == 0 else b"\xff\x00key-%d" % (number % 50),
            headers=() if number % 4 else (("trace", b"\x00\xfe%d" % number), ("empty", b""), ("none", None)),
            timestamp_ms=_TIME_MS + number,
        )
        for number in range(first, first + count)
    ]


def batch_of(contents: Sequence[Content], **producer: Any) -> bytearray:
    rows = [
        (content.timestamp_ms or 0, content.key, content.value, list(content.headers)) for content in contents
    ]
    return build_rows(rows, **producer)


# ── binary ──


class Peer:
    """A connection of the binary protocol that knows frames and nothing else."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def answers(self) -> AsyncIterator[m.Response]:
        """Until the connection ends."""
        while data := await self._reader.read(65536):
            for frame_type, body in self._frames.feed(data):
                answer = m.decode_response(frame_type, body)
                if isinstance(answer, m.ErrorResponse):
                    # Messages of ADR-0009 have no codes.
                    assert "no space left" in answer.message, answer
                    raise Refused("binary", answer.message)
                yield answer


@asynccontextmanager
async def _peer_of(broker: BrokerProcess) -> AsyncGenerator[Peer]:
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
    async with _peer_of(broker) as peer:

        def send(count: int) -> None:
            nonlocal number
            values = [f"{name}-{number + i}".encode() for i in range(count)]
            number += count
            waiting.extend(values)
            peer.writer.write(
                b"".join(m.ProduceRequest(topic=SIMPLE, data=value).encode() for value in values)
            )

        send(_IN_FLIGHT)
        async for answer in peer.answers():
            assert isinstance(answer, m.ProduceResponse), answer
            ledger.ack((SIMPLE, 0), answer.offset, [Content(waiting.pop(0))])
            await ledger.pause()
            send(1)


@dataclass
class BinaryOnce:
    """One producer of one partition: numbers its records, and sends again what was not acked."""

    partition: int
    producer_id: int = -1
    sequence: int = 0
    number: int = 0
    unacked: list[Content] = field(default_factory=list[Content])

    async def run(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        async with _peer_of(broker) as peer:
            answers = peer.answers()
            if self.producer_id < 0:
                peer.writer.write(m.InitProducerIdRequest().encode())
                identity = await anext(answers)
                assert isinstance(identity, m.InitProducerIdResponse), identity
                self.producer_id = identity.producer_id
            while True:
                if not self.unacked:
                    self.unacked = contents_of(f"idem-{self.partition}", self.number, rng.randint(1, 20))
                    self.number += len(self.unacked)
                peer.writer.write(self._request(rng.choice([1, m.ACKS_ALL])))
                answer = await anext(answers)
                assert isinstance(answer, m.ProduceBatchResponse), answer
                ledger.ack((BINARY_ONCE, self.partition), answer.base_offset, self.unacked)
                self.sequence += len(self.unacked)
                self.unacked = []
                await ledger.pause()

    def _request(self, acks: int) -> bytes:
        batch = batch_of(
            self.unacked, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence
        )
        return m.ProduceBatchRequest(
            topic=BINARY_ONCE, partition=self.partition, acks=acks, batches=batch
        ).encode()


# ── HTTP ──


def http_of(broker: BrokerProcess) -> httpx.AsyncClient:
    """Return a client with more patience than httpx has."""
    return httpx.AsyncClient(base_url=broker.http_url, timeout=_ANSWER_S)


def _check_status(answer: httpx.Response) -> None:
    if answer.status_code == 507:
        assert answer.json()["type"] == "/problems/storage-full", answer.text
        raise Refused("http", answer.json()["type"])
    if answer.status_code in (503, 504):
        # A transaction that cannot be confirmed now; it is sent again with its key.
        assert answer.json()["retriable"], answer.text
        raise Refused("http", answer.json()["type"])
    assert answer.status_code == 200, answer.text


async def produce_over_http(broker: BrokerProcess, ledger: Ledger, name: str) -> None:
    """JSON and NDJSON in turn, acked when synced."""
    async with http_of(broker) as http:
        for number in range(1_000_000):
            values = [f"{name}-{number}-{i}" for i in range(5)]
            if number % 2:
                lines = "".join(f'{{"value":"{value}"}}\n' for value in values)
                answer = await http.post(
                    f"/v1/topics/{WEB}/records",
                    content=lines,
                    headers={"content-type": "application/x-ndjson"},
                )
                _check_status(answer)
                results = [json.loads(line) for line in answer.text.splitlines()]
            else:
                answer = await http.post(
                    f"/v1/topics/{WEB}/records", json={"records": [{"value": value} for value in values]}
                )
                _check_status(answer)
                results = answer.json()["records"]
            for value, result in zip(values, results, strict=False):
                if "offset" not in result:
                    assert "storage-full" in json.dumps(result), result
                    raise Refused("http", result)
                ledger.ack((WEB, 0), result["offset"], [Content(value.encode())])
            await ledger.pause()


@dataclass
class WebOnce:
    """Transactions with an idempotency key, which are sent again until they are committed."""

    number: int = 0

    async def run(self, broker: BrokerProcess, ledger: Ledger) -> None:
        async with http_of(broker) as http:
            while True:
                content = Content(
                    value=f"web-once-{self.number}".encode(),
                    key=b"key-%d" % (self.number % 50),
                    headers=(("number", b"%d" % self.number),),
                    timestamp_ms=_TIME_MS + self.number,
                )
                assert content.value is not None
                assert content.key is not None
                record = {
                    "topic": WEB_ONCE,
                    "key": content.key.decode(),
                    "value": content.value.decode(),
                    "headers": [{"key": "number", "value": str(self.number)}],
                    "timestamp": content.timestamp_ms,
                }
                answer = await http.post(
                    "/v1/transactions",
                    json={"records": [{**record, "partition": partition} for partition in range(2)]},
                    headers={"Idempotency-Key": f"once-{self.number}"},
                )
                if answer.status_code == 409 and answer.json()["retriable"]:
                    # An earlier request with the key has not ended.
                    await asyncio.sleep(0.05)
                    continue
                _check_status(answer)
                for result in answer.json()["records"]:
                    ledger.ack((WEB_ONCE, result["partition"]), result["offset"], [content])
                self.number += 1
                await ledger.pause()


# ── Kafka ──


@asynccontextmanager
async def _kafka_connection_of(
    broker: BrokerProcess,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(broker.host, broker.kafka_port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _kafka_produced(reader: asyncio.StreamReader) -> int:
    """The first offset in the next response. Raises ``IncompleteReadError`` when the broker is gone."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    _, response = kafka_peer.read_response(await reader.readexactly(size), _KAFKA_PRODUCE, _KAFKA_VERSION)
    done = kafka_peer.only_partition(response)
    _check_code("kafka", done.error_code, done)
    return done.base_offset


async def produce_over_kafka(
    broker: BrokerProcess,
    ledger: Ledger,
    name: str,
    topic: str = KAFKA,
    *,
    make: Callable[[str, int, int], list[Content]] = contents_of,
    in_flight: int = _IN_FLIGHT,
) -> None:
    """Batches over the Kafka listener, many in flight, acked in turn when in the log and when synced."""
    waiting: list[list[Content]] = []
    number = sent = 0
    async with _kafka_connection_of(broker) as (reader, writer):

        def send() -> None:
            nonlocal number, sent
            contents = make(name, sent, 1 + number % 3)
            sent += len(contents)
            waiting.append(contents)
            request = kafka_peer.produce(topic, batch_of(contents), acks=-1 if number % 4 == 0 else 1)
            writer.write(kafka_peer.request_frame(request, _KAFKA_VERSION, correlation=number))
            number += 1

        for _ in range(in_flight):
            send()
        while True:
            ledger.ack((topic, 0), await _kafka_produced(reader), waiting.pop(0))
            await ledger.pause()
            send()


@dataclass
class KafkaOnce:
    """As ``BinaryOnce``, over the Kafka listener with five batches in flight, as Kafka's clients do it."""

    producer_id: int
    sequence: int = 0
    number: int = 0
    # Sequence and records of what was sent and not acked, in order.
    unacked: list[tuple[int, list[Content]]] = field(default_factory=list[tuple[int, list[Content]]])

    async def run(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        async with _kafka_connection_of(broker) as (reader, writer):
            for sequence, contents in self.unacked:
                writer.write(self._request(sequence, contents, rng))
            while True:
                while len(self.unacked) < _KAFKA_IN_FLIGHT:
                    contents = contents_of("k-idem", self.number, rng.randint(1, 20))
                    self.number += len(contents)
                    self.unacked.append((self.sequence, contents))
                    writer.write(self._request(self.sequence, contents, rng))
                    self.sequence += len(contents)
                base_offset = await _kafka_produced(reader)
                _, contents = self.unacked[0]
                ledger.ack((KAFKA_ONCE, 0), base_offset, contents)
                del self.unacked[0]
                await ledger.pause()

    def _request(self, sequence: int, contents: list[Content], rng: random.Random) -> bytes:
        batch = batch_of(contents, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)
        request = kafka_peer.produce(KAFKA_ONCE, batch, acks=rng.choice([1, -1]))
        return kafka_peer.request_frame(request, _KAFKA_VERSION)


@dataclass
class KafkaTransactional:
    """Transactions over two partitions; one in five is aborted."""

    number: int = 0

    async def run(self, broker: BrokerProcess, ledger: Ledger, rng: random.Random) -> None:
        with await asyncio.to_thread(kafka_peer.KafkaPeer, broker) as peer:
            producer = TransactionalPeer(peer, "kills")
            # The transaction that was open when the broker died is aborted first.
            while True:
                code = await asyncio.to_thread(producer.init)
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.05)
            _check_code("kafka", code, "InitProducerId")
            while True:
                commits = rng.random() < 0.8
                contents = contents_of("tx", self.number, rng.randint(1, 5))
                self.number += len(contents)
                offsets = await asyncio.to_thread(self._store, producer, contents)
                _check_code("kafka", await asyncio.to_thread(partial(producer.end, commit=commits)), "EndTxn")
                if commits:
                    for partition, offset in enumerate(offsets):
                        ledger.ack((KAFKA_TRANSACTIONAL, partition), offset, contents)
                else:
                    ledger.aborted |= {content.value or b"" for content in contents}

    @staticmethod
    def _store(producer: TransactionalPeer, contents: list[Content]) -> list[int]:
        offsets: list[int] = []
        for partition in range(2):
            place = (KAFKA_TRANSACTIONAL, partition)
            for code in producer.add(place).values():
                _check_code("kafka", code, "AddPartitionsToTxn")
            sequence = producer.sequences.get(place, 0)
            producer.sequences[place] = sequence + len(contents)
            batch = batch_of(
                contents,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            done = producer.send_batch(KAFKA_TRANSACTIONAL, batch, partition=partition)
            _check_code("kafka", done.error_code, done)
            offsets.append(done.base_offset)
        return offsets
