"""The short way of the commonest fetch.

A Fetch of one partition, in a session or without one. Its batches are at hand, or are appended while it waits.

A consumer sends the same request again and again: all its bytes are the same, except the correlation id, the session
with its epoch, and the offset. The first such request is decoded, and its bytes without those are kept with their
meaning (a *route*) and with the bytes of the response before the records. A later request is recognized by comparing
bytes, and its response is a copy in which a few numbers are filled in. The generic writer makes that response, so
both ways give the same bytes.

Whatever is anything else takes the generic way (``handlers.fetch``): several partitions, sessions that begin, end or
have news of another partition, requests that get no records in their time or must wait for a disk, reads that contain
aborted transactions, old formats, and every error. Nothing has happened when a request is left to it, unless it has
waited: its session has taken it then, and the time that it may wait is shorter.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.schema import MalformedMessage, writer
from stele.wire.schema.varints import varint

from ...broker.broker import Broker
from ...broker.fetch import Fetched, PartitionFetch, needs_more
from ...security.acl import READ_TOPIC
from ...security.authorizer import Access
from ..response_queue import Buffers
from .direct_charge import DirectCharge
from .fetch_sessions import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION_ID,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
)
from .handlers.fetch import isolation_of
from .handlers.leader_epoch import check_leader_epoch
from .headers import REQUEST_BYTES_MIN, SIZE, read_client_id, response_head
from .route_learning import RouteLearning
from .schemas.fetch import (
    API,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

# The first with batches of the format on disk.
FIRST_VERSION = 4
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_TOPIC_IDS = 13
# A connection that fetches more partitions than these in turn forgets all routes, and decodes again.
ROUTES_MAX = 256
# Names of topics and clients that are longer than usual take the generic way, so a connection keeps little.
REQUEST_BYTES_MAX = 1024
_SESSION = struct.Struct(">ii")
_OFFSET = struct.Struct(">q")
_OFFSETS = {2: struct.Struct(">qq"), 3: struct.Struct(">qqq")}
# Numbers that nothing else in a message looks like; they are where the numbers will be.
_MARKED = (0x1A2B3C4D5E6F7081, 0x1A2B3C4D5E6F7082, 0x1A2B3C4D5E6F7083)
_MARKED_SESSION = (0x1A2B3C4D, 0x1A2B3C4E)
# After the records of a flexible version: the empty tagged fields of partition, topic and response.
_NO_TAGS = b"\0\0\0"
# Correlation id; throttle time and error stand before the session id.
_CORRELATION_POSITION, _SESSION_AFTER_HEAD = 4, 6


@dataclass(slots=True)
class Layout:
    """Where the numbers of requests of one length are.

    ``session`` and ``session_end`` are equal in versions without sessions.
    """

    session: int
    session_end: int
    offset: int

    def key(self, frame: memoryview) -> bytes:
        """Return the bytes of a request without its numbers."""
        return b"".join(
            (
                frame[:_CORRELATION_POSITION],
                frame[REQUEST_BYTES_MIN : self.session],
                frame[self.session_end : self.offset],
                frame[self.offset + _OFFSET.size :],
            )
        )


@dataclass(slots=True)
class Route:
    """The meaning of a request without its numbers, and a template of the response."""

    client_id: str
    # Empty if the request names the topic by its id.
    topic: str
    topic_id: bytes
    is_by_id: bool
    partition: int
    leader_epoch: int
    partition_bytes_max: int
    bytes_max: int
    bytes_min: int
    wait_ms_max: int
    isolation: IsolationLevel
    is_flexible: bool
    # The frame of a response before the size of its records; the position of ``throttle_time_ms``, and that of the
    # session, -1 where it has none.
    template: bytes
    wait_position: int
    session_position: int
    offsets: struct.Struct
    offsets_position: int
    # The ``Access.epoch`` under which its topic may be read.
    granted: object = None

    @property
    def key(self) -> PartitionKey:
        return (self.topic_id if self.is_by_id else self.topic), self.partition

    def response(
        self, correlation_id: int, session_id: int, read: Fetched, wait_ms: int = 0
    ) -> list[bytes | bytearray]:
        """Return the whole frame of the response with the batches of ``read``.

        ``wait_ms``: how long the client has to wait.
        """
        batches = read.batches
        head = bytearray(self.template)
        SIZE.pack_into(head, _CORRELATION_POSITION, correlation_id)
        if wait_ms:
            SIZE.pack_into(head, self.wait_position, wait_ms)
        if self.session_position >= 0:
            SIZE.pack_into(head, self.session_position, session_id)
        numbers = read.high_watermark, read.last_stable_offset, read.log_start_offset
        self.offsets.pack_into(head, self.offsets_position, *numbers[: self.offsets.size // _OFFSET.size])
        if self.is_flexible:
            head += varint(len(batches) + 1)
            SIZE.pack_into(head, 0, len(head) + len(batches) + len(_NO_TAGS) - SIZE.size)
            return [head, batches, _NO_TAGS]
        head += SIZE.pack(len(batches))
        SIZE.pack_into(head, 0, len(head) + len(batches) - SIZE.size)
        return [head, batches]


class Routes:
    """The routes of one connection."""

    __slots__ = ("_by_key", "_layouts", "_learning")

    def __init__(self) -> None:
        self._by_key: dict[bytes, Route] = {}
        self._layouts: dict[int, Layout] = {}
        self._learning = RouteLearning()

    @property
    def remembered(self) -> int:
        return len(self._by_key)

    def match(self, frame: memoryview) -> tuple[Route, Layout] | None:
        """Return a request's route and where its numbers are, or None for the generic way."""
        layout = self._layouts.get(len(frame))
        if layout is not None:
            route = self._by_key.get(layout.key(frame))
            if route is not None:
                return route, layout
        if not self._learning.is_due():
            return None
        found = _learn(frame)
        self._learning.note(has_route=found is not None)
        if found is None:
            return None
        if len(self._by_key) >= ROUTES_MAX or (layout is not None and layout != found[1]):
            # A key means nothing without its layout.
            self._by_key.clear()
            self._layouts.clear()
        self._layouts[len(frame)] = found[1]
        self._by_key[found[1].key(frame)] = found[0]
        return found


@dataclass(slots=True)
class DirectFetch:
    """A request of a route, from its first look at the log to its response.

    ``session`` is the one that it is for, with the ``epoch`` that the session has as long as no other request has
    come. The request may return ``bytes_max`` bytes, and waits for ``bytes_min`` of them until ``deadline_ms``.
    """

    broker: Broker
    sessions: FetchSessionCache
    route: Route
    session: FetchSession | None
    epoch: int
    bytes_max: int
    bytes_min: int
    deadline_ms: int
    # What the last look has asked for.
    wanted: PartitionFetch

    @property
    def left_ms(self) -> int:
        """How long it may wait."""
        return 0 if self.broker.is_closing else self.deadline_ms - self.broker.monotonic_ms()

    def look(self, access: Access | None) -> Fetched | None:
        """Check the request against what holds now, and read.

        None if it must take the generic way.
        """
        route, broker, session = self.route, self.broker, self.session
        name = route.topic
        if route.is_by_id:
            topic = broker.topic_by_id(route.topic_id)
            if topic is None:
                return None
            name = topic.name
        if access is not None and route.granted is not access.epoch:
            if not access.was_allowed(READ_TOPIC, name):
                return None
            route.granted = access.epoch
        if check_leader_epoch(broker, name, route.partition, route.leader_epoch):
            return None
        if session is not None and (
            session.epoch != self.epoch or session.is_over or not session.has_news_only_of(route.key, name)
        ):
            return None
        wanted = self.wanted
        wanted.topic = name
        read = broker.fetch_now(wanted, max_bytes=self.bytes_max)
        return None if read is None or read.aborted else read

    def needs_more(self, read: Fetched) -> bool:
        return needs_more((self.wanted,), (read,), self.bytes_min)

    def take(self) -> bool:
        """Let the session take the request.

        False if the generic way must refuse it.
        """
        session, route = self.session, self.route
        if session is None:
            return True
        if self.sessions.is_over_full:
            return False
        partition = FetchedPartition(
            topic=self.wanted.topic,
            topic_id=route.topic_id,
            index=route.partition,
            offset=self.wanted.offset,
            max_bytes=route.partition_bytes_max,
            leader_epoch=route.leader_epoch,
            is_by_id=route.is_by_id,
        )
        taken = self.sessions.take(
            session_id=session.id,
            epoch=self.epoch,
            uses_topic_ids=route.is_by_id,
            requested={route.key: partition},
            forgotten=(),
            now_ms=self.broker.monotonic_ms(),
        )
        assert taken.session is session
        self.epoch = session.epoch
        return True

    async def wait(self, read: Fetched) -> None:
        """Wait for more than ``read``, the result of the last look."""
        missing_bytes = self.bytes_min - len(read.batches)
        if self.session is not None:
            await self.session.watch.wait(min_bytes=missing_bytes, timeout_ms=self.left_ms)
        else:
            await self.broker.wait_for_more(
                (self.wanted,), (read,), min_bytes=missing_bytes, timeout_ms=self.left_ms
            )

    def response(self, correlation_id: int, read: Fetched, charge: DirectCharge | None) -> Buffers:
        """Return the response with the batches of ``read``, after ``take``."""
        session = self.session
        if session is not None:
            session.settle(
                session.partition(self.route.key),
                has_records=True,
                is_error=False,
                high_watermark=read.high_watermark,
                log_start_offset=read.log_start_offset,
            )
        self.broker.counts.fetched_bytes += len(read.batches)
        wait_ms = 0 if charge is None else charge.fetched(len(read.batches))
        session_id = NO_SESSION_ID if session is None else session.id
        return self.route.response(correlation_id, session_id, read, wait_ms)


def begin_fetch(
    broker: Broker,
    sessions: FetchSessionCache,
    route: Route,
    layout: Layout,
    frame: memoryview,
    charge: DirectCharge | None,
) -> DirectFetch | None:
    """Return the request of this route in ``frame``.

    None if it must take the generic way.
    """
    bytes_max: int | None = route.bytes_max
    if charge is not None:
        consume = charge.consume
        bytes_max = consume.meter.free_bytes_max(route.bytes_max)
        if bytes_max is None:
            bytes_max = consume.bytes_max(route.bytes_max)
            if bytes_max is None:
                return None
    session, epoch = None, FINAL_EPOCH
    if layout.session != layout.session_end:
        session_id, epoch = _SESSION.unpack_from(frame, layout.session)
        if epoch == NEW_SESSION_EPOCH or (epoch == FINAL_EPOCH and session_id != NO_SESSION_ID):
            return None
        if epoch != FINAL_EPOCH:
            session = sessions.find(session_id, epoch, uses_topic_ids=route.is_by_id)
            if session is None or session.watch.isolation is not route.isolation:
                return None
    (offset,) = _OFFSET.unpack_from(frame, layout.offset)
    settings = broker.settings
    bytes_max = min(bytes_max, settings.fetch_bytes_max)
    return DirectFetch(
        broker,
        sessions,
        route,
        session,
        epoch,
        bytes_max,
        min(route.bytes_min, bytes_max),
        broker.monotonic_ms() + min(route.wait_ms_max, settings.fetch_wait_ms_max),
        PartitionFetch(
            topic=route.topic,
            partition=route.partition,
            offset=offset,
            max_bytes=route.partition_bytes_max,
            isolation=route.isolation,
        ),
    )


# ── learning a route ──


def _learn(frame: memoryview) -> tuple[Route, Layout] | None:
    """Decode a request in the generic way, and return its route and layout."""
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if not FIRST_VERSION <= version <= API.versions[1] or len(frame) > REQUEST_BYTES_MAX:
        return None
    flexible = API.is_flexible(version)
    try:
        client_id, start = read_client_id(frame, flexible=flexible)
        request: FetchRequest = API.read_request(version, frame, start)
    except MalformedMessage:
        # The generic way says what is wrong.
        return None
    if request.forgotten_topics_data or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    (topic,) = request.topics
    (partition,) = topic.partitions
    if partition.partition < 0:
        return None
    layout = _layout(request, version, frame, start, flexible=flexible)
    if layout is None:
        return None
    is_by_id = version >= _FIRST_WITH_TOPIC_IDS
    isolation = isolation_of(request)
    offsets = _OFFSETS[2 if version < _FIRST_WITH_LOG_START else 3]
    template = _template(topic.topic, topic.topic_id, partition.partition, version, isolation)
    head_bytes = len(response_head(0, flexible=flexible))
    route = Route(
        client_id=client_id,
        topic="" if is_by_id else topic.topic,
        topic_id=topic.topic_id,
        is_by_id=is_by_id,
        partition=partition.partition,
        leader_epoch=partition.current_leader_epoch,
        partition_bytes_max=max(0, partition.partition_max_bytes),
        bytes_max=max(0, request.max_bytes),
        bytes_min=request.min_bytes,
        wait_ms_max=max(0, request.max_wait_ms),
        isolation=isolation,
        is_flexible=flexible,
        template=template,
        wait_position=head_bytes,
        session_position=-1 if version < _FIRST_WITH_SESSIONS else head_bytes + _SESSION_AFTER_HEAD,
        offsets=offsets,
        # The last one: a name has letters, digits and '._-' only, but the topic may not exist.
        offsets_position=template.rindex(offsets.pack(*_MARKED[: offsets.size // _OFFSET.size])),
    )
    return route, layout


def _layout(
    request: FetchRequest, version: int, frame: memoryview, start: int, *, flexible: bool
) -> Layout | None:
    """Return where the numbers of ``request`` are.

    None if its client writes it in another way. ``request`` is overwritten.
    """
    write = writer(FetchRequest, version, flexible)
    partition = request.topics[0].partitions[0]
    marked = bytearray()
    request.session_id, request.session_epoch = _MARKED_SESSION
    partition.fetch_offset = _MARKED[0]
    write(request, marked)
    offset = start + marked.rindex(_OFFSET.pack(_MARKED[0]))
    session = session_end = offset
    if version >= _FIRST_WITH_SESSIONS:
        session = start + marked.index(_SESSION.pack(*_MARKED_SESSION))
        session_end = session + _SESSION.size
    layout = Layout(session, session_end, offset)
    # All but the numbers are the same.
    written = memoryview(bytes(frame[:start]) + marked)
    is_usual = len(written) == len(frame) and layout.key(written) == layout.key(frame)
    return layout if is_usual else None


def _template(name: str, topic_id: bytes, partition: int, version: int, isolation: IsolationLevel) -> bytes:
    """Return the frame of a response with marked offsets.

    It ends before the size of the records.
    """
    flexible = API.is_flexible(version)
    high_watermark, last_stable_offset, log_start_offset = _MARKED
    data = PartitionData(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=() if isolation is IsolationLevel.READ_COMMITTED else None,
        records=b"",
    )
    topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[data])
    frame = response_head(0, flexible=flexible)
    writer(FetchResponse, version, flexible)(FetchResponse(responses=[topic]), frame)
    end = b"\1" + _NO_TAGS if flexible else SIZE.pack(0)
    assert frame.endswith(end)
    return bytes(frame[: -len(end)])
