"""Rows and schemas that cannot be records are refused with what to do."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructField, StructType
from stele.spark.options import OptionError
from stele.spark.rows import RowError, SinkRows
from stele.spark.schema import COLUMNS, read_columns
from stele.wire.arrow import HEADERS_ARROW
from stele.wire.arrow_types import pa


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"v"}], [None]], ids=["null key", "null header"])
def test_a_header_without_a_key_is_refused(headers: list[object]) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v"], pa.binary()), "headers": pa.array([headers], HEADERS_ARROW)}
    )

    with pytest.raises(RowError, match="a header whose key is null; give it a key"):
        list(SinkRows(topic="t").of(batch))


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_a_schema_may_not_promise_that_there_is_always_a(column: str) -> None:
    schema = StructType([StructField(column, COLUMNS[column], nullable=False)])

    with pytest.raises(OptionError, match=f"NOT NULL for {column}"):
        read_columns(schema, include_headers=True)


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp", "timestampType"])
def test_a_schema_may_promise_what_every_record_has(column: str) -> None:
    schema = StructType([StructField(column, COLUMNS[column], nullable=False)])

    assert read_columns(schema, include_headers=True) == (column,)
