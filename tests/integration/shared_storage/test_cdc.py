"""Change data capture by one broker of several: it moves when that one fails, and every change is written once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.cdc import Replay
from tests.support.postgres import postgres_bin
from tests.support.waiting import eventually

_LEASE = "cdc.pg.stele"
_TOPIC = "pg.public.t"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One database for everything: what the brokers share, and the tables to follow."""
    with PostgresServer(postgres_bin(), fsync="off") as server:
        yield server


class Inserts(threading.Thread):
    """Inserts row after row, each in a transaction of its own."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server = server
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        connection = self._server.connect()
        try:
            # A bounded rate: the brokers share the machine with this thread.
            while not self._ended.wait(0.005):
                with connection, connection.cursor() as cursor:
                    cursor.execute("INSERT INTO t VALUES (%s, 'new')", (self.count,))
                self.count += 1
        finally:
            connection.close()

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def inserting(server: PostgresServer) -> Generator[Inserts]:
    inserts = Inserts(server)
    inserts.start()
    try:
        yield inserts
    finally:
        inserts.end()


@contextmanager
def capturing_brokers(server: PostgresServer, path: Path) -> Generator[Brokers]:
    server.run("DROP TABLE IF EXISTS t")
    server.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    environment = {"STELE_CDC_DSN": server.dsn, "STELE_CDC_TABLES": "t", "STELE_CDC_PARTITIONS": "2"}
    with run_brokers(path, server.dsn, 2, environment=environment) as brokers:
        # A broker that dies before the copy is complete leaves a copy that is repeated.
        eventually(
            lambda: "streaming" in (state(brokers, 1), state(brokers, 2)), "the copy of the table is complete"
        )
        yield brokers
    eventually(
        lambda: not server.run("SELECT 1 FROM pg_replication_slots WHERE active"), "the connector has ended"
    )
    server.run("SELECT pg_drop_replication_slot('stele')")
    server.run("DROP PUBLICATION stele")
    server.run("DROP SCHEMA stele CASCADE")


def holder(brokers: Brokers, asked: int) -> int | None:
    return brokers.cluster(asked)["leases"].get(_LEASE, {}).get("broker_id")


def wait_for_holder(brokers: Brokers, asked: int) -> int:
    eventually(lambda: holder(brokers, asked) is not None, "a broker has the lease of the connector")
    found = holder(brokers, asked)
    assert found is not None
    return found


def state(brokers: Brokers, number: int) -> str:
    (connector,) = httpx.get(f"{brokers[number].http_url}/v1/cdc").json()["connectors"]
    return connector["state"]


def check_each_once(replay: Replay, count: int) -> None:
    """``Replay`` has held that positions rise within a partition."""
    replay.read_until(lambda: len(replay.rows) >= count)
    assert sorted(int(record.key or b"") for record in replay.records) == list(range(count))


@pytest.mark.slow
def test_changes_go_on_at_another_broker_after_kill_9_of_the_one_that_captures(
    server: PostgresServer, tmp_path: Path
) -> None:
    with capturing_brokers(server, tmp_path) as brokers:
        first = wait_for_holder(brokers, 1)
        second = 3 - first
        with inserting(server) as inserts:
            replay = Replay(brokers[second].binary_url, _TOPIC)
            replay.read_until(lambda: len(replay.rows) > 100)
            eventually(lambda: state(brokers, second) == "standby", "the other broker stands by")
            brokers[first].kill()
            before = inserts.count
            replay.read_until(lambda: len(replay.rows) > before + 100)
        eventually(lambda: holder(brokers, second) == second, "the other broker has the lease")
        check_each_once(replay, inserts.count)
        # It comes back and stands by; the connector stays where it is.
        brokers[first].restart()
        eventually(lambda: state(brokers, first) == "standby", "the broker that was killed stands by")

        # A broker that is stopped in order gives the lease back at once.
        server.run("INSERT INTO t VALUES (%s, 'while it stops')", (inserts.count,))
        assert brokers[second].stop() == 0
        replay = Replay(brokers[first].binary_url, _TOPIC)
        server.run("INSERT INTO t VALUES (%s, 'after')", (inserts.count + 1,))
        check_each_once(replay, inserts.count + 2)
        eventually(lambda: holder(brokers, first) == first, "the broker that is left has the lease")


@pytest.mark.slow
def test_a_paused_broker_loses_the_connector_and_writes_nothing_when_it_goes_on(
    server: PostgresServer, tmp_path: Path
) -> None:
    with capturing_brokers(server, tmp_path) as brokers:
        first = wait_for_holder(brokers, 1)
        second = 3 - first
        with inserting(server) as inserts:
            replay = Replay(brokers[second].binary_url, _TOPIC)
            replay.read_until(lambda: len(replay.rows) > 100)
            os.kill(brokers[first].pid, signal.SIGSTOP)
            try:
                before = inserts.count
                replay.read_until(lambda: len(replay.rows) > before + 100)
            finally:
                os.kill(brokers[first].pid, signal.SIGCONT)
            # What it had in its buffer comes now, if ever.
            eventually(lambda: holder(brokers, first) is not None, "the paused broker knows of the lease")
            before = inserts.count
            replay.read_until(lambda: len(replay.rows) > before + 100)
        check_each_once(replay, inserts.count)
