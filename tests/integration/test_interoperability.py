"""One log, three listeners: the story that Stele is for, told in order on one broker.

Every record written through one listener is read through the others, and is the same
record there: offset, key, value, headers, timestamp. REST is spoken with plain
HTTP requests, TCP with the client library and with raw frames, Kafka with
Confluent's client, so that no step can lean on our own client twice.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import confluent_kafka
import httpx
import pytest
from stele import AsyncClient, Client, NewRecord
from stele.testing import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode
from stele.wire.messages import FetchPartition, FetchRequest, FetchResponse
from stele.wire.record_batch import iter_headers

from tests.support import kafka_peer
from tests.support.binary_peer import Peer
from tests.support.brokers import BROKERS, run_broker_or_cluster
from tests.support.waiting import eventually

TOPIC = "letters"
ROSETTA = "rosetta"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture
def rest(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as client:
        yield client


@pytest.fixture
async def async_rest(broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=broker.http_url) as client:
        yield client


def read_over_rest(
    rest: httpx.Client, topic: str, partition: int = 0, **parameters: Any
) -> list[dict[str, Any]]:
    answer = rest.get(f"/v1/topics/{topic}/partitions/{partition}/records", params={"from": 0, **parameters})
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


def consume_frames(
    broker: BrokerProcess, topic: str, offset: int, batch_size: int
) -> tuple[int, list[tuple[int, bytes]]]:
    """ADR-0009 CONSUME by hand: the next offset, and (offset, data) of each message."""
    name = topic.encode()
    body = struct.pack(">I", len(name)) + name + struct.pack(">qi", offset, batch_size)
    host, _, port = broker.binary_url.removeprefix("stele://").rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">IB", len(body) + 5, 0x01) + body)
        (length,) = struct.unpack(">I", stream.read(4))
        frame = stream.read(length - 4)
    kind, status, next_offset, count = struct.unpack_from(">BBqI", frame)
    assert (kind, status) == (0x02, 1), frame
    messages: list[tuple[int, bytes]] = []
    position = 14
    for _ in range(count):
        size, at = struct.unpack_from(">Iq", frame, position)
        messages.append((at, frame[position + 12 : position + 12 + size]))
        position += 12 + size
    assert position == len(frame)
    return next_offset, messages


# A record as Kafka's clients see it: offset, key, value, headers, timestamp.
KafkaRecord = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def consume_over_kafka(
    broker: BrokerProcess, topic: str, count: int, *, offset: int = 0
) -> list[KafkaRecord]:
    """``count`` records of partition 0 with Confluent's consumer."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.kafka_bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        messages = consumer.consume(count, timeout=120)
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return [kafka_record(message) for message in messages]


def kafka_record(message: confluent_kafka.Message) -> KafkaRecord:
    offset, headers = message.offset(), cast("list[tuple[str, bytes | None]]", message.headers() or [])
    assert offset is not None
    return offset, message.key(), message.value(), headers, message.timestamp()[1]


def produce_over_kafka(
    broker: BrokerProcess, topic: str, records: Sequence[dict[str, Any]], **config: Any
) -> list[tuple[int, int]]:
    """Produce with Confluent's producer, idempotent as is its custom; partition and offset of each."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "enable.idempotence": True, **config}
    )
    places: dict[int, tuple[int, int]] = {}

    def place_of(number: int) -> Callable[[object, confluent_kafka.Message], None]:
        def delivered(error: object, message: confluent_kafka.Message) -> None:
            assert error is None
            places[number] = cast("int", message.partition()), cast("int", message.offset())

        return delivered

    for number, record in enumerate(records):
        producer.produce(topic, on_delivery=place_of(number), **record)
    assert producer.flush(30) == 0
    return [places[number] for number in range(len(records))]


# ── the five steps ──


def test_1_produce_one_record_over_rest(rest: httpx.Client) -> None:
    answer = rest.post(f"/v1/topics/{TOPIC}/records", json={"records": [{"value": "letter 0"}]})

    assert answer.status_code == 200
    (result,) = answer.json()["records"]
    assert (result["partition"], result["offset"]) == (0, 0)
    assert answer.json()["durability"] == "synced"


def test_2_consume_it_over_rest(rest: httpx.Client) -> None:
    (record,) = read_over_rest(rest, TOPIC)

    assert (record["offset"], record["value"]) == (0, "letter 0")


def test_3_consume_it_over_tcp(broker: BrokerProcess) -> None:
    assert consume_frames(broker, TOPIC, 0, 10) == (1, [(0, b"letter 0")])


async def test_4_produce_99_records_concurrently_over_tcp(broker: BrokerProcess) -> None:
    clients = [AsyncClient(broker.binary_url) for _ in range(9)]
    produces = [clients[n % 9].simple_produce(TOPIC, f"letter {n}".encode()) for n in range(1, 100)]

    offsets = await asyncio.gather(*produces)

    assert sorted(offsets) == list(range(1, 100)), "each has an offset of its own, and there are no holes"
    for client in clients:
        await client.close()


async def test_5_consume_all_100_records_concurrently_over_rest(broker: BrokerProcess) -> None:
    async with httpx.AsyncClient(base_url=broker.http_url) as rest:
        reads = [
            rest.get(f"/v1/topics/{TOPIC}/partitions/0/records", params={"from": n, "limit": 1})
            for n in range(100)
        ]
        responses = await asyncio.gather(*reads)
        assert [(r.status_code, r.text) for r in responses if r.status_code != 200] == []
        answers = [answer.json()["records"] for answer in responses]

    assert [[record["offset"] for record in records] for records in answers] == [[n] for n in range(100)]
    values = {record["value"] for records in answers for record in records}
    assert values == {f"letter {n}" for n in range(100)}


# ── and every other direction ──


def test_6_all_100_come_back_over_tcp_as_they_were_written(broker: BrokerProcess, rest: httpx.Client) -> None:
    next_offset, messages = consume_frames(broker, TOPIC, 0, 1000)

    assert next_offset == 100
    over_rest = [(record["offset"], record["value"].encode()) for record in read_over_rest(rest, TOPIC)]
    assert messages == over_rest


async def test_7_a_batch_over_tcp_is_read_as_ndjson_over_http(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    (await async_rest.put(f"/v1/topics/{ROSETTA}", json={"partitions": 1})).raise_for_status()
    records = [
        NewRecord(
            b"plain", key=b"k1", timestamp=1_700_000_000_001, headers=[("lang", b"grc"), ("lang", b"egy")]
        ),
        NewRecord(None, key=b"k1", timestamp=1_700_000_000_002),
        NewRecord(b"\xff\x00\xfe", key=b"\x80", timestamp=1_700_000_000_003, headers=[("none", None)]),
        NewRecord(b"", timestamp=1_700_000_000_004),
    ]
    async with AsyncClient(broker.binary_url) as client:
        receipts = await client.produce_many(ROSETTA, records, acks="all")
    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3]

    answer = await async_rest.get(
        f"/v1/topics/{ROSETTA}/partitions/0/records",
        params={"from": 0},
        headers={"accept": "application/x-ndjson"},
    )

    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {
            "partition": 0,
            "offset": 0,
            "timestamp": 1_700_000_000_001,
            "key": "k1",
            "value": "plain",
            "headers": [{"key": "lang", "value": "grc"}, {"key": "lang", "value": "egy"}],
        },
        {
            "partition": 0,
            "offset": 1,
            "timestamp": 1_700_000_000_002,
            "key": "k1",
            "value": None,
            "headers": [],
        },
        {
            "partition": 0,
            "offset": 2,
            "timestamp": 1_700_000_000_003,
            "key_b64": "gA==",
            "value_b64": "/wD+",
            "headers": [{"key": "none", "value": None}],
        },
        {
            "partition": 0,
            "offset": 3,
            "timestamp": 1_700_000_000_004,
            "key": None,
            "value": "",
            "headers": [],
        },
    ]


async def test_8_what_is_posted_as_ndjson_is_the_same_record_over_tcp(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    lines = [
        {
            "value": "text",
            "key": "k2",
            "timestamp": 1_700_000_000_005,
            "headers": [{"key": "h", "value": "1"}],
        },
        {"value": {"nested": [1, 2.50]}, "timestamp": 1_700_000_000_006},
        {"value": None, "key": "k2", "timestamp": 1_700_000_000_007},
        {"value_b64": "/wD+", "key_b64": "gA==", "timestamp": 1_700_000_000_008},
    ]
    answer = await async_rest.post(
        f"/v1/topics/{ROSETTA}/records",
        content="".join(json.dumps(line) + "\n" for line in lines),
        headers={"content-type": "application/x-ndjson"},
    )
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [4, 5, 6, 7]

    async with AsyncClient(broker.binary_url) as client:
        fetched = await client.fetch(ROSETTA, 0, 4)

    assert [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in fetched.records] == [
        (4, b"k2", b"text", (("h", b"1"),), 1_700_000_000_005),
        (5, None, b'{"nested":[1,2.5]}', (), 1_700_000_000_006),
        (6, b"k2", None, (), 1_700_000_000_007),
        (7, b"\x80", b"\xff\x00\xfe", (), 1_700_000_000_008),
    ]


async def test_9_the_batches_themselves_are_the_same_bytes_through_all_protocols(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    async def over_http(offset: int) -> bytes:
        answer = await async_rest.get(
            f"/v1/topics/{ROSETTA}/partitions/0/records",
            params={"from": offset},
            headers={"accept": "application/octet-stream"},
        )
        return answer.content

    async def over_tcp(offset: int) -> bytes:
        with Peer(broker) as peer:
            answer = peer.call(
                FetchRequest(partitions=[FetchPartition(topic=ROSETTA, partition=0, offset=offset)])
            )
        assert isinstance(answer, FetchResponse)
        return bytes(answer.partitions[0].batches)

    async def over_kafka(offset: int) -> bytes:
        with kafka_peer.KafkaPeer(broker) as peer:
            answer = kafka_peer.only_partition(peer.call(kafka_peer.fetch(ROSETTA, offset), 12))
        assert answer.error_code == ErrorCode.NONE
        return bytes(answer.records or b"")

    whole = await read_to_end(over_http)
    assert len(whole) > 0
    assert await read_to_end(over_tcp) == whole
    assert await read_to_end(over_kafka) == whole


async def read_to_end(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    """Read until nothing comes: a fetch may return less than there is."""
    batches, offset = b"", 0
    while part := await read(offset):
        batches += part
        offset = list(iter_headers(part))[-1].next_offset
    return batches


@pytest.mark.parametrize("codec", list(Compression))
async def test_10_a_compressed_batch_over_tcp_is_plain_records_over_rest(
    broker: BrokerProcess, async_rest: httpx.AsyncClient, codec: Compression
) -> None:
    topic = f"{ROSETTA}-{codec.name.lower()}"
    values = [f"line {n} of the same text".encode() for n in range(200)]
    async with AsyncClient(broker.binary_url) as client:
        await client.produce_many(topic, values, compression=codec)

    answer = await async_rest.get(f"/v1/topics/{topic}/partitions/0/records")
    assert [record["value"].encode() for record in answer.json()["records"]] == values


async def test_11_a_key_goes_to_the_same_partition_through_both_protocols(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    (await async_rest.put("/v1/topics/keyed", json={"partitions": 6})).raise_for_status()
    keys = [f"N{n}" for n in range(40)]
    answer = await async_rest.post(
        "/v1/topics/keyed/records", json={"records": [{"key": key, "value": "r"} for key in keys]}
    )
    over_rest = [result["partition"] for result in answer.json()["records"]]

    async with AsyncClient(broker.binary_url) as client:
        receipts = await client.produce_many("keyed", [NewRecord(b"t", key=key) for key in keys])

    assert [receipt.partition for receipt in receipts] == over_rest
    assert len(set(over_rest)) == 6


async def test_12_a_long_poll_over_rest_ends_with_a_produce_over_tcp(broker: BrokerProcess) -> None:
    async with AsyncClient(broker.binary_url) as client, httpx.AsyncClient(base_url=broker.http_url) as rest:
        await client.simple_produce("bell", b"0")
        waiting = asyncio.create_task(
            rest.get(
                "/v1/topics/bell/partitions/0/records", params={"from": 1, "wait_ms": 30_000}, timeout=60
            )
        )
        # Whether the poll or the produce comes first, the answer is the same and nobody waits 30 s.
        await client.simple_produce("bell", b"1")
        answer = await waiting

    assert [record["value"] for record in answer.json()["records"]] == ["1"]


async def test_13_an_event_stream_over_http_tells_what_is_written_over_tcp(broker: BrokerProcess) -> None:
    async with AsyncClient(broker.binary_url) as client, httpx.AsyncClient(base_url=broker.http_url) as rest:
        await client.create_topic("ticker", partitions=2)
        events = rest.stream(
            "GET", "/v1/topics/ticker/records", headers={"accept": "text/event-stream"}, timeout=60
        )
        async with events as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            for number in range(4):
                await client.produce("ticker", f"{number}", partition=number % 2)
            told: list[str] = []
            while len(told) < 4:
                line = await anext(lines)
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: "))["value"])

    assert sorted(told) == ["0", "1", "2", "3"]


async def test_14_a_time_finds_the_same_offset_through_both_protocols(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    answer = await async_rest.get(
        f"/v1/topics/{ROSETTA}/partitions/0/offsets", params={"at": "2023-11-14T22:13:20.006Z"}
    )
    async with AsyncClient(broker.binary_url) as client:
        over_tcp = await client.list_offset(ROSETTA, 0, at=1_700_000_000_006)

    assert answer.json()["offset"] == over_tcp == 5


# ── and with Kafka's clients, as if it were Kafka ──


def test_15_what_was_written_over_rest_and_tcp_is_consumed_over_kafka(
    broker: BrokerProcess, rest: httpx.Client
) -> None:
    letters = consume_over_kafka(broker, TOPIC, 100)
    assert [(offset, value) for offset, _, value, _, _ in letters] == [
        (record["offset"], record["value"].encode()) for record in read_over_rest(rest, TOPIC)
    ]

    assert consume_over_kafka(broker, ROSETTA, 8) == [
        # over TCP
        (0, b"k1", b"plain", [("lang", b"grc"), ("lang", b"egy")], 1_700_000_000_001),
        (1, b"k1", None, [], 1_700_000_000_002),
        (2, b"\x80", b"\xff\x00\xfe", [("none", None)], 1_700_000_000_003),
        (3, None, b"", [], 1_700_000_000_004),
        # over REST
        (4, b"k2", b"text", [("h", b"1")], 1_700_000_000_005),
        (5, None, b'{"nested":[1,2.5]}', [], 1_700_000_000_006),
        (6, b"k2", None, [], 1_700_000_000_007),
        (7, b"\x80", b"\xff\x00\xfe", [], 1_700_000_000_008),
    ]


def test_16_what_is_produced_over_kafka_is_the_same_record_over_rest_and_tcp(
    broker: BrokerProcess, rest: httpx.Client
) -> None:
    headers = [("lang", b"dem"), ("lang", b"grc"), ("none", None)]
    places = produce_over_kafka(
        broker,
        ROSETTA,
        [
            {"key": b"k3", "value": b"from kafka", "timestamp": 1_700_000_000_009, "headers": headers},
            {"key": b"k3", "value": None, "timestamp": 1_700_000_000_010},
            {"key": b"\x80", "value": b"\xff", "timestamp": 1_700_000_000_011},
        ],
    )
    assert places == [(0, 8), (0, 9), (0, 10)]

    with Client(broker.binary_url) as client:
        fetched = client.fetch(ROSETTA, 0, 8)
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in fetched.records] == [
        (8, b"k3", b"from kafka", tuple(headers), 1_700_000_000_009),
        (9, b"k3", None, (), 1_700_000_000_010),
        (10, b"\x80", b"\xff", (), 1_700_000_000_011),
    ]
    first, second, third = read_over_rest(rest, ROSETTA)[8:]
    assert first == {
        "partition": 0,
        "offset": 8,
        "timestamp": 1_700_000_000_009,
        "key": "k3",
        "value": "from kafka",
        "headers": [
            {"key": "lang", "value": "dem"},
            {"key": "lang", "value": "grc"},
            {"key": "none", "value": None},
        ],
    }
    assert (second["offset"], second["key"], second["value"]) == (9, "k3", None)
    assert (third["offset"], third["key_b64"], third["value_b64"]) == (10, "gA==", "/w==")
    assert consume_frames(broker, ROSETTA, 8, 1) == (9, [(8, b"from kafka")])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_17_a_compressed_batch_over_kafka_is_plain_records_over_rest_and_tcp(
    broker: BrokerProcess, rest: httpx.Client, codec: str
) -> None:
    topic = f"{ROSETTA}-kafka-{codec}"
    values = [f"line {n} of the same text".encode() for n in range(200)]
    produce_over_kafka(
        broker, topic, [{"value": value} for value in values], **{"compression.type": codec, "linger.ms": 50}
    )

    assert [record["value"].encode() for record in read_over_rest(rest, topic)] == values
    with Client(broker.binary_url) as client:
        assert [record.value for record in client.fetch(topic, 0, 0).records] == values


def test_18_a_key_goes_to_the_same_partition_through_all_protocols(
    broker: BrokerProcess, rest: httpx.Client
) -> None:
    keys = [f"N{n}" for n in range(40)]
    answer = rest.post(
        "/v1/topics/keyed/records", json={"records": [{"key": key, "value": "r"} for key in keys]}
    )
    over_rest = [result["partition"] for result in answer.json()["records"]]

    places = produce_over_kafka(
        broker, "keyed", [{"key": key.encode(), "value": b"k"} for key in keys], partitioner="murmur2_random"
    )

    assert [partition for partition, _ in places] == over_rest


def test_19_a_consumer_group_over_kafka_goes_on_where_it_stopped_with_what_came_over_rest_and_tcp(
    broker: BrokerProcess, rest: httpx.Client
) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.kafka_bootstrap,
        "group.id": "scribes",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }

    def read_and_commit(count: int) -> list[bytes | None]:
        consumer = confluent_kafka.Consumer(config)
        try:
            consumer.subscribe(["scroll"])
            values: list[bytes | None] = []
            while len(values) < count:
                message = consumer.poll(120)
                assert message is not None
                assert message.error() is None, message.error()
                values.append(message.value())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values

    rest.put("/v1/topics/scroll", json={"partitions": 1}).raise_for_status()
    rest.post("/v1/topics/scroll/records", json={"records": [{"value": "a"}]}).raise_for_status()
    with Client(broker.binary_url) as client:
        client.simple_produce("scroll", b"b")
    assert read_and_commit(2) == [b"a", b"b"]

    with Client(broker.binary_url) as client:
        client.simple_produce("scroll", b"c")
    rest.post("/v1/topics/scroll/records", json={"records": [{"value": "d"}]}).raise_for_status()
    assert read_and_commit(2) == [b"c", b"d"]


async def test_20_a_long_poll_through_any_listener_ends_with_a_produce_through_another(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    def over_kafka(offset: int) -> list[KafkaRecord]:
        return consume_over_kafka(broker, "chime", 1, offset=offset)

    (await async_rest.put("/v1/topics/chime", json={"partitions": 1})).raise_for_status()
    async with AsyncClient(broker.binary_url) as client:
        # Whether the poll or the produce comes first, the answer is the same and nobody waits 30 s.
        waiting = asyncio.create_task(asyncio.to_thread(over_kafka, 0))
        await client.simple_produce("chime", b"tcp")
        assert (await waiting)[0][2] == b"tcp"

        waiting = asyncio.create_task(asyncio.to_thread(over_kafka, 1))
        await async_rest.post("/v1/topics/chime/records", json={"records": [{"value": "rest"}]})
        assert (await waiting)[0][2] == b"rest"

        over_tcp = asyncio.create_task(client.fetch("chime", 0, 2, wait_ms=30_000))
        over_rest = asyncio.create_task(
            async_rest.get(
                "/v1/topics/chime/partitions/0/records", params={"from": 2, "wait_ms": 30_000}, timeout=60
            )
        )
        await asyncio.to_thread(produce_over_kafka, broker, "chime", [{"value": b"kafka"}])
        assert [record.value for record in (await over_tcp).records] == [b"kafka"]
        assert [record["value"] for record in (await over_rest).json()["records"]] == ["kafka"]


async def test_21_three_listeners_write_one_log_at_once_and_each_reads_all_of_it(
    broker: BrokerProcess, async_rest: httpx.AsyncClient
) -> None:
    (await async_rest.put("/v1/topics/choir", json={"partitions": 1})).raise_for_status()
    async with AsyncClient(broker.binary_url) as client:
        await asyncio.gather(
            *(
                async_rest.post("/v1/topics/choir/records", json={"records": [{"value": f"rest {n}"}]})
                for n in range(33)
            ),
            *(client.simple_produce("choir", f"tcp {n}".encode()) for n in range(33)),
            asyncio.to_thread(
                produce_over_kafka, broker, "choir", [{"value": f"kafka {n}".encode()} for n in range(33)]
            ),
        )
        over_tcp: list[tuple[int, bytes | None]] = []
        # A fetch may return less than there is.
        while fetched := (await client.fetch("choir", 0, len(over_tcp))).records:
            over_tcp += [(record.offset, record.value) for record in fetched]

    assert [offset for offset, _ in over_tcp] == list(range(99))
    assert {value for _, value in over_tcp} == {
        f"{listener} {n}".encode() for listener in ("rest", "tcp", "kafka") for n in range(33)
    }
    over_rest: list[tuple[int, bytes | None]] = []
    while len(over_rest) < len(over_tcp):
        answer = await async_rest.get(
            "/v1/topics/choir/partitions/0/records", params={"from": len(over_rest)}
        )
        assert answer.json()["records"], "a read before the end is not empty"
        over_rest += [(r["offset"], r["value"].encode()) for r in answer.json()["records"]]
    assert over_rest == over_tcp
    over_kafka = await asyncio.to_thread(consume_over_kafka, broker, "choir", 99)
    assert [(offset, value) for offset, _, value, _, _ in over_kafka] == over_tcp


# ── the end of the story ──


def test_22_all_of_it_is_there_after_a_kill_and_a_restart(broker: BrokerProcess, rest: httpx.Client) -> None:
    before = {topic: read_over_rest(rest, topic) for topic in (TOPIC, ROSETTA, "bell")}
    rest.post("/v1/flush").raise_for_status()

    broker.kill()
    broker.start()

    with httpx.Client(base_url=broker.http_url) as again:
        assert {topic: read_over_rest(again, topic) for topic in before} == before
    last = before[TOPIC][99]["value"].encode()
    assert consume_frames(broker, TOPIC, 99, 10) == (100, [(99, last)])
    assert [value for _, _, value, _, _ in consume_over_kafka(broker, TOPIC, 1, offset=99)] == [last]


def test_23_a_deleted_topic_is_gone_through_all_protocols(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url) as rest:
        assert rest.delete(f"/v1/topics/{TOPIC}").status_code == 204
        assert rest.get(f"/v1/topics/{TOPIC}").status_code == 404

    def is_gone_over_tcp() -> bool:
        try:
            consume_frames(broker, TOPIC, 0, 1)
        except AssertionError as refused:
            return "does not exist" in str(refused)
        return False

    def is_gone_over_kafka() -> bool:
        with kafka_peer.KafkaPeer(broker) as peer:
            answer = kafka_peer.only_partition(peer.call(kafka_peer.fetch(TOPIC, 0), 12))
        return answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # One broker knows at once; another hears of it a moment later.
    for is_gone in (is_gone_over_tcp, is_gone_over_kafka):
        if BROKERS > 1:
            eventually(is_gone, "the topic is gone")
        assert is_gone()
