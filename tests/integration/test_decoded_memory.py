"""Small batches that hold large values: bounded memory in every way to read them, and a bystander that is served."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchBuilder

from load.bench_decoded_memory import (
    BYSTANDERS_TOPIC,
    MIB,
    WAYS,
    Bystander,
    PeakMemory,
    Way,
    ask,
    prepare,
    read_all,
)
from load.kafka_frames import connect, make_topic, produce_request, receive
from tests.support.variants import long_but

SIZE = 60 * MIB
# With the one that reads, as many as there may be searches or tables at once.
CLIENTS = 7
DECODED_BYTES_MAX = 128 * MIB


@pytest.fixture(scope="module")
def broker(stele_broker_session: BrokerProcess) -> BrokerProcess:
    ask(stele_broker_session, "PUT", f"/v1/topics/{BYSTANDERS_TOPIC}", {"partitions": 1})
    return stele_broker_session


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    return prepare(broker, SIZE)


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=120) as client:
        yield client


@pytest.mark.parametrize(
    "way",
    long_but([pytest.param(way, id=way.what) for way in WAYS], "a page as JSON"),
)
def test_clients_that_read_nothing_of_large_values_take_bounded_memory(
    broker: BrokerProcess, topic: str, way: Way
) -> None:
    memory, bystander, stop = PeakMemory(broker.pid), Bystander(broker), threading.Event()
    memory.reset()
    before = memory.mib
    clients = [
        threading.Thread(
            target=read_all,
            args=(broker, way.request(topic, number), stop),
            kwargs={"size": SIZE, "stalled": True},
            daemon=True,
        )
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    for _ in range(5):
        bystander.once()
    # It waits for its turn, which comes because the others do not read; then all of the value is there.
    whole = read_all(broker, way.request(topic, CLIENTS), stop, size=SIZE, stalled=False)
    bystander.once()
    stop.set()
    for client in clients:
        client.join()
    assert not bystander.failures
    assert bystander.answered == 12
    assert whole >= SIZE
    assert memory.mib - before < 5 * DECODED_BYTES_MAX / MIB, f"{memory.mib:.0f} MiB, {before:.0f} before"


def test_unread_tails_share_what_they_send(broker: BrokerProcess) -> None:
    name, tails = "unread", 200
    make_topic(broker.host, broker.kafka_port, name)
    memory = PeakMemory(broker.pid)
    with ExitStack() as stack:
        for _ in range(tails):
            connection = stack.enter_context(socket.create_connection((broker.host, broker.http_port)))
            connection.sendall(Way("", "/v1/topics/{topic}/records", "text/event-stream").request(name, 0))
            # The head of the answer: the tail has begun.
            assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        memory.reset()
        before = memory.mib
        builder = BatchBuilder()
        builder.append(timestamp_ms=1, value=b"x" * 100_000)
        with connect(broker.host, broker.kafka_port) as producer:
            for _ in range(5):
                producer.sendall(produce_request(name, bytes(builder.build()), acks=-1))
                receive(producer)
        bystander = Bystander(broker)
        for _ in range(5):
            bystander.once()
        # One that reads gets all of it, beside those that do not.
        with socket.create_connection((broker.host, broker.http_port), timeout=60) as reader:
            reader.sendall(
                Way("", "/v1/topics/{topic}/records?from=earliest", "text/event-stream").request(name, 0)
            )
            received = 0
            while received < 500_000:
                received += len(reader.recv(65536))
        assert bystander.answered == 10
        assert memory.mib - before < tails * 0.5, f"{memory.mib:.0f} MiB, {before:.0f} before"


@pytest.mark.every(3)
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("codec", list(Compression))
def test_a_page_counts_the_bytes_of_records_decompressed(
    broker: BrokerProcess, http: httpx.Client, accept: str, codec: Compression
) -> None:
    name = f"counted-{codec.name.lower()}-{len(accept)}"
    make_topic(broker.host, broker.kafka_port, name)
    builder = BatchBuilder(compression=codec)
    for _ in range(40):
        builder.append(timestamp_ms=1, value=b"x" * 20_000)
    with connect(broker.host, broker.kafka_port) as producer:
        for _ in range(3):
            producer.sendall(produce_request(name, bytes(builder.build()), acks=-1))
            receive(producer)
    offset, pages = 0, 0
    while offset < 120:
        answer = http.get(
            f"/v1/topics/{name}/partitions/0/records",
            params={"from": offset, "max_bytes": 400_000},
            headers={"accept": accept},
        )
        lines = answer.text.splitlines()
        records = answer.json()["records"] if accept == "application/json" else [*map(json.loads, lines)]
        assert [record["offset"] for record in records] == list(range(offset, offset + len(records)))
        assert len(records) >= 1
        assert sum(len(record["value"]) for record in records) <= 400_000 or codec is Compression.NONE
        offset, pages = int(answer.headers["Next-Offset"]), pages + 1
    # Small batches are not cut into pages of one.
    assert pages <= 12


@pytest.mark.long
def test_an_arrow_batch_is_bounded_by_decoded_bytes(broker: BrokerProcess, http: httpx.Client) -> None:
    pa: Any = pytest.importorskip("pyarrow", reason="pip install 'stele-broker[arrow]'")
    from stele.wire.arrow import ARROW_BYTES_MAX

    name, sizes = "bounded-arrow", [10] * 500 + [900_000] * 40
    make_topic(broker.host, broker.kafka_port, name)
    builder = BatchBuilder(compression=Compression.ZSTD)
    for size in sizes:
        builder.append(timestamp_ms=1, value=b"x" * size)
    with connect(broker.host, broker.kafka_port) as producer:
        producer.sendall(produce_request(name, bytes(builder.build()), acks=-1))
        receive(producer)
    found: list[int] = []
    while len(found) < len(sizes):
        answer = http.get(
            f"/v1/topics/{name}/partitions/0/records",
            params={"from": len(found)},
            headers={"accept": "application/vnd.apache.arrow.stream"},
        )
        with pa.ipc.open_stream(answer.content) as rows:
            for batch in rows:
                lengths = [len(value.as_buffer()) for value in batch.column("value")]
                assert sum(lengths) <= ARROW_BYTES_MAX
                found += lengths
    assert found == sizes


def test_polls_count_the_bytes_of_records_decompressed(broker: BrokerProcess, http: httpx.Client) -> None:
    name = "polled"
    make_topic(broker.host, broker.kafka_port, name)
    builder = BatchBuilder(compression=Compression.ZSTD)
    for _ in range(40):
        builder.append(timestamp_ms=1, value=b"x" * 20_000)
    with connect(broker.host, broker.kafka_port) as producer:
        producer.sendall(produce_request(name, bytes(builder.build()), acks=-1))
        receive(producer)
    for path in ("poll", "share/poll"):
        body = {"topics": [name], "from": "earliest", "max_bytes": 100_000, "max_records": 100}
        records = http.post(f"/v1/groups/{path[0]}-{name}/{path}", json=body).json()["records"]
        assert 1 <= len(records) <= 5
        assert [record["offset"] for record in records] == list(range(len(records)))


def test_a_client_decodes_what_fits_and_fetches_the_rest_again(broker: BrokerProcess, topic: str) -> None:
    with Client(f"stele://{broker.host}:{broker.binary_port}") as client:
        first = client.fetch(topic, 0, offset=0)
        assert ([len(record.value or b"") for record in first.records], first.next_offset) == ([SIZE], 1)
        second = client.fetch(topic, 0, offset=first.next_offset)
        assert ([record.offset for record in second.records], second.next_offset) == ([1], 2)
