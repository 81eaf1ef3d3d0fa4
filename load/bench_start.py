"""Measure the time to the ready line, idle memory, and reads at a start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from .bench_fetch import fill
from .broker_process import running_broker
from .measure import in_turn, report

MEMORY_GOAL_MB = 80


def _seconds_to_ready(data_dir: Path) -> float:
    command = [sys.executable, "-m", "stele.cli", "serve", "--data-dir", str(data_dir)]
    command += ["--http-port", "0", "--binary-port", "0", "--kafka-port", "0"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    process.terminate()
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
    """What the process has read by system calls since it began."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.split()[1])
    raise KeyError("rchar")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        directory = Path(temporary) / "data"
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
