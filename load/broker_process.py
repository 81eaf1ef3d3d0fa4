"""A broker of its own for a benchmark, a demo or a load test: started on free ports, stopped at the end."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_READY = re.compile(r"^stele ready http=(\S+) binary=(\S+)")
# A start takes a second; a stop waits for answers in flight and a last sync.
_STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    http_url: str
    binary_url: str
    pid: int
    data_dir: Path


@contextmanager
def running_broker(*arguments: str, data_dir: Path | None = None) -> Generator[RunningBroker]:
    """``stele serve`` in a process of its own, with its data in a temporary directory unless one is given."""
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        directory = data_dir or Path(temporary) / "data"
        command = [sys.executable, "-m", "stele.cli", "serve", "--data-dir", str(directory)]
        command += ["--http-port", "0", "--binary-port", "0", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            ready = next((m for line in process.stdout if (m := _READY.match(line))), None)
            if ready is None:
                raise RuntimeError(f"the broker ended with {process.wait()} before it was ready")
            yield RunningBroker(
                http_url=f"http://{ready[1]}",
                binary_url=f"stele://{ready[2]}",
                pid=process.pid,
                data_dir=directory,
            )
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
