"""Debezium's envelope in Avro: the JSON form, read back by fastavro, and schemas that Confluent's converter knows."""

from __future__ import annotations

import base64
import io
from typing import Any

import fastavro
import msgspec
import pytest
from stele.cdc.decoding.pgoutput import UNCHANGED, Column, Datum, Relation
from stele.cdc.records.connect_avro import avro_schema, encoder_of
from stele.cdc.records.debezium_form import DebeziumAvroForm, DebeziumForm
from stele.cdc.records.debezium_types import CatalogType, connect_type

schemaless_reader: Any = vars(fastavro)["schemaless_reader"]
parse_schema: Any = vars(fastavro)["parse_schema"]
CATALOG = {
    1007: CatalogType("b", 0, -1, 23, "A", ",", True, "_int4", ()),
    9001: CatalogType("e", 0, -1, 0, "E", ",", False, "mood", ("sad", "happy")),
}
# Name, OID, modifier and a value.
COLUMNS = [
    ("id", 20, -1, b"7"),
    ("small", 21, -1, b"-3"),
    ("flag", 16, -1, b"t"),
    ("real", 700, -1, b"1.5"),
    ("double", 701, -1, b"NaN"),
    ("price", 1700, (10 << 16 | 2) + 4, b"-12.30"),
    ("any_number", 1700, -1, b"1.500"),
    ("text", 25, -1, "größe ☃".encode()),
    ("bytes", 17, -1, b"\\x00ff"),
    ("day", 1082, -1, b"2026-11-21"),
    ("moment", 1114, -1, b"2026-11-21 10:00:00.5"),
    ("zoned", 1184, -1, b"2026-11-21 10:00:00+00"),
    ("bits", 1560, 3, b"101"),
    ("point", 600, -1, b"(1,2.5)"),
    ("numbers", 1007, -1, b"{1,NULL,3}"),
    ("mood", 9001, -1, b"happy"),
    ("a b", 25, -1, b"odd name"),
]
KEYS = ("id", "price")


def relation_of(names: list[str]) -> Relation:
    return Relation(
        7,
        "public",
        "docs",
        "d",
        tuple(
            Column(name, type_id, modifier, name in KEYS)
            for name, (_, type_id, modifier, _) in zip(names, COLUMNS, strict=True)
        ),
    )


def forms(names: list[str]) -> tuple[DebeziumForm, DebeziumAvroForm, dict[bool, Any]]:
    """Return the form in JSON, that in Avro, and the schemas that the latter registers, by whether they are of keys."""
    relation = relation_of(names)
    types = [
        connect_type(type_id, modifier, dimensions=1, decimals="precise", look_up=CATALOG.get)
        for _, type_id, modifier, _ in COLUMNS
    ]
    registered: dict[bool, Any] = {}

    def prefix_of(text: str, is_key: bool) -> bytes:
        registered[is_key] = msgspec.json.decode(text)
        return b"K" if is_key else b"V"

    named: dict[str, Any] = {"keys": KEYS, "topic": "shop.public.docs", "server": "shop", "database": "d"}
    plain = DebeziumForm(relation, types, with_schemas=False, **named)
    avro = DebeziumAvroForm(relation, types, prefix_of=prefix_of, is_row_only=False, **named)
    return plain, avro, registered


def read(schema: Any, data: bytes) -> Any:
    """Return what fastavro reads, without logical types."""
    text = msgspec.json.encode(schema).decode().replace('"logicalType"', '"logical"')
    stream = io.BytesIO(data)
    value = schemaless_reader(stream, msgspec.json.decode(text), None)
    assert not stream.read()
    return value


def test_keys_and_envelopes_are_those_in_json() -> None:
    names = [name for name, *_ in COLUMNS]
    plain, avro, registered = forms(names)
    for schema in registered.values():
        parse_schema(msgspec.json.decode(msgspec.json.encode(schema)))
    row: list[Datum] = [value for *_, value in COLUMNS]
    row[names.index("text")] = UNCHANGED
    row[names.index("day")] = None
    source = plain.source(lsn=7, commit_lsn=9, xid=729, ts_us=1_795_249_378_010_000)
    before, after = plain.row(row, only_identity=True), plain.row(row)
    data = avro.envelope(b"u", before, after, source, [])
    assert data[:1] == b"V"
    value = read(registered[False], data[1:])
    expected = msgspec.json.decode(plain.envelope(b"u", before, after, source, []))
    for envelope in (value, expected):
        for name in ("ts_ms", "ts_us", "ts_ns"):
            del envelope[name]
    for rows in (expected["before"], expected["after"]):
        rows["a_b"] = rows.pop("a b")
        for name in ("price", "bytes", "bits"):
            rows[name] = rows[name] and base64.b64decode(rows[name])
        for name, part in (("any_number", "value"), ("point", "wkb")):
            if rows[name]:
                rows[name][part] = base64.b64decode(rows[name][part])
        rows["double"] = rows["double"] and str(value["after"]["double"]).replace("nan", "NaN")
    value["after"]["double"] = "NaN"
    assert value == expected
    key = avro.key(row)
    assert key is not None
    assert read(registered[True], key[1:]) == {"id": 7, "price": base64.b64decode(b"+zI=")}


def test_schemas_have_the_names_and_the_properties_of_connect() -> None:
    _, _, registered = forms([name for name, *_ in COLUMNS])
    envelope = registered[False]
    assert (envelope["namespace"], envelope["name"]) == ("shop.public.docs", "Envelope")
    assert (envelope["connect.name"], envelope["connect.version"]) == ("shop.public.docs.Envelope", 2)
    before, after, source = (field["type"] for field in envelope["fields"][:3])
    assert after == ["null", "shop.public.docs.Value"]
    columns = {field["name"]: field for field in before[1]["fields"]}
    assert columns["id"] == {"name": "id", "type": "long"}
    assert columns["small"] == {
        "name": "small", "type": ["null", {"type": "int", "connect.type": "int16"}], "default": None,
    }  # fmt: skip
    assert columns["price"]["type"] == {
        "type": "bytes",
        "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
        "precision": 10,
        "scale": 2,
    }
    assert columns["mood"]["type"][1]["connect.parameters"] == {"allowed": "sad,happy"}
    snapshot = next(field for field in source["fields"] if field["name"] == "snapshot")
    assert (snapshot["type"][1], snapshot["default"]) == ("null", "false")


def test_two_columns_with_the_same_name_in_avro_are_refused() -> None:
    names = [name for name, *_ in COLUMNS]
    names[1] = "a-b"
    with pytest.raises(ValueError, match="same name in Avro, a_b; rename one of them"):
        forms(names)


def test_a_null_in_front_of_a_default_is_the_second_branch() -> None:
    field = {"type": "string", "optional": True, "default": "false", "field": "f"}
    schema = {"type": "struct", "name": "R", "optional": False, "fields": [field]}
    encode, read_as = encoder_of(schema), msgspec.json.decode(avro_schema(schema))
    assert [read(read_as, encode({"f": value})) for value in (None, "true")] == [{"f": None}, {"f": "true"}]
