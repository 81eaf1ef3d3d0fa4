"""Cut a Fetch of many partitions into the bytes for each of them (ADR-0061).

Most of such a request is one entry of the same size for each partition. A client that reads a thousand partitions sends
the entry of an idle one unchanged with each request, so what it asks for needs to be understood once (``idle_answers``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from stele.wire.isolation_level import IsolationLevel
from stele.wire.schema import MalformedMessage
from stele.wire.schema.varints import read_varint

from ....broker.topics import NAME_LENGTH_MAX
from ..handlers.fetch_requests import (
    FIRST_WITH_LOG_START,
    FIRST_WITH_REPLICA_STATE,
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
)
from ..headers import read_client_id
from ..schemas.fetch import FETCH_API
from ..sessions.fetch_sessions import FINAL_EPOCH, NO_SESSION_ID
from .fetch_routes import FIRST_VERSION, PARTITIONS_MAX

# Fewer are looked at as quickly one by one.
PARTITIONS_MIN = PARTITIONS_MAX + 1
# All are looked up without a pause.
WIDE_PARTITIONS_MAX = 10_000
_FIRST_WITH_EPOCHS = 9
_FIRST_WITH_RACK = 11
_REPLICA_ID = struct.Struct(">i")
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_UUID_BYTES = 16
_RACK_BYTES_MAX = 1024


class AskedFor(NamedTuple):
    """What an entry asks for; ``leader_epoch`` is -1 if the client knows none."""

    partition: int
    leader_epoch: int
    offset: int
    bytes_max: int


class Entries:
    """The entries of the partitions in one version of Fetch."""

    def __init__(self, version: int) -> None:
        # Skipped: the log start offset of a follower, and the epoch of its last record.
        epochs = version >= _FIRST_WITH_EPOCHS
        last_epoch = "4x" if FETCH_API.is_flexible(version) else ""
        log_start = "8x" if version >= FIRST_WITH_LOG_START else ""
        tags = "B" if FETCH_API.is_flexible(version) else ""
        self._fields = struct.Struct(f">i{'i' if epochs else ''}q{last_epoch}{log_start}i{tags}")
        self._cut = struct.Struct(f"{self._fields.size}s")
        self._has_epochs, self._has_tags = epochs, bool(tags)
        self.size = self._fields.size

    def cut(self, data: memoryview) -> list[bytes]:
        """Cut ``data``, whose size is a multiple of ``size``."""
        return [entry for (entry,) in self._cut.iter_unpack(data)]

    def read(self, entry: bytes) -> AskedFor | None:
        """Return what an entry asks for.

        None if it has tagged fields, and so is none.
        """
        fields = self._fields.unpack(entry)
        if self._has_tags and fields[-1]:
            return None
        if self._has_epochs:
            return AskedFor(fields[0], fields[1], fields[2], fields[3])
        return AskedFor(fields[0], -1, fields[1], fields[2])


ENTRIES = {version: Entries(version) for version in range(FIRST_VERSION, FETCH_API.versions[1] + 1)}


@dataclass(frozen=True, slots=True)
class Block:
    """Partitions of one topic that stand together in a request.

    ``head`` are the bytes before them, which are the same in the response: the topic and how many they are.
    """

    # Empty if the request names the topic by its id.
    topic: str
    topic_id: bytes
    head: bytes
    entries: list[bytes]

    @property
    def key(self) -> str | bytes:
        """The topic as it is named."""
        return self.topic or self.topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WideRequest:
    """A Fetch of ``PARTITIONS_MIN`` partitions or more, without a session.

    No two entries are the same. ``topics_head`` are the bytes before the blocks, the same in the response, and
    ``named`` has all entries of a topic.
    """

    version: int
    client_id: str
    isolation: IsolationLevel
    bytes_max: int
    bytes_min: int
    wait_ms_max: int
    topics_head: bytes
    blocks: list[Block]
    named: dict[str | bytes, set[bytes]]

    @property
    def is_flexible(self) -> bool:
        return FETCH_API.is_flexible(self.version)

    @property
    def is_by_id(self) -> bool:
        return self.version >= FIRST_WITH_TOPIC_IDS


class _NotWideError(Exception):
    """The request must be decoded."""


def cut(frame: memoryview) -> WideRequest | None:
    """Return the request in ``frame``.

    None if it is anything else, or malformed.
    """
    version = int.from_bytes(frame[2:4], "big", signed=True)
    entries = ENTRIES.get(version)
    if entries is None or len(frame) < PARTITIONS_MIN * entries.size:
        return None
    try:
        return _cut(frame, version, entries)
    except (_NotWideError, MalformedMessage, struct.error, IndexError, UnicodeDecodeError):
        # The generic way serves it, or says what is wrong.
        return None


def _cut(frame: memoryview, version: int, entries: Entries) -> WideRequest:
    flexible = FETCH_API.is_flexible(version)
    client_id, position = read_client_id(frame, flexible=flexible)
    if version < FIRST_WITH_REPLICA_STATE:
        position += _REPLICA_ID.size
    wait_ms_max, bytes_min, bytes_max, isolation = _LIMITS.unpack_from(frame, position)
    position += _LIMITS.size
    if version >= FIRST_WITH_SESSIONS:
        if _SESSION.unpack_from(frame, position) != (NO_SESSION_ID, FINAL_EPOCH):
            raise _NotWideError
        position += _SESSION.size
    topics_at = position
    topics, position = _read_count(frame, position, flexible=flexible)
    topics_head = bytes(frame[topics_at:position])
    blocks: list[Block] = []
    named: dict[str | bytes, set[bytes]] = {}
    partitions, last = 0, None
    for _ in range(topics):
        begin = position
        topic, topic_id, position = _read_topic(frame, position, version)
        count, position = _read_count(frame, position, flexible=flexible)
        head, end = bytes(frame[begin:position]), position + count * entries.size
        partitions += count
        key = topic or topic_id
        if not count or partitions > WIDE_PARTITIONS_MAX or end > len(frame) or key == last:
            # The generic way joins what stands side by side, and leaves out topics without partitions.
            raise _NotWideError
        block = Block(topic, topic_id, head, entries.cut(frame[position:end]))
        entries_of_topic = named.setdefault(key, set())
        before = len(entries_of_topic)
        entries_of_topic.update(block.entries)
        if len(entries_of_topic) != before + count:
            raise _NotWideError
        blocks.append(block)
        position, last = _skip_no_tags(frame, end, flexible=flexible), key
    if partitions < PARTITIONS_MIN or _skip_rest(frame, position, version) != len(frame):
        raise _NotWideError
    is_committed = isolation == IsolationLevel.READ_COMMITTED
    return WideRequest(
        version=version,
        client_id=client_id,
        isolation=IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED,
        bytes_max=max(0, bytes_max),
        bytes_min=bytes_min,
        wait_ms_max=max(0, wait_ms_max),
        topics_head=topics_head,
        blocks=blocks,
        named=named,
    )


def _read_topic(frame: memoryview, position: int, version: int) -> tuple[str, bytes, int]:
    """Return a topic's name, its id, and the position after it."""
    if version >= FIRST_WITH_TOPIC_IDS:
        end = position + _UUID_BYTES
        return "", bytes(frame[position:end]), end
    topic, end = _read_string(frame, position, NAME_LENGTH_MAX, flexible=FETCH_API.is_flexible(version))
    if not topic:
        raise _NotWideError
    return topic, b"", end


def _skip_rest(frame: memoryview, position: int, version: int) -> int:
    """Return the position after what follows the topics.

    Of that only a rack may be given.
    """
    flexible = FETCH_API.is_flexible(version)
    if version >= FIRST_WITH_SESSIONS:
        forgotten, position = _read_count(frame, position, flexible=flexible)
        if forgotten:
            raise _NotWideError
    if version >= _FIRST_WITH_RACK:
        _, position = _read_string(frame, position, _RACK_BYTES_MAX, flexible=flexible)
    return _skip_no_tags(frame, position, flexible=flexible)


def _read_count(frame: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    if not flexible:
        (count,) = _COUNT.unpack_from(frame, position)
        end = position + _COUNT.size
    else:
        count, end = _read_compact(frame, position)
    if count < 0:
        raise _NotWideError
    return count, end


def _read_string(frame: memoryview, position: int, bytes_max: int, *, flexible: bool) -> tuple[str, int]:
    if not flexible:
        (length,) = _LENGTH.unpack_from(frame, position)
        begin = position + _LENGTH.size
    else:
        length, begin = _read_compact(frame, position)
    if not 0 <= length <= bytes_max:
        raise _NotWideError
    end = begin + length
    return str(frame[begin:end], "utf-8"), end


def _read_compact(frame: memoryview, position: int) -> tuple[int, int]:
    count, end = read_varint(frame, position)
    if end - position > 1 and not frame[end - 1]:
        # Longer than it must be, and the response would have it so.
        raise _NotWideError
    return count - 1, end


def _skip_no_tags(frame: memoryview, position: int, *, flexible: bool) -> int:
    if not flexible:
        return position
    if frame[position]:
        raise _NotWideError
    return position + 1
