"""The restore of docs/cluster.md: an older dump of PostgreSQL, and a store with objects that are younger than it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from stele import Client
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer, find_bin
from tests.support.s3_servers import moto, use_test_credentials

pytestmark = pytest.mark.long


def test_a_restored_database_serves_what_it_knew_and_goes_on_from_there(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_credentials(monkeypatch)
    if not (find_bin() / "pg_dump").exists():
        pytest.skip("this PostgreSQL has no pg_dump")
    dump = tmp_path / "dump.sql"
    with moto() as url:
        environment = {
            "STELE_STORAGE": "shared",
            "STELE_POSTGRES_URL": server.dsn,
            "STELE_OBJECT_STORE": url,
            "STELE_SHARED_LINGER_MS": "5",
        }
        broker = BrokerProcess(tmp_path / "broker", environment=environment)
        broker.start()
        with Client(broker.binary_url) as client:
            client.create_topic("orders")
            for value in (b"a", b"b", b"c"):
                client.produce("orders", value)
            _run("pg_dump", f"--dbname={server.dsn}", "--schema=stele", f"--file={dump}")
            for value in (b"lost 1", b"lost 2"):
                client.produce("orders", value)
        broker.kill()
        server.run("DROP SCHEMA stele CASCADE")
        _run("psql", server.dsn, "--set=ON_ERROR_STOP=1", f"--file={dump}")
        broker.start()
        try:
            with Client(broker.binary_url) as client:
                assert client.produce("orders", b"d").offset == 3
                batch = client.fetch("orders", offset=0)
                records = list(batch.records)
                while len(records) < 4:
                    records += client.fetch("orders", offset=records[-1].offset + 1).records
            assert [(record.offset, record.value) for record in records] == [
                (0, b"a"),
                (1, b"b"),
                (2, b"c"),
                (3, b"d"),
            ]
        finally:
            broker.stop()


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run([find_bin() / program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
