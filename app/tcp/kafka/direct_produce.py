"""The fast path of the commonest request.

A Produce of one batch for one partition, without a transaction.

A client sends the same request again and again: all bytes before the records are the same, except the correlation
id and the partition, which is the last of them. The first such request is decoded, and those bytes are kept with its
meaning (a *route*) and with the bytes of its response. A later request is recognized by comparing bytes, and its
response is a copy in which a few numbers are filled in. The generic writer makes that response, so both ways give the
same bytes.

Whatever is anything else takes the generic path (``handlers.produce``): other layouts, acks=0, batches of old formats
and of transactions, topics that must be created first, a full produce queue, and every error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.headers import REQUEST_BYTES_MIN, read_client_id, response_head
from stele.wire.kafka.produce import (
    PRODUCE_API,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from stele.wire.schema import MalformedMessage, writer
from stele.wire.schema.varints import read_varint

from ...broker.producing.produce import Acks
from ...work_budget import in_one_step
from .route_learning import RouteLearning

# The first whose batches may have any codec; its response has all three numbers.
FIRST_VERSION = 7
_FIRST_WITH_TOPIC_IDS = 13
# A connection that produces to more topics than these in turn forgets all routes, and decodes again.
ROUTES_MAX = 256
# Requests of so many lengths up to the records are recognized; the names of topics differ in length.
LENGTHS_MAX = 8
# Names of topics and clients that are longer than usual take the generic path, so a connection keeps little.
PREFIX_BYTES_MAX = 1024
# In a batch: magic, the low byte of the attributes.
_MAGIC_POSITION, _MAGIC_V2 = 16, 2
_ATTRIBUTES_POSITION, _TRANSACTIONAL = 22, 0x10
_BATCH_BYTES_MIN = 61
_NO_TAGS = b"\0\0\0"
_SIZE = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")
# Numbers that nothing else in a response looks like; they are where the offsets will be, the partition, and the
# client's wait.
_MARKED = (0x1A2B3C4D5E6F7081, 0x1A2B3C4D5E6F7082, 0x1A2B3C4D5E6F7083)
_MARKED_PARTITION = 0x1A2B3C4D
_MARKED_WAIT = 0x1A2B3C4E


@dataclass(slots=True)
class Route:
    """The meaning of the bytes before the partition, and a template of the response.

    The template lacks its numbers.
    """

    version: int
    topic: str
    topic_id: bytes
    acks: Acks
    timeout_ms: int
    client_id: str
    is_flexible: bool
    # The whole frame of a response; ``position`` is that of base offset, append time and log start offset,
    # ``wait_position`` that of ``throttle_time_ms``.
    template: bytes
    position: int
    partition_position: int
    wait_position: int
    # The ``Access.epoch`` under which its topic may be written to.
    granted: object = None

    @property
    def is_by_id(self) -> bool:
        """Whether the request names the topic by its id."""
        return self.version >= _FIRST_WITH_TOPIC_IDS

    def response(
        self, correlation_id: int, partition: int, placed: tuple[int, int, int], wait_ms: int = 0
    ) -> bytes:
        """Return the response to a produce without an error.

        ``placed`` is as ``PendingProduce.placed`` returns it. ``wait_ms``: how long the client has to wait.
        """
        frame = bytearray(self.template)
        _SIZE.pack_into(frame, 4, correlation_id)
        _SIZE.pack_into(frame, self.partition_position, partition)
        _OFFSETS.pack_into(frame, self.position, *placed)
        if wait_ms:
            _SIZE.pack_into(frame, self.wait_position, wait_ms)
        return bytes(frame)


class Routes:
    """The routes of one connection."""

    __slots__ = ("_by_prefix", "_learning", "_lengths")

    def __init__(self) -> None:
        self._by_prefix: dict[bytes, Route] = {}
        # Bytes before the records in the last requests: most likely those of the next, too. The latest comes first.
        self._lengths: list[int] = []
        self._learning = RouteLearning()

    @property
    def remembered(self) -> int:
        return len(self._by_prefix)

    def match(self, frame: memoryview, request_timeout_ms: int) -> tuple[Route, int, memoryview] | None:
        """Return a request's route, its partition and its records.

        None for the generic path.
        """
        for length in self._lengths:
            route = self._by_prefix.get(_prefix(frame, length)) if length < len(frame) else None
            if route is not None:
                break
        else:
            if not self._learning.is_due():
                return None
            found = _learn(frame, request_timeout_ms)
            self._learning.note(has_route=found is not None)
            if found is None:
                return None
            route, length = found
            if len(self._by_prefix) >= ROUTES_MAX:
                self._by_prefix.clear()
            self._by_prefix[_prefix(frame, length)] = route
        if not self._lengths or self._lengths[0] != length:
            self._lengths = [length, *(other for other in self._lengths if other != length)][:LENGTHS_MAX]
        (partition,) = _SIZE.unpack_from(frame, length - _SIZE.size)
        records = _records(frame, length, flexible=route.is_flexible)
        return None if records is None or partition < 0 else (route, partition, records)


def _prefix(frame: memoryview, length: int) -> bytes:
    """Return the bytes before the partition without the correlation id.

    The records begin at ``length``, after the partition.
    """
    return bytes(frame[:4]) + frame[REQUEST_BYTES_MIN : length - _SIZE.size]


def _learn(frame: memoryview, request_timeout_ms: int) -> tuple[Route, int] | None:
    """Decode a request on the generic path.

    Return its route and the bytes before the length of the records.
    """
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if not FIRST_VERSION <= version <= PRODUCE_API.versions[1]:
        return None
    flexible = PRODUCE_API.is_flexible(version)
    try:
        client_id, start = read_client_id(frame, flexible=flexible)
        # A request for one partition has few elements.
        request: ProduceRequest | None = in_one_step(PRODUCE_API.read_request_in_steps(version, frame, start))
    except MalformedMessage:
        # The generic path says what is wrong.
        return None
    if request is None or request.transactional_id is not None or request.acks not in (Acks.ALL, Acks.LEADER):
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    if data.index < 0 or data.records is None:
        return None
    data.records = b""
    body = bytearray()
    writer(ProduceRequest, version, flexible)(request, body)
    # What follows are the length of the records, and in flexible versions three empty sections of tagged fields.
    del body[-4:]
    if bytes(frame[start : start + len(body)]) != bytes(body):
        # The client writes its numbers in another way, so the position of the records is not known.
        return None
    length = start + len(body)
    if length > PREFIX_BYTES_MAX:
        return None
    template, positions = _template(topic.name, topic.topic_id, version, flexible=flexible)
    route = Route(
        version=version,
        topic=topic.name,
        topic_id=topic.topic_id,
        acks=Acks(request.acks),
        timeout_ms=max(1, min(request.timeout_ms, request_timeout_ms)),
        client_id=client_id,
        is_flexible=flexible,
        template=template,
        position=positions[0],
        partition_position=positions[1],
        wait_position=positions[2],
    )
    return route, length


def _template(
    name: str, topic_id: bytes, version: int, *, flexible: bool
) -> tuple[bytes, tuple[int, int, int]]:
    """Return a response with marked numbers, and three positions.

    Of the offsets, of the partition, and of the client's wait.
    """
    base_offset, log_append_time_ms, log_start_offset = _MARKED
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=_MARKED_PARTITION,
                        error_code=ErrorCode.NONE,
                        base_offset=base_offset,
                        log_append_time_ms=log_append_time_ms,
                        log_start_offset=log_start_offset,
                    )
                ],
            )
        ],
        throttle_time_ms=_MARKED_WAIT,
    )
    frame = response_head(0, flexible=flexible)
    writer(ProduceResponse, version, flexible)(response, frame)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    # The last ones: a name has letters, digits and '._-' only, but the topic may not exist.
    wait_position = frame.rindex(_SIZE.pack(_MARKED_WAIT))
    _SIZE.pack_into(frame, wait_position, 0)
    position = frame.rindex(_OFFSETS.pack(*_MARKED))
    return bytes(frame), (position, frame.rindex(_SIZE.pack(_MARKED_PARTITION), 0, position), wait_position)


def _records(frame: memoryview, length: int, *, flexible: bool) -> memoryview | None:
    """Return the records after the first ``length`` bytes of ``frame``.

    None if the generic path must look at them.
    """
    end = len(frame)
    try:
        if flexible:
            size, start = read_varint(frame, length)
            size -= 1
            end -= len(_NO_TAGS)
            if bytes(frame[end:]) != _NO_TAGS:
                return None
        else:
            (size,) = _SIZE.unpack_from(frame, length)
            start = length + _SIZE.size
    except (MalformedMessage, IndexError, struct.error):
        return None
    if size < _BATCH_BYTES_MIN or start + size != end:
        return None
    records = frame[start:end]
    if records[_MAGIC_POSITION] != _MAGIC_V2 or records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL:
        return None
    return records
