"""``make cluster``: one command starts PostgreSQL, an S3 server and brokers, and leaves nothing when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
import pytest
from stele import Client

from load.seaweedfs import WEED
from tests.support.documents import ROOT
from tests.support.postgres import postgres_bin

pytestmark = pytest.mark.long

_BROKER = re.compile(
    r"^broker (\d)     (http://\S+)  (stele://\S+)  kafka (\S+)  process (\d+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What the command printed. ``brokers`` are URLs for HTTP and the binary protocol, by broker id."""

    process: subprocess.Popen[str]
    output: IO[str]
    data: Path
    brokers: dict[int, tuple[str, str]]
    coordinator: int
    kill: int

    def others(self) -> list[int]:
        return [number for number in self.brokers if number != self.coordinator]

    def members(self, at: int) -> list[int]:
        answer = httpx.get(f"{self.brokers[at][0]}/v1/cluster", timeout=60)
        return [member["id"] for member in answer.json()["brokers"]]


@contextmanager
def running_cluster() -> Generator[Running]:
    postgres_bin()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "load.run_cluster",
            "--free-ports",
            # The test takes the S3 server where it is installed; CI installs it.
            *([] if WEED.exists() or os.environ.get("CI") else ["--inline"]),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Enter starts"):
                break
        text = "".join(lines)
        data = re.search(r"^data +(\S+)$", text, re.MULTILINE)
        kill = re.search(r"^failover +kill -9 (\d+)  \(broker (\d)", text, re.MULTILINE)
        assert data is not None, text
        assert kill is not None, text
        brokers = _BROKER.findall(text)
        assert (kill[2], kill[1]) in [(number, pid) for number, _, _, _, pid in brokers]
        yield Running(
            process=process,
            output=process.stdout,
            data=Path(data[1]),
            brokers={int(number): (http, binary) for number, http, binary, _, _ in brokers},
            coordinator=int(kill[2]),
            kill=int(kill[1]),
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def processes_of(data: Path) -> list[str]:
    """Return the command lines of processes that name the directory."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(data) in line:
                found.append(line)
    return found


@pytest.mark.long
def test_a_killed_broker_is_replaced_and_ctrl_c_leaves_nothing() -> None:
    with running_cluster() as cluster:
        assert sorted(cluster.brokers) == [1, 2, 3]
        # PostgreSQL and the brokers at least; without them the last check would find nothing by mistake.
        assert len(processes_of(cluster.data)) >= 4
        survivor = cluster.others()[0]
        with Client(cluster.brokers[cluster.coordinator][1]) as client:
            client.create_topic("orders")
            client.produce("orders", b"before")
        os.kill(cluster.kill, signal.SIGKILL)
        with Client(cluster.brokers[survivor][1]) as client:
            client.produce("orders", b"after")
            assert [record.value for record in client.fetch("orders").records] == [b"before", b"after"]
        while cluster.members(survivor) != cluster.others():
            pass
        assert cluster.process.stdin is not None
        cluster.process.stdin.write("\n")
        cluster.process.stdin.flush()
        assert cluster.output.readline().startswith(f"broker {cluster.coordinator} runs again, process ")
        while cluster.members(survivor) != [1, 2, 3]:
            pass
        # Ctrl-C in a terminal: every process of the group gets the signal.
        os.killpg(cluster.process.pid, signal.SIGINT)
        assert cluster.process.wait() == 0
        assert not processes_of(cluster.data)
        assert not cluster.data.exists()
