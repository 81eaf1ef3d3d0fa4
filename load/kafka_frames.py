"""Messages of the Kafka protocol without a client, by the schemas of the broker."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, cast

from stele.wire import schema
from stele.wire.kafka import fetch, metadata, produce
from stele.wire.kafka.api import Api
from stele.wire.record_batch import build_values

_CLIENT_ID = b"stele-load"
_PRODUCE_VERSION, _FETCH_VERSION, _METADATA_VERSION = 7, 4, 7
_FETCH_BYTES = 1024 * 1024
_POLL_PAUSE_S = 0.01


class ErrorAnswered(Exception):
    """The broker answered with a Kafka error code."""


def frame_of(api: Api, version: int, request: object, client_id: bytes = _CLIENT_ID) -> bytes:
    flexible = api.is_flexible(version)
    frame = bytearray(struct.pack(">ihhih", 0, api.key, version, 0, len(client_id)))
    frame += client_id + b"\0" * flexible
    schema.writer(api.request, version, flexible)(request, frame)
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    return bytes(frame)


def answer_of(api: Api, version: int, answer: bytes) -> Any:
    """Decode an answer without its length."""
    flexible = api.is_flexible(version)
    return schema.read_message(api.response, version, flexible, answer, 4 + flexible)[0]


def metadata_request(topics: list[str], client_id: bytes = _CLIENT_ID) -> bytes:
    """Of ``topics``, created if they are not there."""
    named = [metadata.MetadataRequestTopic(name=topic) for topic in topics]
    request = metadata.MetadataRequest(topics=named, allow_auto_topic_creation=True)
    return frame_of(metadata.METADATA_API, _METADATA_VERSION, request, client_id)


def batch_of(values: int, size: int) -> bytes:
    """Return a batch of values of ``size`` bytes each, of this moment."""
    return bytes(build_values([b"x" * size] * values, time.time_ns() // 1_000_000))


def produce_request(topic: str, batch: bytes, *, acks: int) -> bytes:
    """``batch`` (record batches v2) into partition 0."""
    data = produce.PartitionProduceData(index=0, records=batch)
    topic_data = produce.TopicProduceData(name=topic, partition_data=[data])
    request = produce.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic_data])
    return frame_of(produce.PRODUCE_API, _PRODUCE_VERSION, request)


def fetch_request(topic: str, offset: int, *, max_wait_ms: int) -> bytes:
    """A Fetch of partition 0 from ``offset`` on, parked for up to ``max_wait_ms`` while it is empty."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    topics = [fetch.FetchTopic(topic=topic, partitions=cast("Any", [partition]))]
    request = fetch.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES, topics=topics)
    return frame_of(fetch.FETCH_API, _FETCH_VERSION, request)


def check_produce(answer: bytes) -> int:
    """The base offset that a produce got; ``answer`` is without its length.

    Raises ``ErrorAnswered``.
    """
    (partition,) = answer_of(produce.PRODUCE_API, _PRODUCE_VERSION, answer).responses[0].partition_responses
    if partition.error_code:
        raise ErrorAnswered(f"produce was answered with error {partition.error_code}")
    return partition.base_offset


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
            return bool(_metadata(receive(connection)).brokers)
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
            (found,) = _metadata(receive(connection)).topics
            if found.partitions and all(
                each.leader_id >= 0 and not each.error_code for each in found.partitions
            ):
                return
            time.sleep(_POLL_PAUSE_S)
    raise TimeoutError(f"topic {topic} had no leader after {timeout_s:g} s")


def _metadata(answer: bytes) -> Any:
    return answer_of(metadata.METADATA_API, _METADATA_VERSION, answer)
