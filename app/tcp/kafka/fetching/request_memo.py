"""Remember how the fetches of a connection were decoded.

A consumer sends the same request again and again: all its bytes are the same, except the correlation id, the session
with its epoch, and the offsets. So a request is decoded once, and recognized by its other bytes from then on; only its
numbers are read. What that saves is in ``docs/notes/performance.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest
from stele.wire.kafka.headers import REQUEST_BYTES_MIN, SIZE, read_client_id
from stele.wire.schema import MalformedMessage, writer

from ..route_learning import RouteLearning
from ..sessions.fetch_sessions import FINAL_EPOCH, NO_SESSION_ID
from .requests import FIRST_WITH_SESSIONS, PARTITIONS_MAX

# A connection with more requests than these in turn, or more sets of partitions, forgets all, and decodes again.
REQUESTS_MAX = 256
# Consumers that name their partitions in turn in another order have several layouts of one length, one for each
# topic that may come first.
LAYOUTS_MAX = 16
# Names of topics and clients that are longer than usual are decoded each time, so a connection keeps little.
REQUEST_BYTES_MAX = 1024
_SESSION_BYTES = 8
_OFFSET = struct.Struct(">q")
_SESSION = struct.Struct(">ii")
# Numbers that nothing else in a message looks like; they are where the numbers will be.
_MARK = 0x1A2B3C4D5E6F7000
_MARKED_SESSION = (0x1A2B3C4D, 0x1A2B3C4E)
_CORRELATION_POSITION = 4


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


@dataclass(frozen=True, slots=True)
class _Known:
    client_id: str
    request: FetchRequest
    partitions: list[FetchPartition]


class RequestMemo:
    """The requests that one connection has sent."""

    __slots__ = ("_by_key", "_credit", "_layouts", "_learning")

    def __init__(self) -> None:
        self._by_key: dict[tuple[bytes, ...], _Known] = {}
        self._layouts: dict[int, list[Layout]] = {}
        self._learning = RouteLearning()
        # How many requests may be remembered before one matches: a client that names another set of partitions in each
        # must not cost more than without.
        self._credit = REQUESTS_MAX

    @property
    def remembered(self) -> int:
        return len(self._by_key)

    def read(self, frame: memoryview) -> tuple[str, FetchRequest] | None:
        """Return the client id and the request of ``frame``; None if it must be decoded.

        The request is overwritten by the next one that is the same but for its numbers.
        """
        for layout in self._layouts.get(len(frame), ()):
            known = self._by_key.get(layout.key(frame))
            if known is not None:
                self._credit += 1
                request = known.request
                if layout.session >= 0:
                    request.session_id, request.session_epoch = _SESSION.unpack_from(frame, layout.session)
                for partition, offset in zip(known.partitions, layout.offsets_of(frame), strict=True):
                    partition.fetch_offset = offset
                return known.client_id, request
        if self._learning.is_due():
            self._learn(frame)
        return None

    def _learn(self, frame: memoryview) -> None:
        layout, known = _learn(frame) or (None, None)
        self._credit = min(self._credit, REQUESTS_MAX) - 1
        self._learning.note(has_route=known is not None and self._credit > 0)
        if layout is None or known is None:
            return
        layouts = self._layouts.get(len(frame), ())
        is_new = layout not in layouts
        if len(self._by_key) >= REQUESTS_MAX or (is_new and len(layouts) >= LAYOUTS_MAX):
            self._by_key.clear()
            self._layouts.clear()
            is_new = True
        if is_new:
            self._layouts.setdefault(len(frame), []).append(layout)
        self._by_key[layout.key(frame)] = known


def _learn(frame: memoryview) -> tuple[Layout, _Known] | None:
    """Decode a request, and return it with its layout."""
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if len(frame) > REQUEST_BYTES_MAX:
        return None
    flexible = FETCH_API.is_flexible(version)
    try:
        client_id, start = read_client_id(frame, flexible=flexible)
        request: FetchRequest = FETCH_API.read_request(version, frame, start)
    except MalformedMessage:
        # The codec says what is wrong.
        return None
    for topic in request.topics:
        topic.partitions = list(topic.partitions)
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    if request.forgotten_topics_data or not 0 < len(partitions) <= PARTITIONS_MAX:
        return None
    layout = _layout(request, partitions, version, frame, start, flexible=flexible)
    return None if layout is None else (layout, _Known(client_id, request, partitions))


def _layout(
    request: FetchRequest,
    partitions: list[FetchPartition],
    version: int,
    frame: memoryview,
    start: int,
    *,
    flexible: bool,
) -> Layout | None:
    """Return where the numbers of ``request`` are.

    None if its client writes it in another way. The numbers are overwritten.
    """
    marks: list[bytes] = []
    request.session_id, request.session_epoch = _MARKED_SESSION
    for partition in partitions:
        partition.fetch_offset = _MARK + len(marks)
        marks.append(_OFFSET.pack(partition.fetch_offset))
    written = bytearray(frame[:start])
    writer(FetchRequest, version, flexible)(request, written)
    if len(written) != len(frame) or any(written.count(mark, start) != 1 for mark in marks):
        return None
    session = -1
    if version >= FIRST_WITH_SESSIONS:
        session = written.index(b"".join(map(SIZE.pack, _MARKED_SESSION)), start)
    else:
        # As the codec has them where there are none.
        request.session_id, request.session_epoch = NO_SESSION_ID, FINAL_EPOCH
    layout = Layout(len(frame), session, tuple(written.index(mark, start) for mark in marks))
    # All but the numbers are the same.
    return layout if layout.key(memoryview(written)) == layout.key(frame) else None
