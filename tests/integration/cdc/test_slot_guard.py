"""A limit of the WAL that the slot holds back: a warning, paused copies, or no slot any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.requests import request
from stele.wire.cdc_requests import topic_of

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, Replay, running_cdc
from tests.support.waiting import eventually

WAL = "INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series({}, {} + 5000) n"


@pytest.mark.parametrize("action", ["drop-slot", "warn"])
def test_beyond_the_limit_the_slot_is_dropped_or_a_warning_logged(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, action: str
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    arguments = ("--tables", "t", "--max-slot-lag", "500000", "--slot-lag-action", action)
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        assert cdc.stop() == 0
        pg.run(WAL.format(0, 0))
        cdc.start()
        if action == "warn":
            replay.read_until(lambda: len(replay.rows) == 5001, check=cdc.check)
            assert "--max-slot-lag is 500000" in cdc.said
            return
        assert cdc.wait() == 1
        assert "and was dropped; its changes are lost: run once with --snapshot again" in cdc.said
        assert pg.run("SELECT slot_name FROM pg_replication_slots") == []
        cdc.start()
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "slot stele is gone: changes may be missing" in cdc.said


@pytest.mark.long
def test_a_copy_beside_the_stream_is_paused_and_begins_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for table in ("t", "b"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
    pg.run("INSERT INTO b VALUES (1, 'copied')")
    b = Replay(stele_broker.binary_url, "pg.public.b", is_resumed=True)
    arguments = ("--tables", "t", "--max-slot-lag", "1", "--slot-lag-action", "pause-copies")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        connection = pg.connect()
        with connection, connection.cursor() as cursor:
            # PostgreSQL exports no snapshot before this transaction ends.
            cursor.execute("SELECT txid_current()")
            with Client(stele_broker.binary_url) as client:
                request(client, topic_of("pg", "stele"), "add", ["b"])
            number = 0

            def is_paused() -> bool:
                nonlocal number
                cdc.check()
                pg.run(WAL.format(number, number))
                number += 10_000
                return "copies are paused" in cdc.said

            eventually(is_paused, "the copy is paused")
        connection.close()
        pg.run("INSERT INTO b VALUES (2, 'streamed or copied')")
        b.read_until(lambda: len(b.rows) == 2, check=cdc.check)
        assert "paused copies go on" in cdc.said
        assert cdc.stop() == 0
