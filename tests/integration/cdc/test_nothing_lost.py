"""Nothing is lost, stored twice, or confirmed before it is stored, whatever happens to slots, tables and settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, TIMEOUT_S, CdcProcess, Replay, running_cdc
from tests.support.postgres import drop_slot, postgres_bin
from tests.support.postgres_proxy import StallingProxy
from tests.support.variants import long_but
from tests.support.waiting import Pauses

# What the connector logs when it waits to try again.
RETRIES = "retrying in"


# ── what must not be lost, told twice, or confirmed too early ──


@pytest.fixture
def roomy() -> Iterator[PostgresServer]:
    """A server whose transactions may hold half a megabyte of changes before they are streamed."""
    with PostgresServer(postgres_bin(), logical_decoding_work_mem="512kB") as server:
        yield server


@pytest.mark.long
def test_a_keepalive_after_old_changes_confirms_only_stored_changes(
    roomy: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    """psycopg2 confirms by itself what a keepalive says, if the message before it stands before the last confirmation."""
    pg = roomy
    for table in ("big", "small"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
    small = Replay(stele_broker.binary_url, "pg.public.small")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "big,small") as cdc:
        cdc.await_streaming()
        old, new = pg.connect(), pg.connect()
        try:
            # Changes that lie before what is confirmed next, and are not streamed yet.
            old.cursor().execute("INSERT INTO big SELECT n, repeat('y', 1000) FROM generate_series(1, 400) n")
            pg.run("INSERT INTO small VALUES (1, 'first')")
            small.read_until(lambda: len(small.rows) == 1, check=cdc.check)
            cdc.await_confirmed()
            cdc.freeze()
            pg.run("INSERT INTO small VALUES (2, 'second')")
            ((second,),) = pg.run("SELECT pg_current_wal_lsn()::text")
            # Memory runs out: the old transaction is streamed, behind the second.
            new.cursor().execute(
                "INSERT INTO small SELECT n, repeat('z', 1000) FROM generate_series(1000, 1150) n"
            )
            _sent_up_to_now(pg)
            stele_broker.kill()
            cdc.thaw()
            _waits_for_the_broker(cdc)
            ((is_confirmed,),) = pg.run(
                "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = 'stele'",
                (second,),
            )
            assert not is_confirmed
            cdc.kill()
            stele_broker.restart()
            cdc.start()
            old.commit()
            new.commit()
        finally:
            old.close()
            new.close()
        small.read_until(lambda: {b"1", b"2", b"1150"} <= set(small.rows), check=cdc.check)


def _sent_up_to_now(pg: PostgresServer) -> None:
    """Returns when the stream has nothing more to send, or the peer takes no more."""
    ((end,),) = pg.run("SELECT pg_current_wal_insert_lsn()::text")
    # Of a transaction that is open, PostgreSQL decodes what is on disk: this writes all there is.
    pg.run("SELECT pg_switch_wal()")
    pauses = Pauses()
    while not pg.run(
        "SELECT 1 FROM pg_stat_replication AS stream JOIN pg_stat_activity USING (pid)"
        " WHERE stream.application_name = 'stele cdc'"
        " AND (sent_lsn >= %s::pg_lsn OR wait_event = 'WalSenderWriteData')",
        (end,),
    ):
        pauses.pause()


def _waits_for_the_broker(cdc: CdcProcess) -> None:
    """Some rounds of retries, in each of which it speaks to PostgreSQL."""
    before = cdc.said.count(RETRIES)
    give_up_s = time.monotonic() + TIMEOUT_S
    pauses = Pauses()
    while cdc.said.count(RETRIES) < before + 3:
        cdc.check()
        assert time.monotonic() < give_up_s, cdc.said
        pauses.pause()


def test_a_key_that_is_stored_out_of_line_and_not_touched_is_still_the_key(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id text PRIMARY KEY, v int)")
    pg.run("ALTER TABLE t ALTER id SET STORAGE EXTERNAL")
    key = "k" * 2400
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (%s, 0)", (key,))
        pg.run("UPDATE t SET v = 1")
        replay.read_until(lambda: len(replay.records) == 2, check=cdc.check)
    assert replay.table() == {key: {"id": key, "v": 1}}


def test_keys_are_those_of_the_table_as_it_was(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL)")
    pg.run("INSERT INTO t VALUES (1, 101)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        cdc.stop()
        pg.run("DELETE FROM t")
        pg.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
        pg.run("ALTER TABLE t ADD PRIMARY KEY (other)")
        pg.run("INSERT INTO t VALUES (2, 102)")
        cdc.start()
        replay.read_until(lambda: b"102" in replay.rows, check=cdc.check)
    assert set(replay.rows) == {b"102"}


@pytest.mark.long
def test_a_table_that_was_left_and_comes_back_is_copied_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for table in "ab":
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    pg.run("CREATE PUBLICATION stele FOR TABLE a, b")
    pg.run("INSERT INTO b VALUES (1)")
    a, b = (Replay(stele_broker.binary_url, f"pg.public.{name}") for name in "ab")
    for tables in ("a,b", "a", "a,b"):
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", tables) as cdc:
            cdc.await_streaming()
            pg.run("INSERT INTO a SELECT count(*) FROM a")
            pg.run("INSERT INTO b SELECT max(id) + 1 FROM b")
            cdc.await_confirmed()
            assert cdc.stop() == 0
    a.read_until(lambda: len(a.rows) == 3)
    b.read_until(lambda: len(b.rows) == 4)
    assert set(b.table()) == {1, 2, 3, 4}


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE t RENAME TO was_t", "DROP TABLE t", "ALTER PUBLICATION stele DROP TABLE t"],
)
def test_a_table_dropped_while_followed_is_reported(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, change: str
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run(change)
        assert cdc.wait() == 1
        assert "public.t was dropped, renamed, recreated or removed from publication stele" in cdc.said


def test_a_table_that_was_created_again_is_copied_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        cdc.stop()
        pg.run("DROP TABLE t")
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        pg.run("INSERT INTO t VALUES (7)")
        pg.run("ALTER PUBLICATION stele ADD TABLE t")
        cdc.start()
        replay.read_until(lambda: set(replay.rows) == {b"7"}, check=cdc.check)


@pytest.mark.long
def test_without_copies_a_slot_that_is_gone_is_a_gap_too(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    arguments = ("--tables", "t", "--snapshot", "never")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        cdc.stop()
        drop_slot(pg, "stele")
        cdc.start()
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "slot stele is gone" in cdc.said


@pytest.mark.long
def test_two_databases_do_not_share_a_topic_nor_fence_each_other(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with PostgresServer(postgres_bin(), own_identity=True) as other:
        other.run("CREATE TABLE t (id int PRIMARY KEY)")
        # Further on than the first one.
        other.run("DO $$ BEGIN FOR n IN 1..1500 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            for slot in ("stele", "another"):
                arguments = ("--tables", "t", "--slot", slot)
                with running_cdc(
                    other, stele_broker.binary_url, tmp_path / f"{slot}.log", *arguments
                ) as second:
                    assert second.wait() == 1
                    assert "choose another --prefix" in second.said
            pg.run("INSERT INTO t VALUES (2)")
            replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
            assert cdc.stop() == 0
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            pg.run("INSERT INTO t VALUES (3)")
            replay.read_until(lambda: len(replay.rows) == 3, check=cdc.check)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "statement",
    long_but(
        [
            "ALTER TABLE t ALTER n TYPE bigint",
            "ALTER TABLE t ADD made timestamptz DEFAULT clock_timestamp()",
            "CLUSTER t USING t_pkey",
            "TRUNCATE t; INSERT INTO t VALUES (9, 9)",
            "ALTER TABLE parts ALTER n TYPE bigint",
            "ALTER TABLE parts_1 SET (fillfactor = 50); VACUUM FULL parts_1",
            # Not written anew, but its columns are not those that the copy names.
            "ALTER TABLE t RENAME n TO m",
            "ALTER TABLE t DROP n",
        ],
        "ALTER TABLE t ALTER n TYPE bigint",
        "ALTER TABLE parts ALTER n TYPE bigint",
    ),
)
def test_a_table_that_is_altered_between_snapshot_and_copy_is_copied_whole(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, statement: str
) -> None:
    """An ALTER TABLE that rewrites leaves nothing in the table for older snapshots, and nothing in the stream."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    pg.run("CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
    pg.run("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    for table in ("t", "parts"):
        pg.run(f"INSERT INTO {table} SELECT n, n FROM generate_series(1, 5) n")
    name = "parts" if "parts" in statement else "t"
    replay = Replay(stele_broker.binary_url, f"pg.public.{name}")
    with StallingProxy(pg.port) as proxy:
        proxy.stall(lambda _, data: b"COPY (SELECT" in data)
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        with running_cdc(pg, stele_broker.binary_url, log, "--dsn", dsn, "--tables", name) as cdc:
            assert proxy.held.wait(TIMEOUT_S), cdc.said
            for part in statement.split("; "):
                pg.run(part)
            proxy.release.set()
            cdc.await_streaming()
            cdc.await_confirmed()
            expected = {row for (row,) in pg.run(f"SELECT id FROM {name}")}
            replay.read_until(lambda: set(replay.table()) == expected, check=cdc.check)


# ── limits and settings of others ──


@pytest.mark.long
def test_settings_of_the_environment_and_of_the_role_change_nothing(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    monkeypatch.setenv("PGDATESTYLE", "German")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    pg.run("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, v text)")
    pg.run("INSERT INTO t SELECT n, '2026-11-21 10:00+00', 'é' FROM generate_series(1, 30000) n")
    pg.run("ALTER ROLE postgres SET statement_timeout = '300ms'")
    try:
        replay = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            replay.read_until(lambda: len(replay.rows) == 30_000, check=cdc.check)
            cdc.await_streaming()
            pg.run("INSERT INTO t VALUES (0, '2026-11-21 10:00+00', 'é')")
            replay.read_until(lambda: len(replay.rows) == 30_001, check=cdc.check)
    finally:
        pg.run("ALTER ROLE postgres RESET statement_timeout")
    table = replay.table()
    assert {(row["at"], row["v"]) for row in table.values()} == {("2026-11-21T10:00:00Z", "é")}


@pytest.mark.long
def test_an_impatient_server_is_kept_patient_through_a_long_replay(
    stele_broker: BrokerProcess, log: Path
) -> None:
    # Longer than a busy machine keeps a process waiting, and much shorter than the replay.
    with PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", wal_sender_timeout="4s") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        replay = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            cdc.await_streaming()
            pg.run("INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 150000) n")
            replay.read_until(lambda: len(replay.rows) == 150_000, check=cdc.check)
            cdc.await_confirmed()
        assert "closed the connection" not in cdc.said


def test_the_end_does_not_wait_for_transactions_of_others(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with pg.connect() as connection, running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        connection.cursor().execute("INSERT INTO t VALUES (1)")
        give_up_s = time.monotonic() + 300
        pauses = Pauses()
        while "waits for all open transactions to end" not in cdc.said:
            assert time.monotonic() < give_up_s
            pauses.pause()
        assert cdc.stop() == 0


@pytest.mark.long
def test_an_application_may_go_on_with_tables_that_inherit_or_are_parts(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE parent (id int PRIMARY KEY, v int)")
    pg.run("CREATE TABLE child () INHERITS (parent)")
    pg.run("INSERT INTO child VALUES (1, 1)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "parent") as cdc:
        cdc.await_streaming()
        pg.run("UPDATE child SET v = 2")
    pg.run("DROP PUBLICATION stele")
    pg.run("CREATE TABLE parts (id int, v int) PARTITION BY RANGE (id)")
    pg.run("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    pg.run("ALTER TABLE parts REPLICA IDENTITY FULL")
    with running_cdc(
        pg, stele_broker.binary_url, tmp_path / "parts.log", "--tables", "parts", "--slot", "parts"
    ) as cdc:
        assert cdc.wait() == 1
        assert "partitions of parts have no identity (parts_1)" in cdc.said
    pg.run("INSERT INTO parts VALUES (1, 1)")
    pg.run("UPDATE parts SET v = 2")


@pytest.mark.parametrize(
    ("publication", "said"),
    [
        ("CREATE PUBLICATION stele FOR TABLE t WITH (publish = 'insert')", "SET (publish = 'insert, update"),
        ("CREATE PUBLICATION stele FOR TABLE t", "SET (publish_via_partition_root = true)"),
    ],
)
def test_a_publication_that_leaves_something_out_is_refused(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, publication: str, said: str
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    pg.run("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)")
    pg.run(publication)
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        assert cdc.wait() == 1
        assert said in cdc.said
