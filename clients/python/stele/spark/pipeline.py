"""Shared code of the pipelines: options, sessions, triggers and progress lines.

A pipeline is a single file that runs with ``stele pipeline run NAME``,
``spark-submit FILE`` and ``python FILE``.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from ..client import Client
from ..config import shown_url
from ..errors import SteleClientError, UnknownTopicError
from ..wire.notation import parse_duration_ms
from .java import SparkMissingError, require_python, require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The options of a run; ``out`` is a directory, or a URI that Spark and Arrow support."""

    url: str
    topic: str
    out: str
    master: str | None
    checkpoint: str
    plot: str | None
    trigger: str = "available-now"
    max_offsets_per_trigger: int = 0


def pipeline_options(*, out: str, is_stream: bool = True) -> Callable[[F], F]:
    """Add the options of all pipelines; the command gets them as one ``Run``."""
    options = [
        click.option(
            "--url",
            envvar="STELE_URL",
            default="stele://127.0.0.1:9009",
            show_default=True,
            help="URL of the broker: stele://HOST:9009 or http://HOST:8080.",
            show_envvar=True,
        ),
        click.option("--topic", default="flights", show_default=True, help="Topic of the flights."),
        click.option("--out", default=out, show_default=True, help="Directory or URI of the result."),
        click.option(
            "--master",
            envvar="SPARK_MASTER",
            show_envvar=True,
            help="Spark master: local[4], spark://…, yarn, or sc://… for Spark Connect.  "
            "[default: local[*], or that of spark-submit]",
        ),
        click.option("--plot", help="PNG file for a chart of the result.  [default: OUT.png]"),
        click.option("--no-plot", is_flag=True, help="Do not draw a chart."),
    ]
    if is_stream:
        options += [
            click.option(
                "--trigger",
                default="available-now",
                show_default=True,
                help="available-now stops after reading what is there; 5s runs every 5 s, until ctrl-c.",
            ),
            click.option(
                "--checkpoint",
                help="Directory of the query's position, to continue from.  [default: OUT-checkpoint]",
            ),
            click.option(
                "--max-offsets-per-trigger",
                type=click.IntRange(1),
                default=50_000,
                show_default=True,
                help="Maximum records per micro-batch.",
            ),
        ]

    def decorate(command: F) -> F:
        # functools.wraps keeps the options that the command already has.
        @functools.wraps(command)
        def called(**values: Any) -> Any:
            out = values["out"].rstrip("/")
            plot = None if values.pop("no_plot") else values["plot"] or f"{out}.png"
            if "://" in (plot or ""):
                plot = None
            values |= {"out": out, "plot": plot}
            values["checkpoint"] = values.get("checkpoint") or f"{out}-checkpoint"
            run = Run(**{named.name: values.pop(named.name) for named in fields(Run) if named.name in values})
            return command(run, **values)

        decorated: Any = called
        for option in reversed(options):
            decorated = option(decorated)
        return cast("F", decorated)

    return decorate


def open_session(run: Run, name: str) -> SparkSession:
    """Open a session on the chosen master.

    Raises:
        click.ClickException: Spark cannot start, or the topic is missing or empty.
    """
    is_connect = (run.master or "").startswith("sc://")
    # Executors need the same interpreter, even if its environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        if not is_connect:
            require_spark()
            require_python()
    except SparkMissingError as error:
        raise click.ClickException(str(error)) from error
    require_topic(run)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.appName(f"stele-{name}").config("spark.sql.session.timeZone", "UTC")
    if is_connect:
        return builder.remote(run.master).getOrCreate()
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # spark-submit has already set the master.
    if run.master or "SPARK_ENV_LOADED" not in os.environ:
        master = run.master or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            # The data is small; the default of 200 tasks per micro-batch would dominate.
            builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.ui.enabled", "false")
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def require_topic(run: Run) -> None:
    """Raise ``click.ClickException`` with advice if the topic is missing or empty."""
    advice = (
        "fill it with the 336,776 flights of the demo, in a checkout of Stele: make demo "
        "ARGS='--url http://127.0.0.1:8080 --binary-url stele://127.0.0.1:9009'"
    )
    try:
        with Client(run.url) as client:
            partitions = client.partition_count(run.topic)
            count = sum(
                (client.list_offset(run.topic, partition) or 0)
                - (client.list_offset(run.topic, partition, "earliest") or 0)
                for partition in range(partitions)
            )
    except UnknownTopicError as error:
        raise click.ClickException(
            f"there is no topic {run.topic!r} at {shown_url(run.url)}; {advice}"
        ) from error
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not count:
        raise click.ClickException(f"topic {run.topic!r} at {shown_url(run.url)} is empty; {advice}")
    click.echo(f"{count:,} records in the {partitions} partitions of {run.topic}", err=True)


def ensure_topic(url: str, topic: str) -> None:
    """Create the topic of a result if missing. Raises ``click.ClickException``.

    Without retention, because records with the times of the flights are years old.
    """
    try:
        with Client(url) as client:
            client.ensure_topic(topic, configs={"retention.ms": -1})
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error


def file_system(location: str) -> tuple[Any, str]:
    """Return Arrow's file system for a directory or URI, and the path in it."""
    from pyarrow import fs

    systems: Any = fs
    if "://" in location:
        return systems.FileSystem.from_uri(location)
    return systems.LocalFileSystem(), str(Path(location).absolute())


def application_id(run: Run) -> str:
    """Return the ``txnAppId`` of a query, which is stored in its checkpoint."""
    system, folder = file_system(run.checkpoint)
    path = f"{folder}/stele-application"
    try:
        with system.open_input_stream(path) as file:
            return file.read().decode()
    except FileNotFoundError:
        name = uuid.uuid4().hex
        system.create_dir(folder, recursive=True)
        with system.open_output_stream(path) as file:
            file.write(name.encode())
        return name


def read_stream(spark: SparkSession, run: Run) -> DataFrame:
    """Read the topic from its first record, in micro-batches."""
    reader: Any = spark.readStream.format("stele").option("url", run.url).option("subscribe", run.topic)
    reader = reader.option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", run.max_offsets_per_trigger).load()


def trigger_of(text: str) -> dict[str, Any]:
    """Return the arguments of ``DataStreamWriter.trigger``.

    Raises ``click.UsageError``.
    """
    if text == "available-now":
        return {"availableNow": True}
    period_ms = parse_duration_ms(text.strip())
    if period_ms is None:
        raise click.UsageError(
            f"--trigger is {text!r}; it must be available-now, or a time such as 5s, 500ms or 1m"
        )
    return {"processingTime": f"{period_ms} milliseconds"}


def run_query(spark: SparkSession, run: Run, writer: DataStreamWriter, name: str) -> None:
    """Run the query with progress lines until it ends, or until SIGTERM or ctrl-c.

    The next run repeats a micro-batch that was interrupted.
    """
    listener = make_listener(name)
    spark.streams.addListener(listener)
    query: StreamingQuery = (
        writer.queryName(name)
        .option("checkpointLocation", run.checkpoint)
        .trigger(**trigger_of(run.trigger))
        .start()
    )
    stopping = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopping.set()

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not query.awaitTermination(1):
            if stopping.is_set():
                click.echo(f"{name}: stopping; the same command goes on from here", err=True)
                query.stop()
                break
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        spark.streams.removeListener(listener)


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Return the lag of a source in a progress report, in records; None if unknown."""
    latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
    if latest is None or end is None:
        return None
    return sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())


def _offsets(text: Any) -> dict[tuple[str, str], int] | None:
    """Parse ``{"topic": {"0": 41}}``, given as JSON text or as an object."""
    try:
        raw = text if isinstance(text, str | bytes) else msgspec.json.encode(text)
        document = msgspec.json.decode(raw, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, TypeError):
        return None
    return {
        (topic, partition): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def progress_line(name: str, report: Mapping[str, Any]) -> str:
    """Return the progress line of a micro-batch."""
    sources: list[Mapping[str, Any]] = report.get("sources") or []
    lags = [lag for source in sources if (lag := lag_of(source)) is not None]
    parts = [
        f"{name}: batch {report.get('batchId')}",
        f"{report.get('numInputRows', 0):,} rows",
        f"{report.get('processedRowsPerSecond') or 0:,.0f}/s",
    ]
    if lags:
        parts.append(f"lag {sum(lags):,}")
    times: Mapping[str, str] = report.get("eventTime") or {}
    if watermark := times.get("watermark"):
        parts.append(f"watermark {watermark[:10]}")
    states: list[Mapping[str, int]] = report.get("stateOperators") or []
    dropped = sum(state.get("numRowsDroppedByWatermark", 0) for state in states)
    if dropped:
        parts.append(f"{dropped:,} too late and left out")
    return ", ".join(parts)


def make_listener(name: str) -> StreamingQueryListener:
    """Return a listener that prints micro-batches; its base class needs PySpark."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Progress(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            click.echo(f"{name}: started", err=True)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            click.echo(progress_line(name, msgspec.json.decode(event.progress.json)), err=True)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """There were no records, so the last line is still true."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            click.echo(f"{name}: {'failed' if event.exception else 'ended'}", err=True)

    return Progress()


def draw(path: str | None, paint: Callable[[Any], None]) -> None:
    """Save the figure that ``paint`` draws as PNG; without matplotlib print a hint."""
    if path is None:
        return
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        click.echo("no chart; to draw one: pip install 'stele-broker[pipelines]'", err=True)
        return
    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    paint(figure)
    figure.savefig(path, dpi=110)
    click.echo(f"chart: {path}")
