"""Measure starts, and the memory of a broker that has nothing to do and of idle connections.

- ``kill``: the start after kill -9, with 10,000 partitions that have a record each since the last checkpoint. Every
  round starts on a copy of the same data directory, whose bytes are not synced yet. The yardstick imports the web
  framework, as every start does, reads every file of another copy in one thread, and then syncs the file system once.
  The rounds begin with files in the page cache, as they are after the death of the process alone.
- ``connections``: thousands of connections are opened, and a request is answered over each; measured is by how much the
  resident memory of the server grew, divided by their number. The kernel's own memory for a socket is not in it. The
  yardstick is a bare asyncio protocol on uvloop that keeps nothing.
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
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.messages import MetadataRequest

from .apache_kafka import ApacheKafka
from .harness import Benchmark, Rounds, in_turn
from .kafka_frames import await_metadata, connect, metadata_request
from .process_usage import raise_open_files, resident_mb
from .results import at_most
from .server_start import free_ports
from .subjects import QUIET, THIS, environment_of, quiet_broker
from .yardsticks import yardstick_process

PARTS = ("kill", "connections", "empty")
_PARTITIONS_PER_TOPIC = 1_000
_TIMEOUT_S = 60.0
_REQUESTS = {"echo": b"x", "binary": MetadataRequest(topics=()).encode(), "kafka": metadata_request([])}


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


# ── idle connections ──


def kib_for_each(kind: str, port: int, pid: int, count: int) -> float:
    """Open connections, have a request answered over each, and return how much memory each took."""
    before_mb = resident_mb(pid)
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connect("127.0.0.1", port))
            connection.sendall(_REQUESTS[kind])
            if not connection.recv(65536):
                raise RuntimeError(f"not all of {count} connections could be opened")
        return (resident_mb(pid) - before_mb) * 1024 / count


@contextmanager
def server(kind: str, count: int) -> Generator[tuple[int, int]]:
    """Port and process id of a fresh server: memory that was used once is used again before more is taken."""
    if kind == "echo":
        with yardstick_process(kind) as found:
            yield found
        return
    with quiet_broker("--set", f"connections_max={count + 100}") as broker:
        yield broker.kafka_port if kind == "kafka" else broker.binary_port, broker.pid


def measure_connections(bench: Benchmark, rounds: int, count: int) -> None:
    raise_open_files()

    def measure(kind: str) -> float:
        with server(kind, count) as (port, pid):
            # What the first connections load and allocate is no connection's own.
            kib_for_each(kind, port, pid, 20)
            return kib_for_each(kind, port, pid, count)

    for kind, name in {"binary": "binary", "kafka": "Kafka"}.items():
        value = in_turn(
            lambda kind=kind: measure(kind),
            lambda: measure("echo"),
            rounds=rounds,
            unit="KiB",
            goal=at_most(2.5),
            warm=False,
        )
        what = f"memory per idle connection, {name}"
        bench.row(what, table="memory", baseline="bare asyncio", value=value)


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
    bench.add("--connections", type=int, default=5_000, quick=200, help="that are idle (default: 5,000)")
    with bench.run() as options:
        parts = [options.only] if options.only else PARTS
        if "kill" in parts:
            measure_kill(bench, options.rounds, options.partitions)
        if "connections" in parts:
            measure_connections(bench, options.rounds, options.connections)
        if "empty" in parts:
            measure_empty(bench, options.rounds)


if __name__ == "__main__":
    main()
