"""Each program of ``examples`` does what its page says, against a broker of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.spark.java import SparkMissingError, require_spark

from tests.support.documents import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path) as running:
        yield running


def begin(file: str, url: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / file)],
        env={**os.environ, "STELE_URL": url, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(file: str, url: str, **variables: str) -> str:
    process = begin(file, url, **variables)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def test_the_page_names_each_program_and_no_other() -> None:
    named = set(re.findall(r"^\| `(\w+\.py)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert named == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("protocol", ["binary", "http"])
def test_what_is_produced_is_consumed(protocol: str, broker: BrokerProcess) -> None:
    url = broker.binary_url if protocol == "binary" else broker.http_url
    assert run("produce_and_consume.py", url) == "the sum of all values is 49950.0\n"


def test_a_topic_is_read_as_a_table(broker: BrokerProcess) -> None:
    printed = "50 of the first 50 records are rows of stele.readings\n"
    assert run("read_tables.py", broker.http_url) == printed


def test_a_web_service_stores_and_serves_orders(broker: BrokerProcess) -> None:
    order = {"customer": "ada", "items": ["chisel"]}
    service = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "examples.fastapi_app:app", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "STELE_URL": broker.binary_url},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert service.stderr is not None
    try:
        url = next(at[0] for line in service.stderr if (at := re.search(r"http://127\.0\.0\.1:\d+", line)))
        with httpx.Client(base_url=url, timeout=60) as http:
            created = http.post("/orders", json=order)
            assert created.status_code == 201
            assert http.get("/orders/{partition}/{offset}".format(**created.json())).json() == order
    finally:
        service.terminate()
        service.communicate(timeout=60)


def test_a_worker_prints_the_records_of_its_group_and_ends_when_it_is_told(broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client:
        client.create_topic("orders")
        client.produce("orders", b"first")
        worker = begin("group_worker.py", broker.binary_url)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "0 0 b'first'\n"
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors


def test_invoices_and_acknowledgements_commit_together(broker: BrokerProcess) -> None:
    with Client(broker.http_url) as client:
        for topic in ("payments", "invoices"):
            client.create_topic(topic)
        client.produce("payments", b"12.50", key="ada")
        assert run("transaction.py", broker.http_url) == "invoice for b'ada'\n"
        # The payment is acknowledged: another run finds nothing.
        assert run("transaction.py", broker.http_url) == ""
        assert [record.value for record in client.fetch("invoices").records] == [b"12.50"]


def test_records_of_two_versions_of_a_schema_are_read_as_the_newer_one(broker: BrokerProcess) -> None:
    assert run("schemas.py", broker.binary_url, STELE_REGISTRY_URL=broker.registry_url).splitlines() == [
        "Order(customer='ada', items=[])",
        "Order(customer='bob', items=['chisel'])",
        "the third version is refused",
    ]


@pytest.mark.long
def test_spark_counts_records_by_key(broker: BrokerProcess) -> None:
    try:
        require_spark()
    except SparkMissingError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    run("produce_and_consume.py", broker.binary_url)
    counts = dict(line.split() for line in run("spark_batch.py", broker.binary_url).splitlines())
    assert counts == {f"sensor-{key}": str(143 if key < 6 else 142) for key in range(7)}
