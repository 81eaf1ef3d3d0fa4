"""Recognize fetches of the fast path by their bytes, and make their responses.

``direct_fetch`` serves them.

A consumer sends the same request again and again: all its bytes are the same, except the correlation id, the session
with its epoch, and the offsets. The first such request is decoded, and its bytes without those are kept with their
meaning (a *route*) and with the bytes of the response around the records. A later request is recognized by comparing
bytes, and its response is a copy in which a few numbers are filled in. The generic writer makes that response, so
both ways give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.schema import MalformedMessage, writer
from stele.wire.schema.varints import varint

from ....broker.reading.fetch import Fetched
from ..handlers.fetch_requests import (
    FIRST_WITH_LOG_START,
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
    isolation_of,
)
from ..headers import REQUEST_BYTES_MIN, SIZE, read_client_id, response_head
from ..route_learning import RouteLearning
from ..schemas.fetch import (
    FETCH_API,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ..sessions.fetch_sessions import FINAL_EPOCH, PartitionKey

# The first with batches of the format on disk.
FIRST_VERSION = 4
# A connection that fetches more partitions than these in turn, or more sets of them, forgets all routes, and decodes
# again.
ROUTES_MAX = 256
# Consumers that name their partitions in turn in another order have several layouts of one length, one for each
# topic that may come first.
LAYOUTS_MAX = 16
# All are looked at without a pause, and each takes some µs.
PARTITIONS_MAX = 16
# Names of topics and clients that are longer than usual take the generic path, so a connection keeps little.
REQUEST_BYTES_MAX = 1024
_SESSION_BYTES = 8
_OFFSET = struct.Struct(">q")
_OFFSETS = {2: struct.Struct(">qq"), 3: struct.Struct(">qqq")}
# Numbers that nothing else in a message looks like; they are where the numbers and the records will be.
_MARK = 0x1A2B3C4D5E6F7000
_MARKED_SESSION = (0x1A2B3C4D, 0x1A2B3C4E)
_MARKED_RECORDS = b"\x1a\x2brecords"
# Correlation id; throttle time and error stand before the session id.
_CORRELATION_POSITION, _SESSION_AFTER_HEAD = 4, 6


@dataclass(slots=True)
class Layout:
    """Where the numbers of requests of one length are.

    ``session`` is -1 in versions without sessions. ``key`` returns the bytes of a request without its numbers, and
    ``offsets_of`` its offsets.
    """

    size: int
    session: int
    offsets: tuple[int, ...]
    key: Callable[[memoryview], tuple[bytes, ...]] = field(init=False, compare=False)
    offsets_of: Callable[[memoryview], tuple[int, ...]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        numbers = [(_CORRELATION_POSITION, REQUEST_BYTES_MIN)]
        if self.session >= 0:
            numbers.append((self.session, self.session + _SESSION_BYTES))
        numbers += [(position, position + _OFFSET.size) for position in self.offsets]
        self.key = _fields(self.size, numbers, between="s", inside="x").unpack
        self.offsets_of = _fields(self.size, numbers[-len(self.offsets) :], between="x", inside="q").unpack


def _fields(size: int, numbers: Iterable[tuple[int, int]], *, between: str, inside: str) -> struct.Struct:
    """Return what unpacks a request of ``size`` bytes.

    ``numbers`` stand from one position to another.
    """
    layout, end = ">", 0
    for begin, after in numbers:
        layout += f"{begin - end}{between}" + (inside if inside == "q" else f"{after - begin}{inside}")
        end = after
    return struct.Struct(f"{layout}{size - end}{between}")


@dataclass(slots=True)
class RoutedPartition:
    """A partition of a request of a route."""

    # Empty if the request names the topic by its id.
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    bytes_max: int
    # What stands in a response before the size of its records, after those of the partition before it; and where the
    # offsets are in it.
    template: bytes
    offsets_position: int


@dataclass(slots=True)
class Route:
    """The meaning of a request without its numbers, and a template of the response."""

    client_id: str
    is_by_id: bool
    partitions: Sequence[RoutedPartition]
    bytes_max: int
    bytes_min: int
    wait_ms_max: int
    isolation: IsolationLevel
    is_flexible: bool
    # The position of ``throttle_time_ms`` in a response, and that of the session, -1 where it has none.
    wait_position: int
    session_position: int
    offsets: struct.Struct
    # What follows the records of the last partition.
    end: bytes
    # The ``Access.epoch`` under which its topics may be read.
    granted: object = None

    def key(self, partition: RoutedPartition) -> PartitionKey:
        return (partition.topic_id if self.is_by_id else partition.topic), partition.partition

    def response(
        self, correlation_id: int, session_id: int, reads: Sequence[Fetched], wait_ms: int = 0
    ) -> list[bytes | bytearray]:
        """Return the whole frame of the response with the batches of ``reads``.

        There is one read for each partition.

        ``wait_ms``: how long the client has to wait.
        """
        first = head = bytearray()
        parts: list[bytes | bytearray] = []
        size = len(self.end) - SIZE.size
        has_log_start = self.offsets.size == _OFFSETS[3].size
        for partition, read in zip(self.partitions, reads, strict=True):
            position = len(head) + partition.offsets_position
            head += partition.template
            if has_log_start:
                self.offsets.pack_into(
                    head, position, read.high_watermark, read.last_stable_offset, read.log_start_offset
                )
            else:
                self.offsets.pack_into(head, position, read.high_watermark, read.last_stable_offset)
            batches = read.batches
            count = len(batches)
            head += varint(count + 1) if self.is_flexible else SIZE.pack(count)
            if count:
                parts.append(head)
                parts.append(batches)
                size += len(head) + count
                head = bytearray()
        size += len(head)
        head += self.end
        if head:
            parts.append(head)
        SIZE.pack_into(first, 0, size)
        SIZE.pack_into(first, _CORRELATION_POSITION, correlation_id)
        if wait_ms:
            SIZE.pack_into(first, self.wait_position, wait_ms)
        if self.session_position >= 0:
            SIZE.pack_into(first, self.session_position, session_id)
        return parts


class Routes:
    """The routes of one connection."""

    __slots__ = ("_by_key", "_credit", "_layouts", "_learning")

    def __init__(self) -> None:
        self._by_key: dict[tuple[bytes, ...], Route] = {}
        self._layouts: dict[int, list[Layout]] = {}
        self._learning = RouteLearning()
        # How many routes may be learned before one matches: a client that names another set of partitions in each
        # request must not cost more than the generic path.
        self._credit = ROUTES_MAX

    @property
    def remembered(self) -> int:
        return len(self._by_key)

    def match(self, frame: memoryview) -> tuple[Route, Layout] | None:
        """Return a request's route and where its numbers are, or None for the generic path."""
        layouts = self._layouts.get(len(frame), ())
        for layout in layouts:
            route = self._by_key.get(layout.key(frame))
            if route is not None:
                self._credit += 1
                return route, layout
        if not self._learning.is_due():
            return None
        found = _learn(frame)
        self._credit = min(self._credit, ROUTES_MAX) - 1
        self._learning.note(has_route=found is not None and self._credit > 0)
        if found is None:
            return None
        route, layout = found
        is_new = layout not in layouts
        if len(self._by_key) >= ROUTES_MAX or (is_new and len(layouts) >= LAYOUTS_MAX):
            self._by_key.clear()
            self._layouts.clear()
            is_new = True
        if is_new:
            self._layouts.setdefault(len(frame), []).append(layout)
        self._by_key[layout.key(frame)] = route
        return found


# ── learning a route ──


def _learn(frame: memoryview) -> tuple[Route, Layout] | None:
    """Decode a request on the generic path, and return its route and layout."""
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if not FIRST_VERSION <= version <= FETCH_API.versions[1] or len(frame) > REQUEST_BYTES_MAX:
        return None
    flexible = FETCH_API.is_flexible(version)
    try:
        client_id, start = read_client_id(frame, flexible=flexible)
        request: FetchRequest = FETCH_API.read_request(version, frame, start)
    except MalformedMessage:
        # The generic path says what is wrong.
        return None
    named = _named(request)
    if named is None:
        return None
    isolation = isolation_of(request)
    offsets = _OFFSETS[2 if version < FIRST_WITH_LOG_START else 3]
    is_by_id = version >= FIRST_WITH_TOPIC_IDS
    templates = _templates(request.topics, version, isolation, offsets)
    # It overwrites the request.
    layout = _layout(request, version, frame, start, flexible=flexible)
    if templates is None or layout is None:
        return None
    head_bytes = len(response_head(0, flexible=flexible))
    *before, end = templates
    route = Route(
        client_id=client_id,
        is_by_id=is_by_id,
        partitions=[
            RoutedPartition(
                topic="" if is_by_id else topic.topic,
                topic_id=topic.topic_id,
                partition=partition.partition,
                leader_epoch=partition.current_leader_epoch,
                bytes_max=max(0, partition.partition_max_bytes),
                template=template,
                offsets_position=template.index(_marked_offsets(number, offsets)),
            )
            for number, ((topic, partition), template) in enumerate(zip(named, before, strict=True))
        ],
        bytes_max=max(0, request.max_bytes),
        bytes_min=request.min_bytes,
        wait_ms_max=max(0, request.max_wait_ms),
        isolation=isolation,
        is_flexible=flexible,
        wait_position=head_bytes,
        session_position=-1 if version < FIRST_WITH_SESSIONS else head_bytes + _SESSION_AFTER_HEAD,
        offsets=offsets,
        end=end,
    )
    return route, layout


def _named(request: FetchRequest) -> list[tuple[FetchTopic, FetchPartition]] | None:
    """Return the partitions of ``request``.

    None if the generic path would answer others, or in another order.
    """
    named = [(topic, partition) for topic in request.topics for partition in topic.partitions]
    if request.forgotten_topics_data or not 0 < len(named) <= PARTITIONS_MAX:
        return None
    if len(named) > 1 and request.session_epoch != FINAL_EPOCH:
        return None
    topics = {(topic.topic, topic.topic_id) for topic in request.topics if topic.partitions}
    partitions = {(topic.topic, topic.topic_id, partition.partition) for topic, partition in named}
    is_usual = len(topics) == len(request.topics) and len(partitions) == len(named)
    return named if is_usual and all(partition.partition >= 0 for _, partition in named) else None


def _layout(
    request: FetchRequest, version: int, frame: memoryview, start: int, *, flexible: bool
) -> Layout | None:
    """Return where the numbers of ``request`` are.

    None if its client writes it in another way. ``request`` is overwritten.
    """
    marks: list[bytes] = []
    request.session_id, request.session_epoch = _MARKED_SESSION
    for topic in request.topics:
        for partition in topic.partitions:
            partition.fetch_offset = _MARK + len(marks)
            marks.append(_OFFSET.pack(partition.fetch_offset))
    written = bytearray(frame[:start])
    writer(FetchRequest, version, flexible)(request, written)
    if len(written) != len(frame) or any(written.count(mark, start) != 1 for mark in marks):
        return None
    session = -1
    if version >= FIRST_WITH_SESSIONS:
        session = written.index(b"".join(map(SIZE.pack, _MARKED_SESSION)), start)
    layout = Layout(len(frame), session, tuple(written.index(mark, start) for mark in marks))
    # All but the numbers are the same.
    return layout if layout.key(memoryview(written)) == layout.key(frame) else None


def _templates(
    topics: Sequence[FetchTopic], version: int, isolation: IsolationLevel, offsets: struct.Struct
) -> list[bytes] | None:
    """Return what a response has around the records and their sizes.

    The offsets are marked. None if a name looks like a mark.
    """
    flexible = FETCH_API.is_flexible(version)
    responses: list[FetchableTopicResponse] = []
    marks: list[bytes] = []
    for topic in topics:
        answers: list[PartitionData] = []
        for partition in topic.partitions:
            marks.append(_marked_offsets(len(marks), offsets))
            high_watermark, last_stable_offset, log_start_offset = _marks(len(marks) - 1)
            answers.append(
                PartitionData(
                    partition_index=partition.partition,
                    error_code=ErrorCode.NONE,
                    high_watermark=high_watermark,
                    last_stable_offset=last_stable_offset,
                    log_start_offset=log_start_offset,
                    aborted_transactions=() if isolation is IsolationLevel.READ_COMMITTED else None,
                    records=_MARKED_RECORDS,
                )
            )
        responses.append(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
    frame = response_head(0, flexible=flexible)
    writer(FetchResponse, version, flexible)(FetchResponse(responses=responses), frame)
    size = varint(len(_MARKED_RECORDS) + 1) if flexible else SIZE.pack(len(_MARKED_RECORDS))
    templates = bytes(frame).split(size + _MARKED_RECORDS)
    is_usual = len(templates) == len(marks) + 1 and all(frame.count(mark) == 1 for mark in marks)
    return templates if is_usual else None


def _marks(number: int) -> tuple[int, int, int]:
    """Return the offsets of the partition with this number in a template."""
    mark = _MARK + 3 * number
    return mark, mark + 1, mark + 2


def _marked_offsets(number: int, offsets: struct.Struct) -> bytes:
    return offsets.pack(*_marks(number)[: offsets.size // _OFFSET.size])
