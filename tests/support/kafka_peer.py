"""A peer of the Kafka listener: a plain socket, so that a test sends and sees every byte.

``call`` encodes and decodes messages with the schemas of the broker, and would not find
a mistake in them. Where that matters a test sends bytes written by hand (see ``framed``,
``array``, ``text``, ``blob``) and compares the bytes of the response.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from stele.wire import record_batch as rb
from stele.wire import schema
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api import Api
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from app.tcp.kafka.apis import API_VERSIONS_KEY, SERVED
from tests.support.batches import batch_of

# Nothing a test waits for takes this long; it only ends a test that failed.
TIMEOUT_S = 120.0
# Tests write records of 1970, which retention would delete during a slow run.
WITHOUT_RETENTION = {"STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "3600000"}

_API_OF = {row.api.request: row.api for row in SERVED.values()}


def api_of(request: object) -> Api:
    return _API_OF[type(request)]


# ── bytes by hand ──


def text(value: str | None) -> bytes:
    """A classic string: length:2, UTF-8; -1 is null."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def compact(value: str | None) -> bytes:
    """A flexible string of up to 126 bytes: length + 1 in one byte; 0 is null."""
    return b"\0" if value is None else bytes((len(value.encode()) + 1,)) + value.encode()


def blob(data: bytes | bytearray | None) -> bytes:
    """Classic bytes: length:4; -1 is null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def array(*items: bytes) -> bytes:
    """A classic array: count:4, its elements."""
    return struct.pack(">i", len(items)) + b"".join(items)


def framed(
    key: int,
    version: int,
    body: bytes,
    *,
    correlation: int = 7,
    client_id: str | None = "by hand",
    tags: bytes | None = None,
) -> bytes:
    """A request with its size; ``tags`` are the tagged fields of header v2, None for header v1."""
    head = struct.pack(">hhi", key, version, correlation) + text(client_id) + (tags or b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


# ── messages ──


def request_body(request: object, version: int) -> bytes:
    api = api_of(request)
    out = bytearray()
    write = schema.writer(api.request, version, api.is_flexible(version))
    write(request, out)
    return bytes(out)


def request_frame(
    request: object, version: int, *, correlation: int = 7, client_id: str | None = "a peer"
) -> bytes:
    api = api_of(request)
    return framed(
        api.key,
        version,
        request_body(request, version),
        correlation=correlation,
        client_id=client_id,
        tags=b"\0" if api.is_flexible(version) else None,
    )


def read_response(frame: bytes, api: Api, version: int) -> tuple[int, Any]:
    """Correlation id and message of a response without its size; fails if a byte is left over."""
    flexible = api.is_flexible(version)
    (correlation,) = struct.unpack_from(">i", frame)
    position = 4
    if flexible and api.key != API_VERSIONS_KEY:
        assert frame[4] == 0, "no tagged fields are defined for a response header"
        position = 5
    message, end = schema.read_message(api.response, version, flexible, frame, position)
    assert end == len(frame), f"{len(frame) - end} bytes trail a response of {api.name} v{version}"
    return correlation, message


class KafkaAddress(Protocol):
    """The address of a broker, as ``BrokerProcess`` has it."""

    @property
    def host(self) -> str: ...
    @property
    def kafka_port(self) -> int: ...


class KafkaPeer:
    """One connection."""

    def __init__(self, broker: KafkaAddress, *, receive_buffer_bytes: int | None = None) -> None:
        self._broker = broker
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect((broker.host, broker.kafka_port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation = 0
        self._unanswered: dict[int, tuple[Api, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def again(self) -> KafkaPeer:
        """Another connection to the same broker."""
        return KafkaPeer(self._broker)

    # ── bytes ──

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frame(self) -> bytes:
        """The next response, without its size. Raises ``ConnectionError`` when the broker has closed."""
        while len(self._received) < 4 or len(self._received) < 4 + self._size():
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise ConnectionError(f"closed by the broker, {len(self._received)} bytes into a frame")
            self._received += piece
        end = 4 + self._size()
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame

    def _size(self) -> int:
        (size,) = struct.unpack_from(">i", self._received)
        return size

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.frame()

    def rest(self) -> bytes:
        """Return everything until the broker closes the connection."""
        while piece := self.socket.recv(1 << 20):
            self._received += piece
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def end(self) -> None:
        """Send no more, but continue to read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection, as a process that crashed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    # ── messages ──

    def post(self, request: object, version: int, *, client_id: str | None = "a peer") -> int:
        """Send without waiting; return the correlation id."""
        correlation = self.expect(request, version)
        self.send(request_frame(request, version, correlation=correlation, client_id=client_id))
        return correlation

    def post_all(self, requests: Sequence[tuple[object, int]]) -> list[int]:
        """Send several requests in one write."""
        correlations = [self.expect(request, version) for request, version in requests]
        self.send(
            *(
                request_frame(request, version, correlation=correlation)
                for (request, version), correlation in zip(requests, correlations, strict=True)
            )
        )
        return correlations

    def expect(self, request: object, version: int) -> int:
        """Return the correlation id that the response will have."""
        self._correlation += 1
        self._unanswered[self._correlation] = api_of(request), version
        return self._correlation

    def next_answer(self) -> tuple[int, Any]:
        """The correlation id and the message of the next response, whatever it answers."""
        frame = self.frame()
        api, version = self._unanswered.pop(int.from_bytes(frame[:4], "big"))
        return read_response(frame, api, version)

    def call(self, request: object, version: int, *, client_id: str | None = "a peer") -> Any:
        """The response to ``request``, with nothing else in flight."""
        correlation = self.post(request, version, client_id=client_id)
        answered, message = self.next_answer()
        assert answered == correlation
        return message


# ── the two that every test needs ──


def produce(
    topic: str | bytes,
    batches: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One partition of a topic, by name or (16 bytes) by id."""
    name, topic_id = _name_and_id(topic)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=batches)],
            )
        ],
    )


def fetch(
    topic: str | bytes,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """One partition of a topic, by name or (16 bytes) by id."""
    name, topic_id = _name_and_id(topic)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        current_leader_epoch=current_leader_epoch,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
    )


def _name_and_id(topic: str | bytes) -> tuple[str, bytes]:
    return (topic, schema.NO_UUID) if isinstance(topic, str) else ("", topic)


def only_partition(response: Any) -> Any:
    """The one partition of a response to ``produce`` or ``fetch``."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return partition


# ── what many tests do ──


def create_topic(peer: KafkaPeer, topic: str, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic, with configurations whose dots are underscores; returns its id."""
    (made,) = peer.call(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=(),
                    configs=[
                        CreatableTopicConfig(name=name.replace("_", "."), value=value)
                        for name, value in configs.items()
                    ],
                )
            ]
        ),
        7,
    ).topics
    assert made.error_code == ErrorCode.NONE, made
    return made.topic_id


def delete_topic(peer: KafkaPeer, topic: str) -> None:
    (done,) = peer.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5).responses
    assert done.error_code == ErrorCode.NONE, done


def put(peer: KafkaPeer, topic: str, *values: bytes, partition: int = 0, timestamp_ms: int = 1_000) -> int:
    """Produce one batch; returns its first offset."""
    batch = batch_of(values, timestamp_ms=timestamp_ms)
    done = only_partition(peer.call(produce(topic, batch, partition=partition), 12))
    assert done.error_code == ErrorCode.NONE, done
    return done.base_offset


def records_in(batches: bytes) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record in whole batches."""
    records: list[tuple[int, bytes | None]] = []
    position = 0
    while position < len(batches):
        header = rb.check_batch(batches, position)
        records += [(record.offset, record.value) for record in rb.decode_records(batches, header)]
        position += header.size
    return records
