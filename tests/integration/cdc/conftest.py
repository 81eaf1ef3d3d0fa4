"""A PostgreSQL server per module, emptied for each test; the connectors under test are processes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.brokers import run_broker_or_cluster
from tests.support.postgres import drop_slot, postgres_bin


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/integration/cdc/"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    # Small, so that tests need no large transactions to have them streamed.
    with PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB") as server:
        yield server


@pytest.fixture
def pg(server: PostgresServer) -> Iterator[PostgresServer]:
    """The server, with nothing in it."""
    server.run("DROP SCHEMA public CASCADE")
    server.run("CREATE SCHEMA public")
    yield server
    server.run(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
    )
    for (name,) in server.run("SELECT slot_name FROM pg_replication_slots WHERE NOT temporary"):
        drop_slot(server, name)
    for (name,) in server.run("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {name}")


@pytest.fixture
def stele_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path / "brokers") as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cdc.log"
