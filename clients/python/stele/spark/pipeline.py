"""What the pipelines share: their options, a session on any master, triggers, progress on the terminal.

A pipeline is one file that works in three ways: ``stele pipeline run NAME``,
``spark-submit FILE`` and ``python FILE``. All of it but this stands in that file.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from ..client import Client
from ..errors import SteleClientError, UnknownTopicError
from .java import SparkMissingError, require_python, require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

F = TypeVar("F", bound=Callable[..., Any])

_PERIOD = re.compile(r"(\d+)\s*(ms|s|m|h)?")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", None: "seconds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a user asked for. ``out`` is a directory, or a URI of any file system that Spark and Arrow know."""

    url: str
    topic: str
    out: str
    master: str | None
    trigger: str
    checkpoint: str
    max_offsets_per_trigger: int
    plot: str | None


def pipeline_options(*, out: str, is_stream: bool = True) -> Callable[[F], F]:
    """The options that all pipelines have; the command gets them as one ``Run``."""
    options = [
        click.option(
            "--url",
            envvar="STELE_URL",
            default="stele://127.0.0.1:9009",
            show_default=True,
            help="The broker, stele://HOST:9009 or http://HOST:8080. [env: STELE_URL]",
        ),
        click.option("--topic", default="flights", show_default=True, help="The topic of flights."),
        click.option(
            "--out", default=out, show_default=True, help="Where the result goes: a directory or URI."
        ),
        click.option(
            "--master",
            envvar="SPARK_MASTER",
            help="Any Spark master: local[4], spark://…, yarn, or sc://… for Spark Connect. "
            "[default: local[*], or what spark-submit says]",
        ),
        click.option("--plot", help="Draw the result into this PNG file. [default: beside the result]"),
        click.option("--no-plot", is_flag=True, help="Draw nothing."),
    ]
    if is_stream:
        options += [
            click.option(
                "--trigger",
                default="available-now",
                show_default=True,
                help="available-now ends when all that is there was read; 5s looks every 5 s, until ctrl-c.",
            ),
            click.option(
                "--checkpoint",
                help="Where the query remembers how far it is; the same again goes on. [default: OUT-checkpoint]",
            ),
            click.option(
                "--max-offsets-per-trigger",
                type=click.IntRange(1),
                default=50_000,
                show_default=True,
                help="Records of one micro-batch.",
            ),
        ]

    def decorate(command: F) -> F:
        # The options that the command has already stand on the function.
        @functools.wraps(command)
        def called(**values: Any) -> Any:
            place = values["out"].rstrip("/")
            plot = None if values.pop("no_plot") else values["plot"] or f"{place}.png"
            if "://" in (plot or ""):
                plot = None
            run = Run(
                url=values.pop("url"),
                topic=values.pop("topic"),
                out=place,
                master=values.pop("master"),
                trigger=values.pop("trigger", "available-now"),
                checkpoint=values.pop("checkpoint", None) or f"{place}-checkpoint",
                max_offsets_per_trigger=values.pop("max_offsets_per_trigger", 0),
                plot=plot,
            )
            for used in ("out", "plot"):
                del values[used]
            return command(run, **values)

        decorated: Any = called
        for option in reversed(options):
            decorated = option(decorated)
        return cast("F", decorated)

    return decorate


def open_session(run: Run, name: str) -> SparkSession:
    """A session on the master that was asked for. Ends the command where Spark cannot start, or the topic is empty."""
    is_connect = (run.master or "").startswith("sc://")
    # Executors must have what the driver has, also where the environment is not activated.
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
    # spark-submit has said where to run, and how, before this.
    if run.master or "SPARK_ENV_LOADED" not in os.environ:
        master = run.master or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            # What is read here is small; 200 tasks a micro-batch would be all that is seen.
            builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.ui.enabled", "false")
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def require_topic(run: Run) -> None:
    """Say how to get the flights where they are missing. Raises ``click.ClickException``."""
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
        raise click.ClickException(f"there is no topic {run.topic!r} at {run.url}; {advice}") from error
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not count:
        raise click.ClickException(f"topic {run.topic!r} at {run.url} is empty; {advice}")
    click.echo(f"{count:,} records in the {partitions} partitions of {run.topic}", err=True)


def ensure_topic(url: str, topic: str) -> None:
    """Make the topic of a result, if it is not there. Raises ``click.ClickException``.

    Its records have the times of the flights, which any retention by time would find too old.
    """
    try:
        with Client(url) as client:
            client.ensure_topic(topic, configs={"retention.ms": -1})
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error


def file_system(place: str) -> tuple[Any, str]:
    """Arrow's file system of a directory or URI, and the path in it."""
    from pyarrow import fs

    systems: Any = fs
    if "://" in place:
        return systems.FileSystem.from_uri(place)
    return systems.LocalFileSystem(), str(Path(place).absolute())


def application_id(run: Run) -> str:
    """Whose records a query writes: as old as its checkpoint, and gone with it."""
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
    """The topic from its first record on, in micro-batches."""
    reader: Any = spark.readStream.format("stele").option("url", run.url).option("subscribe", run.topic)
    reader = reader.option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", run.max_offsets_per_trigger).load()


def trigger_of(text: str) -> dict[str, Any]:
    """The arguments of ``DataStreamWriter.trigger``. Raises ``click.UsageError``."""
    if text == "available-now":
        return {"availableNow": True}
    found = _PERIOD.fullmatch(text.strip())
    if found is None:
        raise click.UsageError(
            f"--trigger is {text!r}; it must be available-now, or a time such as 5s, 500ms or 1m"
        )
    return {"processingTime": f"{found[1]} {_UNITS[found[2]]}"}


def run_query(spark: SparkSession, run: Run, writer: DataStreamWriter, name: str) -> None:
    """Start the query, say how far it is, and wait for its end: its own, SIGTERM's, or ctrl-c's.

    A micro-batch that is under way when it is stopped is repeated by the next run.
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
    """Records between where a source of a progress report is and where its topics end; None if it does not say."""
    latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
    if latest is None or end is None:
        return None
    return sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())


def _offsets(text: Any) -> dict[tuple[str, str], int] | None:
    """``{"topic": {"0": 41}}``, as JSON text or as it is."""
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
    """What the terminal shows of a micro-batch."""
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
    """Tells each micro-batch on the terminal. Made here, for its base class needs PySpark."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Progress(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            click.echo(f"{name}: started", err=True)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            click.echo(progress_line(name, msgspec.json.decode(event.progress.json)), err=True)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing came; the last line still holds."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            click.echo(f"{name}: {'failed' if event.exception else 'ended'}", err=True)

    return Progress()


def draw(path: str | None, paint: Callable[[Any], None]) -> None:
    """Let ``paint`` fill a figure, and keep it as PNG; without matplotlib say what to install."""
    if path is None:
        return
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        click.echo("no picture: pip install 'stele-broker[pipelines]'", err=True)
        return
    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    paint(figure)
    figure.savefig(path, dpi=110)
    click.echo(f"picture: {path}")
