"""Write a topic as Parquet by date.

One sorted file per day, for queries over years.

Each run writes everything that the topic holds into a new directory, and replaces the
previous one when the new one is complete.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from stele.spark.pipeline import Run, draw, file_system, open_session, pipeline_options

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flights import flights_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "compaction"


def by_date(flights: DataFrame) -> DataFrame:
    """Repartition into one file per date, with flights in the order of departure."""
    from pyspark.sql import functions as f

    dated = flights.withColumn("date", f.to_date("scheduled"))
    return dated.repartition("date").sortWithinPartitions("date", "scheduled", "partition", "offset")


def replace(new: str, old: str) -> None:
    """Replace directory ``old`` by ``new``.

    If a run is killed in between, the next one repairs it.
    """
    from pyarrow import fs

    (system, target), (_, source) = file_system(old), file_system(new)
    if system.get_file_info(target).type != fs.FileType.NotFound:
        system.delete_dir(target)
    system.move(source, target)


def paint(table: Any, figure: Any) -> None:
    axes = figure.subplots()
    axes.bar(table["date"], table["flights"], width=1.0, color="#4477aa")
    axes.set_title("Flights by day")
    axes.grid(axis="y", alpha=0.3)


def show(spark: SparkSession, run: Run) -> None:
    flights = spark.read.parquet(run.out)
    for row in flights.groupBy("origin").count().orderBy("origin").collect():
        click.echo(f"  {row['origin']} {row['count']:>8,} flights")
    days = flights.groupBy("date").count().orderBy("date").toPandas().rename(columns={"count": "flights"})
    click.echo(f"result: {run.out}, {days['flights'].sum():,} flights of {len(days)} days")
    draw(run.plot, lambda figure: paint(days, figure))


@click.command()
@pipeline_options(out="data/flights-by-date", is_stream=False)
def main(run: Run) -> None:
    """Write a topic as Parquet files, one per date."""
    spark = open_session(run, NAME)
    records = spark.read.format("stele").option("url", run.url).option("subscribe", run.topic).load()
    new = f"{run.out}.new"
    by_date(flights_of(records)).write.mode("overwrite").partitionBy("date").parquet(new)
    replace(new, run.out)
    show(spark, run)
    spark.stop()


if __name__ == "__main__":
    main()
