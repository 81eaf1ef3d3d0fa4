"""pgoutput's messages, byte by byte as PostgreSQL documents them, and bytes that are none."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.cdc.decoding import pgoutput as p

# 2026-11-21T10:00:00Z in microseconds since 2000.
AT = 848_570_400_000_000
AT_MS = 1_795_255_200_000


def text(name: str) -> bytes:
    return name.encode() + b"\0"


def row(*values: bytes | p.Unchanged | None) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, p.Unchanged):
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return b"".join(parts)


COLUMNS = (
    b"\x00\x02"
    + b"\x01"
    + text("id")
    + struct.pack(">Ii", 23, -1)
    + b"\x00"
    + text("v")
    + struct.pack(">Ii", 25, -1)
)
RELATION = struct.pack(">I", 7) + text("public") + text("orders") + b"d" + COLUMNS
MESSAGES: dict[str, tuple[bytes, p.Message]] = {
    "begin": (b"B" + struct.pack(">QqI", 0x1_0000_0002, AT, 99), p.Begin(0x1_0000_0002, AT_MS * 1000, 99)),
    "commit": (b"C" + struct.pack(">BQQq", 0, 5, 6, AT), p.Commit(5, 6, AT_MS)),
    "relation": (
        b"R" + RELATION,
        p.Relation(
            7,
            "public",
            "orders",
            "d",
            (p.Column("id", 23, -1, True), p.Column("v", 25, -1, False)),
        ),
    ),
    "insert": (b"I" + struct.pack(">I", 7) + b"N" + row(b"1", None), p.Insert(7, [b"1", None])),
    "update": (
        b"U" + struct.pack(">I", 7) + b"N" + row(b"1", p.UNCHANGED),
        p.Update(7, None, [b"1", p.UNCHANGED], False),
    ),
    "update of the key": (
        b"U" + struct.pack(">I", 7) + b"K" + row(b"1", None) + b"N" + row(b"2", b""),
        p.Update(7, [b"1", None], [b"2", b""], True),
    ),
    "update, whole old row": (
        b"U" + struct.pack(">I", 7) + b"O" + row(b"1", b"x") + b"N" + row(b"1", b"y"),
        p.Update(7, [b"1", b"x"], [b"1", b"y"], False),
    ),
    "delete": (b"D" + struct.pack(">I", 7) + b"K" + row(b"1", None), p.Delete(7, [b"1", None], True)),
    "truncate": (b"T" + struct.pack(">IBII", 2, 0, 7, 8), p.Truncate((7, 8))),
    "stream start": (b"S" + struct.pack(">IB", 99, 1), p.StreamStart(99, True)),
    "stream stop": (b"E", p.StreamStop()),
    "stream commit": (b"c" + struct.pack(">IBQQq", 99, 0, 5, 6, AT), p.StreamCommit(99, 5, 6, AT_MS * 1000)),
    "stream abort": (b"A" + struct.pack(">II", 99, 100), p.StreamAbort(99, 100)),
    "origin": (b"O" + struct.pack(">Q", 5) + text("other"), p.Other()),
    "type": (b"Y" + struct.pack(">I", 16400) + text("public") + text("mood"), p.Other()),
    "message": (
        b"M\x01" + struct.pack(">Q", 5) + text("stele:a") + struct.pack(">I", 1) + b"x",
        p.LogicalMessage(5, True, "stele:a", b"x"),
    ),
    "message outside of transactions": (
        b"M\x00" + struct.pack(">Q", 5) + text("") + struct.pack(">I", 0),
        p.LogicalMessage(5, False, "", b""),
    ),
}
FREE = {"origin", "type"}
IN_STREAM = {
    "relation",
    "insert",
    "update",
    "update of the key",
    "update, whole old row",
    "delete",
    "truncate",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_decoded_as_documented(name: str) -> None:
    data, message = MESSAGES[name]
    assert p.decode(data) == message


@pytest.mark.parametrize("name", sorted(IN_STREAM))
def test_changes_within_a_stream_have_their_transaction_id(name: str) -> None:
    data, _ = MESSAGES[name]
    message = p.decode(data[:1] + struct.pack(">I", 4711) + data[1:], in_stream=True)
    assert getattr(message, "xid", None) == 4711


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in FREE])
def test_a_message_that_is_cut_short_or_has_more_is_refused(name: str) -> None:
    data, _ = MESSAGES[name]
    for end in range(len(data)):
        with pytest.raises(p.PgOutputError):
            p.decode(data[:end])
    with pytest.raises(p.PgOutputError, match="1 bytes trail"):
        p.decode(data + b"\0")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"Z", "type b'Z'"),
        (b"I" + struct.pack(">I", 7) + b"X", "tuple 'X'"),
        (b"I" + struct.pack(">I", 7) + b"N\xff\xff", "65535 columns"),
        (b"I" + struct.pack(">I", 7) + b"N\x00\x01t\xff\xff\xff\xff", "more bytes than there are"),
        (b"I" + struct.pack(">I", 7) + b"N\x00\x01b\x00\x00\x00\x00", "kind 'b'"),
        (b"R" + struct.pack(">I", 7) + b"\xff\0t\0d\0\0", "not UTF-8"),
        (b"T\xff\xff\xff\xff\x00", "are announced"),
    ],
)
def test_what_is_announced_is_not_believed(data: bytes, said: str) -> None:
    with pytest.raises(p.PgOutputError, match=said):
        p.decode(data)


@given(st.sampled_from([data[:1] for data, _ in MESSAGES.values()]), st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_message_or_refused(kind: bytes, rest: bytes, in_stream: bool) -> None:
    with suppress(p.PgOutputError):
        p.decode(kind + rest, in_stream=in_stream)
