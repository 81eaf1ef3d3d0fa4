"""Measure starts, and the memory of a broker that has nothing to do.

- ``kill``: the start after kill -9, with 10,000 partitions that have a record each since the last checkpoint. Every
  round starts on a copy of the same data directory, whose bytes are not synced yet. The yardstick imports the web
  framework, as every start does, reads every file of another copy in one thread, and then syncs the file system once.
  The rounds begin with files in the page cache, as they are after the death of the process alone.
- ``empty``: the start on an empty directory to the first response to Metadata, and the memory after it, beside Apache
  Kafka.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker

from .apache_kafka import ApacheKafka
from .harness import Benchmark, Rounds, in_turn
from .kafka_frames import await_metadata
from .process_usage import resident_mb
from .results import at_most
from .server_start import free_ports
from .subjects import QUIET, THIS, environment_of

PARTS = ("kill", "empty")
_PARTITIONS_PER_TOPIC = 1_000
_TIMEOUT_S = 60.0


# ── after kill -9 ──


def make_dirty(data_dir: Path, partitions: int) -> None:
    """Leave ``partitions`` with a record each, which no checkpoint knows."""
    # A checkpoint would move the recovery points past the records.
    arguments = (*QUIET, "--set", "log_checkpoint_interval_ms=3600000")
    with run_broker(data_dir, arguments=arguments, environment=environment_of(THIS)) as broker:
        with Client(broker.binary_url) as client:
            for number in range(-(-partitions // _PARTITIONS_PER_TOPIC)):
                count = min(_PARTITIONS_PER_TOPIC, partitions - number * _PARTITIONS_PER_TOPIC)
                client.create_topic(f"many-{number}", partitions=count)
                client.produce_many(
                    f"many-{number}", [NewRecord(b"x" * 100, partition=index) for index in range(count)]
                )
        broker.kill()


def seconds_to_ready(data_dir: Path) -> float:
    broker = BrokerProcess(
        data_dir, arguments=QUIET, environment=environment_of(THIS), start_timeout_s=_TIMEOUT_S
    )
    begun_s = time.perf_counter()
    broker.start()
    seconds = time.perf_counter() - begun_s
    broker.kill()
    return seconds


def seconds_to_read_and_sync(directory: Path) -> float:
    begun_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi, uvicorn"], check=True)
    for parent, _, names in os.walk(directory):
        for name in names:
            with Path(parent, name).open("rb") as file:
                file.read()
    os.sync()
    return time.perf_counter() - begun_s


def measure_kill(bench: Benchmark, rounds: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        template, copy = Path(temporary) / "dirty", Path(temporary) / "copy"
        make_dirty(template, partitions)

        def on_copy(measure: Callable[[Path], float]) -> Callable[[], float]:
            def run() -> float:
                shutil.copytree(template, copy)
                try:
                    return measure(copy)
                finally:
                    shutil.rmtree(copy)

            return run

        bench.row(
            f"start after kill -9, {partitions:,} partitions with a record",
            table="memory",
            baseline="imports, reading the files, one sync",
            value=in_turn(
                on_copy(seconds_to_ready),
                on_copy(seconds_to_read_and_sync),
                rounds=rounds,
                unit="s",
                goal=at_most(5),
            ),
        )


# ── on an empty directory ──


def start_stele(directory: Path, stack: ExitStack) -> tuple[float, int]:
    """Return the seconds to the first answer to Metadata, and the process id."""
    broker = BrokerProcess(directory / "data", arguments=QUIET, environment=environment_of(THIS))
    # Chosen in advance, as for Kafka, so that requests can begin before the ready line.
    (broker.kafka_port,) = free_ports(1, broker.host)
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(broker.start)
        answers = await_metadata(broker.host, broker.kafka_port, timeout_s=_TIMEOUT_S)
        seconds = time.perf_counter() - begun_s
        started.result()
    stack.callback(broker.stop)
    if not answers:
        raise RuntimeError("the Kafka listener of Stele does not answer Metadata")
    return seconds, broker.pid


def start_kafka(directory: Path, stack: ExitStack) -> tuple[float, int]:
    kafka = ApacheKafka(directory)
    # Not a part of a start: it is done once in the life of a broker.
    kafka.prepare()
    stack.callback(kafka.stop)
    return kafka.start(), kafka.pid


def measure_empty(bench: Benchmark, number_of_rounds: int) -> None:
    rounds = Rounds()
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        # The first one is for the page cache.
        for number in range(number_of_rounds + 1):
            for start in (start_stele, start_kafka):
                with ExitStack() as stack:
                    seconds, pid = start(Path(temporary) / f"{start.__name__}-{number}", stack)
                    if number:
                        rounds.add("start", "s", seconds, is_stele=start is start_stele)
                        rounds.add("start", "mb", resident_mb(pid), is_stele=start is start_stele)
    for what, measure, unit in (
        ("start to the first response", "s", "s"),
        ("memory after a start", "mb", "MB"),
    ):
        value = rounds.measure("start", measure, unit, at_most(0.2))
        bench.row(what, table="memory", baseline="Kafka", value=value)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.parser.add_argument("--only", choices=PARTS)
    bench.add("--partitions", type=int, default=10_000, quick=200, help="that are dirty (default: 10,000)")
    with bench.run() as options:
        parts = [options.only] if options.only else PARTS
        if "kill" in parts:
            measure_kill(bench, options.rounds, options.partitions)
        if "empty" in parts:
            measure_empty(bench, options.rounds)


if __name__ == "__main__":
    main()
