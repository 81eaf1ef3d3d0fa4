"""PostgreSQL's text → Avro, read back by fastavro; and the names and types of columns."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timedelta
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.cdc.decoding.column_types import TEXT, ColumnType, base_type
from stele.cdc.decoding.pgoutput import UNCHANGED, Column, Relation, Row
from stele.cdc.errors import CdcError
from stele.cdc.records.avro_values import encoder_of
from stele.cdc.records.forms import AvroForm
from stele.cdc.records.table_schemas import Field, avro_name, avro_schema, changed_meanings, json_schema

NUMERIC = 1700
schemaless_reader: Any = vars(fastavro)["schemaless_reader"]
parse_schema: Any = vars(fastavro)["parse_schema"]
EPOCH = datetime(1970, 1, 1)


def modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def read(schema: str, data: bytes) -> Any:
    """Return what fastavro reads, with unions as they are and without logical types."""
    stream = io.BytesIO(data)
    value = schemaless_reader(stream, json.loads(schema.replace('"logicalType"', '"logical"')), None)
    assert not stream.read()
    return value


def value_of(type_: ColumnType, text: bytes, dimensions: int = 1) -> Any:
    """Return what a reader sees of a value in a table with one column."""
    schema = avro_schema("t", "t", [Field("c", type_, dimensions)], is_row_only=True)
    relation = Relation(0, "public", "t", "d", (Column("c", 0, -1, is_key=False),))
    form = AvroForm(relation, [encoder_of(type_, dimensions)], prefix=b"")
    return read(schema, form.row([text]))["c"]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        (b"1970-01-01", 0),
        (b"1969-12-31", -1),
        (b"0044-03-15 BC", -735_160),
        (b"0001-12-31 BC", -719_163),
        (b"5874897-12-31", 2_145_042_905),
        (b"4714-11-24 BC", -2_440_588),
        (b"infinity", 2**31 - 1),
        (b"-infinity", -(2**31)),
    ],
)
def test_dates_of_every_year_are_days(text: bytes, days: int) -> None:
    assert value_of(ColumnType("date"), text) == days


@given(st.datetimes())
def test_timestamps_are_microseconds(moment: datetime) -> None:
    text = moment.isoformat(" ").encode()
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    assert value_of(ColumnType("timestamp"), text) == microseconds
    assert value_of(ColumnType("timestamptz"), text + b"+00") == microseconds
    assert value_of(ColumnType("date"), text[:10]) == (moment.date() - date(1970, 1, 1)).days


def test_times_that_only_postgresql_has_are_numbers_or_refused() -> None:
    assert value_of(ColumnType("timestamptz"), b"infinity") == 2**63 - 1
    assert value_of(ColumnType("timestamp"), b"-infinity") == -(2**63)
    before_christ = value_of(ColumnType("timestamp"), b"0001-12-31 23:59:59.5 BC")
    assert before_christ == -719_163 * 86_400_000_000 + 86_399_500_000
    with pytest.raises(CdcError, match=r"column c of public\.t has no form in Avro.*--format json-schema"):
        value_of(ColumnType("timestamp"), b"294276-12-31 00:00:00")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_decimals_are_exact(number: Any) -> None:
    stored = value_of(ColumnType("decimal", 12, 3), f"{number:.3f}".encode())
    assert int.from_bytes(stored, "big", signed=True) == int(number.scaleb(3))


def test_nan_is_no_decimal() -> None:
    with pytest.raises(CdcError, match="cannot be NaN"):
        value_of(ColumnType("decimal", 10, 2), b"NaN")
    assert value_of(TEXT, b"NaN") == "NaN"


@pytest.mark.parametrize(
    ("given_modifier", "expected"),
    [
        (-1, TEXT),
        (modifier(10, 2), ColumnType("decimal", 10, 2)),
        (modifier(1000, 0), ColumnType("decimal", 1000, 0)),
        # PostgreSQL has digits before the scale, and after the precision.
        (modifier(10, -2), TEXT),
        (modifier(10, 20), TEXT),
    ],
)
def test_a_numeric_is_a_decimal_if_decimals_can_be_that(given_modifier: int, expected: ColumnType) -> None:
    assert base_type(NUMERIC, given_modifier) == expected


@pytest.mark.parametrize(
    ("text", "dimensions", "expected"),
    [
        (b"{}", 1, []),
        (b"{1,NULL,3}", 1, [1, None, 3]),
        (b"[0:1]={1,2}", 1, [1, 2]),
        (b"{{1,2},{3,NULL}}", 2, [[1, 2], [3, None]]),
        (b"{}", 2, []),
        (b"{{{1}},{{2}}}", 3, [[[1]], [[2]]]),
    ],
)
def test_arrays_have_the_dimensions_of_their_column(text: bytes, dimensions: int, expected: Any) -> None:
    assert value_of(ColumnType("array", items=ColumnType("int")), text, dimensions) == expected


@pytest.mark.parametrize(("text", "dimensions"), [(b"{{1}}", 1), (b"{1}", 2)])
def test_an_array_of_other_dimensions_is_refused(text: bytes, dimensions: int) -> None:
    with pytest.raises(CdcError, match="its column declares"):
        value_of(ColumnType("array", items=ColumnType("int")), text, dimensions)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_bigint_is_a_long(number: int) -> None:
    assert value_of(ColumnType("long"), b"%d" % number) == number


def test_names_are_those_of_avro_and_stay_apart() -> None:
    names = ["price", "XXX$1", "XXX#1", "a b", "1st", "größe", "row.values", "", "_"]
    changed = [avro_name(name) for name in names]
    assert changed == [
        "price",
        "XXX_u00241",
        "XXX_u00231",
        "a_u0020b",
        "_u0031st",
        "gr_u00f6_u00dfe",
        "row_u002evalues",
        "_",
        "_",
    ]
    for name in changed:
        parse_schema({"type": "fixed", "name": name, "size": 1})
    with pytest.raises(CdcError, match="columns of t have the same name in Avro, a_u0020b"):
        avro_schema("t", "t", [Field("a b", TEXT), Field("a_u0020b", TEXT)], is_row_only=True)


ENVELOPES: list[tuple[Row | None, Row | None, list[str]]] = [
    (None, [b"1", None, b"x"], []),
    ([b"1", None, None], None, []),
    (None, [b"1", UNCHANGED, b"y"], ["a b"]),
    (None, None, []),
]


@pytest.mark.parametrize(("before", "after", "unchanged"), ENVELOPES)
def test_envelopes_are_read_by_their_schema(
    before: Row | None, after: Row | None, unchanged: list[str]
) -> None:
    fields = [Field("id", ColumnType("int")), Field("a b", TEXT), Field("c", TEXT)]
    schema = avro_schema("pg.public.1-t", "public.t", fields, is_row_only=False)
    columns = tuple(Column(field.name, 0, -1, field.name == "id") for field in fields)
    form = AvroForm(
        Relation(0, "public", "t", "d", columns), [encoder_of(field.type) for field in fields], prefix=b"#"
    )
    rows = [None if row is None else form.row(row, only_identity=row is before) for row in (before, after)]
    value = form.envelope(
        b"u", rows[0], rows[1], form.source(lsn=2**40, commit_lsn=0, xid=None, ts_us=5000), unchanged
    )
    assert value[:1] == b"#"
    names = ("id", "a_u0020b", "c")

    def shown(row: Row | None) -> Any:
        if row is None:
            return None
        values = [None if not isinstance(datum, bytes) else datum.decode() for datum in row]
        return {**dict(zip(names, values, strict=True)), "id": 1}

    assert read(schema, value[1:]) == {
        "op": "u",
        "before": shown(before),
        "after": shown(after),
        "unchanged": unchanged or None,
        "source": {"lsn": 2**40, "txid": None, "ts_ms": 5, "schema": "public", "table": "t"},
    }


def test_a_dropped_column_stays_in_the_json_schema() -> None:
    fields = [Field("a", ColumnType("int")), Field("b", TEXT)]
    for is_row_only in (False, True):
        first = json_schema("t", fields, {}, is_row_only=is_row_only)
        assert json_schema("t", fields[:1], json.loads(first), is_row_only=is_row_only) == first
        assert json_schema("t", fields[:1], {"definitions": []}, is_row_only=is_row_only) != first


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        (ColumnType("decimal", 10, 2), TEXT, True),
        (TEXT, ColumnType("decimal", 10, 2), True),
        (ColumnType("date"), ColumnType("timestamp"), True),
        (ColumnType("long"), ColumnType("timestamptz"), True),
        (ColumnType("array", items=ColumnType("decimal", 10, 2)), ColumnType("array", items=TEXT), True),
        (ColumnType("int"), ColumnType("long"), False),
        (ColumnType("uuid"), TEXT, False),
        # This is for the registry to refuse.
        (ColumnType("decimal", 10, 2), ColumnType("decimal", 10, 3), False),
    ],
)
def test_a_change_that_avro_reads_as_something_else_is_noticed(
    before: ColumnType, now: ColumnType, changed: bool
) -> None:
    for is_row_only in (False, True):
        latest, text = (
            avro_schema("t", "t", [Field("id", TEXT), Field("c", kind)], is_row_only=is_row_only)
            for kind in (before, now)
        )
        assert changed_meanings(json.loads(latest), text, is_row_only=is_row_only) == ["c"] * changed
        assert changed_meanings({"type": "string"}, text, is_row_only=is_row_only) == []
