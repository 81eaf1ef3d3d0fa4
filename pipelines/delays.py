"""Aggregate delays by day, origin and carrier, into Parquet and into a topic.

Windows are on event time, the scheduled departure. The watermark limits how late a
flight may arrive to be counted. Its default is a year, because the demo produces
flights in the order of their file: January, October, November, December, February.
Each micro-batch writes a complete new version of the table, ``OUT/version=N``, from
the previous one and the windows that changed. So the table is complete and counts each
flight exactly once, even if a run is killed. The changed windows also go to a topic,
keyed by window.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from stele.spark.pipeline import (
    Run,
    application_id,
    draw,
    ensure_topic,
    file_system,
    open_session,
    pipeline_options,
    read_stream,
    run_query,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flights import flights_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "delays"
KEYS = ["day", "origin", "carrier"]
VERSIONS_KEPT = 2


def windows(flights: DataFrame, watermark: str) -> DataFrame:
    """Aggregate each window: flights, cancelled ones, those over 15 minutes late, minutes of delay."""
    from pyspark.sql import functions as f

    return (
        flights.withWatermark("scheduled", watermark)
        .groupBy(f.window("scheduled", "1 day").alias("window"), "origin", "carrier")
        .agg(
            f.count(f.lit(1)).alias("flights"),
            f.sum(f.col("dep_delay").isNull().cast("int")).alias("cancelled"),
            f.sum((f.col("dep_delay") > 15).cast("int")).alias("late"),
            f.sum("dep_delay").alias("delay_minutes"),
        )
        .select(
            f.to_date("window.start").alias("day"),
            "origin",
            "carrier",
            "flights",
            "cancelled",
            "late",
            "delay_minutes",
        )
    )


class Tables:
    """The versions of the table in one directory.

    An incomplete version is written again.
    """

    def __init__(self, out: str) -> None:
        self.out = out

    def path(self, version: int) -> str:
        return f"{self.out}/version={version}"

    def versions(self) -> list[int]:
        """Return the complete versions, ascending."""
        from pyarrow import fs

        system, root = file_system(self.out)
        infos = system.get_file_info(fs.FileSelector(root, allow_not_found=True))
        numbers = [
            int(info.base_name.removeprefix("version=")) for info in infos if "version=" in info.base_name
        ]
        marks = [f"{root}/version={number}/_SUCCESS" for number in numbers]
        whole = [info.type != fs.FileType.NotFound for info in system.get_file_info(marks)] if marks else []
        return sorted(number for number, is_whole in zip(numbers, whole, strict=True) if is_whole)

    def drop_before(self, version: int) -> None:
        system, root = file_system(self.out)
        for old in self.versions():
            if old <= version - VERSIONS_KEPT:
                system.delete_dir(f"{root}/version={old}")


def keep(changed: DataFrame, version: int, *, out: str, url: str, topic: str, application: str) -> None:
    """Write a version of the table, and produce the changed windows.

    Repeating it has no further effect.
    """
    from pyspark.sql import functions as f

    spark = changed.sparkSession
    changed = changed.persist()
    tables = Tables(out)
    before = [number for number in tables.versions() if number < version]
    table = changed
    if before:
        unchanged = spark.read.parquet(tables.path(before[-1])).join(changed, KEYS, "left_anti")
        table = unchanged.unionByName(changed)
    table.coalesce(1).sortWithinPartitions(*KEYS).write.mode("overwrite").parquet(tables.path(version))
    key = f.concat_ws("|", f.date_format("day", "yyyy-MM-dd"), "origin", "carrier")
    rows = changed.select(key.alias("key"), f.to_json(f.struct(*changed.columns)).alias("value"))
    (
        rows.coalesce(1)
        .sortWithinPartitions("key")
        .write.format("stele")
        .mode("append")
        .option("url", url)
        .option("topic", topic)
        .option("txnAppId", application)
        .option("txnVersion", version)
        .save()
    )
    changed.unpersist()
    # Only after the topic has the changes: a run that dies before needs the previous version.
    tables.drop_before(version)


def paint(table: Any, figure: Any) -> None:
    """Plot the mean delay of departures per origin and week."""
    table["day"] = table["day"].astype("datetime64[ns]")
    axes = figure.subplots()
    for origin, rows in table.groupby("origin"):
        weeks = rows.set_index("day")[["delay_minutes", "flights", "cancelled"]].resample("W").sum()
        axes.plot(weeks.index, weeks["delay_minutes"] / (weeks["flights"] - weeks["cancelled"]), label=origin)
    axes.set_title("Departure delay by week, in minutes")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def show(spark: SparkSession, run: Run) -> None:
    versions = Tables(run.out).versions()
    if not versions:
        click.echo("no flights have arrived yet")
        return
    path = Tables(run.out).path(versions[-1])
    table = spark.read.parquet(path).toPandas()
    for origin, count in table.groupby("origin")["flights"].sum().items():
        click.echo(f"  {origin} {count:>8,} flights")
    click.echo(f"result: {path}, {len(table):,} windows of {table['flights'].sum():,} flights")
    draw(run.plot, lambda figure: paint(table, figure))


@click.command()
@pipeline_options(out="data/delays")
@click.option(
    "--watermark", default="365 days", show_default=True, help="How late a flight may arrive to be counted."
)
@click.option(
    "--out-topic", default="flight-delays", show_default=True, help="Topic for the changed windows."
)
def main(run: Run, watermark: str, out_topic: str) -> None:
    """Aggregate delays by day, origin and carrier, as Parquet, a topic and a plot."""
    spark = open_session(run, NAME)
    ensure_topic(run.url, out_topic)
    frame = windows(flights_of(read_stream(spark, run)), watermark)
    out, url = run.out, run.url
    application = f"{NAME} {application_id(run)}"

    def each(changed: DataFrame, version: int) -> None:
        keep(changed, version, out=out, url=url, topic=out_topic, application=application)

    run_query(spark, run, frame.writeStream.outputMode("update").foreachBatch(each), NAME)
    show(spark, run)
    spark.stop()


if __name__ == "__main__":
    main()
