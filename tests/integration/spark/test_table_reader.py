"""The reader of tables against a real broker, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pip install 'stele-broker[spark]'")
pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")

from pyspark.sql.types import StructType
from stele import Client, SchemaRegistry
from stele.broker_process import BrokerProcess
from stele.operations.raw_fetch import RawFetch
from stele.operations.tables import RawTableFetch
from stele.spark import table_reader
from stele.spark.options import OptionError, Use
from stele.spark.parsing import parse_read_options
from stele.spark.source import SteleDataSource
from stele.spark.table_reader import TableReader
from stele.wire.messages import TableFetchResponse

TOPIC = "spark-table"
COLUMNS = (("value", True), ("timestamp", True))


@pytest.fixture
def client(stele_broker: BrokerProcess) -> Iterator[Client]:
    with Client(stele_broker.binary_url) as client:
        client.create_topic(TOPIC, partitions=2, configs={"cleanup.policy": "compact"})
        yield client


def make_reader(client: Client, columns: tuple[tuple[str, bool], ...], topic: str = TOPIC) -> TableReader:
    given = {"url": client.url, "subscribe": topic, "stele.table": "true"}
    return TableReader(parse_read_options(given, Use.BATCH_READ), columns)


def rows_of(reader: TableReader) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions()
        for rows in reader.read(partition)
        for row in rows.to_pylist()
    ]


def test_each_partition_has_its_newest_rows_as_of_the_planning(client: Client) -> None:
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1")):
        client.produce(TOPIC, value, key=key, partition=1)
    reader = make_reader(client, (("key", True), ("value", True), ("partition", True), ("offset", True)))
    planned = reader.partitions()
    client.produce(TOPIC, b"3", key="a", partition=1)
    rows = [tuple(row.values()) for task in planned for part in reader.read(task) for row in part.to_pylist()]
    assert rows == [(b"a", b"2", 1, 2), (b"c", b"1", 1, 4)]
    assert [row["value"] for row in rows_of(make_reader(client, COLUMNS))] == [b"1", b"3"]


def test_records_after_the_end_replace_rows_before_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")):
        client.produce(TOPIC, value, key=key, partition=0)
    reader = make_reader(client, COLUMNS)
    planned = reader.partitions()
    for key, value in (("a", "2"), ("b", None), ("a", "3"), ("e", "1"), ("e", None)):
        client.produce(TOPIC, value, key=key, partition=0)
    tail = client.fetch(TOPIC, 0, 4)
    # As a broker answers after a compaction pass over all of the log.
    raw = client.call(RawFetch(topic=TOPIC, partition=0, offset=4, max_bytes=1 << 20))
    original = RawTableFetch.from_frame

    def with_tail(operation: RawTableFetch, response: Any) -> TableFetchResponse:
        page = original(operation, response)
        return TableFetchResponse(
            batches=page.batches + raw.batches,
            next_offset=tail.next_offset,
            end_offset=page.end_offset,
            is_last=True,
        )

    monkeypatch.setattr(RawTableFetch, "from_frame", with_tail)
    values = [row["value"] for task in planned for part in reader.read(task) for row in part.to_pylist()]
    assert values == [b"1", b"1", b"3"]


def test_a_table_that_exceeds_the_memory_goes_through_a_file(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "_MEMORY_BYTES", 10)
    client.produce(TOPIC, b"x" * 100, key="a", partition=0)
    assert [row["value"] for row in rows_of(make_reader(client, COLUMNS))] == [b"x" * 100]


def test_a_topic_that_is_not_compacted_is_refused_at_the_planning(client: Client) -> None:
    client.create_topic("plain")
    with pytest.raises(OptionError, match="topic plain is not compacted"):
        make_reader(client, COLUMNS, "plain").partitions()


def test_the_columns_of_a_table_are_decoded_also_by_a_schema_in_a_header(
    client: Client, stele_broker: BrokerProcess
) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    with SchemaRegistry(stele_broker.registry_url) as registry:
        key = registry.serializer('"string"', TOPIC, key=True)
        by_prefix = registry.serializer(schema, TOPIC)
        by_header = registry.serializer(schema, TOPIC, frame="header")
    for number, name in enumerate(("a", "b", "a")):
        client.produce(TOPIC, by_prefix({"n": number}), key=key(name), partition=0)
    client.produce(TOPIC, by_header({"n": 5}), key=key("c"), partition=0, headers=list(by_header.headers))
    given = {"url": client.url, "subscribe": TOPIC, "stele.table": "true", "stele.decode": "key,value"}
    source = SteleDataSource(given)
    # The registry is that of the broker.
    planned = source.schema()
    assert planned["value"].dataType.simpleString() == "struct<n:int>"
    reader = source.reader(StructType([planned["value"], planned["key"]]))
    assert isinstance(reader, TableReader)
    assert rows_of(reader) == [
        {"value": {"n": 1}, "key": "b"},
        {"value": {"n": 2}, "key": "a"},
        {"value": {"n": 5}, "key": "c"},
    ]
