"""Values in Debezium's form that a comparison with Debezium cannot show, because it has them wrong or not at all."""

from __future__ import annotations

import base64

import msgspec
import pytest
from stele.cdc.decoding.pgoutput import UNCHANGED, Column, Relation, Row
from stele.cdc.errors import CdcError
from stele.cdc.records.debezium_form import DebeziumForm
from stele.cdc.records.debezium_types import CatalogType, ConnectType, Decimals, connect_type

NUMERIC, INTERVAL, MONEY, TIMESTAMP = 1700, 1186, 790, 1114


def of(
    type_id: int, modifier: int = -1, *, dimensions: int = 1, decimals: Decimals = "precise"
) -> ConnectType:
    arrays = {1007: CatalogType("b", 0, -1, 23, "A", ",", True, "_int4", ())}
    return connect_type(type_id, modifier, dimensions=dimensions, decimals=decimals, look_up=arrays.get)


def test_a_decimal_of_any_length_keeps_its_digits() -> None:
    digits = "9" * 20_000
    shown = msgspec.json.decode(of(NUMERIC).encode(f"-{digits}.50".encode()))
    value = int.from_bytes(base64.b64decode(shown["value"]), "big", signed=True)
    expected = 10 ** (len(digits) + 1) - 10 + 5
    assert (shown["scale"], value) == (1, -expected)


@pytest.mark.parametrize(("decimals", "expected"), [("string", b'"NaN"'), ("double", b'"NaN"')])
def test_what_no_decimal_holds_has_a_form_in_the_other_modes(decimals: Decimals, expected: bytes) -> None:
    assert of(NUMERIC, decimals=decimals).encode(b"NaN") == expected
    with pytest.raises(ValueError, match="--decimals string"):
        of(NUMERIC).encode(b"NaN")


@pytest.mark.parametrize(
    ("value", "cents"),
    [
        (b"$1,234.56", 123456),
        (b"-$0.05", -5),
        (b"1.234,56 \xe2\x82\xac", 123456),
        (b"\xc2\xa51,234", 123400),
        (b"($2.00)", -200),
    ],
)
def test_money_of_several_locales_has_two_digits(value: bytes, cents: int) -> None:
    decoded = base64.b64decode(msgspec.json.decode(of(MONEY).encode(value)))
    assert int.from_bytes(decoded, "big", signed=True) == cents


def test_an_interval_keeps_its_microseconds() -> None:
    assert of(INTERVAL).encode(b"PT1.000001S") == b"1000001"
    assert of(INTERVAL).encode(b"PT-0.000001S") == b"-1"
    with pytest.raises(ValueError, match="infinite"):
        of(INTERVAL).encode(b"infinity")


def test_an_array_has_the_dimensions_that_its_column_declares() -> None:
    assert of(1007, dimensions=2).encode(b"{{1,2},{3,NULL}}") == b"[[1,2],[3,null]]"
    with pytest.raises(ValueError, match="2 dimensions, and its column declares 1"):
        of(1007).encode(b"{{1}}")


def form(*, with_schemas: bool) -> DebeziumForm:
    columns = (Column("id", 23, -1, True), Column("body", 25, -1, False))
    relation = Relation(7, "public", "docs", "d", columns)
    types = [of(column.type_id) for column in columns]
    return DebeziumForm(
        relation,
        types,
        keys=("id",),
        topic="pg.public.docs",
        server="pg",
        database="shop",
        with_schemas=with_schemas,
    )


def test_without_schemas_the_payload_is_the_same() -> None:
    plain, with_schemas = form(with_schemas=False), form(with_schemas=True)
    row: Row = [b"1", UNCHANGED]
    assert plain.row(row) == with_schemas.row(row) == b'{"id":1,"body":"__debezium_unavailable_value"}'
    assert plain.key(row) == b'{"id":1}'
    key = with_schemas.key(row)
    assert key is not None
    assert msgspec.json.decode(key)["payload"] == {"id": 1}
    source = plain.source(lsn=5, commit_lsn=9, xid=7, ts_us=1_000_001)
    value = msgspec.json.decode(plain.envelope(b"u", None, plain.row(row), source, ["body"]))
    assert value["source"] == {
        "version": "3.6.1.Final", "connector": "postgresql", "name": "pg", "ts_ms": 1000, "snapshot": "false", "db": "shop",
        "sequence": '["9","5"]', "ts_us": 1_000_001, "ts_ns": 1_000_001_000, "schema": "public", "table": "docs", "txId": 7,
        "lsn": 5, "xmin": None, "origin": None, "origin_lsn": None,
    }  # fmt: skip
    assert (value["op"], value["before"], value["transaction"]) == ("u", None, None)
    assert msgspec.json.decode(with_schemas.record(b"{}"))["schema"]["name"] == "pg.public.docs.Value"


def test_a_value_without_a_form_says_what_to_do() -> None:
    relation = Relation(7, "public", "t", "d", (Column("n", NUMERIC, -1, False),))
    made = DebeziumForm(
        relation, [of(NUMERIC)], keys=(), topic="t", server="pg", database="d", with_schemas=False
    )
    assert made.key([b"1"]) is None
    with pytest.raises(CdcError, match=r"column n of public\.t has no form in Debezium's.*--decimals string"):
        made.row([b"Infinity"])


@pytest.mark.parametrize(
    ("decimals", "shown"), [("precise", b'"+w=="'), ("string", b'"-0.05"'), ("double", b"-0.05")]
)
def test_money_follows_the_mode_of_decimals(decimals: Decimals, shown: bytes) -> None:
    assert of(MONEY, decimals=decimals).encode(b"-$0.05") == shown
