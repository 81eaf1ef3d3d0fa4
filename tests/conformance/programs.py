"""Programs that keep their state in compacted topics: how a test gets them, runs them, and sees passes over the topics."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from stele import Client
from stele.testing import BrokerProcess

from tests.conformance.clients import Missing, install_by_script
from tests.support.brokers import run_broker_or_cluster

ROOT = Path(__file__).resolve().parents[2]
# Passes within a fraction of a second.
COMPACTING = {
    "STELE_LOG_CLEANER_BACKOFF_MS": "100",
    "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
# What makes a small topic due for a pass as soon as something is written to it.
SMALL_SEGMENTS = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}
# A program is brief: an optimizing compiler would only compete with it and the broker for the cores.
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
RecordProperty = Callable[[str, object], None]
_SHOWN_BYTES = 8000
_STOP_TIMEOUT_S = 60.0


def home_of(program: str) -> Path:
    """The directory into which ``install.sh`` of ``program`` has put it; skips where it was not chosen.

    Skips also where something is missing that it needs; with ``CI`` set that fails.
    """
    wanted = os.environ.get("STELE_CONFORMANCE_CLIENTS") or ""
    if wanted != "all" and program not in wanted.split(","):
        pytest.skip(f"{program} is not chosen: make conformance CLIENTS={program}")
    try:
        install_by_script(program)()
    except Missing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    return ROOT / ".conformance" / program


def jar_version(home: Path, artifact: str) -> str:
    """The version of the jar of ``artifact`` in the ``lib`` of ``home``."""
    (jar,) = (home / "lib").glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")


class Program:
    """A process with its output in a file, which ``start`` continues."""

    def __init__(
        self, command: Sequence[str], log_path: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._log_path = log_path
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The last of what it wrote, over all its starts."""
        return self._log_path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """All complete lines that it wrote, over all its starts."""
        return self._log_path.read_text(errors="replace").split("\n")[:-1]

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )

    def need_running(self) -> None:
        """Fail the test, with the end of the log, if the program has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            pytest.fail(f"{self._command[0]} ended:\n{self.log}")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Close its standard input and return when it has ended by that; fails on any exit code but 0."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_STOP_TIMEOUT_S)
        self._process = None
        assert code == 0, self.log

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()


@contextmanager
def running(program: Program) -> Generator[Program]:
    """``program``, started; killed at the end if it runs by then."""
    program.start()
    try:
        yield program
    finally:
        program.kill()


@contextmanager
def compacting_broker(path: Path) -> Generator[BrokerProcess]:
    """A broker of its own for one test, because the test kills it, or what stands for several."""
    with run_broker_or_cluster(path, environment=COMPACTING) as broker:
        yield broker


def removed_records(broker: BrokerProcess, topic: str) -> int:
    """How many records compaction has removed from all partitions."""
    removed = 0
    with Client(broker.binary_url) as client:
        for partition in range(client.describe_topic(topic).partitions):
            start = client.list_offset(topic, partition, "earliest")
            end = client.list_offset(topic, partition, "latest")
            assert start is not None
            assert end is not None
            removed += end - start - len(records_of(client, topic, partition, start=start, end=end))
    return removed


def records_of(
    client: Client, topic: str, partition: int, *, start: int, end: int
) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record from ``start`` to ``end``."""
    found: list[tuple[bytes | None, bytes | None]] = []
    while start < end:
        fetched = client.fetch(topic, partition, start)
        found += [(record.key, record.value) for record in fetched.records if record.offset < end]
        if fetched.next_offset == start:
            break
        start = fetched.next_offset
    return found
