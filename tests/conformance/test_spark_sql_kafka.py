"""Spark's own Kafka connector against the Kafka listener: what it writes is read through the others, and the reverse."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from stele import Client, Schema, SchemaRegistry
from stele.cdc.decoding.column_types import ColumnType
from stele.cdc.decoding.pgoutput import Column, Relation
from stele.cdc.records.avro_values import encoder_of
from stele.cdc.records.forms import AvroForm
from stele.cdc.records.table_schemas import Field, avro_name, avro_schema
from stele.schemas.framing import join
from stele.testing import BrokerProcess

from tests.conformance.clients import SPARK
from tests.conformance.programs import Program, RecordProperty, home_of, running
from tests.conformance.spark import job_command, spark_version
from tests.support.waiting import eventually

COUNT = 3000
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def home() -> Path:
    return home_of(SPARK)


@pytest.mark.program(SPARK)
def test_what_spark_writes_as_a_batch_and_as_a_stream_is_read_by_it_and_by_everybody(
    home: Path, stele: BrokerProcess, tmp_path: Path, record_property: RecordProperty
) -> None:
    record_property("version", spark_version())
    topic = "from-spark"
    with Client(stele.binary_url) as client:
        client.create_topic(topic, partitions=3)
        client.create_topic(f"{topic}-copy", partitions=2)
        done = subprocess.run(
            job_command(
                home,
                "write_and_read.py",
                *(stele.kafka_bootstrap, topic, str(COUNT), str(tmp_path / "checkpoint")),
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        answer = json.loads(done.stdout.splitlines()[-1])
        ours = [
            [
                record.partition,
                record.offset,
                (record.key or b"").decode(),
                (record.value or b"").decode(),
                record.timestamp,
                [[name, (value or b"").decode()] for name, value in record.headers],
            ]
            for partition in range(3)
            for record in client.fetch(topic, partition).records
        ]
        copies = Counter(
            (record.value or b"").decode()
            for partition in range(2)
            for record in client.fetch(f"{topic}-copy", partition).records
        )
    assert answer["read"] == ours
    assert Counter(row[3] for row in ours) == {f"v{number}": 1 for number in range(COUNT)}
    assert all(row[5] == [["h", "1"]] for row in ours)
    assert copies == {f"copy of v{number}": 1 for number in range(COUNT)}
    assert answer["micro_batches"] >= 3


COLUMNS = {
    "id": (ColumnType("int"), b"7", 7),
    "big": (ColumnType("long"), b"9007199254740993", 9007199254740993),
    "price": (ColumnType("decimal", 10, 2), b"-12.30", -12.3),
    "day": (ColumnType("date"), b"2026-11-30", "2026-11-30"),
    "at": (ColumnType("timestamptz"), b"2026-11-30 12:00:00.5+00", "2026-11-30T12:00:00.500Z"),
    "local": (ColumnType("timestamp"), b"2026-11-30 12:00:00", "2026-11-30T12:00:00.000"),
    "uid": (ColumnType("uuid"), str(UUID(int=5)).encode(), str(UUID(int=5))),
    "data": (ColumnType("bytes"), b"\\x00ff", "AP8="),
    "tags": (ColumnType("array", items=ColumnType("text")), b"{a,NULL}", ["a", None]),
    "ratio": (ColumnType("double"), b"1.5", 1.5),
    "a b": (ColumnType("text"), "ü".encode(), "ü"),
}


@pytest.mark.program(SPARK)
def test_from_avro_reads_what_change_data_capture_writes_and_to_avro_is_read(
    home: Path, stele: BrokerProcess, record_property: RecordProperty
) -> None:
    record_property("version", spark_version())
    topic = "changes-for-spark"
    fields = [Field(name, kind) for name, (kind, _, _) in COLUMNS.items()]
    schema = avro_schema(topic, "public.t", fields, is_row_only=False)
    columns = tuple(Column(field.name, 0, -1, field.name == "id") for field in fields)
    relation = Relation(0, "public", "t", "d", columns)
    form = AvroForm(relation, [encoder_of(field.type) for field in fields], prefix=join(1, b""))
    row = form.row([text for _, text, _ in COLUMNS.values()])
    key = form.row([b"7", *[None] * (len(fields) - 1)], only_identity=True)
    source = form.source(lsn=5, commit_lsn=5, xid=None, ts_us=1_795_249_378_010_000)
    with Client(stele.binary_url) as client, SchemaRegistry(stele.registry_url) as registry:
        registered = registry.register(f"{topic}-value", Schema(schema))
        assert registered.id == 1, "the prefix names it"
        client.create_topic(topic)
        client.create_topic(f"{topic}-copy")
        for value in (
            form.envelope(b"u", None, row, source, ["tags"]),
            form.envelope(b"d", key, None, source, []),
            None,
        ):
            client.produce(topic, value)
        command = job_command(home, "from_avro.py", stele.kafka_bootstrap, topic, schema)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr[-6000:]
        written = [record.value for record in client.fetch(topic, 0).records[:2]]
        copied = [record.value for record in client.fetch(f"{topic}-copy", 0).records]
    after = {avro_name(name): expected for name, (_, _, expected) in COLUMNS.items()}
    shown = {"lsn": 5, "ts_ms": "2026-11-21T08:22:58.010Z", "schema": "public", "table": "t"}
    # to_json leaves out what is null.
    assert json.loads(done.stdout.splitlines()[-1]) == [
        {"row": {"op": "u", "after": after, "unchanged": ["tags"], "source": shown}},
        {"row": {"op": "d", "before": {"id": 7}, "source": shown}},
        {},
    ]
    assert copied == written


class TransactionalWriter:
    """Transactions of known records, written by librdkafka."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self._numbers = itertools.count()
        self.committed: list[str] = []
        self._id = transactional_id
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                # One is open until Spark has read.
                "transaction.timeout.ms": 900_000,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    def write(self, count: int, *, commit: bool | None, partition: int = 0) -> None:
        """Write ``count`` records in a transaction; with ``commit`` None it stays open."""
        self._producer.begin_transaction()
        values = [f"{self._id} {next(self._numbers)}" for _ in range(count)]
        for value in values:
            self._producer.produce(self._topic, value, partition=partition)
        # Otherwise an abort drops what was not sent.
        self._producer.flush(TIMEOUT_S)
        if commit:
            self._producer.commit_transaction(TIMEOUT_S)
            self.committed += values
        elif commit is False:
            self._producer.abort_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)


@pytest.mark.program(SPARK)
def test_spark_reads_what_is_committed_and_gets_over_markers_and_aborted_records(
    home: Path, stele: BrokerProcess, tmp_path: Path, record_property: RecordProperty
) -> None:
    record_property("version", spark_version())
    topic = "read-committed-by-spark"
    with Client(stele.binary_url) as client:
        client.create_topic(topic, partitions=3)
    writer = TransactionalWriter(stele.kafka_bootstrap, topic, "spark-source")
    held = TransactionalWriter(stele.kafka_bootstrap, topic, "spark-source-open")
    for commit in (True, False, True):
        writer.write(15, commit=commit)
    # More markers and aborted records than a micro-batch may have: some are empty.
    for _ in range(12):
        writer.write(4, commit=False)
    writer.write(5, commit=True)
    # This partition ends with a marker, and this one has nothing else.
    writer.write(30, commit=False, partition=1)
    held.write(7, commit=None)
    program = Program(
        job_command(home, "read_committed.py", stele.kafka_bootstrap, topic, str(tmp_path / "checkpoint")),
        tmp_path / "spark.log",
    )
    with running(program):
        first = reading_of(program, 1)
        assert sorted(first["batch"]) == sorted(first["stream"]) == sorted(writer.committed)
        assert first["end"] == {topic: stable_offsets(stele, topic)}
        assert 0 in first["rows"], "no micro-batch had only hidden records"
        before = list(writer.committed)

        # What was open is aborted, and partitions get records after their markers.
        held.abort()
        writer.write(8, commit=False, partition=2)
        for partition in range(3):
            writer.write(6, commit=True, partition=partition)
        writer.write(3, commit=False, partition=2)
        program.tell("again")
        second = reading_of(program, 2)
        assert sorted(second["batch"]) == sorted(writer.committed)
        assert sorted(second["stream"]) == sorted(writer.committed[len(before) :])
        assert second["end"] == {topic: stable_offsets(stele, topic)}
        program.end_input()


def reading_of(program: Program, number: int) -> dict[str, Any]:
    """What the program has read, as soon as it tells."""

    def readings() -> list[dict[str, Any]]:
        program.need_running()
        return [json.loads(line) for line in program.lines if line.startswith('{"batch"')]

    eventually(lambda: len(readings()) >= number, f"Spark has read {number} times", timeout_s=TIMEOUT_S)
    return readings()[number - 1]


def stable_offsets(broker: BrokerProcess, topic: str) -> dict[str, int]:
    with Client(broker.binary_url) as client:
        return {str(partition): client.list_offset(topic, partition) or 0 for partition in range(3)}
