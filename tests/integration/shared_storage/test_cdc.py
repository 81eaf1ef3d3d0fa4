"""Change data capture by one broker of several: it moves when that one fails, and every change is written once."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from stele.broker_process import BrokerProcess

from load.bench_cdc import TOPIC, Inserts, connector_state, create_table
from load.pausing import paused
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.cdc import Replay
from tests.support.postgres import postgres_bin
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

_INSERT_EVERY_S = 0.005


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One database for everything: what the brokers share, and the tables to follow."""
    with PostgresServer(postgres_bin(), fsync="off") as server:
        yield server


@contextmanager
def inserting(server: PostgresServer) -> Generator[Inserts]:
    inserts = Inserts(server, interval_s=_INSERT_EVERY_S)
    inserts.start()
    try:
        yield inserts
    finally:
        inserts.end()


@contextmanager
def capturing_brokers(server: PostgresServer, path: Path) -> Generator[Brokers]:
    create_table(server)
    environment = {"STELE_CDC_DSN": server.dsn, "STELE_CDC_TABLES": "t", "STELE_CDC_PARTITIONS": "2"}
    with run_brokers(path, server.dsn, 2, environment=environment) as brokers:
        # A broker that dies before the copy is complete leaves a copy that is repeated.
        eventually(
            lambda: "streaming" in (connector_state(brokers[1]), connector_state(brokers[2])),
            "the copy of the table is complete",
        )
        yield brokers
    eventually(
        lambda: not server.run("SELECT 1 FROM pg_replication_slots WHERE active"), "the connector has ended"
    )
    server.run("SELECT pg_drop_replication_slot('stele')")
    server.run("DROP PUBLICATION stele")
    server.run("DROP SCHEMA stele CASCADE")


def lease_holder(broker: BrokerProcess) -> int | None:
    """Return the id of the broker that has the lease of the connector, as ``broker`` knows it."""
    leases = httpx.get(f"{broker.http_url}/v1/cluster").raise_for_status().json()["leases"]
    return leases.get("cdc.pg.stele", {}).get("broker_id")


def wait_for_holder(broker: BrokerProcess) -> int:
    eventually(lambda: lease_holder(broker) is not None, "a broker has the lease of the connector")
    found = lease_holder(broker)
    assert found is not None
    return found


def check_each_once(replay: Replay, count: int) -> None:
    """``Replay`` has held that positions rise within a partition."""
    replay.read_until(lambda: len(replay.rows) >= count)
    assert sorted(int(record.key or b"") for record in replay.records) == list(range(count))


@pytest.mark.slow
def test_changes_go_on_at_another_broker_after_kill_9_of_the_one_that_captures(
    server: PostgresServer, tmp_path: Path
) -> None:
    with capturing_brokers(server, tmp_path) as brokers:
        first = wait_for_holder(brokers[1])
        second = 3 - first
        with inserting(server) as inserts:
            replay = Replay(brokers[second].binary_url, TOPIC)
            replay.read_until(lambda: len(replay.rows) > 100)
            eventually(lambda: connector_state(brokers[second]) == "standby", "the other broker stands by")
            brokers[first].kill()
            before = inserts.count
            replay.read_until(lambda: len(replay.rows) > before + 100)
        eventually(lambda: lease_holder(brokers[second]) == second, "the other broker has the lease")
        check_each_once(replay, inserts.count)
        # It comes back and stands by; the connector stays where it is.
        brokers[first].restart()
        eventually(
            lambda: connector_state(brokers[first]) == "standby", "the broker that was killed stands by"
        )

        # A broker that is stopped in order gives the lease back at once.
        server.run("INSERT INTO t VALUES (%s, 'while it stops')", (inserts.count,))
        assert brokers[second].stop() == 0
        replay = Replay(brokers[first].binary_url, TOPIC)
        server.run("INSERT INTO t VALUES (%s, 'after')", (inserts.count + 1,))
        check_each_once(replay, inserts.count + 2)
        eventually(lambda: lease_holder(brokers[first]) == first, "the broker that is left has the lease")


@pytest.mark.long
@pytest.mark.slow
def test_a_paused_broker_loses_the_connector_and_writes_nothing_when_it_goes_on(
    server: PostgresServer, tmp_path: Path
) -> None:
    with capturing_brokers(server, tmp_path) as brokers:
        first = wait_for_holder(brokers[1])
        second = 3 - first
        with inserting(server) as inserts:
            replay = Replay(brokers[second].binary_url, TOPIC)
            replay.read_until(lambda: len(replay.rows) > 100)
            with paused(brokers[first].pid):
                before = inserts.count
                replay.read_until(lambda: len(replay.rows) > before + 100)
            # What it had in its buffer comes now, if ever.
            eventually(
                lambda: lease_holder(brokers[first]) is not None, "the paused broker knows of the lease"
            )
            before = inserts.count
            replay.read_until(lambda: len(replay.rows) > before + 100)
        check_each_once(replay, inserts.count)
