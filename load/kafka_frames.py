"""Build a few messages of the Kafka protocol by hand, without a client.

All are of versions before the compact encodings: what matters is when an answer comes, not what is in it.
"""

from __future__ import annotations

import socket
import struct
import time

from stele.wire.record_batch import build_values

PRODUCE, FETCH, METADATA = 0, 1, 3
_PRODUCE_VERSION, _FETCH_VERSION, _METADATA_VERSION = 7, 4, 7
_CLIENT_ID = b"stele-load"
_FETCH_BYTES = 1024 * 1024
_POLL_PAUSE_S = 0.01


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def metadata_request(topics: list[str] | None, correlation_id: int = 0) -> bytes:
    """Of ``topics``, created if they are not there; None: of all."""
    if topics is None:
        named = struct.pack(">i", -1)
    else:
        named = struct.pack(">i", len(topics)) + b"".join(_string(topic) for topic in topics)
    return request(METADATA, _METADATA_VERSION, correlation_id, named + b"\x01")


def batch_of(values: int, size: int) -> bytes:
    """Return a batch of values of ``size`` bytes each, of this moment."""
    return bytes(build_values([b"x" * size] * values, time.time_ns() // 1_000_000))


def produce_request(topic: str, batch: bytes, *, acks: int, correlation_id: int = 0) -> bytes:
    """``batch`` (record batches v2) into partition 0."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return request(PRODUCE, _PRODUCE_VERSION, correlation_id, body)


def fetch_request(topic: str, offset: int, *, max_wait_ms: int, correlation_id: int = 0) -> bytes:
    """A Fetch of partition 0 from ``offset`` on, parked for up to ``max_wait_ms`` while it is empty."""
    body = struct.pack(">iiiibi", -1, max_wait_ms, 1, _FETCH_BYTES, 0, 1) + _string(topic)
    body += struct.pack(">iiqi", 1, 0, offset, _FETCH_BYTES)
    return request(FETCH, _FETCH_VERSION, correlation_id, body)


class ErrorAnswered(Exception):
    """The broker answered with a Kafka error code."""


def check_produce(answer: bytes) -> int:
    """The base offset that a produce got; ``answer`` is without its length.

    Raises:
        ErrorAnswered: it was refused.
    """
    (topic_length,) = struct.unpack_from(">h", answer, 8)
    error, base_offset = struct.unpack_from(">hq", answer, 10 + topic_length + 8)
    if error:
        raise ErrorAnswered(f"produce was answered with error {error}")
    return base_offset


def check_fetch(answer: bytes) -> int:
    """Return the bytes of records in a response; ``answer`` is without its length.

    Raises:
        ErrorAnswered: it was refused.
    """
    (topic_length,) = struct.unpack_from(">h", answer, 12)
    position = 14 + topic_length + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, position + 4)
    if error:
        raise ErrorAnswered(f"fetch was answered with error {error}")
    (size,) = struct.unpack_from(">i", answer, position + 4 + 22 + 16 * max(aborted, 0))
    return max(size, 0)


def receive(connection: socket.socket) -> bytes:
    """The next answer, without its length.

    Raises:
        ConnectionError: the broker closed the connection.
    """
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        more = connection.recv(count - len(received))
        if not more:
            raise ConnectionError("the broker closed the connection")
        received += more
    return received


def connect(host: str, port: int, *, timeout_s: float = 30.0) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def knows_its_brokers(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether it answers Metadata, and with a broker in it, right now."""
    try:
        with connect(host, port, timeout_s=timeout_s) as connection:
            connection.sendall(metadata_request([]))
            # correlation id, throttle time, number of brokers
            return struct.unpack_from(">i", receive(connection), 8)[0] > 0
    except (OSError, struct.error):
        return False


def await_metadata(host: str, port: int, *, timeout_s: float) -> bool:
    """Ask again and again until it answers; False if it did not in time."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if knows_its_brokers(host, port, timeout_s=left_s):
            return True
        time.sleep(_POLL_PAUSE_S)
    return False


def make_topic(host: str, port: int, topic: str, *, timeout_s: float = 30.0) -> None:
    """Have ``topic`` created, and wait until its partition 0 has a leader.

    It is created when it is asked for.

    Raises:
        TimeoutError: it has none yet.
    """
    deadline = time.monotonic() + timeout_s
    with connect(host, port) as connection:
        while time.monotonic() < deadline:
            connection.sendall(metadata_request([topic]))
            if _has_leader(receive(connection), topic):
                return
            time.sleep(_POLL_PAUSE_S)
    raise TimeoutError(f"topic {topic} had no leader after {timeout_s:g} s")


def _has_leader(answer: bytes, topic: str) -> bool:
    # The topic's part of the answer: error, name, internal, then its partitions with error, index, leader.
    name = _string(topic)
    at = answer.find(name)
    if at < 2 or struct.unpack_from(">h", answer, at - 2)[0] != 0:
        return False
    (count,) = struct.unpack_from(">i", answer, at + len(name) + 1)
    if count < 1:
        return False
    error, _, leader = struct.unpack_from(">hii", answer, at + len(name) + 5)
    return error == 0 and leader >= 0
