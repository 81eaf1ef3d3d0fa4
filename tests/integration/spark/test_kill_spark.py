"""kill -9 of all of Spark, JVM and Python, in the middle of micro-batches: each row is in the sink once.

With transactions, readers see whole micro-batches at any time.
"""

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
ROWS_OF_BATCH = 2000
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

    def __init__(
        self, broker: BrokerProcess, topic: str, home: Path, *, kind: str, transactional: bool
    ) -> None:
        self._log = home / "job.log"
        command = [sys.executable, str(HERE / "stream_job.py"), broker.binary_url, topic, f"{topic}-out"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(home / "checkpoint"), kind, str(transactional).lower()],
                stdout=log,
                stderr=log,
                start_new_session=True,
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
    """Log end offsets: records, also of open transactions, and markers."""
    return sum(client.list_offset(f"{topic}-out", p, isolation="read_uncommitted") or 0 for p in range(2))


def held_back(client: Client, topic: str) -> int:
    """How many offsets readers do not get, because a transaction is open."""
    return stored(client, topic) - sum(client.list_offset(f"{topic}-out", p) or 0 for p in range(2))


def committed(home: Path) -> int:
    """Micro-batches that Spark knows to be complete."""
    folder = home / "checkpoint" / "commits"
    return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0


def values(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(2):
        offset, end = 0, client.list_offset(topic, partition) or 0
        while offset < end:
            page = client.fetch(topic, partition, offset)
            found += [(r.value or b"").removesuffix(PADDING) for r in page.records]
            offset = page.next_offset
    return sorted(found)


def run_with_kills(
    broker: BrokerProcess,
    client: Client,
    topic: str,
    home: Path,
    *,
    kind: str,
    transactional: bool,
    kills: int,
    kill_broker: bool,
) -> None:
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-out", partitions=2)
    client.produce_many(topic, [NewRecord(b"%d" % i + PADDING, partition=i % 2) for i in range(ROWS)])
    cut_short = 0
    for _ in range(kills):
        job = Job(broker, topic, home, kind=kind, transactional=transactional)
        try:
            before = stored(client, topic)
            while stored(client, topic) == before:
                assert job.process.poll() is None, job.said
                # Leaves the two cores to Spark; a kill may come this much later.
                time.sleep(0.01)
        finally:
            job.kill()
        if kill_broker:
            broker.kill()
            broker.start()
        if transactional:
            cut_short += held_back(client, topic) > 0
            # Each micro-batch takes the same number of rows from each partition of the source.
            visible = values(client, f"{topic}-out")
            assert len(visible) % ROWS_OF_BATCH == 0
            assert visible == sorted(b"%d" % i for i in range(len(visible)))
        else:
            cut_short += stored(client, topic) > committed(home) * ROWS_OF_BATCH
    job = Job(broker, topic, home, kind=kind, transactional=transactional)
    try:
        assert job.process.wait(FINISH_TIMEOUT_S) == 0, job.said
    finally:
        job.kill()
    assert values(client, f"{topic}-out") == sorted(b"%d" % i for i in range(ROWS)), job.said
    assert held_back(client, topic) == 0
    assert cut_short, "no kill fell into a micro-batch that had begun: this run has proved nothing"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "transactional"), [("plain", True), ("shuffled", True), ("shuffled", False)]
)
def test_a_query_that_is_killed_writes_each_row_once(
    broker: BrokerProcess, client: Client, topic: str, tmp_path: Path, kind: str, transactional: bool
) -> None:
    run_with_kills(
        broker,
        client,
        topic,
        tmp_path,
        kind=kind,
        transactional=transactional,
        kills=1,
        kill_broker=kind == "shuffled",
    )


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["plain", "shuffled"])
@pytest.mark.parametrize("transactional", [True, False])
def test_a_query_that_is_killed_again_and_again_writes_each_row_once(
    broker: BrokerProcess,
    client: Client,
    topic: str,
    tmp_path: Path,
    kind: str,
    transactional: bool,
    seed: int,
) -> None:
    run_with_kills(
        broker,
        client,
        topic,
        tmp_path,
        kind=kind,
        transactional=transactional,
        kills=4,
        kill_broker=seed % 2 == 1,
    )
