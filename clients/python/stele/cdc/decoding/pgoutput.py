"""Decoder for the messages of PostgreSQL's plugin pgoutput. No I/O.

Source: PostgreSQL 18, "Logical Replication Message Formats"; protocol versions 1
(PostgreSQL 10) and 2 (PostgreSQL 14: transactions are streamed before they commit).
Tuples come in text format. Integers are big-endian; LSNs are 64-bit.

Every length is checked against the rest of the message before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

# PostgreSQL's own limit is 1600.
COLUMNS_MAX = 1664
# Microseconds from the Unix epoch to 2000-01-01T00:00Z, from which PostgreSQL counts.
_EPOCH_US = 946_684_800_000_000

_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xBQQq")
_STREAM_COMMIT = struct.Struct(">IBQQq")
# Relation and kind of the first tuple, after the type of the message; within a stream, the transaction is before them.
_CHANGE = struct.Struct(">xIc")
_STREAM_CHANGE = struct.Struct(">xIIc")


class PgOutputError(ValueError):
    """The bytes are not a message of pgoutput."""


class Unchanged:
    """A TOAST value that an update did not touch, and PostgreSQL does not send."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
# Text format; None is NULL.
Datum: TypeAlias = bytes | Unchanged | None
Row: TypeAlias = Sequence[Datum]


class Begin(NamedTuple):
    """Start of a transaction; ``commit_lsn`` is its place in commit order."""

    commit_lsn: int
    commit_us: int
    xid: int

    @property
    def commit_ms(self) -> int:
        return self.commit_us // 1000


class Commit(NamedTuple):
    """End of a transaction; confirming ``end_lsn`` confirms it."""

    commit_lsn: int
    end_lsn: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``is_key`` if in the replica identity.

    ``type_id`` is an OID of pg_type, ``type_modifier`` its ``atttypmod``.
    """

    name: str
    type_id: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table; sent before its first change, and again after its columns changed.

    ``identity``: ``d`` the primary key, ``n`` none, ``f`` the whole row, ``i`` an index.
    """

    relation_id: int
    schema: str
    table: str
    identity: str
    columns: tuple[Column, ...]
    xid: int | None = None


class Insert(NamedTuple):
    relation_id: int
    row: Row
    xid: int | None = None


class Update(NamedTuple):
    """An update; ``old`` is None if the key did not change.

    With ``is_key_only``, ``old`` has only the key columns; the others are None.
    """

    relation_id: int
    old: Row | None
    row: Row
    is_key_only: bool
    xid: int | None = None


class Delete(NamedTuple):
    relation_id: int
    old: Row
    is_key_only: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Start of a block of changes of an open transaction, up to StreamStop."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    pass


@dataclass(frozen=True, slots=True)
class StreamCommit:
    xid: int
    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A rollback; ``sub_xid`` is ``xid`` if the whole transaction is rolled back."""

    xid: int
    sub_xid: int


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What ``pg_logical_emit_message`` wrote; ``end_lsn`` is where its record in the WAL ends.

    ``xid`` is that of the top-level transaction, even in a subtransaction.
    """

    end_lsn: int
    is_transactional: bool
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Origin or Type, which change no rows."""


Change: TypeAlias = Insert | Update | Delete | Truncate
Message: TypeAlias = (
    Begin
    | Commit
    | Relation
    | Change
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | LogicalMessage
    | Other
)


class _Reader:
    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = len(data)
        self.position = 1

    def take(self, count: int) -> bytes:
        start = self.position
        if count < 0 or count > self._end - start:
            raise PgOutputError(f"{count} bytes are announced and {self._end - start} are left")
        self.position = start + count
        return self._data[start : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def letter(self) -> str:
        return self.take(1).decode("latin-1")

    def int16(self) -> int:
        return int.from_bytes(self.take(2))

    def int32(self) -> int:
        return int.from_bytes(self.take(4))

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def text(self, errors: str = "strict") -> str:
        end = self._data.find(b"\0", self.position)
        if end < 0:
            raise PgOutputError("a string has no end")
        name = self._data[self.position : end]
        self.position = end + 1
        try:
            return name.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise PgOutputError(f"a name is not UTF-8: {name[:80]!r}") from error

    def skip(self) -> None:
        self.position = self._end

    def finish(self) -> None:
        if self.position != self._end:
            raise PgOutputError(f"{self._end - self.position} bytes trail the message")


def decode(data: bytes, *, in_stream: bool = False) -> Message:
    """Decode one message.

    ``in_stream``: between StreamStart and StreamStop, where changes have a transaction id.

    Raises:
        PgOutputError: the bytes are not a valid message.
    """
    if not data:
        raise PgOutputError("an empty message")
    # Most messages are changes of rows, and begins and commits, which are read without a reader.
    frequent = _FREQUENT.get(data[0])
    if frequent is not None:
        return frequent(data, in_stream)
    reader = _Reader(data)
    kind = data[0:1]
    try:
        decoder = _DECODERS[kind]
    except KeyError:
        raise PgOutputError(f"a message of type {kind!r}, which protocol version 2 does not have") from None
    message = decoder(reader, in_stream)
    reader.finish()
    return message


def _us(microseconds: int) -> int:
    return microseconds + _EPOCH_US


def _xid(reader: _Reader, in_stream: bool) -> int | None:
    return reader.int32() if in_stream else None


def _begin(data: bytes, _: bool) -> Message:
    lsn, at, xid = _unpack(_BEGIN, data)
    return Begin(lsn, _us(at), xid)


def begins_of(messages: Sequence[bytes]) -> list[Begin]:
    """Decode begins of transactions. Raises PgOutputError."""
    try:
        return [Begin(lsn, at + _EPOCH_US, xid) for lsn, at, xid in _BEGIN.iter_unpack(b"".join(messages))]
    except struct.error:
        raise PgOutputError("the begin of a transaction has another size") from None


def _commit(data: bytes, _: bool) -> Message:
    _flags, lsn, end, at = _unpack(_COMMIT, data)
    return Commit(lsn, end, _us(at) // 1000)


def _unpack(layout: struct.Struct, data: bytes) -> tuple[int, ...]:
    try:
        return layout.unpack(data)
    except struct.error:
        said = (
            "is cut short"
            if len(data) < layout.size
            else f"{len(data) - layout.size} bytes trail the message"
        )
        raise PgOutputError(f"a message of {len(data)} bytes: {said}") from None


def _relation(reader: _Reader, in_stream: bool) -> Message:
    xid = _xid(reader, in_stream)
    relation_id = reader.int32()
    # An empty name stands for pg_catalog.
    schema = reader.text() or "pg_catalog"
    table = reader.text()
    identity = reader.letter()
    count = reader.int16()
    if count > COLUMNS_MAX:
        raise PgOutputError(f"a table of {count} columns; {COLUMNS_MAX} are possible")
    columns: list[Column] = []
    for _ in range(count):
        flags = reader.byte()
        name = reader.text()
        type_id = reader.int32()
        # -1 for a type without one.
        modifier = int.from_bytes(reader.take(4), signed=True)
        columns.append(Column(name, type_id, modifier, bool(flags & 1)))
    return Relation(relation_id, schema, table, identity, tuple(columns), xid)


def _change(data: bytes, in_stream: bool) -> tuple[int | None, int, bytes, int]:
    """Return transaction, relation, the kind of the first tuple, and its position."""
    try:
        if in_stream:
            return *_STREAM_CHANGE.unpack_from(data), _STREAM_CHANGE.size
        return None, *_CHANGE.unpack_from(data), _CHANGE.size
    except struct.error:
        raise PgOutputError(f"a change of {len(data)} bytes is cut short") from None


def _row(data: bytes, position: int) -> tuple[Row, int]:
    """Return the tuple at ``position``, and the position after it."""
    count = int.from_bytes(data[position : position + 2])
    if count > COLUMNS_MAX:
        raise PgOutputError(f"a tuple of {count} columns; {COLUMNS_MAX} are possible")
    position += 2
    values: list[Datum] = []
    append, end = values.append, len(data)
    try:
        for _ in range(count):
            kind = data[position]
            if kind == 0x74:  # t
                start = position + 5
                position = start + int.from_bytes(data[position + 1 : start])
                append(data[start:position])
            elif kind == 0x6E:  # n
                append(None)
                position += 1
            elif kind == 0x75:  # u
                append(UNCHANGED)
                position += 1
            else:
                raise PgOutputError(f"a value of kind {chr(kind)!r}; text format has t, n and u")
    except IndexError:
        position = end + 1
    # Positions only grow, and a slice is never longer than the message.
    if position > end:
        raise PgOutputError("a tuple is cut short, or announces more bytes than there are")
    return values, position


def _end(data: bytes, position: int) -> None:
    if position != len(data):
        raise PgOutputError(f"{len(data) - position} bytes trail the message")


def _insert(data: bytes, in_stream: bool) -> Message:
    xid, relation_id, kind, position = _change(data, in_stream)
    if kind != b"N":
        raise PgOutputError(f"an insert with a tuple {kind.decode('latin-1')!r}")
    row, position = _row(data, position)
    _end(data, position)
    return Insert(relation_id, row, xid)


def _update(data: bytes, in_stream: bool) -> Message:
    xid, relation_id, kind, position = _change(data, in_stream)
    old: Row | None = None
    is_key_only = kind == b"K"
    if kind in (b"K", b"O"):
        old, position = _row(data, position)
        kind = data[position : position + 1]
        position += 1
    if kind != b"N":
        raise PgOutputError(f"an update with a tuple {kind.decode('latin-1')!r}")
    row, position = _row(data, position)
    _end(data, position)
    return Update(relation_id, old, row, is_key_only, xid)


def _delete(data: bytes, in_stream: bool) -> Message:
    xid, relation_id, kind, position = _change(data, in_stream)
    if kind not in (b"K", b"O"):
        raise PgOutputError(f"a delete with a tuple {kind.decode('latin-1')!r}")
    row, position = _row(data, position)
    _end(data, position)
    return Delete(relation_id, row, kind == b"K", xid)


def _truncate(reader: _Reader, in_stream: bool) -> Message:
    xid = _xid(reader, in_stream)
    count = reader.int32()
    reader.byte()
    ids = reader.take(4 * count)
    return Truncate(struct.unpack(f">{count}I", ids), xid)


def _stream_start(reader: _Reader, _: bool) -> Message:
    return StreamStart(reader.int32(), bool(reader.byte()))


def _stream_stop(_: _Reader, __: bool) -> Message:
    return StreamStop()


def _stream_commit(reader: _Reader, _: bool) -> Message:
    xid, _flags, lsn, end, at = reader.unpack(_STREAM_COMMIT)
    return StreamCommit(xid, lsn, end, _us(at))


def _stream_abort(reader: _Reader, _: bool) -> Message:
    return StreamAbort(reader.int32(), reader.int32())


def _logical_message(reader: _Reader, in_stream: bool) -> Message:
    xid = _xid(reader, in_stream)
    flags = reader.byte()
    end_lsn = int.from_bytes(reader.take(8))
    # Anybody may write one, in SQL_ASCII with any bytes.
    prefix = reader.text(errors="backslashreplace")
    return LogicalMessage(end_lsn, bool(flags & 1), prefix, reader.take(reader.int32()), xid)


def _other(reader: _Reader, _: bool) -> Message:
    # Its content is not needed.
    reader.skip()
    return Other()


_FREQUENT = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
}
_DECODERS = {
    b"R": _relation,
    b"T": _truncate,
    b"S": _stream_start,
    b"E": _stream_stop,
    b"c": _stream_commit,
    b"A": _stream_abort,
    b"O": _other,
    b"Y": _other,
    b"M": _logical_message,
}
