"""SQL over topics that are Iceberg tables: files and log together have each record once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.client import Client
from stele.records import NewRecord
from stele.registry.registry import SchemaRegistry
from stele.testing import BrokerProcess, run_broker

from tests.support.iceberg import BY_HAND, Writing, writing
from tests.support.s3_servers import seaweedfs, use_test_credentials, versitygw

TABLE = {"stele.iceberg.mode": "key_value"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("sql") / "data", environment=BY_HAND) as running:
        yield running


@pytest.fixture
def tables(broker: BrokerProcess) -> Iterator[Writing]:
    # Where the broker looks for the catalog.
    with writing(broker, broker.data_dir / "iceberg") as made:
        yield made


def ask(broker: BrokerProcess, sql: str) -> dict[str, Any]:
    answer = httpx.post(f"{broker.http_url}/v1/sql", json={"sql": sql}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.json(), answer.text
    return answer.json()


def produce(client: Client, topic: str, first: int, count: int) -> None:
    for partition in (0, 1):
        client.produce_many(
            topic,
            [
                NewRecord(
                    None if n % 5 == 4 else b'{"n": %d}' % n if n % 3 else bytes([255, n % 256]),
                    key=b"k%d" % n if n % 2 else None,
                    headers=[("h", b"\xff"), ("h", None)] if n % 4 == 0 else [],
                    timestamp=-1 if n % 7 == 0 else n * 1000 - 50_000,
                    partition=partition,
                )
                for n in range(first, first + count)
            ],
        )


def test_files_and_log_have_each_record_once_and_the_same(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic("both.1-x", partitions=2, configs=TABLE)
    sql = 'select * from "both.1-x" order by all'
    produce(client, "both.1-x", 0, 100)
    from_log = ask(broker, sql)["rows"]
    assert len(from_log) == 200
    tables.write("both.1-x")
    from_files = ask(broker, sql)
    assert (from_files["rows"], from_files["offsets"]) == (from_log, 0)

    produce(client, "both.1-x", 100, 20)
    both = ask(broker, sql)
    assert both["offsets"] == 40
    assert len(both["rows"]) == 240
    # The table keeps what the log has deleted.
    httpx.delete(f"{broker.http_url}/v1/topics/both.1-x/partitions/0/records?before=50").raise_for_status()
    assert ask(broker, sql)["rows"] == both["rows"]
    tables.write("both.1-x")
    assert ask(broker, sql)["rows"] == both["rows"]
    query = (
        'select count(*) from "both.1-x" where _partition = 1 and _offset >= 110 and _timestamp is not null'
    )
    assert ask(broker, query)["rows"] == [[len([n for n in range(110, 120) if n % 7])]]


def test_records_that_the_table_refuses_are_there(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic(
        "far", partitions=1, configs={**TABLE, "message.timestamp.after.max.ms": str(2**63 - 1)}
    )
    client.produce_many(
        "far", [NewRecord(b"far", timestamp=300_000_000_000_000), NewRecord(b"near", timestamp=1)]
    )
    tables.write("far")
    assert ask(broker, "select _offset, value from far order by 1")["rows"] == [[0, "far"], [1, "near"]]


def test_statements_cannot_read_the_files_of_a_table(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic("plain", partitions=1, configs=TABLE)
    client.produce("plain", b"x")
    tables.write("plain")
    (task,) = tables.table("plain").scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    for sql in (f"select * from read_parquet('{path}'), plain", f"select * from plain, '{path}'"):
        answer = httpx.post(f"{broker.http_url}/v1/sql", json={"sql": sql}, timeout=60)
        assert answer.status_code in (400, 404), answer.text


def test_a_topic_that_was_made_again_has_nothing_of_the_table_before(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic("again", partitions=1, configs=TABLE)
    client.produce("again", b"old")
    tables.write("again")
    client.delete_topic("again")
    client.create_topic("again", partitions=1, configs=TABLE)
    client.produce("again", b"new")
    assert ask(broker, "select value from again")["rows"] == [["new"]]


@pytest.mark.parametrize("server", [seaweedfs, pytest.param(versitygw, marks=pytest.mark.long)])
def test_files_in_a_bucket_are_read_through_the_broker(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_credentials(monkeypatch)
    with server() as url:
        # The prefix that tests share.
        bucket, _, options = url.partition("?")
        environment = {**BY_HAND, "STELE_ICEBERG_WAREHOUSE": f"{bucket}/sql?{options}"}
        with (
            run_broker(tmp_path / "data", environment=environment) as broker,
            Client(broker.binary_url) as client,
            writing(broker, broker.data_dir / "iceberg", environment["STELE_ICEBERG_WAREHOUSE"]) as tables,
        ):
            names = {mode: f"bucket-{mode}" for mode in ("key_value", "value_schema")}
            with SchemaRegistry(broker.registry_url) as registry:
                for mode, topic in names.items():
                    client.create_topic(topic, partitions=1, configs={"stele.iceberg.mode": mode})
                    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "pad", "type": "string"}]}'
                    encode = registry.serializer(schema, topic)
                    noise = random.Random(1)
                    records = [
                        NewRecord(encode({"n": n, "pad": noise.randbytes(500).hex()}), timestamp=n)
                        for n in range(3000)
                    ]
                    client.produce_many(topic, [*records, NewRecord(b"no schema")])
                    tables.write(topic)
                    client.produce(topic, encode({"n": 3000, "pad": ""}))
            for topic in (names["key_value"], names["value_schema"]):
                found = ask(broker, f'select count(*), sum(n), count(_error) from "{topic}"')
                assert (found["rows"], found["offsets"]) == ([[3002, 3000 * 3001 // 2, 1]], 1)
            # What a statement does not need of a file is not read.
            topic = names["value_schema"]
            found = ask(broker, f'select sum(n) from "{topic}"')
            size = sum(task.file.file_size_in_bytes for task in tables.table(topic).scan().plan_files())
            assert found["bytes"] < size / 4
            assert ask(broker, f'select sum(length(pad)) from "{topic}"')["bytes"] > size / 2
            key_value = names["key_value"]
            text = f'select count(value), min(_offset) from "{key_value}$raw" where _offset > 2990'
            assert ask(broker, text)["rows"] == [[11, 2991]]
            task, *_ = tables.table(key_value).scan().plan_files()
            path = "stele://" + task.file.file_path.partition("://")[2]
            for sql in (
                f"select * from \"{key_value}\", '{path}'",
                f"select * from '{path}'",
                f"from '{task.file.file_path}'",
            ):
                answer = httpx.post(f"{broker.http_url}/v1/sql", json={"sql": sql}, timeout=60)
                assert answer.status_code in (400, 404), answer.text
