"""The columns of tables, and the rows of a batch in them."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow.compute

from ..wire.arrow import HEADERS_ARROW, arrow_schema_of
from ..wire.arrow_types import Array, RecordBatch, Schema, pa

pc: Any = pyarrow.compute

Mode = Literal["key_value", "value_schema"]

# What the codec makes of batches.
RAW: Schema = arrow_schema_of(
    [
        ("partition", False),
        ("offset", False),
        ("timestamp", True),
        ("timestampType", False),
        ("headers", True),
        ("key", True),
        ("value", True),
    ]
)
TIMESTAMP: Any = pa.timestamp("us", tz="UTC")
KEY_VALUE: Schema = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestamp_type", pa.int32()),
        pa.field("headers", HEADERS_ARROW),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
# A record that does not fit, and why.
ERRORS: Schema = KEY_VALUE.append(pa.field("reason", pa.string()))
# A record has -1 ms if it has no time.
_NO_TIME = pa.scalar(-1000, pa.int64())
# Engines have the years 1 to 9999, and partitions are named by them.
_FIRST_US = pa.scalar(-62_135_596_800_000_000, pa.int64())
_LAST_US = pa.scalar(253_402_300_799_999_999, pa.int64())


def record_columns(raw: RecordBatch) -> RecordBatch:
    """Return rows of ``RAW`` as those of ``KEY_VALUE``: null for the time of a record that has none."""
    columns: list[Array] = raw.columns
    times = columns[2]
    micros = times.cast(pa.int64())
    columns[2] = pc.if_else(pc.equal(micros, _NO_TIME), pa.scalar(None, TIMESTAMP), times)
    return pa.RecordBatch.from_arrays(columns, schema=KEY_VALUE)


def outside(rows: RecordBatch) -> Array | None:
    """Return which rows of ``KEY_VALUE`` have a time that no table has; None if none has."""
    micros = rows.column("timestamp").cast(pa.int64())
    bounds = pc.min_max(micros)
    low, high = bounds["min"], bounds["max"]
    if not low.is_valid or (low.as_py() >= _FIRST_US.as_py() and high.as_py() <= _LAST_US.as_py()):
        return None
    found = pc.or_(pc.less(micros, _FIRST_US), pc.greater(micros, _LAST_US))
    return found.fill_null(False)


def error_rows(rows: RecordBatch, reasons: list[str]) -> RecordBatch:
    """Return rows of ``KEY_VALUE`` as those of ``ERRORS``; times that no table has are null."""
    columns: list[Array] = rows.columns
    beyond = outside(rows)
    if beyond is not None:
        columns[2] = pc.if_else(beyond, pa.scalar(None, TIMESTAMP), columns[2])
    columns.append(pa.array(reasons, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=ERRORS)


def split_outside(rows: RecordBatch) -> tuple[RecordBatch, RecordBatch | None]:
    """Return rows of ``KEY_VALUE`` whose times fit, and the others as rows of ``ERRORS``."""
    beyond = outside(rows)
    if beyond is None:
        return rows, None
    refused = rows.filter(beyond)
    milliseconds = pc.divide(refused.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    reasons = [f"its timestamp, {ms} ms, is not in the years 1 to 9999" for ms in milliseconds]
    return rows.filter(pc.invert(beyond)), error_rows(refused, reasons)
