"""Hostile bytes at the binary listener of a running broker: it answers or closes, lives, and keeps its memory."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stele import Client
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.framing import FrameReader

from app.network.first_bytes import HANDSHAKE_FAILURE_ALERT, is_tls_hello

EXAMPLES = 100
# It ends a test that failed, also on a machine with much other work.
TIMEOUT_S = 120
# The largest frame, its copy, and what the allocator keeps.
MEMORY_GROWTH_MAX_KB = 100 * 1024

VALID = [
    m.ProduceRequest(topic="fuzz", data=b"value").encode(),
    m.ConsumeRequest(topic="fuzz", offset=0, batch_size=10).encode(),
    m.FlushRequest().encode(),
    m.MetadataRequest(topics=["fuzz"], auto_create=True).encode(),
    m.ProduceBatchRequest(topic="fuzz", partition=0, acks=1, batches=b"not a batch").encode(),
    m.FetchRequest(partitions=[m.FetchPartition(topic="fuzz", partition=0, offset=0)]).encode(),
    m.ListOffsetsRequest(topic="fuzz", partition=0, timestamp_ms=-1).encode(),
    m.CreateTopicRequest(topic="fuzz", partitions=1, configs=[("retention.ms", "1")]).encode(),
    m.AlterTopicRequest(topic="fuzz", configs=[("retention.ms", None)]).encode(),
    m.DescribeTopicRequest(topic="fuzz").encode(),
    m.DeleteTopicRequest(topic="fuzz").encode(),
    m.InitProducerIdRequest().encode(),
    m.FlushTopicRequest(topic="fuzz").encode(),
    m.NamedProducerRequest(name="fuzz", version=0).encode(),
    m.ProducerStateRequest(topic="fuzz", partition=0, producer_id=1).encode(),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    # Partitions are files: a fuzzer must not make a million of them.
    with run_broker(environment={"STELE_PARTITIONS_MAX": "50"}) as running:
        with Client(running.binary_url) as client:
            client.simple_produce("witness", b"warm")
        yield running


def resident_kb(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def send_and_read_to_the_end(broker: BrokerProcess, data: bytes) -> bytes:
    """Everything the broker says to ``data``; half-closing makes it say all and close."""
    received = b""
    with socket.create_connection((broker.host, broker.binary_port), timeout=TIMEOUT_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            # It has closed already; what it said before can still be read. ENOTCONN is that of the shutdown.
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                raise
        try:
            while part := connection.recv(1 << 20):
                received += part
        except ConnectionError:
            # It had said that it closes, and had more bytes on the way to it.
            return received
    return received


def is_whole_answers(received: bytes) -> bool:
    """True if the broker spoke in whole frames that are responses."""
    frames = FrameReader()
    for frame_type, body in frames.feed(received):
        m.decode_response(frame_type, body)
    return not frames.has_partial_frame


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid frames, one after the other, of which some bytes are changed, missing or too many."""
    frames = bytearray(b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=5))))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(frames)))
        match draw(st.sampled_from(["set", "cut", "insert"])):
            case "set" if place < len(frames):
                frames[place] = draw(st.integers(0, 255))
            case "cut":
                del frames[place : place + draw(st.integers(1, 9))]
            case _:
                frames[place:place] = draw(st.binary(min_size=1, max_size=9))
    return bytes(frames)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(mutated(), st.binary(max_size=200)))
@example(b"\x16\x03\x01")
def test_whatever_comes_the_broker_answers_in_whole_frames_and_serves_the_next(
    broker: BrokerProcess, data: bytes
) -> None:
    received = send_and_read_to_the_end(broker, data)

    if is_tls_hello(data):
        assert received == HANDSHAKE_FAILURE_ALERT
    else:
        assert is_whole_answers(received), (data, received)
    answer = send_and_read_to_the_end(broker, m.FlushRequest().encode())
    assert answer == m.FlushResponse().encode()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(
            m.ProduceRequest(topic="t" * 1_000_000, data=b"x").encode(), id="a topic of a million bytes"
        ),
        pytest.param(
            m.ConsumeRequest(topic="t" * 1_000_000, offset=0, batch_size=1).encode(), id="the same, read"
        ),
        pytest.param(struct.pack(">IB", 2**32 - 1, 3), id="a frame of four gibibytes"),
        pytest.param(struct.pack(">IBi", 9, 3, -1), id="a negative length"),
        pytest.param(struct.pack(">IBI", 9, 3, 2**31 - 1), id="a field longer than its frame"),
        pytest.param(struct.pack(">IBBI", 10, 7, 0, 2**31 - 1), id="a count of two thousand million"),
        pytest.param(struct.pack(">IBiiiI", 21, 11, 0, 0, 0, 2**31 - 1), id="the same, of partitions"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
def test_a_request_that_claims_too_much_is_an_error_and_costs_nothing(
    broker: BrokerProcess, frame: bytes
) -> None:
    before = resident_kb(broker)

    for _ in range(5):
        received = send_and_read_to_the_end(broker, frame)
        (kind, body), *_ = FrameReader().feed(received)
        assert isinstance(m.decode_response(kind, body), m.ErrorResponse)

    assert resident_kb(broker) - before < MEMORY_GROWTH_MAX_KB


def test_many_peers_that_stop_within_a_large_frame_do_not_delay_others(broker: BrokerProcess) -> None:
    before = resident_kb(broker)
    head = struct.pack(">IB", 16 * 1024 * 1024, 3) + b"x" * 1000
    peers = [socket.create_connection((broker.host, broker.binary_port)) for _ in range(200)]
    try:
        for peer in peers:
            peer.sendall(head)
        with Client(broker.binary_url) as client:
            assert client.simple_consume("witness", 0, 1)[0] == [(0, b"warm")]
        assert resident_kb(broker) - before < MEMORY_GROWTH_MAX_KB, "a length is no reason to allocate"
    finally:
        for peer in peers:
            peer.close()


def test_peers_that_ask_for_much_and_read_nothing_are_paused_and_not_buffered(broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client:
        client.produce_many("large", [b"x" * 100_000] * 100)
    before = resident_kb(broker)
    ask = m.FetchRequest(partitions=[m.FetchPartition(topic="large", partition=0, offset=0)]).encode() * 50
    peers = [socket.create_connection((broker.host, broker.binary_port)) for _ in range(10)]
    try:
        for peer in peers:
            peer.sendall(ask)
        with Client(broker.binary_url) as client:
            for _ in range(20):
                client.simple_produce("witness", b"still served")
        # 10 peers, each within its bound of unsent answers and reads under way; 500 fetches of 1 MiB asked for.
        assert resident_kb(broker) - before < 3 * MEMORY_GROWTH_MAX_KB
    finally:
        for peer in peers:
            peer.close()
