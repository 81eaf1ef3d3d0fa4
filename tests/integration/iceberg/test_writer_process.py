"""The process that writes tables: beside a broker, for all its topics, and with a warehouse in a bucket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError
from stele.client import Client
from stele.testing import BrokerProcess, run_broker

from tests.support.iceberg import BY_HAND, rows_of
from tests.support.waiting import eventually

T = TypeVar("T")

SOON = {"stele.iceberg.commit.interval.ms": "100"}
TABLE = {"stele.iceberg.mode": "key_value", **SOON}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("iceberg")
    with run_broker(
        directory / "data", environment={"STELE_ICEBERG_WAREHOUSE": str(directory / "lake")}
    ) as running:
        yield running


def status(broker: BrokerProcess) -> dict[str, Any]:
    return httpx.get(f"{broker.http_url}/v1/iceberg").raise_for_status().json()


def table_status(broker: BrokerProcess, topic: str) -> dict[str, Any]:
    return httpx.get(f"{broker.http_url}/v1/iceberg/{topic}").raise_for_status().json()


def await_status(look: Callable[[], T], holds: Callable[[T], object], what: str) -> T:
    """Return the first of several looks for which ``holds``."""
    seen: list[T] = []

    def is_there() -> bool:
        seen.append(look())
        return bool(holds(seen[-1]))

    eventually(is_there, what)
    return seen[-1]


def await_table(
    broker: BrokerProcess, topic: str, holds: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    return await_status(lambda: table_status(broker, topic), holds, f"the status of {topic}")


def catalog_of(broker: BrokerProcess) -> SqlCatalog:
    return SqlCatalog("stele", uri=f"sqlite:///{broker.data_dir}/iceberg/catalog.sqlite")


def test_the_broker_runs_it_while_a_topic_is_a_table(broker: BrokerProcess, client: Client) -> None:
    assert status(broker)["state"] == "idle"
    client.create_topic("later", partitions=1)
    client.produce_many("later", [b"a", b"b"])
    client.alter_topic("later", configs=TABLE)
    shown = await_table(broker, "later", lambda one: one["rows"] == 2 and one["state"] == "level")
    assert (shown["table"], shown["mode"], shown["lag_records"]) == ("stele.later", "key_value", 0)
    assert status(broker)["warehouse"] == str(broker.data_dir.parent / "lake")
    catalog = catalog_of(broker)
    table = catalog.load_table(("stele", "later"))
    assert table.location().startswith(f"file://{broker.data_dir.parent}/lake/stele/later-")
    assert [row["value"] for row in rows_of(table)] == [b"a", b"b"]
    catalog.engine.dispose()
    # It has a topic more while it runs.
    client.create_topic("more", partitions=1, configs=TABLE)
    client.produce("more", b"a")
    await_table(broker, "more", lambda one: one["rows"] == 1)
    metrics = httpx.get(f"{broker.http_url}/metrics").text
    assert 'stele_iceberg_rows{topic="later"} 2.0' in metrics
    assert 'stele_iceberg_state{state="level",topic="more"} 1.0' in metrics
    for topic in ("later", "more"):
        client.alter_topic(topic, configs={"stele.iceberg.mode": "off"})
    assert (
        await_status(lambda: status(broker), lambda one: one["state"] == "idle", "it is idle")["topics"] == []
    )
    refused = httpx.get(f"{broker.http_url}/v1/iceberg/later")
    assert refused.status_code == 400
    assert "stele.iceberg.mode" in refused.text
    assert httpx.get(f"{broker.http_url}/v1/iceberg/nowhere").status_code == 404


@pytest.mark.long
def test_a_topic_that_fails_does_not_stop_others(broker: BrokerProcess, client: Client) -> None:
    client.create_topic("bad", partitions=1, configs=TABLE)
    client.create_topic("good", partitions=1, configs=TABLE)
    await_table(broker, "bad", lambda one: one["commits"] == 1)
    client.alter_topic("bad", configs={**SOON, "stele.iceberg.mode": "value_schema"})
    client.produce("good", b"a")
    failed = await_table(broker, "bad", lambda one: one["state"] == "failed")
    assert "table bad has rows of the kind key_value" in failed["reason"]
    assert failed["failures"] >= 1
    client.produce("good", b"b")
    await_table(broker, "good", lambda one: one["rows"] == 2)
    # It goes on once a person has mended it.
    client.alter_topic("bad", configs=TABLE)
    await_table(broker, "bad", lambda one: one["state"] == "level")


@pytest.mark.long
def test_a_killed_process_starts_again_and_goes_on(broker: BrokerProcess, client: Client) -> None:
    client.create_topic("killed", partitions=1, configs=TABLE)
    client.produce("killed", b"a")
    await_table(broker, "killed", lambda one: one["rows"] == 1)
    restarts = status(broker)["restarts"]
    listed = subprocess.run(
        ["pgrep", "-P", str(broker.pid), "-f", "iceberg run"], capture_output=True, text=True, check=True
    )
    os.kill(int(listed.stdout), signal.SIGKILL)
    client.produce("killed", b"b")
    await_table(broker, "killed", lambda one: one["rows"] == 2)
    assert status(broker)["restarts"] == restarts + 1


@pytest.mark.cold_start
def test_without_the_extra_the_status_says_what_to_install(tmp_path: Path) -> None:
    # Python imports this module first; then there is no pyiceberg.
    (tmp_path / "sitecustomize.py").write_text('import sys\nsys.modules["pyiceberg"] = None\n')
    environment = {"PYTHONPATH": str(tmp_path)}
    with (
        run_broker(tmp_path / "data", environment=environment) as broker,
        Client(broker.binary_url) as client,
    ):
        client.create_topic("missing", partitions=1, configs=TABLE)
        shown = await_status(lambda: status(broker), lambda one: one["state"] == "failed", "it has failed")
        assert "pip install 'stele-broker[iceberg]'" in shown["last_error"]
        assert shown["topics"][0]["reason"] == shown["last_error"]
        assert shown["restarts"] == 0
        assert "1 topics have stele.iceberg.mode, and none is written as a table" in broker.stderr


@pytest.mark.long
def test_it_runs_by_hand_with_a_warehouse_in_a_bucket(tmp_path: Path) -> None:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    httpx.put(f"{endpoint}/lake").raise_for_status()
    with run_broker(tmp_path / "data", environment=BY_HAND) as broker, Client(broker.binary_url) as client:
        client.create_topic("remote", partitions=1, configs=TABLE)
        client.produce("remote", b"a")
        catalog = tmp_path / "catalog.sqlite"
        process = subprocess.Popen(
            [sys.executable, "-m", "stele.cli", "iceberg", "run", "--url", broker.binary_url,
             "--warehouse", f"s3://lake/tables?endpoint={endpoint}", "--catalog", str(catalog)],
            env={**os.environ, **login},
        )  # fmt: skip
        try:
            found = await_status(
                lambda: _remote_rows(catalog, endpoint) if catalog.exists() else [],
                bool,
                "the table has rows",
            )
            assert [row["value"] for row in found] == [b"a"]
        finally:
            process.terminate()
            assert process.wait() == 0
    server.stop()


def _remote_rows(catalog: Path, endpoint: str) -> list[dict[str, Any]]:
    opened = SqlCatalog(
        "stele", uri=f"sqlite:///{catalog}", init_catalog_tables="false",
        **{"s3.endpoint": endpoint, "s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-east-1"},
    )  # fmt: skip
    try:
        try:
            table = opened.load_table(("stele", "remote"))
        except (NoSuchTableError, OperationalError):
            return []
        assert table.location().startswith("s3://lake/tables/stele/remote-")
        return rows_of(table)
    finally:
        opened.engine.dispose()


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stele.cli", "iceberg", "run"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "give --warehouse and --catalog" in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "stele.cli", "iceberg", "run", "--warehouse", "gs://a", "--catalog", str(tmp_path / "c"),
         "--url", "stele://127.0.0.1:1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the warehouse is at gs://" in done.stderr
