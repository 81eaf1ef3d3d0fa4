"""A topic that was deleted is noticed, and gets the rows of its table again."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc

pytestmark = pytest.mark.long


@pytest.mark.parametrize("storage", [("--storage", "disk"), ("--storage", "memory")], ids=" ".join)
@pytest.mark.one_broker("shared storage has no topics in memory")
def test_a_topic_that_was_deleted_gets_the_rows_of_its_table_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, storage: tuple[str, ...]
) -> None:
    """While the connector runs and while it is down; a quiet table and one without rows are not copied again."""
    for table in ("t", "quiet", "empty"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    for table in ("t", "quiet"):
        pg.run(f"INSERT INTO {table} VALUES (1), (2)")
    topic = "pg.public.t"
    is_kept = "disk" in storage
    with (
        Client(stele_broker.binary_url) as client,
        running_cdc(pg, stele_broker.binary_url, log, "--tables", "t,quiet,empty", *storage) as cdc,
    ):
        cdc.await_streaming()
        client.delete_topic(topic)
        pg.run("INSERT INTO t VALUES (3)")
        assert cdc.wait() == 1
        cdc.start()
        replay = Replay(stele_broker.binary_url, topic)
        replay.read_until(lambda: set(replay.table()) == ({1, 2, 3} if is_kept else {3}), check=cdc.check)
        cdc.await_streaming()
        cdc.stop()
        client.delete_topic(topic)
        cdc.start()
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (4)")
        replay = Replay(stele_broker.binary_url, topic)
        replay.read_until(lambda: set(replay.table()) == ({1, 2, 3, 4} if is_kept else {4}), check=cdc.check)
        assert (
            cdc.said.count("was deleted, and with it the rows of public.t; it is copied again") == 2 * is_kept
        )
    assert cdc.said.count("copied public.quiet") == cdc.said.count("copied public.empty") == 1
