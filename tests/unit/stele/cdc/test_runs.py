"""Changes of one table that follow each other: read together, they are what they are one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stele.cdc.decoding import pgoutput as p
from stele.cdc.decoding.runs import ROWS_MAX, Run, rows_of
from stele.cdc.decoding.values import ENCODERS, Encoder, array, text
from stele.cdc.records.forms import JsonForm, ValueForm

TRANSACTION = p.Begin(0x1_0000_0002, 1_795_255_200_000_000, 99)
# What has a meaning where values begin: kinds, zeros, and lengths of which a byte is a kind.
HARD = st.sampled_from(
    [b"t", b"n", b"u", b"tt", b"nt", b"It", b"\x01", b"t" * 0x74, b"n" * 0x100, b"x" * 0x7400]
)
VALUES = st.one_of(st.just(b""), HARD, st.binary(max_size=300).map(lambda value: value.replace(b"\0", b"")))
RELATIONS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0x74000000, 0x4E000000, 0x00740000]))


def messages(kind: bytes, relation: int, rows: Sequence[p.Row], xid: int | None) -> list[bytes]:
    head = kind + (b"" if xid is None else struct.pack(">I", xid)) + struct.pack(">I", relation) + b"N"
    return [
        head
        + struct.pack(">H", len(row))
        + b"".join(
            b"n"
            if v is None
            else b"u"
            if isinstance(v, p.Unchanged)
            else b"t" + struct.pack(">I", len(v)) + v
            for v in row
        )
        for row in rows
    ]


def rows(values: st.SearchStrategy[p.Datum]) -> st.SearchStrategy[list[list[p.Datum]]]:
    def of_width(width: int) -> st.SearchStrategy[list[list[p.Datum]]]:
        return st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=8)

    return st.integers(0, 5).flatmap(of_width)


@given(
    st.sampled_from([b"I", b"U"]),
    RELATIONS,
    st.one_of(rows(VALUES), rows(st.one_of(VALUES, st.none(), st.just(p.UNCHANGED)))),
    st.one_of(st.none(), RELATIONS),
)
@example(b"I", 7, [[b"x" * 0x10000, b"t"]], None)
@example(b"I", 7, [[b"x" * 0x740000, b"t"]], None)
def test_rows_that_are_read_together_are_those_of_their_messages(
    kind: bytes, relation: int, given_rows: list[list[p.Datum]], xid: int | None
) -> None:
    payloads = messages(kind, relation, given_rows, xid)
    run = Run()
    assert run.begin(1, payloads[0], in_stream=xid is not None)
    found, is_whole = rows_of(run.head or b"", payloads)
    assert list(map(list, found)) == given_rows
    if is_whole:
        assert all(isinstance(datum, bytes) for row in found for datum in row)


def test_ordinary_rows_are_read_together() -> None:
    payloads = messages(b"I", 7, [[b"1", b"a" * 300], [b"22", b""]], None)
    assert rows_of(payloads[0][:8], payloads) == ([(b"1", b"a" * 300), (b"22", b"")], True)


@pytest.mark.parametrize(
    "payload",
    [
        b"D\0\0\0\7K\0\1t\0\0\0\1x",
        b"U\0\0\0\7K\0\1t\0\0\0\1xN\0\1t\0\0\0\1y",
        b"C\0\0\0\0N\0\1",
        b"I\0\0\0",
        b"",
    ],
)
def test_other_messages_begin_no_run(payload: bytes) -> None:
    run = Run()
    assert not run.begin(1, payload)
    assert run.head is None


def test_a_run_has_one_kind_and_table_and_is_bounded() -> None:
    (change,) = messages(b"I", 7, [[b"1"]], None)
    run = Run()
    assert not run.goes_on(1, change)
    assert run.begin(1, change)
    for other in (*messages(b"U", 7, [[b"1"]], None), *messages(b"I", 8, [[b"1"]], None), b"B", b""):
        assert not run.goes_on(2, other)
    assert not run.goes_on(2, *messages(b"I", 7, [[b"x" * 100_000]], None))
    while run.goes_on(3, change):
        assert len(run.lsns) <= ROWS_MAX
    assert len(run.lsns) == ROWS_MAX


def test_a_message_that_is_none_is_refused() -> None:
    (cut,) = messages(b"I", 7, [[b"1", b"2"]], None)
    with pytest.raises(p.PgOutputError):
        rows_of(cut[:8], [cut, cut[:-3]])


TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0")).map(str.encode),
    st.binary(max_size=20).map(lambda value: value.replace(b"\0", b"")),
)
TYPES: dict[str, tuple[Encoder, st.SearchStrategy[bytes]]] = {
    "text": (text, TEXTS),
    "integer": (ENCODERS[23], st.integers().map(lambda n: b"%d" % n)),
    "numeric": (ENCODERS[1700], st.decimals().map(lambda n: str(n).encode())),
    "double precision": (ENCODERS[701], st.sampled_from([b"1.5", b"NaN", b"-Infinity"])),
    "boolean": (ENCODERS[16], st.sampled_from([b"t", b"f"])),
    "bytea": (ENCODERS[17], st.binary().map(lambda value: b"\\x" + value.hex().encode())),
    "timestamp": (ENCODERS[1114], st.sampled_from([b"2026-11-21 10:00:00", b"infinity", b"0044-03-15 00:00:00 BC"])),
    "timestamptz": (ENCODERS[1184], st.sampled_from([b"2026-11-21 10:00:00.5+00", b"infinity"])),
    "jsonb": (ENCODERS[3802], st.sampled_from([b'{"a": "%s"}', b"null"])),
    "uuid": (ENCODERS[2950], st.uuids().map(lambda value: str(value).encode())),
    "text[]": (array(text), st.sampled_from([b"{}", b'{a,"b\\"%",NULL}'])),
}  # fmt: skip


@given(st.data(), st.booleans(), st.booleans())
def test_json_of_many_rows_is_that_of_each(data: st.DataObject, has_nulls: bool, is_row_only: bool) -> None:
    names = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=6))
    columns = tuple(p.Column(f'{n} % "%s" {name}', 25, -1, n == 0) for n, name in enumerate(names))
    form: ValueForm = JsonForm(
        p.Relation(7, "100%", "%s", "d", columns), [TYPES[name][0] for name in names], prefix=b"\0%s%"
    )
    values = [TYPES[name][1] for name in names]
    row = st.tuples(*(st.one_of(st.none(), value) if has_nulls else value for value in values))
    made = data.draw(st.lists(row, min_size=1, max_size=9))
    lsns = list(range(100, 100 + len(made)))
    is_whole = not any(None in row for row in made)
    first = data.draw(st.integers(0, len(made)))
    parts = [(TRANSACTION, first), (p.Begin(0x1_0000_0099, 1_795_255_200_123_000, 98), len(made) - first)]
    found = form.new_rows(b"u", made, lsns, parts, is_whole=is_whole, is_row_only=is_row_only)
    assert found == ValueForm.new_rows(
        form, b"u", made, lsns, parts, is_whole=is_whole, is_row_only=is_row_only
    )
