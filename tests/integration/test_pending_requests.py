"""How many bytes of incomplete requests a broker holds, and for how long; over each of its listeners."""

from __future__ import annotations

import gzip
import select
import socket
import struct
import time
from contextlib import ExitStack

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.framing import FrameReader

from tests.support.kafka_peer import KafkaPeer, create_topic, put
from tests.support.raw_http import RawConnection
from tests.support.waiting import eventually

LIMIT = 1 << 20
PART = b"x" * 700_000
LARGE = 2 * LIMIT
TIMEOUT_S = 120.0


ENVIRONMENT = {"STELE_PENDING_REQUEST_BYTES_MAX": str(LIMIT)}


def connect(url: str) -> socket.socket:
    host, _, port = url.rpartition("//")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def rest(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return received


def head(path: str, size: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        f"X-Request-Id: large\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("path", ["/v1/topics/t/records", "/v1/transactions", "/v1/quotas", "/console/login"])
def test_http_bodies_of_all_connections_have_a_limit_together(broker: BrokerProcess, path: str) -> None:
    with ExitStack() as stack:
        holder = stack.enter_context(RawConnection(broker.http_url))
        holder.send(head("/v1/topics/held/records", LARGE), PART, b"x")
        refused = stack.enter_context(RawConnection(broker.http_url))
        refused.send(head(path, LARGE) + PART)
        response = refused.response()
        assert response is not None
        if path == "/v1/topics/t/records":
            assert response.status == 503
            assert response.fields["retry-after"] == "1"
            assert b"pending_request_bytes_max" in response.body
            assert refused.has_ended()
        else:
            # Refused before its body is read, or with it.
            assert response.status >= 400
        # Requests of usual size go on.
        answer = httpx.post(f"{broker.http_url}/v1/topics/t/records", json={"records": [{"value": 1}]})
        assert answer.status_code == 200
    size = LIMIT // 2
    eventually(
        lambda: (
            (
                httpx.post(
                    f"{broker.http_url}/v1/topics/t/records", json={"records": [{"value": "x" * size}]}
                )
            ).status_code
            == 200
        ),
        "there is room when the client that held it has left",
    )


def test_a_coded_body_counts_with_what_it_contains(broker: BrokerProcess) -> None:
    coded = gzip.compress(bytes(4 * LIMIT))
    assert len(coded) < LIMIT
    answer = httpx.post(
        f"{broker.http_url}/v1/topics/t/records",
        content=coded,
        headers={"content-type": "application/octet-stream", "content-encoding": "gzip"},
    )
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_a_stream_of_lines_may_be_longer_than_the_limit(broker: BrokerProcess) -> None:
    lines = b'{"value":"%b"}\n' % (b"x" * 1000) * 5000
    assert len(lines) > 4 * LIMIT
    answer = httpx.post(
        f"{broker.http_url}/v1/topics/lines/records?acks=1",
        content=lines,
        headers={"content-type": "application/x-ndjson"},
        timeout=TIMEOUT_S,
    )
    assert answer.status_code == 200
    assert answer.text.count("\n") == 5000


def test_frames_of_all_connections_have_a_limit_together(broker: BrokerProcess) -> None:
    begun = struct.pack(">IB", LARGE, m.MessageType.PRODUCE_REQUEST) + PART
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(broker.binary_url)) for _ in range(2)]
        for connection in connections:
            connection.sendall(begun)
        # One of them is refused, whichever came second.
        reasons: list[str] = []
        for connection in connections:
            connection.setblocking(False)

        def refused() -> bool:
            for connection in connections:
                try:
                    received = connection.recv(65536)
                except BlockingIOError:
                    continue
                for kind, body in FrameReader().feed(received):
                    answer = m.decode_response(kind, body)
                    assert isinstance(answer, m.ErrorResponse)
                    reasons.append(answer.message)
            return bool(reasons)

        eventually(refused, "a frame is refused")
        assert "pending_request_bytes_max" in reasons[0]
        with connect(broker.binary_url) as usual:
            usual.sendall(m.MetadataRequest(topics=()).encode())
            assert usual.recv(1)


def test_kafka_requests_of_all_connections_have_a_limit_together(broker: BrokerProcess) -> None:
    begun = struct.pack(">i", LARGE) + PART
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(f"//{broker.kafka_bootstrap}")) for _ in range(2)]
        for connection in connections:
            connection.sendall(begun)
            connection.setblocking(False)

        def refused() -> bool:
            for connection in connections:
                try:
                    return connection.recv(1) == b""
                except BlockingIOError:
                    continue
                except ConnectionError:
                    return True
            return False

        eventually(refused, "a request is refused")
        with KafkaPeer(broker) as peer:
            create_topic(peer, "usual")
            put(peer, "usual", b"x")


def lines_head() -> bytes:
    return (
        b"POST /v1/topics/lines/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_a_line_of_a_stream_that_comes_too_slowly_is_answered_and_closed() -> None:
    """Although each byte of it comes in time."""
    with run_broker(environment={"STELE_FRAME_TIMEOUT_MS": "1000"}) as broker:
        with connect(broker.http_url) as connection:
            connection.sendall(lines_head() + chunk(b'{"value":"'))
            while not select.select([connection], [], [], 0.05)[0]:
                connection.sendall(chunk(b"x"))
            assert rest(connection).startswith(b"HTTP/1.1 408 ")
        page = httpx.get(f"{broker.http_url}/v1/topics/lines/partitions/0/records?from=0").json()
        assert page["records"] == []


def test_lines_of_a_stream_may_come_slowly_for_as_long_as_they_do() -> None:
    """Also if a part of the next one is always there."""
    with run_broker(environment={"STELE_FRAME_TIMEOUT_MS": "4000"}) as broker:
        with connect(broker.http_url) as connection:
            connection.sendall(lines_head() + chunk(b'{"value":'))
            sent = 1
            end_s = time.monotonic() + 6
            while time.monotonic() < end_s:
                connection.sendall(chunk(b'1}\n{"value":'))
                sent += 1
                select.select([], [], [], 0.05)
            connection.sendall(chunk(b"1}") + b"0\r\n\r\n")
            received = rest(connection)
        assert received.endswith(b"\r\n0\r\n\r\n")
        assert received.count(b'"offset"') == sent


def test_a_body_that_stops_is_answered_and_closed() -> None:
    with run_broker(environment={"STELE_FRAME_TIMEOUT_MS": "300"}) as broker:
        for path in ("/v1/topics/t/records", "/v1/transactions", "/v1/topics/t/search"):
            with RawConnection(broker.http_url) as connection:
                connection.send(head(path, 100), b"begun")
                response = connection.response()
                assert response is not None
                # Its type may be refused before the time is over.
                assert response.status in (404, 408, 415)
                assert connection.has_ended()
        with RawConnection(broker.http_url) as connection:
            connection.send(head("/v1/topics/t/records", 100), b"begun")
            response = connection.response()
            assert response is not None
            assert response.status == 408
        assert httpx.get(f"{broker.http_url}/v1/topics/t/partitions/0/records?from=0").json()["records"] == []
