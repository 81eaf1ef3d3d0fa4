"""Tables of the fields of values: evolution by the registry, and what does not fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest
from stele.client import Client
from stele.records import NewRecord
from stele.registry.definitions import Schema
from stele.registry.registry import SchemaRegistry
from stele.testing import BrokerProcess

from tests.support.iceberg import Writing, rows_of

TABLE = {"stele.iceberg.mode": "value_schema"}


def avro(*fields: Any, name: str = "Order") -> str:
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [
                {"name": field[0], "type": field[1], **(field[2] if field[2:] else {})} for field in fields
            ],
        }
    )


def optional(kind: Any) -> tuple[Any, dict[str, Any]]:
    return ["null", kind], {"default": None}


def values(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_record"} for row in rows]


def test_the_table_follows_the_versions_of_a_schema(
    client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    topic = "versions"
    client.create_topic(topic, partitions=1, configs=TABLE)
    first = registry.serializer(avro(("id", "int"), ("city", "string")), topic)
    client.produce(topic, first({"id": 1, "city": "Bern"}), key=b"k", headers=[("h", b"x")])
    client.produce(topic, None, key=b"k")
    tables.write(topic)
    assert [field.name for field in tables.table(topic).schema().fields] == ["id", "city", "_record"]

    # A field more, and a wider number, while the first version is still written.
    second = registry.serializer(
        avro(("id", "long"), ("city", "string"), ("price", *optional("float"))), topic
    )
    client.produce(topic, second({"id": 2**40, "city": "Genf", "price": 0.5}))
    client.produce(topic, first({"id": 3, "city": "Biel"}))
    # A field less, and a struct.
    place = {"type": "record", "name": "Place", "fields": [{"name": "lat", "type": "double"}]}
    third = registry.serializer(
        avro(("id", "long"), ("price", *optional("double")), ("place", *optional(place))), topic
    )
    client.produce(topic, third({"id": 4, "price": 1.5, "place": {"lat": 47.0}}))
    tables.write(topic)

    rows = tables.rows(topic)
    assert values(rows) == [
        {"id": 1, "city": "Bern", "price": None, "place": None},
        {"id": None, "city": None, "price": None, "place": None},
        {"id": 2**40, "city": "Genf", "price": 0.5, "place": None},
        {"id": 3, "city": "Biel", "price": None, "place": None},
        {"id": 4, "city": None, "price": 1.5, "place": {"lat": 47.0}},
    ]
    first_record = rows[0]["_record"]
    assert (first_record["key"], first_record["headers"]) == (b"k", [{"key": "h", "value": b"x"}])
    assert [row["_record"]["offset"] for row in rows] == list(range(5))
    assert isinstance(first_record["timestamp"], datetime)
    assert [field.name for field in tables.table(topic).schema().fields] == [
        "id", "city", "price", "place", "_record",
    ]  # fmt: skip
    # The old snapshot has the old columns.
    old = tables.table(topic).snapshots()[0]
    assert values(rows_of(tables.table(topic), old.snapshot_id))[0] == {
        "id": 1,
        "city": "Bern",
    }


def test_what_does_not_fit_is_in_the_table_of_errors_with_the_reason(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    topic = "misfits"
    client.create_topic(topic, partitions=1, configs=TABLE)
    httpx.put(
        f"{broker.registry_url}/config/{topic}-value", json={"compatibility": "NONE"}
    ).raise_for_status()
    good = registry.serializer(avro(("id", "int"), ("n", "int")), topic)
    other = registry.serializer(avro(("id", "string"), ("n", "int")), topic)
    case = registry.serializer(avro(("ID", "int")), topic)
    record = registry.serializer(avro(("_record", "int")), topic)
    client.produce(topic, good({"id": 1, "n": 1}))
    client.produce(topic, b"no schema", key=b"k", headers=[("h", b"x")])
    client.produce(topic, other({"id": "a", "n": 1}))
    client.produce(topic, b"\0\0\0\xff\xff" + b"unknown")
    client.produce(topic, good({"id": 1, "n": 1})[:-1])
    client.produce(topic, case({"ID": 1}))
    client.produce(topic, record({"_record": 1}))
    client.produce(topic, good({"id": 2, "n": 2}))
    tables.write(topic)

    assert values(tables.rows(topic)) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    errors = tables.rows(f"{topic}_errors")
    assert [row["offset"] for row in errors] == [1, 2, 3, 4, 5, 6]
    reasons = [row["reason"] for row in errors]
    assert reasons[0].startswith("its value names no schema")
    assert reasons[1] == "its schema does not fit the table: field id is string, and the column is int32"
    assert reasons[2].startswith("schema 65535 cannot be used")
    assert "its value does not have schema" in reasons[3]
    assert "fields id and ID differ in case only" in reasons[4]
    assert "_record" in reasons[5]
    assert (errors[0]["key"], errors[0]["value"], errors[0]["headers"]) == (
        b"k",
        b"no schema",
        [{"key": "h", "value": b"x"}],
    )
    assert tables.writer(topic).status.error_rows == 6
    assert tables.writer(topic).status.rows == 2


def test_a_schema_with_too_many_columns_is_refused_with_the_reason(
    client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    topic = "wide"
    client.create_topic(topic, partitions=1, configs=TABLE)
    wide = registry.serializer(avro(*((f"f{number}", "int") for number in range(10_000))), topic)
    client.produce(topic, wide({f"f{number}": number for number in range(10_000)}))
    tables.write(topic)
    assert tables.rows(topic) == []
    (error,) = tables.rows(f"{topic}_errors")
    assert (
        "its schema has 10000 columns with those of earlier ones, and a table 1000 at most" in error["reason"]
    )


def test_values_of_every_type_are_columns(client: Client, registry: SchemaRegistry, tables: Writing) -> None:
    topic = "types"
    client.create_topic(topic, partitions=1, configs=TABLE)
    every = registry.serializer(
        avro(
            ("b", "boolean"),
            ("y", "bytes"),
            ("d", "double"),
            ("day", {"type": "int", "logicalType": "date"}),
            ("at", {"type": "long", "logicalType": "timestamp-millis"}),
            ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
            ("sum", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            ("list", {"type": "array", "items": ["null", "string"]}),
            ("map", {"type": "map", "values": "long"}),
            ("choice", ["null", "int", "string"]),
        ),
        topic,
    )
    value = {
        "b": True,
        "y": b"\0\xff",
        "d": -0.5,
        "day": date(1960, 1, 2),
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5, 6),
        "sum": Decimal("-12.34"),
        "list": ["a", None],
        "map": {"k": 7},
        "choice": ("string", "s"),
    }
    client.produce_many(topic, [NewRecord(every(value)), NewRecord(every({**value, "list": [], "map": {}}))])
    tables.write(topic)
    assert tables.rows(f"{topic}_errors") == []
    first, second = values(tables.rows(topic))
    assert first == {**value, "map": [("k", 7)], "choice": {"member0": None, "member1": "s"}}
    assert (second["list"], second["map"]) == ([], [])


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_json_and_protobuf_are_columns_too(
    client: Client, registry: SchemaRegistry, tables: Writing, kind: Any
) -> None:
    topic = f"kind-{kind.lower()}"
    client.create_topic(topic, partitions=1, configs=TABLE)
    text = {
        "JSON": json.dumps(
            {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            }
        ),
        "PROTOBUF": 'syntax = "proto3"; message Order { int64 id = 1; repeated string tags = 2; }',
    }[kind]
    serialize = (
        registry.serializer(Schema(text, kind), topic, form="json")
        if kind == "PROTOBUF"
        else registry.serializer(Schema(text, kind), topic)
    )
    client.produce(topic, serialize({"id": 7, "tags": ["a", "b"]}))
    tables.write(topic)
    assert values(tables.rows(topic)) == [{"id": 7, "tags": ["a", "b"]}]


def test_a_message_without_fields_that_gets_some_later_does_not_stop_the_table(
    client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    topic = "markers"
    client.create_topic(topic, partitions=1, configs=TABLE)

    def schema(fields: str) -> Schema:
        head = (
            'syntax = "proto3"; message Event { int64 id = 1; oneof kind { Sent sent = 2; Read read = 3; } }'
        )
        return Schema(f"{head} message Sent {{ {fields} }} message Read {{ {fields} }}", "PROTOBUF")

    first = registry.serializer(schema(""), topic, form="json")
    client.produce(topic, first({"id": 1, "sent": {}}))
    second = registry.serializer(schema("int64 at = 1;"), topic, form="json")
    client.produce(topic, second({"id": 2, "sent": {"at": 5}}))
    client.produce(topic, first({"id": 3, "read": {}}))
    tables.write(topic)
    assert values(tables.rows(topic)) == [
        {"id": 1, "sent": "{}", "read": None},
        {"id": 3, "sent": None, "read": "{}"},
    ]
    (error,) = tables.rows(f"{topic}_errors")
    assert error["offset"] == 1
    assert "its schema does not fit the table: field sent is struct" in error["reason"]


def test_numbers_that_are_none_are_kept(client: Client, registry: SchemaRegistry, tables: Writing) -> None:
    topic = "not-a-number"
    client.create_topic(topic, partitions=1, configs=TABLE)
    serialize = registry.serializer(avro(("d", "double"), ("f", "float")), topic)
    numbers = [float("nan"), float("inf"), float("-inf"), -0.0, 1.5]
    client.produce_many(topic, [NewRecord(serialize({"d": n, "f": n})) for n in numbers])
    tables.write(topic)
    assert [str(row[name]) for row in tables.rows(topic) for name in "df"] == [
        str(n) for n in numbers for _ in "df"
    ]
    scan: Any = tables.table(topic).scan(row_filter="d >= 1.5")
    assert scan.to_arrow()["d"].to_pylist() == [float("inf"), 1.5]


def test_many_values_are_decoded_in_parts(
    client: Client, registry: SchemaRegistry, tables: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stele.columns import values as module

    monkeypatch.setattr(module, "_DECODED_AT_ONCE", 1000)
    topic = "parts"
    client.create_topic(topic, partitions=1, configs=TABLE)
    plain = registry.serializer(avro(("n", "int")), topic)
    listed = registry.serializer(
        avro(("n", "int"), ("l", *optional({"type": "array", "items": "int"}))), topic
    )
    client.produce_many(
        topic,
        [
            b"junk" if n % 10 == 0 else plain({"n": n}) if n % 3 else listed({"n": n, "l": [n, n]})
            for n in range(1000)
        ],
    )
    tables.write(topic)
    assert values(tables.rows(topic)) == [
        {"n": n, "l": None if n % 3 else [n, n]} for n in range(1000) if n % 10
    ]
    assert [row["offset"] for row in tables.rows(f"{topic}_errors")] == list(range(0, 1000, 10))


def test_structs_within_others_grow_too(client: Client, registry: SchemaRegistry, tables: Writing) -> None:
    topic = "nested"
    client.create_topic(topic, partitions=1, configs=TABLE)

    def schema(*more: dict[str, Any]) -> str:
        def inner(name: str) -> dict[str, Any]:
            return {"type": "record", "name": name, "fields": [{"name": "a", "type": "int"}, *more]}

        return avro(
            ("one", *optional(inner("One"))),
            ("many", {"type": "array", "items": inner("Many")}),
            ("named", {"type": "map", "values": inner("Named")}),
        )

    first = registry.serializer(schema(), topic)
    client.produce(topic, first({"one": {"a": 1}, "many": [{"a": 2}], "named": {"k": {"a": 3}}}))
    second = registry.serializer(schema({"name": "b", "type": ["null", "string"], "default": None}), topic)
    # No value has the new field: the schema decides.
    client.produce(topic, second({"one": None, "many": [], "named": {}}))
    tables.write(topic)
    client.produce(
        topic,
        second({"one": {"a": 1, "b": "x"}, "many": [{"a": 2, "b": "y"}], "named": {"k": {"a": 3, "b": "z"}}}),
    )
    tables.write(topic)
    assert tables.rows(f"{topic}_errors") == []
    assert values(tables.rows(topic)) == [
        {
            "one": {"a": 1, "b": None},
            "many": [{"a": 2, "b": None}],
            "named": [("k", {"a": 3, "b": None})],
        },
        {"one": None, "many": [], "named": []},
        {
            "one": {"a": 1, "b": "x"},
            "many": [{"a": 2, "b": "y"}],
            "named": [("k", {"a": 3, "b": "z"})],
        },
    ]


def test_names_that_avro_does_not_allow_are_columns(
    client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    topic = "names"
    client.create_topic(topic, partitions=1, configs=TABLE)
    number = {"type": "integer"}
    inner = {"type": "object", "properties": {"a-b": number, "$c": number, "größe": number}}
    schema = {
        "type": "object",
        "properties": {"user-id": number, "in:ner": inner, "l i": {"type": "array", "items": inner}},
    }
    serialize = registry.serializer(Schema(json.dumps(schema), "JSON"), topic)
    value = {"a-b": 1, "$c": 2, "größe": 3}
    client.produce(topic, serialize({"user-id": 7, "in:ner": value, "l i": [value]}))
    client.produce(topic, serialize({}))
    tables.write(topic)
    assert tables.rows(f"{topic}_errors") == []
    assert values(tables.rows(topic)) == [
        {"user-id": 7, "in:ner": value, "l i": [value]},
        {"user-id": None, "in:ner": None, "l i": []},
    ]
