"""Parse flights into columns, as all pipelines need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = (
    "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, dep_delay DOUBLE, arr_delay DOUBLE, "
    "air_time DOUBLE, distance DOUBLE"
)


def flights_of(records: DataFrame) -> DataFrame:
    """Parse the values of records into columns.

    ``scheduled`` is the timestamp of the record, the scheduled departure. A cancelled
    flight has no ``dep_delay``.
    """
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight")
    return records.select(f.col("timestamp").alias("scheduled"), "partition", "offset", parsed).select(
        "scheduled", "partition", "offset", "flight.*"
    )
