"""SQL over topics whose values have a schema: typed columns from the log and from files, the same in each mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from stele.client import Client
from stele.records import NewRecord
from stele.registry.definitions import Schema
from stele.registry.registry import SchemaRegistry
from stele.testing import BrokerProcess, run_broker

from tests.support.iceberg import BY_HAND, Writing, writing

MODES = ("off", "key_value", "value_schema")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("sql") / "data", environment=BY_HAND) as running:
        yield running


@pytest.fixture(scope="module")
def tables(broker: BrokerProcess) -> Iterator[Writing]:
    with writing(broker, broker.data_dir / "iceberg") as made:
        yield made


def ask(broker: BrokerProcess, sql: str) -> dict[str, Any]:
    answer = httpx.post(f"{broker.http_url}/v1/sql", json={"sql": sql}, timeout=120)
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.json(), answer.text
    return answer.json()


def rows(broker: BrokerProcess, sql: str) -> list[list[Any]]:
    return ask(broker, sql)["rows"]


def avro(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [dict(field) for field in fields]})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


PLACE = {"type": "record", "name": "Place", "fields": [field("lat", "double")]}
WIDER_PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [field("lat", "double"), field("lon", ["null", "double"], default=None)],
}
FIRST = avro(
    field("id", "int"),
    field("city", "string"),
    field("place", PLACE),
    field("_key", "string"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
)
SECOND = avro(
    field("id", "long"),
    field("city", "string"),
    field("place", WIDER_PLACE),
    field("_key", "string"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("tags", {"type": "array", "items": "string"}, default=[]),
    field(
        "price",
        ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
        default=None,
    ),
)


@pytest.mark.parametrize("mode", MODES)
def test_columns_are_the_same_from_log_and_files(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry, tables: Writing, mode: str
) -> None:
    topic = f"orders-{mode}"
    client.create_topic(topic, partitions=1, configs={"stele.iceberg.mode": mode})
    httpx.put(
        f"{broker.registry_url}/config/{topic}-value", json={"compatibility": "NONE"}
    ).raise_for_status()
    first = registry.serializer(FIRST, topic, form="json")
    client.produce(
        topic,
        first({"id": 1, "city": "Bern", "place": {"lat": 47}, "_key": "own", "at": "2026-11-30T00:00:00Z"}),
        key=b"k",
        headers=[("h", b"\xff")],
        timestamp=5,
    )
    client.produce(topic, None, key=b"gone", timestamp=6)
    client.produce(topic, b"no schema", timestamp=-1)
    if mode != "off":
        tables.write(topic)
    second = registry.serializer(SECOND, topic, form="json")
    wider = {
        "id": 2**40, "city": "Genf", "place": {"lat": 46, "lon": 6}, "_key": "x", "at": "2026-11-30T00:00:01Z",
        "tags": ["a"], "price": "1.50",
    }  # fmt: skip
    client.produce(topic, second(wider), timestamp=7)
    other = registry.serializer(avro(field("id", "string")), topic, form="json")
    client.produce(topic, other({"id": "text"}), timestamp=8)

    everything = f'select * from "{topic}" order by _offset'
    found = ask(broker, everything)
    assert [(column["name"], column["type"]) for column in found["columns"]] == [
        ("id", "BIGINT"),
        ("city", "VARCHAR"),
        ("place", "STRUCT(lat DOUBLE, lon DOUBLE)"),
        ("__key", "VARCHAR"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
        ("tags", "VARCHAR[]"),
        ("price", "DECIMAL(6,2)"),
        ("_partition", "INTEGER"),
        ("_offset", "BIGINT"),
        ("_timestamp", "TIMESTAMP WITH TIME ZONE"),
        ("_key", "VARCHAR"),
        ("_headers", 'STRUCT("key" VARCHAR, "value" VARCHAR)[]'),
        ("_error", "VARCHAR"),
    ]
    nothing = [None] * 7
    assert [row[:12] for row in found["rows"]] == [
        [1, "Bern", {"lat": 47.0, "lon": None}, "own", "2026-11-30T00:00:00.000000Z", None, None,
         0, 0, "1970-01-01T00:00:00.005000Z", "k", [{"key": "h", "value": "\\xFF"}]],
        [*nothing, 0, 1, "1970-01-01T00:00:00.006000Z", "gone", None],
        [*nothing, 0, 2, None, None, None],
        [2**40, "Genf", {"lat": 46.0, "lon": 6.0}, "x", "2026-11-30T00:00:01.000000Z", ["a"], 1.5,
         0, 3, "1970-01-01T00:00:00.007000Z", None, None],
        [*nothing, 0, 4, "1970-01-01T00:00:00.008000Z", None, None],
    ]  # fmt: skip
    reasons = [row[12] for row in found["rows"]]
    assert [reason is None for reason in reasons] == [True, True, False, True, False]
    assert reasons[2].startswith("its value names no schema")
    assert reasons[4] == "its schema does not fit the table: field id is string, and the column is int64"
    # Conditions and aggregates on columns of values and of records, and what the log has as bytes.
    assert rows(
        broker, f"""select city from "{topic}" where id > 1 and _offset < 4 and place.lat < 47"""
    ) == [["Genf"]]
    assert rows(broker, f'select count(*), count(id), sum(price), count(_error) from "{topic}"') == [
        [5, 2, 1.5, 2]
    ]
    assert rows(broker, f'select value from "{topic}$raw" where _offset = 2') == [["no schema"]]
    both = f'"{topic}" o join "{topic}$raw" r using (_partition, _offset)'
    assert rows(broker, f"select hex(r.value::blob)[:4], o.city from {both} where _offset = 0") == [
        ["0000", "Bern"]
    ]
    joined = (
        f'select count(*) from "{topic}" a join "{topic}" b using (id, city) join "{topic}" c using (city)'
    )
    assert rows(broker, joined) == [[2]]
    for sql in (
        'with x as (select city from "{0}") select count(*) from x join "{0}" using (city)',
        'select count(*) from (unpivot (select id, city::varchar c, place.lat::varchar lat from "{0}") on c, lat)',
        "select count(*) from (select columns('^c') from \"{0}\" where city is not null)",
        'select count(*) from (select distinct o from "{0}" o where id is not null)',
        "select count(*) from (pivot \"{0}\" on city in ('Bern', 'Genf') using count(*) group by _partition)",
    ):
        assert rows(broker, sql.format(topic))[0][0] in (1, 2, 4), sql
    if mode != "off":
        tables.write(topic)
        again = ask(broker, everything)
        assert (again["rows"], again["columns"]) == (found["rows"], found["columns"])
        # The log has deleted them.
        httpx.delete(f"{broker.http_url}/v1/topics/{topic}/partitions/0/records?before=5").raise_for_status()
        assert rows(broker, everything) == found["rows"]


def test_json_schema_and_protobuf(broker: BrokerProcess, client: Client, registry: SchemaRegistry) -> None:
    document = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "a b": {"type": "array", "items": {"type": "string"}}},
    }
    client.create_topic("json", partitions=1)
    encode = registry.serializer(Schema(json.dumps(document), "JSON"), "json", form="json")
    client.produce_many("json", [NewRecord(encode({"n": n, "a b": ["x"]})) for n in range(3)])
    assert rows(broker, 'select sum(n), any_value("a b") from json') == [[3, ["x"]]]

    text = 'syntax = "proto3"; message Trip { int32 n = 1; map<string, int64> m = 2; }'
    client.create_topic("proto", partitions=1)
    encode = registry.serializer(Schema(text, "PROTOBUF"), "proto", form="json")
    client.produce("proto", encode({"n": 7, "m": {"k": "5"}}))
    assert rows(broker, "select n, m['k'] from proto") == [[7, 5]]


def test_names_that_avro_does_not_allow_and_types_within_each_other(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    inner = {"type": "object", "properties": {"1 é-x": {"type": "integer"}}}
    document = {
        "type": "object",
        "properties": {
            "a-b": {"type": "string"},
            "in": inner,
            "list": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner},
        },
    }
    topic = "names"
    client.create_topic(topic, partitions=1, configs={"stele.iceberg.mode": "value_schema"})
    encode = registry.serializer(Schema(json.dumps(document), "JSON"), topic, form="json")
    value = {"1 é-x": 1}
    client.produce(topic, encode({"a-b": "x", "in": value, "list": [value], "map": {"k": value}}))
    client.produce(topic, encode({}))
    sql = f"select * exclude (_timestamp) from {topic} order by _offset"
    found = rows(broker, sql)
    assert found[0][:4] == ["x", value, [value], [["k", value]]]
    tables.write(topic)
    assert rows(broker, sql) == found


def test_topics_without_a_version_or_with_subjects_of_records_are_text(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry
) -> None:
    client.create_topic("gone", partitions=1)
    encode = registry.serializer(avro(field("id", "int")), "gone")
    client.produce("gone", encode({"id": 1}))
    assert rows(broker, "select id from gone") == [[1]]
    httpx.delete(f"{broker.registry_url}/subjects/gone-value").raise_for_status()
    assert rows(broker, "select value::blob from gone")[0][0].startswith("AAAA")


def test_schemas_of_other_subjects_are_read_by_their_id(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry
) -> None:
    client.create_topic("borrowed", partitions=1)
    own = registry.serializer(avro(field("id", "long")), "borrowed")
    other = registry.serializer(avro(field("id", "int"), field("more", "int")), "elsewhere")
    client.produce_many("borrowed", [NewRecord(own({"id": 1})), NewRecord(other({"id": 2, "more": 3}))])
    assert rows(broker, "select * from borrowed order by _offset")[1][0] == 2


# By what other engines got wrong: bounds beyond all records, times that are equal or go back, functions in conditions.
CONDITIONS = (
    "_timestamp > '1970-01-01 00:00:00.030Z'",
    "_timestamp < '1970-01-01 00:00:00.030Z'",
    "_timestamp < '1960-01-01'",
    "_timestamp > '2960-01-01'",
    "_timestamp is null",
    "_timestamp between '1970-01-01 00:00:00.010Z' and '1970-01-01 00:00:00.020Z' and n % 2 = 0",
    "_offset < 0",
    "_offset > 95 or n = 3",
    "n is null",
    "n is not null and _error is null",
    "_error is not null",
    "n <> 5",
    "n not in (1, 2, null)",
    "lower(city) = 'x7'",
    "city like 'X1%' and _partition = 0",
    "city in ('X1', 'X2') or place.lat > 90",
    "place.lat = 7 or place is null",
    "place = {'lat': 7.0}",
    "tags[1] = 't3'",
    "list_contains(tags, 't4')",
    "price > 0.5 and \"at\" < timestamptz '2026-11-30'",
    "day = '1970-01-08'",
    "_key = 'k1' and _headers is null",
    "n = (select max(n) from {topic})",
    "exists (select 1 from {topic} o where o.n = t.n + 1 and o._offset > 50)",
)


@pytest.mark.long
def test_conditions_have_the_same_rows_wherever_records_are(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry, tables: Writing
) -> None:
    schema = avro(
        field("n", "int"),
        field("city", ["null", "string"]),
        field("place", ["null", PLACE]),
        field("tags", {"type": "array", "items": "string"}),
        field("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]),
        field("at", {"type": "long", "logicalType": "timestamp-micros"}),
        field("day", {"type": "int", "logicalType": "date"}),
    )
    records: list[tuple[Any, int]] = [
        (
            None
            if n % 10 == 9
            else {
                "n": n,
                "city": f"X{n}" if n % 3 else None,
                "place": {"lat": n} if n % 4 else None,
                "tags": [f"t{n}"] * (n % 3),
                "price": f"{n / 100:.2f}" if n % 5 else None,
                "at": f"2026-11-{29 + n % 2}T00:00:00Z",
                "day": "1970-01-08",
            },
            -1 if n % 11 == 0 else (n * 7) % 40,
        )
        for n in range(100)
    ]
    topics = {mode: f"conditions_{mode}" for mode in MODES}
    for mode, topic in topics.items():
        client.create_topic(topic, partitions=2, configs={"stele.iceberg.mode": mode})
        encode = registry.serializer(schema, topic, form="json")
        for number, (value, time_ms) in enumerate(records):
            data = b"other" if number % 33 == 0 else None if value is None else encode(value)
            client.produce(topic, data, key=f"k{number % 2}", partition=number % 2, timestamp=time_ms)
            if number == 60 and mode != "off":
                tables.write(topic)
    for condition in CONDITIONS:
        found = [
            rows(broker, f"select * from {topic} t where {condition.replace('{topic}', topic)} order by all")
            for topic in topics.values()
        ]
        assert found[0] == found[1] == found[2], condition


@pytest.mark.parametrize("name", ['a"b', "a'b;--", "a\nb", "\\", " ", "\0", "select", "x" * 1000])
def test_names_of_fields_that_are_hard_to_quote(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry, name: str
) -> None:
    topic = f"hard-{name.encode().hex()[:20]}"
    client.create_topic(topic, partitions=1)
    document = {"type": "object", "properties": {name: {"type": "integer"}, "n": {"type": "integer"}}}
    encode = registry.serializer(Schema(json.dumps(document), "JSON"), topic, form="json")
    client.produce(topic, encode({name: 1, "n": 2}))
    found = ask(broker, f'select * from "{topic}"')
    if name == "\0":
        assert "has a name that no column can have" in found["rows"][0][-1]
    else:
        assert [column["name"] for column in found["columns"]][:2] == [name, "n"]
        assert found["rows"][0][:2] == [1, 2]


def test_a_schema_of_too_many_columns_is_said_of_each_record(
    broker: BrokerProcess, client: Client, registry: SchemaRegistry
) -> None:
    client.create_topic("wide", partitions=1)
    encode = registry.serializer(
        avro(*(field(f"f{n}", "int", default=0) for n in range(10_000))), "wide", form="json"
    )
    client.produce("wide", encode({}))
    ((offset, reason),) = rows(broker, "select _offset, _error from wide")
    assert offset == 0
    assert "10000 columns" in reason
