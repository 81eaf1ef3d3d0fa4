"""Small batches that hold large values: bounded memory in every way to read them, and a bystander that is served."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchBuilder

from load.decoded_reads import MIB, WAYS, Way, ask
from load.kafka_frames import connect, make_topic, produce_request, receive
from load.process_usage import PeakMemory
from tests.support.variants import long_but

SIZE = 60 * MIB
# With the one that reads, as many as there may be searches or tables at once.
CLIENTS = 7
DECODED_BYTES_MAX = 128 * MIB
BYSTANDERS_TOPIC = "small"


def packed_batch(size: int, *, key: bytes = b"k") -> bytes:
    """Return a batch of one record whose value is ``size`` bytes of text, in zstd."""
    builder = BatchBuilder(compression=Compression.ZSTD)
    builder.append(timestamp_ms=time.time_ns() // 1_000_000, key=key, value=b"x" * size)
    return bytes(builder.build())


def prepare(broker: BrokerProcess, size: int) -> str:
    """Create a compacted topic with two values of ``size`` bytes, and return its name."""
    topic = f"packed-{size}"
    ask(
        broker.http_port,
        "PUT",
        f"/v1/topics/{topic}",
        {"partitions": 1, "configs": {"cleanup.policy": "compact"}},
    )
    with connect(broker.host, broker.kafka_port) as connection:
        for key in (b"other", b"k"):
            connection.sendall(produce_request(topic, packed_batch(size, key=key), acks=-1))
            receive(connection)
    return topic


@dataclass(slots=True)
class Bystander:
    """Produces and reads small records until it is stopped."""

    broker: BrokerProcess
    answered: int = 0

    def once(self) -> None:
        ask(
            self.broker.http_port,
            "POST",
            f"/v1/topics/{BYSTANDERS_TOPIC}/records",
            {"records": [{"value": "v"}]},
        )
        ask(self.broker.http_port, "GET", f"/v1/topics/{BYSTANDERS_TOPIC}/partitions/0/records?limit=10")
        self.answered += 2


def read_all(
    broker: BrokerProcess, request: bytes, stop: threading.Event, *, size: int, stalled: bool
) -> int:
    """Read an answer, or nothing of it, and return how many bytes came."""
    received = 0
    with socket.create_connection((broker.host, broker.http_port), timeout=300) as connection:
        connection.sendall(request)
        if stalled:
            stop.wait()
            return 0
        try:
            while received < size and (part := connection.recv(65536)):
                received += len(part)
        except ConnectionError:
            pass
    return received


@pytest.fixture(scope="module")
def broker(stele_broker_session: BrokerProcess) -> BrokerProcess:
    ask(stele_broker_session.http_port, "PUT", f"/v1/topics/{BYSTANDERS_TOPIC}", {"partitions": 1})
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


REFUSED = 8


def refuse_rewritten_batch(broker: BrokerProcess, topic: str) -> str:
    """Produce a batch of 20 KiB that the topic would store uncompressed, which is more than it allows."""
    builder = BatchBuilder(compression=Compression.GZIP)
    builder.append(timestamp_ms=1, value=bytes(20 * MIB))
    with connect(broker.host, broker.kafka_port) as producer:
        producer.sendall(produce_request(topic, bytes(builder.build()), acks=-1))
        return "refused" if receive(producer).find((10).to_bytes(2)) > 0 else "stored"


def refuse_transaction(broker: BrokerProcess, topic: str) -> str:
    records = {"records": [{"topic": topic, "value": "x" * (20 * MIB)}]}
    answer = httpx.post(f"{broker.http_url}/v1/transactions", json=records, timeout=60)
    return "refused" if answer.status_code == 413 else answer.text


@pytest.mark.parametrize("refuse", [refuse_rewritten_batch, refuse_transaction])
def test_refused_requests_leave_nothing_of_what_they_held(
    broker: BrokerProcess, http: httpx.Client, refuse: Callable[[BrokerProcess, str], str]
) -> None:
    """An error has the frames that it passed, which hold the values, and a frame that holds the error is a cycle."""
    topic = f"of-{refuse.__name__}"
    configs = {"compression.type": "uncompressed"}
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1, "configs": configs}).status_code == 201
    memory = PeakMemory(broker.pid)
    assert refuse(broker, topic) == "refused"
    memory.reset()
    before = memory.mib
    for _ in range(REFUSED):
        assert refuse(broker, topic) == "refused"
    assert memory.mib - before < 5 * 20, f"{memory.mib:.0f} MiB, {before:.0f} before"


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/octet-stream"])
def test_unread_pages_take_bounded_memory(broker: BrokerProcess, http: httpx.Client, accept: str) -> None:
    """Their records are not large: what adds up is how many there are in a page."""
    name, clients, records = f"unread-pages-{accept[12:]}", 150, 60
    assert http.put(f"/v1/topics/{name}", json={"partitions": 1}).status_code == 201
    value = "x" * 200_000
    for _ in range(records // 20):
        page = {"records": [{"value": value}] * 20}
        assert http.post(f"/v1/topics/{name}/records", json=page).status_code == 200
    path = "/v1/topics/{topic}/partitions/0/records?from=0&limit=100000"

    def page_from(offset: int) -> dict[str, Any]:
        return http.get(f"/v1/topics/{name}/partitions/0/records", params={"from": offset}).json()

    alone = len(page_from(0)["records"])
    memory = PeakMemory(broker.pid)
    memory.reset()
    before = memory.mib
    with ExitStack() as stack:
        for number in range(clients):
            connection = stack.enter_context(socket.create_connection((broker.host, broker.http_port)))
            connection.sendall(Way("", path, accept).request(name, number))
            # The page is read before its head is sent, and held until the rest is.
            assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        # A page is shorter while others hold the room, and its readers continue where it ends.
        found, offset = 0, 0
        while offset < records:
            answer = page_from(offset)
            assert answer["next_offset"] > offset
            assert len(answer["records"]) < alone
            found, offset = found + len(answer["records"]), answer["next_offset"]
        assert found == records
    # Without a limit, 150 pages of 8 MiB.
    assert memory.mib - before < 600, f"{memory.mib:.0f} MiB, {before:.0f} before"
    # The room is free again when the broker has seen that they have left.
    while len(page_from(0)["records"]) < alone:
        pass
