"""kill -9 of all of Spark, JVM and Python, in the middle of micro-batches: each row is in the sink once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROWS = 8_000
# A row this large makes a task's part of a micro-batch three batches of the log: a kill falls between them.
PADDING = b"x" * 2000
FINISH_TIMEOUT_S = 240


def processes_of(session_id: int) -> list[int]:
    """Ids of the processes of a session: the driver, its JVM, and workers that have groups of their own."""
    found: list[int] = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                # "pid (name) state parent group session …", and the name may have anything in it.
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session_id:
                found.append(int(path.name))
    return found


class Job:
    """stream_job.py in a session of its own."""

    def __init__(self, broker: BrokerProcess, topic: str, home: Path, kind: str) -> None:
        self._log = home / "job.log"
        command = [sys.executable, str(HERE / "stream_job.py"), broker.binary_url, topic, f"{topic}-out"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(home / "checkpoint"), kind], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL to every process of it, until there is none."""
        while pids := [pid for pid in processes_of(self.process.pid) if pid != self.process.pid]:
            for pid in [self.process.pid, *pids]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


def stored(client: Client, topic: str) -> int:
    return sum(client.list_offset(f"{topic}-out", p) or 0 for p in range(2))


def committed(home: Path) -> int:
    """Micro-batches that Spark knows to be complete."""
    folder = home / "checkpoint" / "commits"
    return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0


def values(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(2):
        offset = 0
        while records := client.fetch(topic, partition, offset).records:
            found += [(r.value or b"").removesuffix(PADDING) for r in records]
            offset = records[-1].offset + 1
    return sorted(found)


def run_with_kills(
    broker: BrokerProcess, client: Client, topic: str, home: Path, *, kind: str, kills: int, kill_broker: bool
) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-out", partitions=2)
    client.produce_many(topic, [NewRecord(b"%d" % i + PADDING, partition=i % 2) for i in range(ROWS)])
    cut_short = 0
    for _ in range(kills):
        job = Job(broker, topic, home, kind)
        try:
            before = stored(client, topic)
            while (now := stored(client, topic)) == before:
                assert job.process.poll() is None, job.said
                # Leaves the two cores to Spark; a kill may come this much later.
                time.sleep(0.01)
        finally:
            job.kill()
        if kill_broker:
            broker.kill()
            broker.start()
        # The micro-batches hold 2000 rows; what is not a multiple of that was cut short.
        cut_short += stored(client, topic) > committed(home) * 2000
        assert now <= ROWS
    job = Job(broker, topic, home, kind)
    try:
        assert job.process.wait(FINISH_TIMEOUT_S) == 0, job.said
    finally:
        job.kill()
    assert values(client, f"{topic}-out") == sorted(b"%d" % i for i in range(ROWS)), job.said
    assert cut_short, "no kill fell into a micro-batch that had begun: this run has proved nothing"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "shuffled"])
def test_a_query_that_is_killed_writes_each_row_once(
    broker: BrokerProcess, client: Client, topic: str, tmp_path: Path, kind: str
) -> None:
    run_with_kills(broker, client, topic, tmp_path, kind=kind, kills=1, kill_broker=kind == "shuffled")


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["plain", "shuffled"])
def test_a_query_that_is_killed_again_and_again_writes_each_row_once(
    broker: BrokerProcess, client: Client, topic: str, tmp_path: Path, kind: str, seed: int
) -> None:
    run_with_kills(broker, client, topic, tmp_path, kind=kind, kills=4, kill_broker=seed % 2 == 1)
