"""Measure starts: time to the ready line, idle memory, reads, kill -9 before.

``--only dirty`` measures the last alone: 10,000 partitions (``--partitions``), each with a record since
the last checkpoint. Every round starts on a copy of the same data directory, whose bytes are not synced
yet. The yardstick imports the web framework, as every start does, reads every file of another copy in one
thread, and then syncs the file system once.
The rounds begin with files in the page cache, as they are after the death of the process alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from stele import Client, NewRecord

from .bench_fetch import fill
from .broker_process import running_broker
from .measure import in_turn, report

MEMORY_GOAL_MB = 80
DIRTY_PARTITIONS = 10_000
DIRTY_ROUNDS = 3
_PARTITIONS_PER_TOPIC = 1_000


def _seconds_to_ready(data_dir: Path, end: signal.Signals = signal.SIGTERM) -> float:
    command = [sys.executable, "-m", "stele.cli", "serve", "--data-dir", str(data_dir)]
    command += ["--http-port", "0", "--binary-port", "0", "--kafka-port", "0"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    process.send_signal(end)
    process.wait()
    process.stdout.close()
    if not line.startswith("stele ready"):
        raise RuntimeError(f"not ready: {line!r}")
    return seconds


def _seconds_to_import() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi, uvicorn"], check=True)
    return time.perf_counter() - start


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise KeyError(field)


def _read_bytes(pid: int) -> int:
    """Bytes that the process has read by system calls since it began."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.split()[1])
    raise KeyError("rchar")


def _make_dirty(data_dir: Path, partitions: int) -> None:
    """Leave ``partitions`` with a record each, which no checkpoint knows."""
    # A checkpoint would move the recovery points past the records.
    arguments = ("--log-level", "warning", "--set", "log_checkpoint_interval_ms=3600000")
    with running_broker(*arguments, data_dir=data_dir) as broker:
        with Client(broker.binary_url) as client:
            for number in range(-(-partitions // _PARTITIONS_PER_TOPIC)):
                count = min(_PARTITIONS_PER_TOPIC, partitions - number * _PARTITIONS_PER_TOPIC)
                client.create_topic(f"many-{number}", partitions=count)
                client.produce_many(
                    f"many-{number}", [NewRecord(b"x" * 100, partition=index) for index in range(count)]
                )
        broker.kill()


def _seconds_to_read_and_sync(directory: Path) -> float:
    start = time.perf_counter() - _seconds_to_import()
    for parent, _, names in os.walk(directory):
        for name in names:
            with Path(parent, name).open("rb") as file:
                file.read()
    os.sync()
    return time.perf_counter() - start


def _measure_dirty(temporary: Path, partitions: int) -> None:
    template = temporary / "dirty"
    _make_dirty(template, partitions)

    def on_copy(measure: Callable[[Path], float]) -> float:
        copy = temporary / "copy"
        shutil.copytree(template, copy)
        try:
            return measure(copy)
        finally:
            shutil.rmtree(copy)

    report(
        f"from stele serve to the ready line, after kill -9 with {partitions:,} dirty partitions",
        in_turn(
            lambda: on_copy(lambda copy: _seconds_to_ready(copy, signal.SIGKILL)),
            lambda: on_copy(_seconds_to_read_and_sync),
            rounds=DIRTY_ROUNDS,
        ),
        unit="s",
        yardstick="an import of the web framework, reading every file, one sync",
        goal=5,
        at_most=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("dirty", "others"), help="measure a part")
    parser.add_argument("--partitions", type=int, default=DIRTY_PARTITIONS, help="dirty partitions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        if options.only != "dirty":
            _measure_others(Path(temporary))
        if options.only != "others":
            _measure_dirty(Path(temporary), options.partitions)


def _measure_others(temporary: Path) -> None:
    directory = temporary / "data"
    report(
        "from stele serve to the ready line",
        in_turn(lambda: _seconds_to_ready(directory), _seconds_to_import),
        unit="s",
        yardstick="python -c 'import fastapi, uvicorn'",
        goal=3,
        at_most=True,
    )
    with running_broker("--log-level", "warning", data_dir=directory) as broker:
        empty_read = _read_bytes(broker.pid)
        memory_mb = _status_kb(broker.pid, "VmRSS") / 1024
        is_met = "met" if memory_mb < MEMORY_GOAL_MB else "NOT met"
        print(
            f"resident memory, idle\n  Stele      {memory_mb:>14.1f} MB  (goal < {MEMORY_GOAL_MB} MB: {is_met})"
        )
        port = urlsplit(broker.binary_url).port
        assert port is not None
        fill(port)
    size = sum(path.stat().st_size for path in directory.glob("*/*.log"))
    with running_broker("--log-level", "warning", data_dir=directory) as broker:
        more = _read_bytes(broker.pid) - empty_read
    print(
        f"opening a partition of {size / 1e6:,.0f} MB after a clean shutdown\n"
        f"  read       {more / 1e3:>14,.1f} kB more than without it (its log is not read)"
    )


if __name__ == "__main__":
    main()
