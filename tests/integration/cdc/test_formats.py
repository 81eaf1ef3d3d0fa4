"""Rows and changes with a schema in the registry, as confluent-kafka's deserializers read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import Client, SchemaRegistry
from stele.broker_process import BrokerProcess, run_broker
from stele.records import Record

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc
from tests.support.confluent_serializers import AvroDeserializer, JSONDeserializer

from .test_changes import TYPES as JSON_TYPES

VALUES = SerializationContext("", MessageField.VALUE)


class Reader(Replay):
    """Decodes the value of each record by the schema that it names; ``values`` are those of the topic in order."""

    def __init__(self, broker: BrokerProcess, topic: str, client: Any, make: Callable[[Any], Any]) -> None:
        super().__init__(broker.binary_url, topic)
        self._deserialize = make(client)
        self.values: list[Any] = []

    def _take(self, record: Record[bytes], partitions: int) -> None:
        self.records.append(record)
        self.values.append(self._deserialize(record.value, VALUES))


@contextmanager
def reading(broker: BrokerProcess, topic: str, make: Callable[[Any], Any]) -> Generator[Reader]:
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield Reader(broker, topic, client, make)


def avro(client: Any) -> Any:
    return AvroDeserializer(client)


def json_schema(client: Any) -> Any:
    return JSONDeserializer(None, schema_registry_client=client)


READERS = {"avro": avro, "json-schema": json_schema}
FORMATS = pytest.mark.parametrize("form", READERS)


@FORMATS
def test_changes_have_the_envelope_and_a_schema_that_evolves(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, form: str
) -> None:
    pg.run("CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10,2))")
    pg.run("INSERT INTO orders VALUES (1, 'pen', 1.50)")
    arguments = ("--tables", "orders", "--tombstones", "--partitions", "1", "--format", form)
    with (
        reading(stele_broker, "pg.public.orders", READERS[form]) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
        pg.run("UPDATE orders SET price = 2 WHERE id = 1")
        pg.run("ALTER TABLE orders ADD COLUMN note text DEFAULT 'none'")
        pg.run("INSERT INTO orders VALUES (2, 'ink', 12, NULL)")
        pg.run("ALTER TABLE orders DROP COLUMN item, ALTER COLUMN id TYPE bigint")
        pg.run("ALTER TABLE orders ALTER COLUMN price TYPE numeric(12,2)")
        pg.run("UPDATE orders SET note = 'x' WHERE id = 2")
        pg.run("DELETE FROM orders WHERE id = 2")
        pg.run("TRUNCATE orders")
        reader.read_until(lambda: len(reader.records) == 7, check=cdc.check)
        assert cdc.stop() == 0
    price: Callable[[str], Any] = Decimal if form == "avro" else str
    rows = [(value and (value["op"], value["before"], value["after"])) for value in reader.values]
    absent = {"item": None, "price": None, "note": None} if form == "avro" else {}
    assert rows == [
        ("r", None, {"id": 1, "item": "pen", "price": price("1.50")}),
        ("u", None, {"id": 1, "item": "pen", "price": price("2.00")}),
        ("c", None, {"id": 2, "item": "ink", "price": price("12.00"), "note": None}),
        ("u", None, {"id": 2, "price": price("12.00"), "note": "x"}),
        ("d", {"id": 2, **{name: absent[name] for name in absent if name != "item"}}, None),
        None,
        ("t", None, None),
    ]
    sources = [value["source"] for value in reader.values if value]
    assert {(source["schema"], source["table"]) for source in sources} == {("public", "orders")}
    assert sources[0]["txid"] is None
    assert all(isinstance(source["txid"], int) for source in sources[1:])
    assert [record.key for record in reader.records] == [b"1", b"1", b"2", b"2", b"2", b"2", None]
    with SchemaRegistry(stele_broker.registry_url) as registry:
        # A dropped column stays in a JSON Schema.
        versions = [1, 2, 3] if form == "avro" else [1, 2]
        assert registry.versions("pg.public.orders-value") == versions
        assert registry.subjects() == ["pg.public.orders-value"]


AVRO_VALUES: dict[str, Any] = {
    "real": float("nan"),
    "numeric(10,2)": Decimal("12.30"),
    "bytea": b"\x00\xff\x10",
    "json": '{"b": 1, "a": [1.50]}',
    "jsonb": '{"n": 12345678901234567890, "s": "ü"}',
    "timestamptz": datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC),
    "timestamp": datetime(2026, 11, 21, 10),
    "date": date(2026, 11, 21),
    "uuid": UUID("0b5f0e06-7f5c-4d0c-9c39-1f6b3a9c2a11"),
    "numeric[]": ["1.10", "2"],
    "numeric(50,2)": Decimal("-0.01"),
    "price": Decimal("1.50"),
    "numeric(6,1)[]": [Decimal("1.0"), None],
    "double precision[]": [float("nan"), 1.5, float("-inf")],
}
MORE_TYPES = {
    "oid": ("4294967295", 4294967295),
    "numeric(50,2)": ("-0.01", "-0.01"),
    "numeric(5,7)": ("0.0000123", "0.0000123"),
    "price": ("1.5", "1.50"),
    "numeric(6,1)[]": ("'{1,NULL}'", ["1.0", None]),
    "int2vector": ("'1 2'", "1 2"),
    "int4range": ("'[1,5)'", "[1,5)"),
    "bit(3)": ("'101'", "101"),
    "money": ("'1.50'", "$1.50"),
    "double precision[]": ("'{NaN,1.5,-Infinity}'", ["NaN", 1.5, "-Infinity"]),
}
TYPES = {**JSON_TYPES, **MORE_TYPES}


@FORMATS
def test_values_of_all_types_lose_nothing_and_are_the_same_from_the_copy_and_from_the_stream(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, form: str
) -> None:
    pg.run("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    pg.run("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    pg.run("CREATE DOMAIN price AS numeric(10,2)")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    pg.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
    values = ", ".join(literal for literal, _ in TYPES.values())
    pg.run(f"INSERT INTO kinds VALUES (1, {values})")
    arguments = ("--tables", "kinds", "--partitions", "1", "--format", form)
    with (
        reading(stele_broker, "pg.public.kinds", READERS[form]) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
        pg.run(f"INSERT INTO kinds VALUES (2, {values})")
        pg.run("INSERT INTO kinds (id) VALUES (3)")
        reader.read_until(lambda: len(reader.records) == 3, check=cdc.check)
    expected = {
        kind: AVRO_VALUES.get(kind, value) if form == "avro" else value for kind, (_, value) in TYPES.items()
    }
    copied, inserted, nulls = (value["after"] for value in reader.values)
    for row, number in ((copied, 1), (inserted, 2)):
        assert row.pop("id") == number
        shown = dict(zip(TYPES, row.values(), strict=True))
        # NaN is not equal to itself.
        assert {k: repr(v) for k, v in shown.items()} == {k: repr(v) for k, v in expected.items()}
    assert set(nulls.values()) == {3, None}


@pytest.mark.long
def test_rows_have_a_schema_and_infinities_are_numbers(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, a timestamptz, b date, c numeric, d timestamp)")
    pg.run("ALTER TABLE t REPLICA IDENTITY FULL")
    pg.run("INSERT INTO t VALUES (1, 'infinity', '-infinity', 'NaN', '0044-03-15 12:00 BC')")
    arguments = ("--tables", "t", "--partitions", "1", "--format", "avro", "--value", "row")
    with SchemaRegistry(stele_broker.registry_url) as registry:
        deserialize = registry.deserializer(form="json").deserialize

        def deserializer(_client: object) -> Callable[[bytes | None, object], Any]:
            return lambda data, _context: deserialize(data)

        reader = Reader(stele_broker, "pg.public.t", registry, deserializer)
        with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
            reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
            pg.run("DELETE FROM t")
            reader.read_until(lambda: len(reader.records) == 2, check=cdc.check)
    ((microseconds,),) = pg.run(
        "SELECT extract(epoch FROM timestamp '0044-03-15 12:00 BC')::bigint * 1000000"
    )
    infinities = {"a": 2**63 - 1, "b": -(2**31), "c": "NaN", "d": microseconds}
    assert reader.values == [{"id": 1, **infinities}, None]


def test_a_change_that_the_registry_refuses_stops_the_connector_until_it_is_allowed(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v int, price numeric(5,2))")
    pg.run("INSERT INTO t VALUES (1, 1, 2.5)")
    arguments = ("--tables", "t", "--partitions", "1", "--format", "avro")
    with (
        reading(stele_broker, "pg.public.t", avro) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
        pg.run("ALTER TABLE t ALTER COLUMN v TYPE text")
        pg.run("INSERT INTO t VALUES (2, 'two', 2.5)")
        assert cdc.wait() == 1
        assert "the registry refuses the schema" in cdc.said
        assert "stele schemas config pg.public.t-value --level NONE" in cdc.said
        with SchemaRegistry(stele_broker.registry_url) as registry:
            registry.set_config("pg.public.t-value", compatibility="NONE")
        cdc.start()
        reader.read_until(lambda: len(reader.records) == 2, check=cdc.check)
        # Records of both schemas are read, each by its own.
        price = Decimal("2.50")
        assert [value["after"] for value in reader.values] == [
            {"id": 1, "v": 1, "price": price},
            {"id": 2, "v": "two", "price": price},
        ]
        # To Avro, the bytes of a decimal are as good as a string; registries agree.
        with SchemaRegistry(stele_broker.registry_url) as registry:
            registry.set_config("pg.public.t-value", compatibility="BACKWARD")
        pg.run("ALTER TABLE t ALTER COLUMN price TYPE numeric")
        pg.run("DELETE FROM t")
        assert cdc.wait() == 1
        assert "the values of price in subject pg.public.t-value mean something else now" in cdc.said
    for other in ("json", "json-schema"):
        with running_cdc(pg, stele_broker.binary_url, log, *arguments[:-1], other) as cdc:
            assert cdc.wait() == 1
            assert "have values of the format avro; go on with --format avro" in cdc.said


def test_a_change_that_breaks_the_contract_of_its_topic_stops_the_connector_until_it_is_allowed(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    """Nothing of its transaction is stored, and nothing is lost."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    topic, validation = "pg.public.t", "stele.value.schema.validation"
    arguments = ("--tables", "t", "--partitions", "1", "--format", "avro")
    with Client(stele_broker.binary_url) as client:
        client.create_topic(topic, partitions=1, configs={validation: "content"})
    with (
        Client(stele_broker.binary_url) as client,
        reading(stele_broker, topic, avro) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
        cdc.await_streaming()
        client.alter_topic(topic, configs={"stele.value.subject.name.strategy": "subject:other"})
        pg.run("INSERT INTO t VALUES (2), (3)")
        assert cdc.wait() == 1
        assert "is not registered under subject 'other'" in cdc.said
        assert f"none of the batch for topic '{topic}' was stored" in cdc.said
        cdc.start()
        assert cdc.wait() == 1
        client.alter_topic(topic, configs={validation: "none"})
        cdc.start()
        reader.read_until(lambda: len(reader.records) == 3, check=cdc.check)
        assert cdc.stop() == 0
    assert [value["after"]["id"] for value in reader.values] == [1, 2, 3]


@pytest.mark.long
def test_large_values_that_an_update_leaves_out_are_named(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)")
    pg.run("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    pg.run("INSERT INTO docs VALUES (1, 1, %s)", ("x" * 20_000,))
    arguments = ("--tables", "docs", "--partitions", "1", "--format", "avro")
    with (
        reading(stele_broker, "pg.public.docs", avro) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        reader.read_until(lambda: len(reader.records) == 1, check=cdc.check)
        pg.run("UPDATE docs SET n = 2")
        reader.read_until(lambda: len(reader.records) == 2, check=cdc.check)
    assert reader.values[1]["after"] == {"id": 1, "n": 2, "body": None}
    assert reader.values[1]["unchanged"] == ["body"]
    assert reader.values[0]["unchanged"] is None


@pytest.mark.long
def test_changes_from_before_an_alter_table_have_the_schema_of_their_time(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, a numeric(6,2))")
    arguments = ("--tables", "t", "--partitions", "1", "--format", "avro")
    with (
        reading(stele_broker, "pg.public.t", avro) as reader,
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
    ):
        cdc.await_streaming()
        cdc.await_confirmed()
        cdc.kill()
        pg.run("INSERT INTO t VALUES (1, 1.25)")
        pg.run("ALTER TABLE t ALTER COLUMN a TYPE numeric(8,2)")
        pg.run("INSERT INTO t VALUES (2, 1234.25)")
        pg.run("ALTER TABLE t RENAME COLUMN a TO b")
        pg.run("INSERT INTO t VALUES (3, 2)")
        cdc.start()
        reader.read_until(lambda: len(reader.records) == 3, check=cdc.check)
    assert [value["after"] for value in reader.values] == [
        {"id": 1, "a": Decimal("1.25")},
        {"id": 2, "a": Decimal("1234.25")},
        {"id": 3, "b": Decimal("2.00")},
    ]


@pytest.mark.long
@pytest.mark.one_broker("the registry of the broker is named by its connector")
def test_the_connector_of_a_broker_finds_its_registry(pg: PostgresServer, tmp_path: Path) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    environment = {
        "STELE_CDC_DSN": pg.dsn,
        "STELE_CDC_TABLES": "t",
        "STELE_CDC_FORMAT": "json-schema",
        "STELE_CDC_PARTITIONS": "1",
        # That of commands in the same shell.
        "STELE_REGISTRY_URL": "http://127.0.0.1:9",
    }
    with (
        run_broker(tmp_path, environment=environment) as broker,
        reading(broker, "pg.public.t", json_schema) as reader,
    ):
        reader.read_until(lambda: len(reader.records) == 1)
    assert reader.values[0]["after"] == {"id": 1}
    assert json.loads((reader.records[0].value or b"")[5:]) == reader.values[0]
