"""The messages inside the frames: ADR-0009 (types 01–06) and ADR-0010 (07 and up).

A request of type ``t`` (odd) is answered by type ``t + 1``. Responses start with
a status byte: 1 ok, 0 error. An ADR-0009 error is ``[length:4][text]``; an
ADR-0010 error has its number first: ``[code:2 signed][length:4][text]``. Type 00
is the answer to a frame that is no request at all.

Field notation below: ``name:4`` is a 4-byte big-endian integer, ``text`` and
``bytes`` are ``[length:4][…]``, ``[…]*`` is ``[count:4]`` and then the items.
Every decoder bounds counts and lengths by the bytes that are left, and raises
``MessageError`` for missing and for trailing bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from .error_codes import ErrorCode, error_code

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_FRAME = struct.Struct(">IB")
_CONSUME_TAIL = struct.Struct(">qi")
_CONSUME_HEAD = struct.Struct(">IBBqI")
_CONSUMED = struct.Struct(">Iq")
_PRODUCED = struct.Struct(">IBBq")


class MessageType(IntEnum):
    ERROR = 0x00
    CONSUME_REQUEST = 0x01
    CONSUME_RESPONSE = 0x02
    PRODUCE_REQUEST = 0x03
    PRODUCE_RESPONSE = 0x04
    FLUSH_REQUEST = 0x05
    FLUSH_RESPONSE = 0x06
    METADATA_REQUEST = 0x07
    METADATA_RESPONSE = 0x08
    PRODUCE_BATCH_REQUEST = 0x09
    PRODUCE_BATCH_RESPONSE = 0x0A
    FETCH_REQUEST = 0x0B
    FETCH_RESPONSE = 0x0C
    LIST_OFFSETS_REQUEST = 0x0D
    LIST_OFFSETS_RESPONSE = 0x0E
    CREATE_TOPIC_REQUEST = 0x0F
    CREATE_TOPIC_RESPONSE = 0x10
    DELETE_TOPIC_REQUEST = 0x11
    DELETE_TOPIC_RESPONSE = 0x12
    DESCRIBE_TOPIC_REQUEST = 0x13
    DESCRIBE_TOPIC_RESPONSE = 0x14
    ALTER_TOPIC_REQUEST = 0x15
    ALTER_TOPIC_RESPONSE = 0x16
    INIT_PRODUCER_ID_REQUEST = 0x17
    INIT_PRODUCER_ID_RESPONSE = 0x18
    FLUSH_TOPIC_REQUEST = 0x19
    FLUSH_TOPIC_RESPONSE = 0x1A
    NAMED_PRODUCER_REQUEST = 0x1B
    NAMED_PRODUCER_RESPONSE = 0x1C
    PRODUCER_STATE_REQUEST = 0x1D
    PRODUCER_STATE_RESPONSE = 0x1E
    JOIN_GROUP_REQUEST = 0x1F
    JOIN_GROUP_RESPONSE = 0x20
    HEARTBEAT_REQUEST = 0x21
    HEARTBEAT_RESPONSE = 0x22
    LEAVE_GROUP_REQUEST = 0x23
    LEAVE_GROUP_RESPONSE = 0x24
    CLAIM_REQUEST = 0x25
    CLAIM_RESPONSE = 0x26
    RELEASE_REQUEST = 0x27
    RELEASE_RESPONSE = 0x28
    COMMIT_REQUEST = 0x29
    COMMIT_RESPONSE = 0x2A
    COMMITTED_REQUEST = 0x2B
    COMMITTED_RESPONSE = 0x2C
    OWNER_FETCH_REQUEST = 0x2D
    OWNER_FETCH_RESPONSE = 0x2E
    POLL_REQUEST = 0x2F
    POLL_RESPONSE = 0x30
    ACK_REQUEST = 0x31
    ACK_RESPONSE = 0x32
    NACK_REQUEST = 0x33
    NACK_RESPONSE = 0x34
    EXTEND_REQUEST = 0x35
    EXTEND_RESPONSE = 0x36


LAST_ADR_0009_TYPE = MessageType.FLUSH_RESPONSE


class MessageError(ValueError):
    """The body of a frame does not have its message's layout; the stream itself is fine."""


# ── reading and writing fields ────────────────────────────────────────────────


class FieldReader:
    """Takes fields off a body, and never past its end."""

    __slots__ = ("_body", "_end", "_position")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 0
        self._end = len(body)

    def _take(self, size: int, name: str) -> int:
        start = self._position
        if size > self._end - start:
            raise MessageError(f"{name} needs {size} bytes and {self._end - start} are left in the frame")
        self._position = start + size
        return start

    def i8(self, name: str) -> int:
        return _signed(self._body[self._take(1, name)])

    def i16(self, name: str) -> int:
        value: int = _I16.unpack_from(self._body, self._take(2, name))[0]
        return value

    def i32(self, name: str) -> int:
        value: int = _I32.unpack_from(self._body, self._take(4, name))[0]
        return value

    def i64(self, name: str) -> int:
        value: int = _I64.unpack_from(self._body, self._take(8, name))[0]
        return value

    def raw(self, size: int, name: str) -> bytes:
        start = self._take(size, name)
        return self._body[start : start + size]

    def sized(self, name: str) -> bytes:
        """``[length:4][bytes]``"""
        length = self.i32(f"{name} length")
        if length < 0:
            raise MessageError(f"{name} length is negative: {length}")
        return self.raw(length, name)

    def text(self, name: str) -> str:
        raw = self.sized(name)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MessageError(f"{name} is not valid UTF-8") from error

    def optional_text(self, name: str) -> str | None:
        """``text``, or a length of -1 for none."""
        if _I32.unpack_from(self._body, self._take(4, f"{name} length"))[0] == -1:
            return None
        self._position -= 4
        return self.text(name)

    def count(self, name: str, *, item_bytes_min: int) -> int:
        """A count whose items can still be there."""
        count = self.i32(f"{name} count")
        if count < 0 or count * item_bytes_min > self._end - self._position:
            raise MessageError(f"{name} count is {count}, more than the frame can hold")
        return count

    def end(self) -> None:
        if self._position != self._end:
            raise MessageError(f"{self._end - self._position} bytes trail the message")


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _configs(configs: Sequence[tuple[str, str | None]]) -> bytes:
    parts = [_I32.pack(len(configs))]
    for name, value in configs:
        parts.append(_text(name))
        parts.append(_I32.pack(-1) if value is None else _text(value))
    return b"".join(parts)


def _read_configs(fields: FieldReader) -> tuple[tuple[str, str | None], ...]:
    count = fields.count("config", item_bytes_min=8)
    return tuple((fields.text("config name"), fields.optional_text("config value")) for _ in range(count))


# ── the shape of every message ────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; ``encode`` gives the whole frame, ``decode`` takes its body."""

    TYPE: ClassVar[MessageType]

    def encode(self) -> bytes:
        body = self._encode_body()
        return _FRAME.pack(len(body) + 5, self.TYPE) + body

    def _encode_body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> Message:
        raise NotImplementedError

    @classmethod
    def _decode_whole(cls, fields: FieldReader) -> Message:
        message = cls._decode_fields(fields)
        fields.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Message):
    """What a client asks. ``MessageError`` from ``decode`` is answered, not fatal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(Message):
    """An ok answer: the status byte 1, then the fields."""

    def encode(self) -> bytes:
        body = self._encode_body()
        return _FRAME.pack(len(body) + 6, self.TYPE) + b"\x01" + body


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse(Message):
    """The error answer of any type.

    ADR-0009 types (and 00) carry no number: decoding one gives
    ``UNKNOWN_SERVER_ERROR`` and the text.
    """

    response_type: int
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    message: str

    def encode(self) -> bytes:
        number = b"" if self.response_type <= LAST_ADR_0009_TYPE else _I16.pack(self.code)
        body = b"\x00" + number + _text(self.message)
        return _FRAME.pack(len(body) + 5, self.response_type) + body


# ── ADR-0009: fixed by the protocol's author ──────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest(Request):
    """``topic text, offset:8, batch size:4``: up to ``batch_size`` messages of partition 0."""

    TYPE = MessageType.CONSUME_REQUEST
    topic: str
    offset: int
    batch_size: int

    def _encode_body(self) -> bytes:
        return _text(self.topic) + _CONSUME_TAIL.pack(self.offset, self.batch_size)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ConsumeRequest:
        return cls(
            topic=fields.text("topic"),
            offset=fields.i64("offset"),
            batch_size=fields.i32("batch size"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeResponse(Response):
    """``next offset:8, [length:4, offset:8, data]*``; the length counts the data alone."""

    TYPE = MessageType.CONSUME_RESPONSE
    next_offset: int
    messages: Sequence[tuple[int, bytes]]

    def encode(self) -> bytes:
        size = _CONSUME_HEAD.size
        parts = [b""]
        for offset, data in self.messages:
            parts.append(_CONSUMED.pack(len(data), offset))
            parts.append(data)
            size += _CONSUMED.size + len(data)
        parts[0] = _CONSUME_HEAD.pack(size, self.TYPE, 1, self.next_offset, len(self.messages))
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ConsumeResponse:
        next_offset = fields.i64("next offset")
        messages: list[tuple[int, bytes]] = []
        for _ in range(fields.count("message", item_bytes_min=_CONSUMED.size)):
            length = fields.i32("message length")
            offset = fields.i64("message offset")
            if length < 0:
                raise MessageError(f"message length is negative: {length}")
            messages.append((offset, fields.raw(length, "message data")))
        return cls(next_offset=next_offset, messages=messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest(Request):
    """``topic text, data bytes``: one record without key, into partition 0, acks=1."""

    TYPE = MessageType.PRODUCE_REQUEST
    topic: str
    data: bytes

    def _encode_body(self) -> bytes:
        return _text(self.topic) + _sized(self.data)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProduceRequest:
        return cls(topic=fields.text("topic"), data=fields.sized("data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse(Response):
    """``offset:8``"""

    TYPE = MessageType.PRODUCE_RESPONSE
    offset: int

    def _encode_body(self) -> bytes:
        return _I64.pack(self.offset)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProduceResponse:
        return cls(offset=fields.i64("offset"))


def encode_produce_responses(first_offset: int, count: int) -> bytes:
    """``count`` PRODUCE ok frames for consecutive offsets, as one buffer."""
    pack, size, response = _PRODUCED.pack, _PRODUCED.size, MessageType.PRODUCE_RESPONSE
    return b"".join([pack(size, response, 1, offset) for offset in range(first_offset, first_offset + count)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRequest(Request):
    """Sync everything appended before it, in every topic."""

    TYPE = MessageType.FLUSH_REQUEST

    def _encode_body(self) -> bytes:
        return b""

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> FlushRequest:
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResponse(Response):
    TYPE = MessageType.FLUSH_RESPONSE

    def _encode_body(self) -> bytes:
        return b""

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> FlushResponse:
        return cls()


# ── ADR-0010: the extension ───────────────────────────────────────────────────


class Durability(IntEnum):
    """The receipt of a write: what is true when the answer leaves (ADR-0003)."""

    NONE = 0
    APPENDED = 1
    SYNCED = 2
    REPLICATED = 3

    @property
    def label(self) -> str:
        return self.name.lower()


ACKS_ALL = -1
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
ANY_PARTITION = -1
# Of partitions in one lease.
ANY_NUMBER = -1
DEFAULT_PARTITIONS = -1
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(Request):
    """``auto create:1, [topic text]*``; a count of -1 (``topics`` None) asks for all topics."""

    TYPE = MessageType.METADATA_REQUEST
    topics: Sequence[str] | None
    auto_create: bool = False

    def _encode_body(self) -> bytes:
        head = b"\x01" if self.auto_create else b"\x00"
        if self.topics is None:
            return head + _I32.pack(-1)
        return head + _I32.pack(len(self.topics)) + b"".join(map(_text, self.topics))

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> MetadataRequest:
        auto_create = fields.i8("auto create") != 0
        count = fields.i32("topic count")
        if count == -1:
            return cls(topics=None, auto_create=auto_create)
        if count < 0:
            raise MessageError(f"topic count is negative: {count}")
        # Each name takes at least its length field, so a lying count ends at the frame's end.
        return cls(topics=tuple(fields.text("topic") for _ in range(count)), auto_create=auto_create)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """``id:4, host text, port:4``: where a broker's binary door listens."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """``partition:4, leader:4, leader epoch:4``; ``leader`` is a broker id."""

    partition: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """``code:2, topic text, topic id:16, [partition]*``"""

    topic: str
    topic_id: bytes = bytes(16)
    code: ErrorCode = ErrorCode.NONE
    partitions: Sequence[PartitionMetadata] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(Response):
    """``cluster id text, [broker]*, [topic]*``"""

    TYPE = MessageType.METADATA_RESPONSE
    cluster_id: str
    brokers: Sequence[BrokerEndpoint]
    topics: Sequence[TopicMetadata]

    def _encode_body(self) -> bytes:
        parts = [_text(self.cluster_id), _I32.pack(len(self.brokers))]
        for broker in self.brokers:
            parts += (_I32.pack(broker.id), _text(broker.host), _I32.pack(broker.port))
        parts.append(_I32.pack(len(self.topics)))
        for topic in self.topics:
            parts += (_I16.pack(topic.code), _text(topic.topic), topic.topic_id)
            parts.append(_I32.pack(len(topic.partitions)))
            parts += (struct.pack(">iii", p.partition, p.leader, p.leader_epoch) for p in topic.partitions)
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> MetadataResponse:
        cluster_id = fields.text("cluster id")
        brokers = [
            BrokerEndpoint(id=fields.i32("broker id"), host=fields.text("host"), port=fields.i32("port"))
            for _ in range(fields.count("broker", item_bytes_min=12))
        ]
        topics = [
            TopicMetadata(
                code=error_code(fields.i16("code")),
                topic=fields.text("topic"),
                topic_id=fields.raw(16, "topic id"),
                partitions=[
                    PartitionMetadata(
                        partition=fields.i32("partition"),
                        leader=fields.i32("leader"),
                        leader_epoch=fields.i32("leader epoch"),
                    )
                    for _ in range(fields.count("partition", item_bytes_min=12))
                ],
            )
            for _ in range(fields.count("topic", item_bytes_min=26))
        ]
        return cls(cluster_id=cluster_id, brokers=brokers, topics=topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceBatchRequest(Request):
    """``topic text, partition:4, acks:1, timeout ms:4, batches bytes``

    ``batches`` are one or more RecordBatch v2, stored verbatim. ``partition`` -1
    lets the broker choose, in turn. ``acks`` is 0, 1 or -1 (all); unlike Kafka's,
    acks=0 is answered too, before anything is promised: one response a request,
    always, keeps a pipeline in step.
    """

    TYPE = MessageType.PRODUCE_BATCH_REQUEST
    topic: str
    partition: int
    acks: int
    timeout_ms: int = 30_000
    batches: bytes | bytearray

    def _encode_body(self) -> bytes:
        return b"".join(
            (
                _text(self.topic),
                struct.pack(">ibii", self.partition, self.acks, self.timeout_ms, len(self.batches)),
                self.batches,
            )
        )

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProduceBatchRequest:
        return cls(
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
            acks=fields.i8("acks"),
            timeout_ms=fields.i32("timeout"),
            batches=fields.sized("batches"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceBatchResponse(Response):
    """``partition:4, base offset:8, last offset:8, log append time:8, log start offset:8, durability:1``

    Offsets are -1 when acks was 0; ``log_append_time_ms`` is -1 unless the topic
    stamps records on arrival.
    """

    TYPE = MessageType.PRODUCE_BATCH_RESPONSE
    partition: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    durability: Durability

    def _encode_body(self) -> bytes:
        return struct.pack(
            ">iqqqqb",
            self.partition,
            self.base_offset,
            self.last_offset,
            self.log_append_time_ms,
            self.log_start_offset,
            self.durability,
        )

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProduceBatchResponse:
        return cls(
            partition=fields.i32("partition"),
            base_offset=fields.i64("base offset"),
            last_offset=fields.i64("last offset"),
            log_append_time_ms=fields.i64("log append time"),
            log_start_offset=fields.i64("log start offset"),
            durability=_durability(fields.i8("durability")),
        )


def _durability(number: int) -> Durability:
    try:
        return Durability(number)
    except ValueError as error:
        raise MessageError(f"durability {number} does not exist") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """``topic text, partition:4, offset:8, max bytes:4``"""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(Request):
    """``max wait ms:4, min bytes:4, max bytes:4, [partition]*``

    Answered when ``min_bytes`` are there, when ``max_wait_ms`` has passed, or at
    once on an error. Whole batches are served, the first even if it is larger
    than ``max_bytes``; the first batch may begin before ``offset``.
    """

    TYPE = MessageType.FETCH_REQUEST
    partitions: Sequence[FetchPartition]
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 8 * 1024 * 1024

    def _encode_body(self) -> bytes:
        parts = [struct.pack(">iiii", self.max_wait_ms, self.min_bytes, self.max_bytes, len(self.partitions))]
        for p in self.partitions:
            parts += (_text(p.topic), struct.pack(">iqi", p.partition, p.offset, p.max_bytes))
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> FetchRequest:
        max_wait_ms = fields.i32("max wait")
        min_bytes = fields.i32("min bytes")
        max_bytes = fields.i32("max bytes")
        partitions = [
            FetchPartition(
                topic=fields.text("topic"),
                partition=fields.i32("partition"),
                offset=fields.i64("offset"),
                max_bytes=fields.i32("partition max bytes"),
            )
            for _ in range(fields.count("partition", item_bytes_min=20))
        ]
        return cls(
            partitions=partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """``topic text, partition:4, code:2, message text, high watermark:8, log start offset:8, batches bytes``"""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    batches: bytes = b""

    def encode_head(self, batches_bytes: int) -> bytes:
        """All but the batches, so that a server can send those without a copy."""
        return b"".join(
            (
                _text(self.topic),
                struct.pack(">ih", self.partition, self.code),
                _text(self.message),
                struct.pack(">qqi", self.high_watermark, self.log_start_offset, batches_bytes),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(Response):
    """``[partition]*``, in the order asked."""

    TYPE = MessageType.FETCH_RESPONSE
    partitions: Sequence[FetchedPartition]

    def _encode_body(self) -> bytes:
        parts = [_I32.pack(len(self.partitions))]
        for partition in self.partitions:
            parts += (partition.encode_head(len(partition.batches)), partition.batches)
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> FetchResponse:
        partitions = [
            FetchedPartition(
                topic=fields.text("topic"),
                partition=fields.i32("partition"),
                code=error_code(fields.i16("code")),
                message=fields.text("message"),
                high_watermark=fields.i64("high watermark"),
                log_start_offset=fields.i64("log start offset"),
                batches=fields.sized("batches"),
            )
            for _ in range(fields.count("partition", item_bytes_min=34))
        ]
        return cls(partitions=partitions)


def encode_fetch_head(body_bytes: int, partition_count: int) -> bytes:
    """What stands before the first partition of a FETCH ok frame; ``body_bytes`` is all that follows."""
    return struct.pack(">IBBi", 10 + body_bytes, MessageType.FETCH_RESPONSE, 1, partition_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest(Request):
    """``topic text, partition:4, timestamp:8``: ms since the epoch, -1 latest, -2 earliest."""

    TYPE = MessageType.LIST_OFFSETS_REQUEST
    topic: str
    partition: int
    timestamp_ms: int

    def _encode_body(self) -> bytes:
        return _text(self.topic) + struct.pack(">iq", self.partition, self.timestamp_ms)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ListOffsetsRequest:
        return cls(
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
            timestamp_ms=fields.i64("timestamp"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse(Response):
    """``offset:8, timestamp:8, leader epoch:4``

    For a timestamp: the first record at or after it, or offset -1 if there is none.
    """

    TYPE = MessageType.LIST_OFFSETS_RESPONSE
    offset: int
    timestamp_ms: int
    leader_epoch: int

    def _encode_body(self) -> bytes:
        return struct.pack(">qqi", self.offset, self.timestamp_ms, self.leader_epoch)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ListOffsetsResponse:
        return cls(
            offset=fields.i64("offset"),
            timestamp_ms=fields.i64("timestamp"),
            leader_epoch=fields.i32("leader epoch"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequest(Request):
    """``topic text, partitions:4, [name text, value text]*``; partitions -1 is the broker's default."""

    TYPE = MessageType.CREATE_TOPIC_REQUEST
    topic: str
    partitions: int = DEFAULT_PARTITIONS
    configs: Sequence[tuple[str, str | None]] = ()

    def _encode_body(self) -> bytes:
        return _text(self.topic) + _I32.pack(self.partitions) + _configs(self.configs)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> CreateTopicRequest:
        return cls(
            topic=fields.text("topic"),
            partitions=fields.i32("partitions"),
            configs=_read_configs(fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicDescription(Response):
    """``topic id:16, partitions:4, [name text, value text]*``"""

    topic_id: bytes
    partitions: int
    configs: Sequence[tuple[str, str | None]] = ()

    def _encode_body(self) -> bytes:
        return self.topic_id + _I32.pack(self.partitions) + _configs(self.configs)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _TopicDescription:
        return cls(
            topic_id=fields.raw(16, "topic id"),
            partitions=fields.i32("partitions"),
            configs=_read_configs(fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicResponse(_TopicDescription):
    """The topic as created; ``configs`` are those set on it."""

    TYPE = MessageType.CREATE_TOPIC_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicNameRequest(Request):
    """``topic text``"""

    topic: str

    def _encode_body(self) -> bytes:
        return _text(self.topic)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _TopicNameRequest:
        return cls(topic=fields.text("topic"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmptyResponse(Response):
    def _encode_body(self) -> bytes:
        return b""

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _EmptyResponse:
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequest(_TopicNameRequest):
    TYPE = MessageType.DELETE_TOPIC_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicResponse(_EmptyResponse):
    TYPE = MessageType.DELETE_TOPIC_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicRequest(_TopicNameRequest):
    TYPE = MessageType.DESCRIBE_TOPIC_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicResponse(_TopicDescription):
    TYPE = MessageType.DESCRIBE_TOPIC_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicRequest(Request):
    """``topic text, partitions:4, [name text, value text or -1]*``

    Names not listed keep their value; a value of none goes back to the default.
    ``partitions`` may only grow; -1 leaves them as they are.
    """

    TYPE = MessageType.ALTER_TOPIC_REQUEST
    topic: str
    partitions: int = DEFAULT_PARTITIONS
    configs: Sequence[tuple[str, str | None]] = ()

    def _encode_body(self) -> bytes:
        return _text(self.topic) + _I32.pack(self.partitions) + _configs(self.configs)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> AlterTopicRequest:
        return cls(
            topic=fields.text("topic"),
            partitions=fields.i32("partitions"),
            configs=_read_configs(fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicResponse(_TopicDescription):
    TYPE = MessageType.ALTER_TOPIC_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest(Request):
    """Ask for a producer id of one's own, for idempotent produce."""

    TYPE = MessageType.INIT_PRODUCER_ID_REQUEST

    def _encode_body(self) -> bytes:
        return b""

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> InitProducerIdRequest:
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse(Response):
    """``producer id:8, producer epoch:2``"""

    TYPE = MessageType.INIT_PRODUCER_ID_RESPONSE
    producer_id: int
    producer_epoch: int

    def _encode_body(self) -> bytes:
        return struct.pack(">qh", self.producer_id, self.producer_epoch)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> InitProducerIdResponse:
        return cls(producer_id=fields.i64("producer id"), producer_epoch=fields.i16("producer epoch"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTopicRequest(_TopicNameRequest):
    """Sync everything appended before it in one topic."""

    TYPE = MessageType.FLUSH_TOPIC_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTopicResponse(_EmptyResponse):
    TYPE = MessageType.FLUSH_TOPIC_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProducerRequest(Request):
    """``name text, version:8``: the producer id for ``version`` of what ``name`` writes (ADR-0015)."""

    TYPE = MessageType.NAMED_PRODUCER_REQUEST
    name: str
    version: int

    def _encode_body(self) -> bytes:
        return _text(self.name) + _I64.pack(self.version)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> NamedProducerRequest:
        return cls(name=fields.text("name"), version=fields.i64("version"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProducerResponse(Response):
    """``producer id:8, producer epoch:2, is resumed:1``; resumed: this version had begun before."""

    TYPE = MessageType.NAMED_PRODUCER_RESPONSE
    producer_id: int
    producer_epoch: int
    is_resumed: bool

    def _encode_body(self) -> bytes:
        return struct.pack(">qhb", self.producer_id, self.producer_epoch, self.is_resumed)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> NamedProducerResponse:
        return cls(
            producer_id=fields.i64("producer id"),
            producer_epoch=fields.i16("producer epoch"),
            is_resumed=fields.i8("is resumed") != 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStateRequest(Request):
    """``topic text, partition:4, producer id:8``: what the partition has of this producer."""

    TYPE = MessageType.PRODUCER_STATE_REQUEST
    topic: str
    partition: int
    producer_id: int

    def _encode_body(self) -> bytes:
        return _text(self.topic) + struct.pack(">iq", self.partition, self.producer_id)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProducerStateRequest:
        return cls(
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
            producer_id=fields.i64("producer id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStateResponse(Response):
    """``producer epoch:2, last sequence:4, last offset:8``, of its last record there; all -1 if there is none."""

    TYPE = MessageType.PRODUCER_STATE_RESPONSE
    producer_epoch: int
    last_sequence: int
    last_offset: int

    def _encode_body(self) -> bytes:
        return struct.pack(">hiq", self.producer_epoch, self.last_sequence, self.last_offset)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ProducerStateResponse:
        return cls(
            producer_epoch=fields.i16("producer epoch"),
            last_sequence=fields.i32("last sequence"),
            last_offset=fields.i64("last offset"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest(Request):
    """``group text, member id text, client id text, session timeout:4, [topic text]*``

    The member id is empty at the first join; with one the member changes its topics.
    """

    TYPE = MessageType.JOIN_GROUP_REQUEST
    group: str
    topics: Sequence[str]
    session_timeout_ms: int
    member_id: str = ""
    client_id: str = ""

    def _encode_body(self) -> bytes:
        head = _text(self.group) + _text(self.member_id) + _text(self.client_id)
        sizes = struct.pack(">ii", self.session_timeout_ms, len(self.topics))
        return head + sizes + b"".join(map(_text, self.topics))

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> JoinGroupRequest:
        group, member_id, client_id = fields.text("group"), fields.text("member id"), fields.text("client id")
        session_timeout_ms = fields.i32("session timeout")
        count = fields.count("topic", item_bytes_min=4)
        return cls(
            group=group,
            member_id=member_id,
            client_id=client_id,
            session_timeout_ms=session_timeout_ms,
            topics=[fields.text("topic") for _ in range(count)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Membership(Response):
    """``member id text, generation:4, is rebalancing:1, [topic text, [partition:4]*]*``"""

    member_id: str
    generation: int
    is_rebalancing: bool
    assignment: Sequence[tuple[str, Sequence[int]]]

    def _encode_body(self) -> bytes:
        parts = [
            _text(self.member_id),
            struct.pack(">ibi", self.generation, self.is_rebalancing, len(self.assignment)),
        ]
        for topic, partitions in self.assignment:
            parts += (_text(topic), struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _Membership:
        member_id = fields.text("member id")
        generation = fields.i32("generation")
        is_rebalancing = fields.i8("is rebalancing") != 0
        assignment: list[tuple[str, list[int]]] = []
        for _ in range(fields.count("topic", item_bytes_min=8)):
            topic = fields.text("topic")
            count = fields.count("partition", item_bytes_min=4)
            assignment.append((topic, [fields.i32("partition") for _ in range(count)]))
        return cls(
            member_id=member_id, generation=generation, is_rebalancing=is_rebalancing, assignment=assignment
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse(_Membership):
    TYPE = MessageType.JOIN_GROUP_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(Request):
    """``group text, member id text, generation:4``"""

    TYPE = MessageType.HEARTBEAT_REQUEST
    group: str
    member_id: str
    generation: int

    def _encode_body(self) -> bytes:
        return _text(self.group) + _text(self.member_id) + _I32.pack(self.generation)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> HeartbeatRequest:
        return cls(
            group=fields.text("group"),
            member_id=fields.text("member id"),
            generation=fields.i32("generation"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse(_Membership):
    TYPE = MessageType.HEARTBEAT_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest(Request):
    """``group text, member id text``"""

    TYPE = MessageType.LEAVE_GROUP_REQUEST
    group: str
    member_id: str

    def _encode_body(self) -> bytes:
        return _text(self.group) + _text(self.member_id)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> LeaveGroupRequest:
        return cls(group=fields.text("group"), member_id=fields.text("member id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse(_EmptyResponse):
    TYPE = MessageType.LEAVE_GROUP_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnerRequest(Request):
    """``group text, member id text, generation:4, topic text, partition:4``"""

    group: str
    member_id: str
    generation: int
    topic: str
    partition: int

    def _encode_body(self) -> bytes:
        head = _text(self.group) + _text(self.member_id) + _I32.pack(self.generation)
        return head + _text(self.topic) + _I32.pack(self.partition)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _OwnerRequest:
        return cls(
            group=fields.text("group"),
            member_id=fields.text("member id"),
            generation=fields.i32("generation"),
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest(_OwnerRequest):
    TYPE = MessageType.CLAIM_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResponse(_EmptyResponse):
    TYPE = MessageType.CLAIM_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest(_OwnerRequest):
    TYPE = MessageType.RELEASE_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseResponse(_EmptyResponse):
    TYPE = MessageType.RELEASE_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest(Request):
    """``group text, member id text, generation:4, topic text, partition:4, offset:8, metadata text``

    ``offset`` is that of the next record to read.
    """

    TYPE = MessageType.COMMIT_REQUEST
    group: str
    member_id: str
    generation: int
    topic: str
    partition: int
    offset: int
    metadata: str = ""

    def _encode_body(self) -> bytes:
        head = _text(self.group) + _text(self.member_id) + _I32.pack(self.generation)
        where = _text(self.topic) + struct.pack(">iq", self.partition, self.offset)
        return head + where + _text(self.metadata)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> CommitRequest:
        return cls(
            group=fields.text("group"),
            member_id=fields.text("member id"),
            generation=fields.i32("generation"),
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
            offset=fields.i64("offset"),
            metadata=fields.text("metadata"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResponse(_EmptyResponse):
    TYPE = MessageType.COMMIT_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRequest(Request):
    """``group text, topic text, partition:4``"""

    TYPE = MessageType.COMMITTED_REQUEST
    group: str
    topic: str
    partition: int

    def _encode_body(self) -> bytes:
        return _text(self.group) + _text(self.topic) + _I32.pack(self.partition)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> CommittedRequest:
        return cls(group=fields.text("group"), topic=fields.text("topic"), partition=fields.i32("partition"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedResponse(Response):
    """``offset:8, metadata text``; offset -1 if nothing was committed."""

    TYPE = MessageType.COMMITTED_RESPONSE
    offset: int
    metadata: str = ""

    def _encode_body(self) -> bytes:
        return _I64.pack(self.offset) + _text(self.metadata)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> CommittedResponse:
        return cls(offset=fields.i64("offset"), metadata=fields.text("metadata"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFetchRequest(Request):
    """``group text, member id text, generation:4, topic text, partition:4, offset:8, max bytes:4, max wait:4``

    A FETCH of one partition that only its owner is answered.
    """

    TYPE = MessageType.OWNER_FETCH_REQUEST
    group: str
    member_id: str
    generation: int
    topic: str
    partition: int
    offset: int
    max_bytes: int = 1024 * 1024
    max_wait_ms: int = 0

    def _encode_body(self) -> bytes:
        head = _text(self.group) + _text(self.member_id) + _I32.pack(self.generation)
        where = struct.pack(">iqii", self.partition, self.offset, self.max_bytes, self.max_wait_ms)
        return head + _text(self.topic) + where

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> OwnerFetchRequest:
        return cls(
            group=fields.text("group"),
            member_id=fields.text("member id"),
            generation=fields.i32("generation"),
            topic=fields.text("topic"),
            partition=fields.i32("partition"),
            offset=fields.i64("offset"),
            max_bytes=fields.i32("max bytes"),
            max_wait_ms=fields.i32("max wait"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFetchResponse(Response):
    """``high watermark:8, log start offset:8, batches bytes``; the first batch may begin before the offset."""

    TYPE = MessageType.OWNER_FETCH_RESPONSE
    high_watermark: int
    log_start_offset: int
    batches: bytes

    def _encode_body(self) -> bytes:
        return struct.pack(">qq", self.high_watermark, self.log_start_offset) + _sized(self.batches)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> OwnerFetchResponse:
        return cls(
            high_watermark=fields.i64("high watermark"),
            log_start_offset=fields.i64("log start offset"),
            batches=fields.sized("batches"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest(Request):
    """``group text, start text, poll id text or -1, max records:4, max bytes:4, max partitions:4, max wait:4,
    lease:4, [topic text]*``

    ``start`` is ``earliest`` or ``latest``: where the group begins that has committed nothing. Times in ms.
    The same ``poll_id`` again is answered with the same lease, while that holds.
    """

    TYPE = MessageType.POLL_REQUEST
    group: str
    topics: Sequence[str]
    start: str = "earliest"
    poll_id: str | None = None
    max_records: int = 500
    max_bytes: int = 1024 * 1024
    max_partitions: int = ANY_NUMBER
    max_wait_ms: int = 0
    lease_ms: int = 30_000

    def _encode_body(self) -> bytes:
        poll_id = _I32.pack(-1) if self.poll_id is None else _text(self.poll_id)
        sizes = self.max_records, self.max_bytes, self.max_partitions
        limits = struct.pack(">iiiiii", *sizes, self.max_wait_ms, self.lease_ms, len(self.topics))
        head = _text(self.group) + _text(self.start) + poll_id
        return head + limits + b"".join(map(_text, self.topics))

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> PollRequest:
        group, start = fields.text("group"), fields.text("start")
        poll_id = fields.optional_text("poll id")
        max_records, max_bytes = fields.i32("max records"), fields.i32("max bytes")
        max_partitions = fields.i32("max partitions")
        max_wait_ms, lease_ms = fields.i32("max wait"), fields.i32("lease")
        count = fields.count("topic", item_bytes_min=4)
        return cls(
            group=group,
            start=start,
            poll_id=poll_id,
            max_records=max_records,
            max_bytes=max_bytes,
            max_partitions=max_partitions,
            max_wait_ms=max_wait_ms,
            lease_ms=lease_ms,
            topics=[fields.text("topic") for _ in range(count)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledPartition:
    """``topic text, partition:4, offset:8, next offset:8, deliveries:4, batches bytes``

    The records ``[offset, next offset)`` are leased; the batches may hold others around them.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    deliveries: int
    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPartition:
    """``topic text, partition:4, offset:8, next offset:8``: what retention deleted before it was read."""

    topic: str
    partition: int
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResponse(Response):
    """``lease text or -1, expires at:8, [skipped]*, [partition]*``; no lease: nothing came in time."""

    TYPE = MessageType.POLL_RESPONSE
    lease: str | None
    expires_at_ms: int = 0
    skipped: Sequence[SkippedPartition] = ()
    partitions: Sequence[PolledPartition] = ()

    def _encode_body(self) -> bytes:
        lease = _I32.pack(-1) if self.lease is None else _text(self.lease)
        parts = [lease, struct.pack(">qi", self.expires_at_ms, len(self.skipped))]
        for one in self.skipped:
            parts += (_text(one.topic), struct.pack(">iqq", one.partition, one.offset, one.next_offset))
        parts.append(_I32.pack(len(self.partitions)))
        for p in self.partitions:
            numbers = struct.pack(">iqqi", p.partition, p.offset, p.next_offset, p.deliveries)
            parts += (_text(p.topic), numbers, _sized(p.batches))
        return b"".join(parts)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> PollResponse:
        lease, expires_at_ms = fields.optional_text("lease"), fields.i64("expires at")
        skipped = [
            SkippedPartition(
                topic=fields.text("topic"),
                partition=fields.i32("partition"),
                offset=fields.i64("offset"),
                next_offset=fields.i64("next offset"),
            )
            for _ in range(fields.count("skipped", item_bytes_min=24))
        ]
        partitions = [
            PolledPartition(
                topic=fields.text("topic"),
                partition=fields.i32("partition"),
                offset=fields.i64("offset"),
                next_offset=fields.i64("next offset"),
                deliveries=fields.i32("deliveries"),
                batches=fields.sized("batches"),
            )
            for _ in range(fields.count("partition", item_bytes_min=32))
        ]
        return cls(lease=lease, expires_at_ms=expires_at_ms, skipped=skipped, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaseRequest(Request):
    """``group text, lease text``"""

    group: str
    lease: str

    def _encode_body(self) -> bytes:
        return _text(self.group) + _text(self.lease)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> _LeaseRequest:
        return cls(group=fields.text("group"), lease=fields.text("lease"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AckRequest(_LeaseRequest):
    """Commit what the lease holds."""

    TYPE = MessageType.ACK_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class AckResponse(_EmptyResponse):
    TYPE = MessageType.ACK_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class NackRequest(_LeaseRequest):
    """Give the lease back: the next poll gets its records."""

    TYPE = MessageType.NACK_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class NackResponse(_EmptyResponse):
    TYPE = MessageType.NACK_RESPONSE


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendRequest(Request):
    """``group text, lease text, lease:4``: hold it for so many ms from now on."""

    TYPE = MessageType.EXTEND_REQUEST
    group: str
    lease: str
    lease_ms: int

    def _encode_body(self) -> bytes:
        return _text(self.group) + _text(self.lease) + _I32.pack(self.lease_ms)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ExtendRequest:
        return cls(group=fields.text("group"), lease=fields.text("lease"), lease_ms=fields.i32("lease time"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendResponse(Response):
    """``expires at:8``, in ms since the epoch"""

    TYPE = MessageType.EXTEND_RESPONSE
    expires_at_ms: int

    def _encode_body(self) -> bytes:
        return _I64.pack(self.expires_at_ms)

    @classmethod
    def _decode_fields(cls, fields: FieldReader) -> ExtendResponse:
        return cls(expires_at_ms=fields.i64("expires at"))


# ── dispatch ──────────────────────────────────────────────────────────────────

REQUESTS: dict[int, type[Request]] = {
    cls.TYPE: cls
    for cls in (
        ConsumeRequest,
        ProduceRequest,
        FlushRequest,
        MetadataRequest,
        ProduceBatchRequest,
        FetchRequest,
        ListOffsetsRequest,
        CreateTopicRequest,
        DeleteTopicRequest,
        DescribeTopicRequest,
        AlterTopicRequest,
        InitProducerIdRequest,
        FlushTopicRequest,
        NamedProducerRequest,
        ProducerStateRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        ClaimRequest,
        ReleaseRequest,
        CommitRequest,
        CommittedRequest,
        OwnerFetchRequest,
        PollRequest,
        AckRequest,
        NackRequest,
        ExtendRequest,
    )
}
RESPONSES: dict[int, type[Response]] = {
    cls.TYPE: cls
    for cls in (
        ConsumeResponse,
        ProduceResponse,
        FlushResponse,
        MetadataResponse,
        ProduceBatchResponse,
        FetchResponse,
        ListOffsetsResponse,
        CreateTopicResponse,
        DeleteTopicResponse,
        DescribeTopicResponse,
        AlterTopicResponse,
        InitProducerIdResponse,
        FlushTopicResponse,
        NamedProducerResponse,
        ProducerStateResponse,
        JoinGroupResponse,
        HeartbeatResponse,
        LeaveGroupResponse,
        ClaimResponse,
        ReleaseResponse,
        CommitResponse,
        CommittedResponse,
        OwnerFetchResponse,
        PollResponse,
        AckResponse,
        NackResponse,
        ExtendResponse,
    )
}


def decode_request(frame_type: int, body: bytes) -> Request:
    """The request in a frame of a type that stands in ``REQUESTS``.

    Raises:
        MessageError: the body has not the layout of its type.
    """
    message = REQUESTS[frame_type]._decode_whole(FieldReader(body))
    assert isinstance(message, Request)
    return message


def decode_response(frame_type: int, body: bytes) -> Response | ErrorResponse:
    """The answer in a frame, ok or error.

    Raises:
        MessageError: no such response type, or a body that has not its layout.
    """
    fields = FieldReader(body)
    cls = RESPONSES.get(frame_type)
    if cls is None and frame_type != MessageType.ERROR:
        raise MessageError(f"frame type {frame_type:#04x} is not a response")
    status = fields.i8("status")
    if status == 0:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if frame_type > LAST_ADR_0009_TYPE:
            code = error_code(fields.i16("code"))
        message = fields.text("error")
        fields.end()
        return ErrorResponse(response_type=frame_type, code=code, message=message)
    if status != 1 or cls is None:
        raise MessageError(f"status {status} does not exist")
    response = cls._decode_whole(fields)
    assert isinstance(response, Response)
    return response
