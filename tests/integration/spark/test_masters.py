"""The data source, found by its name in the executors' own environment, on other masters than ``local[2]``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

JOB = Path(__file__).with_name("masters_job.py")
COUNT = 1000
TIMEOUT_S = 240


def values(client: Client, topic: str) -> Counter[bytes | None]:
    return Counter(
        record.value
        for partition in range(client.partition_count(topic))
        for record in client.fetch(topic, partition).records
    )


@pytest.mark.long
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "connect"])
def test_batches_and_streams_run_there_as_they_do_here(
    broker: BrokerProcess, client: Client, topic: str, tmp_path: Path, master: str
) -> None:
    client.create_topic(topic, partitions=3)
    written = client.produce_many(
        topic, [NewRecord(b"%d" % number, partition=number % 3) for number in range(COUNT)]
    )
    assert len(written) == COUNT
    for sink in ("batch", "stream"):
        client.create_topic(f"{topic}-{sink}", partitions=2)
    done = subprocess.run(
        [sys.executable, str(JOB), master, broker.binary_url, topic, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        # Workers of a cluster find Python and packages by themselves, not by what this process has loaded.
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    found = re.search(r"^read (\d+) in (\d+)$", done.stdout, re.MULTILINE)
    assert found
    assert int(found[1]) == COUNT
    assert int(found[2]) >= 3
    expected = Counter({b"%d" % number: 1 for number in range(COUNT)})
    assert values(client, f"{topic}-batch") == expected
    assert values(client, f"{topic}-stream") == expected
