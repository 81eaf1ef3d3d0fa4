"""Spark's own Kafka connector against the Kafka listener: what it writes is read through the others, and the reverse."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from stele import Client
from stele.testing import BrokerProcess

from tests.conformance.clients import DRIVERS, SPARK, Missing, install_by_script

ROOT = Path(__file__).resolve().parents[2]
COUNT = 3000
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def home() -> Path:
    wanted = os.environ.get("STELE_CONFORMANCE_CLIENTS") or ""
    if wanted != "all" and SPARK not in wanted.split(","):
        pytest.skip(f"{SPARK} is not chosen: make conformance CLIENTS={SPARK}")
    try:
        install_by_script(SPARK)()
    except Missing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    return ROOT / ".conformance" / SPARK


def test_what_spark_writes_as_a_batch_and_as_a_stream_is_read_by_it_and_by_everybody(
    home: Path, stele: BrokerProcess, tmp_path: Path
) -> None:
    topic = "from-spark"
    with Client(stele.binary_url) as client:
        client.create_topic(topic, partitions=3)
        client.create_topic(f"{topic}-copy", partitions=2)
        done = subprocess.run(
            [
                str(home / "venv" / "bin" / "python"),
                str(DRIVERS / SPARK / "job.py"),
                *(stele.kafka_bootstrap, topic, str(COUNT), str(tmp_path / "checkpoint"), str(home / "jars")),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        answer = json.loads(done.stdout.splitlines()[-1])
        ours = [
            [
                record.partition,
                record.offset,
                (record.key or b"").decode(),
                (record.value or b"").decode(),
                record.timestamp,
                [[name, (value or b"").decode()] for name, value in record.headers],
            ]
            for partition in range(3)
            for record in client.fetch(topic, partition).records
        ]
        copies = Counter(
            (record.value or b"").decode()
            for partition in range(2)
            for record in client.fetch(f"{topic}-copy", partition).records
        )
    assert answer["read"] == ours
    assert Counter(row[3] for row in ours) == {f"v{number}": 1 for number in range(COUNT)}
    assert all(row[5] == [["h", "1"]] for row in ours)
    assert copies == {f"copy of v{number}": 1 for number in range(COUNT)}
    assert answer["micro_batches"] >= 3
