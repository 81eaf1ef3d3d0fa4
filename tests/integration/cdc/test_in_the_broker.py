"""Connectors that a broker runs itself, and their metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker

from load.postgres_server import PostgresServer
from load.server_start import free_ports
from tests.support.cdc import Replay, running_cdc
from tests.support.waiting import Pauses

pytestmark = pytest.mark.long

# ── as a part of the broker ──


def test_a_broker_with_a_dsn_follows_the_database_and_reports_the_status(
    pg: PostgresServer, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pg.run("INSERT INTO t VALUES (1, 'old')")
    environment = {"STELE_CDC_DSN": pg.dsn, "STELE_CDC_TABLES": "t", "STELE_CDC_PARTITIONS": "2"}
    with run_broker(environment=environment) as broker:
        replay = Replay(broker.binary_url, "pg.public.t")
        replay.read_until(lambda: len(replay.rows) == 1)
        pg.run("INSERT INTO t VALUES (2, 'new')")
        replay.read_until(lambda: len(replay.rows) == 2)

        connector = _connector(
            broker,
            lambda found: (
                found["state"] == "streaming"
                and found["transactions"] >= 1
                and found["lag_bytes"] is not None
            ),
        )
        assert connector["tables"] == {
            "public.t": {"copied": 1, "expected": 0, "changes": 1, "is_copying": False}
        }
        assert connector["retained_bytes"] >= connector["lag_bytes"]
        assert connector["database"] == f"postgres on 127.0.0.1:{pg.port}"
        metrics = httpx.get(f"{broker.http_url}/metrics").text
        assert 'stele_cdc_state{slot="stele",state="streaming"} 1.0' in metrics
        assert 'stele_cdc_table_changes_total{slot="stele",table="public.t"} 1.0' in metrics
        assert 'stele_cdc_lag_bytes{slot="stele"}' in metrics

        # kill -9 of the broker ends the connector too, and the next broker's goes on.
        broker.kill()
        pg.run("INSERT INTO t VALUES (3, 'while it was gone')")
        broker.restart()
        replay.read_until(lambda: len(replay.rows) == 3)
        assert len(replay.records) == 3

        # So does kill -9 of the connector, and the broker starts another.
        ((pid,),) = pg.run("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'stele'")
        pg.run("SELECT pg_terminate_backend(%s)", (pid,))
        pg.run("INSERT INTO t VALUES (4, 'after')")
        replay.read_until(lambda: len(replay.rows) == 4)
        assert broker.stop() == 0
    assert not pg.run("SELECT 1 FROM pg_replication_slots WHERE active")
    assert pg.dsn not in broker.stderr


def test_a_connector_that_cannot_start_is_retried_and_reports_the_reason(
    pg: PostgresServer, tmp_path: Path
) -> None:
    environment = {"STELE_CDC_DSN": pg.dsn, "STELE_CDC_TABLES": "public.later"}
    with run_broker(environment=environment) as broker:
        connector = _connector(broker, lambda found: found["state"] == "failed")
        assert "there is no table public.later" in connector["last_error"]
        pg.run("CREATE TABLE later (id int PRIMARY KEY)")
        pg.run("INSERT INTO later VALUES (1)")
        replay = Replay(broker.binary_url, "pg.public.later")
        replay.read_until(lambda: len(replay.rows) == 1)
        assert broker.stop() == 0


def test_a_broker_without_a_database_has_no_connectors(stele_broker_session: BrokerProcess) -> None:
    assert httpx.get(f"{stele_broker_session.http_url}/v1/cdc").json() == {"connectors": []}
    assert "stele_cdc" not in httpx.get(f"{stele_broker_session.http_url}/metrics").text


def test_a_connector_of_its_own_serves_metrics(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    (port,) = free_ports(1)
    arguments = ("--tables", "t", "--metrics-port", str(port))
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        assert (
            'stele_cdc_state{slot="stele",state="streaming"} 1.0'
            in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        )


def _connector(broker: BrokerProcess, is_right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the one connector says of itself, once it is right."""
    give_up_s = time.monotonic() + 300
    pauses = Pauses()
    while True:
        (found,) = httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]
        if is_right(found):
            return found
        assert time.monotonic() < give_up_s, found
        pauses.pause()
