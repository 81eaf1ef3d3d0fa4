"""What decodes the rows of a task, without Spark: how often it asks a registry, and what it does if that is down."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from stele.spark.decoding import Decoding, decoded_fields
from stele.spark.fetching import Broker
from stele.spark.options import OptionError, SchemaOptions, Use
from stele.spark.parsing import parse_read_options
from stele.wire.arrow_types import pa

from tests.support.scripted_registry import scripted_registry

OLD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NOW = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
VERSION = {"subject": "t-value", "version": 2, "id": 7, "schema": json.dumps(NOW)}


def options(url: str) -> SchemaOptions:
    given = {
        "url": "stele://127.0.0.1:1",
        "subscribe": "t",
        "stele.decode": "value",
        "stele.registry.url": url,
    }
    schemas = parse_read_options(given, Use.BATCH_READ).schemas
    assert schemas is not None
    return schemas


def batch(*values: bytes | None) -> Any:
    headers = pa.array(
        [None] * len(values), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    columns = {
        "value": pa.array(values, pa.binary()),
        "offset": pa.array(range(len(values))),
        "headers": headers,
    }
    return pa.RecordBatch.from_pydict(columns)


def test_a_worker_asks_once_for_each_schema_and_gets_over_a_registry_that_is_too_busy() -> None:
    answers: list[tuple[int, Any]] = [
        (200, VERSION),
        (503, {}),
        (200, VERSION),
        (200, {"schema": json.dumps(OLD)}),
    ]
    with scripted_registry(answers) as registry:
        schemas = options(registry.url)
        fields = decoded_fields(schemas)
        assert fields["value"].metadata == {"stele.schema.id": 7}
        planned = StructType([fields["value"], StructField("offset", LongType())])
        # Spark pickles it for each task.
        tasks = [pickle.dumps(Decoding.of(schemas, planned)) for _ in range(2)]
        values = [b"\x00\x00\x00\x00\x05\x04"] * 500 + [b"\x00\x00\x00\x00\x07\x06"] * 500 + [None]
        with Broker(schemas.connection) as broker:
            for task in tasks:
                decoding: Decoding = pickle.loads(task)
                rows = [batch(*values) for _ in range(3)]
                for decoded in decoding.decode(iter(rows), broker, "t-0"):
                    read = decoded.column("value").to_pylist()
                    assert read == [{"a": 2}] * 500 + [{"a": 3}] * 500 + [None]
        assert registry.paths == [
            "GET /subjects/t-value/versions/latest?deleted=false",
            "GET /schemas/ids/7",
            "GET /schemas/ids/7",
            "GET /schemas/ids/5",
        ]


def test_a_subject_that_is_missing_is_named_with_the_options_that_choose_another() -> None:
    with (
        scripted_registry([(404, {"error_code": 40401, "message": "no subject"})]) as registry,
        pytest.raises(OptionError, match=r"version latest of subject t-value: .*with stele\.schema\.subject"),
    ):
        decoded_fields(options(registry.url))
