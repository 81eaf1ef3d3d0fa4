"""Hostile bytes on the Kafka listener of a real broker: it answers in whole frames or closes, serves others, and stays small."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.kafka.api_versions import ApiVersionsRequest

from app.tcp.kafka.apis import SERVED
from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    fetch,
    framed,
    produce,
    put,
    read_response,
    records_in,
    request_body,
    request_frame,
)
from tests.support.random_messages import random_message

EXAMPLES = 200
# The largest frame, its copy, and what the allocator keeps.
MEMORY_GROWTH_MAX_KB = 100 * 1024

# Requests that park until another client acts would only slow the fuzzer down.
_QUICK = sorted(key for key in SERVED if key not in (11, 14))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    # Partitions are files: a fuzzer must not make a million of them. Nor may it make a fetch wait.
    limits = {"STELE_PARTITIONS_MAX": "50", "STELE_FETCH_WAIT_MS_MAX": "10"} | WITHOUT_RETENTION
    with run_broker(environment=limits) as running:
        with KafkaPeer(running) as peer:
            put(peer, "witness", b"warm")
        yield running
        # An answer that could not be made costs its connection, which a fuzzer would not notice.
        log = running.data_dir.with_name(f"{running.data_dir.name}.stderr").read_text()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:5000]


def resident_kb(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def send_and_read_to_the_end(broker: BrokerProcess, data: bytes) -> bytes:
    """Everything the broker says to ``data``; half-closing makes it say all and close."""
    received = b""
    with socket.create_connection((broker.host, broker.kafka_port), timeout=30) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 20):
                received += part
        except ConnectionError:
            # It had said that it closes, and had more bytes on the way to it.
            return received
    return received


def responses_in(received: bytes) -> list[bytes]:
    """Whole responses, without their sizes; fails if the last one is cut short."""
    found: list[bytes] = []
    position = 0
    while position < len(received):
        (size,) = struct.unpack_from(">i", received, position)
        assert 4 <= size <= len(received) - position - 4
        found.append(received[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def random_frame(key: int, version_seed: int, seed: int) -> tuple[bytes, int]:
    """A request with random contents, valid in form; and its version."""
    api = SERVED[key].api
    first, last = api.versions
    version = first + version_seed % (last - first + 1)
    message = random_message(api.request, version, random.Random(seed))
    tags = b"\0" if api.is_flexible(version) else None
    return framed(key, version, request_body(message, version), correlation=key, tags=tags), version


frames = st.builds(random_frame, st.sampled_from(_QUICK), st.integers(0, 100), st.integers(0, 2**32))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid frames, one after the other, of which some bytes are changed, missing or too many."""
    stream = bytearray(b"".join(frame for frame, _ in draw(st.lists(frames, min_size=1, max_size=4))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(stream)))
        match draw(st.sampled_from(["set", "cut", "insert"])):
            case "set" if place < len(stream):
                stream[place] = draw(st.integers(0, 255))
            case "cut":
                del stream[place : place + draw(st.integers(1, 9))]
            case _:
                stream[place:place] = draw(st.binary(min_size=1, max_size=9))
    return bytes(stream)


def is_served(broker: BrokerProcess) -> bool:
    with KafkaPeer(broker) as peer:
        return peer.call(ApiVersionsRequest(), 0).error_code == 0


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(mutated(), st.binary(max_size=200)))
def test_whatever_comes_the_broker_answers_in_whole_frames_and_serves_the_next(
    broker: BrokerProcess, data: bytes
) -> None:
    responses_in(send_and_read_to_the_end(broker, data))

    assert is_served(broker)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames)
def test_a_request_that_is_valid_in_form_is_answered_in_its_form_whatever_it_asks_for(
    broker: BrokerProcess, framed_request: tuple[bytes, int]
) -> None:
    frame, version = framed_request
    (key,) = struct.unpack_from(">h", frame, 4)

    answers = responses_in(send_and_read_to_the_end(broker, frame))

    if not answers:
        # Only a produce without acks has no answer.
        assert key == 0
        return
    (answer,) = answers
    correlation, _ = read_response(answer, SERVED[key].api, version)
    assert correlation == key


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", 2**31 - 1) + bytes(100), id="a request of two gibibytes"),
        pytest.param(framed(3, 1, struct.pack(">i", 2**31 - 1)), id="two thousand million topics"),
        pytest.param(framed(1, 12, bytes(21) + b"\xff\xff\xff\xff\x0f", tags=b"\0"), id="four, in a varint"),
        pytest.param(framed(3, 9, bytes(4), tags=b"\xff\xff\xff\xff\x0f"), id="as many tags"),
        pytest.param(framed(3, 9, bytes(4), tags=b"\1\0\xff\xff\xff\xff\x0f"), id="a tag of four gibibytes"),
        pytest.param(framed(0, 9, b"\0\0\1" + bytes(4) + b"\x81\x80\x40" + bytes(1 << 20), tags=b"\0"), id="a million topics of one byte"),
        pytest.param(framed(0, 9, b"\0\0\1" + bytes(4) + b"\x82\x80\x80\x02" + bytes(15_000_000), tags=b"\0"), id="five million topics in 15 MB"),
        pytest.param(framed(3, 9, b"\xa1\x8d\x06" + b"\1\0" * 100_000 + bytes(3), tags=b"\0"), id="a hundred thousand impossible names"),
        pytest.param(framed(1, 4, struct.pack(">iiiibi", -1, 0, 1, 2**31 - 1, 0, 20_000) + (b"\0\1w" + struct.pack(">i", 1) + bytes(16)) * 20_000), id="a fetch of twenty thousand topics"),
        pytest.param(request_frame(produce("t", batch_of([b"x"])), 9)[:-1], id="a produce cut short"),
    ],
)  # fmt: skip
def test_a_request_that_claims_too_much_costs_little(broker: BrokerProcess, frame: bytes) -> None:
    before = resident_kb(broker)

    for _ in range(5):
        responses_in(send_and_read_to_the_end(broker, frame))
        assert is_served(broker)

    assert resident_kb(broker) - before < MEMORY_GROWTH_MAX_KB


def test_many_peers_that_stop_within_a_large_request_do_not_delay_others(broker: BrokerProcess) -> None:
    before = resident_kb(broker)
    head = struct.pack(">ihhi", 16 * 1024 * 1024, 0, 9, 1) + b"x" * 1000
    peers = [socket.create_connection((broker.host, broker.kafka_port)) for _ in range(200)]
    try:
        for peer in peers:
            peer.sendall(head)
        with KafkaPeer(broker) as other:
            (found,) = other.call(fetch("witness", 0), 12).responses[0].partitions
            assert records_in(found.records)[0] == (0, b"warm")
        assert resident_kb(broker) - before < MEMORY_GROWTH_MAX_KB, "a size is no reason to allocate"
    finally:
        for peer in peers:
            peer.close()


def test_peers_that_ask_for_much_and_read_nothing_are_paused_and_not_buffered(broker: BrokerProcess) -> None:
    with KafkaPeer(broker) as peer:
        for _ in range(20):
            put(peer, "large", *[b"x" * 50_000] * 10)
    before = resident_kb(broker)
    ask = request_frame(fetch("large", 0), 12) * 50
    peers = [KafkaPeer(broker) for _ in range(10)]
    try:
        for peer in peers:
            peer.send(ask)
        with KafkaPeer(broker) as other:
            for _ in range(20):
                put(other, "witness", b"still served")
        # 10 peers, each within its bound of unsent answers and reads under way; 500 fetches of 1 MiB asked for.
        assert resident_kb(broker) - before < 3 * MEMORY_GROWTH_MAX_KB
    finally:
        for peer in peers:
            peer.close()
