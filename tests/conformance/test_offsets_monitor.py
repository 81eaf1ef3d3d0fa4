"""A monitor in Go reads ``__consumer_offsets`` as kminion does, with decoders made from Kafka's own schemas."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from stele import Client

from app.cluster.group_shards import SHARDS
from tests.conformance.clients import DRIVERS, Missing, install_by_script
from tests.support.brokers import BROKERS, run_broker_or_cluster
from tests.support.offsets_monitor import read_one

MONITOR = "offsets-monitor"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def monitor() -> str:
    try:
        install_by_script(MONITOR)()
    except Missing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    return str(DRIVERS.parents[2] / ".conformance" / MONITOR / "driver")


@pytest.mark.long
def test_it_learns_every_group_and_commit(monitor: str, tmp_path: Path) -> None:
    with run_broker_or_cluster(tmp_path) as broker:
        with Client(broker.binary_url) as client:
            client.produce("orders", b"first")
            with client.group("polled", "orders") as group:
                batch = next(iter(group))
                with batch:
                    assert [record.value for record in batch] == [b"first"]
        read_one(broker, "rdkafka")
        for _ in range(2):
            done = subprocess.run(
                [monitor, broker.kafka_bootstrap],
                capture_output=True,
                text=True,
                timeout=2 * TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            learned: dict[str, Any] = json.loads(done.stdout)
            assert (learned["partitions"], learned["internal"]) == (50 if BROKERS == 1 else SHARDS, True)
            assert learned["commits"] == {"polled/orders/0": 1, "rdkafka/orders/0": 1}
            assert learned["groups"]["rdkafka"] == "consumer generation 2"
            broker.kill()
            broker.start()
