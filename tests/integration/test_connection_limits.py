"""How many connections a broker takes, and what those beyond the limit see; over each of its listeners."""

from __future__ import annotations

import re
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from stele import Client, Producer
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.messages import MetadataRequest

from load.pausing import paused
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, put, records_in
from tests.support.waiting import eventually

TIMEOUT_S = 120.0
LIMIT = 3


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment={"STELE_CONNECTIONS_MAX": str(LIMIT)}) as broker:
        yield broker


def connect(url: str) -> socket.socket:
    host, _, port = url.rpartition("//")[2].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def rest(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


ASK_BINARY = MetadataRequest(topics=()).encode()
ASK_HTTP = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def refused_by(broker: BrokerProcess, listener: str) -> float:
    text = httpx.get(f"{broker.http_url}/metrics", headers={"connection": "close"}).text
    found = re.search(rf'stele_listener_connections_refused_total{{protocol="{listener}"}} (\S+)', text)
    assert found, text
    return float(found[1])


def test_each_listener_has_the_limit_for_itself_and_counts_whom_it_refuses(broker: BrokerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(LIMIT):
            held = stack.enter_context(connect(broker.binary_url))
            held.sendall(ASK_BINARY)
            assert held.recv(1)
            stack.enter_context(KafkaPeer(broker)).call(fetch("none", 0), 4)
        with connect(broker.binary_url) as refused:
            assert b"too many connections; close one, or raise connections_max" in rest(refused)
        with pytest.raises(ConnectionError), KafkaPeer(broker) as peer:
            peer.call(fetch("none", 0), 4)
        assert (refused_by(broker, "binary"), refused_by(broker, "kafka")) == (1, 1)
        assert refused_by(broker, "http") == 0, "HTTP has room of its own"
    assert "refused 1 connections" in broker.stderr


@pytest.mark.time_limit(300)
def test_a_producer_delivers_its_records_when_there_is_room_again(broker: BrokerProcess) -> None:
    """A frame that refuses the connection is no answer to the records: they were not looked at."""
    with ExitStack() as held:
        for _ in range(LIMIT):
            connection = held.enter_context(connect(broker.binary_url))
            connection.sendall(ASK_BINARY)
            assert connection.recv(1)
        with (
            Client(broker.binary_url) as client,
            Producer(client, "orders", delivery_timeout_s=TIMEOUT_S) as producer,
        ):
            delivered = producer.send(b"one", partition=0)
            eventually(lambda: refused_by(broker, "binary") > 0, "a connection is refused")
            assert not delivered.done()
            held.close()
            assert delivered.result(TIMEOUT_S).offset == 0


def test_an_address_has_a_limit_of_its_own() -> None:
    environment = {"STELE_CONNECTIONS_PER_ADDRESS_MAX": "1"}
    with run_broker(environment=environment) as broker, connect(broker.binary_url) as held:
        held.sendall(ASK_BINARY)
        assert held.recv(1)
        with connect(broker.binary_url) as refused:
            assert b"connections_per_address_max" in rest(refused)
        address = (broker.host, broker.binary_port)
        with socket.create_connection(address, TIMEOUT_S, source_address=("127.0.0.2", 0)) as other:
            other.sendall(ASK_BINARY)
            assert other.recv(1)


def test_connections_beyond_the_rate_wait() -> None:
    # The next one is accepted after hours.
    environment = {"STELE_CONNECTIONS_ACCEPT_RATE_MAX": "0.0001"}
    with (
        run_broker(environment=environment) as broker,
        connect(broker.binary_url) as first,
        connect(broker.binary_url) as second,
    ):
        for connection in (first, second):
            connection.sendall(ASK_BINARY)
        for _ in range(100):
            assert first.recv(65536)
            first.sendall(ASK_BINARY)
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)


def test_http_beyond_the_limit_is_answered_with_503(broker: BrokerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(LIMIT):
            # Without a request, so that uvicorn does not close it when it has been silent for a while.
            stack.enter_context(connect(broker.http_url))
        with connect(broker.http_url) as refused:
            refused.sendall(ASK_HTTP)
            assert rest(refused).startswith(b"HTTP/1.1 503 ")


def open_connections(broker: BrokerProcess, listener: str) -> float | None:
    """Return None if there is no room for the connection that asks."""
    answer = httpx.get(f"{broker.http_url}/metrics", headers={"connection": "close"})
    if answer.status_code == 503:
        return None
    found = re.search(rf'stele_listener_connections{{protocol="{listener}"}} (\S+)', answer.text)
    assert found, answer.text
    return float(found[1])


@pytest.mark.parametrize("listener", ["binary", "kafka", "http"])
def test_peers_that_reset_before_they_are_accepted_leave_their_room(
    broker: BrokerProcess, listener: str
) -> None:
    urls = {"binary": broker.binary_url, "kafka": f"//{broker.kafka_bootstrap}", "http": broker.http_url}
    with paused(broker.pid):
        for _ in range(2 * LIMIT):
            with connect(urls[listener]) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    own = 1 if listener == "http" else 0
    eventually(
        lambda: open_connections(broker, listener) == own, "the connections that were reset are closed"
    )
    assert httpx.get(f"{broker.http_url}/v1/connections").status_code == 200
    for _ in range(2 * LIMIT):
        with connect(broker.binary_url) as fresh:
            fresh.sendall(ASK_BINARY)
            assert fresh.recv(1)
        with KafkaPeer(broker) as peer:
            peer.call(fetch("none", 0), 4)


def put_in_time(broker: BrokerProcess, topic: str, value: bytes) -> int:
    """Put a record. On a busy machine this client, too, may be silent for too long: then it connects again."""
    while True:
        try:
            with KafkaPeer(broker) as producer:
                return put(producer, topic, value)
        except ConnectionError:
            assert broker.is_running


def test_a_consumer_in_a_long_poll_is_not_idle_and_a_silent_one_is_closed() -> None:
    # So long that this client itself is not silent for as long between two requests.
    with run_broker(environment={"STELE_IDLE_TIMEOUT_MS": "1500"}) as broker, ExitStack() as stack:
        peer = stack.enter_context(KafkaPeer(broker))
        create_topic(peer, "polled")
        peer.post(fetch("polled", 0, max_wait_ms=55_000), 12)
        urls = (broker.binary_url, f"//{broker.kafka_bootstrap}", broker.http_url)
        # The consumer has said nothing for longer than it may be silent, when the silent ones have been closed.
        for silent in [stack.enter_context(connect(url)) for url in urls]:
            rest(silent)
        put_in_time(broker, "polled", b"x")
        _, answer = peer.next_answer()
        assert records_in(only_partition(answer).records) == [(0, b"x")]


def test_a_broker_takes_as_many_open_files_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with run_broker() as broker:
            limits = Path(f"/proc/{broker.pid}/limits").read_text()
            found = re.search(r"Max open files +(\d+) +(\d+)", limits)
            assert found, limits
            assert found[1] == found[2] == str(hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
