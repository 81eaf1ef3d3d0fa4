"""What a publication hides for a while is copied again or reported; what policies hide is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, Replay, running_cdc
from tests.support.postgres import drop_slot, postgres_bin, release_of
from tests.support.variants import long_but

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int)"
PARTS = (
    "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
)
RESTORED = "ALTER PUBLICATION stele SET (publish = 'insert, update, delete, truncate')"
CHANGES = ("INSERT INTO t VALUES (2, 20)", "UPDATE t SET n = 11 WHERE id = 1")
since_15 = pytest.mark.postgres_15


@pytest.fixture(autouse=True)
def postgres_15(pg: PostgresServer, request: pytest.FixtureRequest) -> None:
    """Skip a test that is marked so with an older server, which has no such publications."""
    if request.node.get_closest_marker("postgres_15") is None:
        return
    ((version,),) = pg.run("SELECT current_setting('server_version_num')::int")
    if version < 150_000:
        pytest.skip("publications of schemas, columns and rows are new in PostgreSQL 15")


# Statements of the setup; those that hide the changes, and those that undo it.
INTERRUPTIONS = [
    pytest.param((TABLE, "CREATE PUBLICATION stele FOR TABLE t"), (hide,), (restore,), id=name)
    for name, hide, restore in (
        ("narrowed", "ALTER PUBLICATION stele SET (publish = 'delete')", RESTORED),
        (
            "table removed and added",
            "ALTER PUBLICATION stele DROP TABLE t",
            "ALTER PUBLICATION stele ADD TABLE t",
        ),
    )
] + [
    pytest.param(
        (TABLE, "CREATE PUBLICATION stele FOR ALL TABLES"),
        ("ALTER PUBLICATION stele SET (publish = 'delete')",),
        (RESTORED,),
        id="all tables, narrowed",
    ),
    pytest.param(
        (*PARTS, "CREATE PUBLICATION stele FOR TABLE t WITH (publish_via_partition_root = true)"),
        ("ALTER PUBLICATION stele SET (publish_via_partition_root = false)",),
        ("ALTER PUBLICATION stele SET (publish_via_partition_root = true)",),
        id="partitions instead of their table",
    ),
    pytest.param(
        (TABLE, "CREATE PUBLICATION stele FOR TABLE t"),
        ("ALTER PUBLICATION stele SET TABLE t WHERE (id > 100)",),
        ("ALTER PUBLICATION stele SET TABLE t",),
        marks=since_15,
        id="row filter",
    ),
    pytest.param(
        (TABLE, "CREATE PUBLICATION stele FOR TABLE t"),
        ("ALTER PUBLICATION stele SET TABLE t (id)",),
        ("ALTER PUBLICATION stele SET TABLE t",),
        marks=since_15,
        id="column list",
    ),
    pytest.param(
        (TABLE, "CREATE PUBLICATION stele FOR TABLES IN SCHEMA public"),
        ("ALTER PUBLICATION stele DROP TABLES IN SCHEMA public",),
        ("ALTER PUBLICATION stele ADD TABLES IN SCHEMA public",),
        marks=since_15,
        id="schema removed and added",
    ),
]


def _rows(pg: PostgresServer) -> dict[int, int]:
    return dict(pg.run("SELECT id, n FROM t"))


@pytest.mark.parametrize(("setup", "hide", "restore"), long_but(INTERRUPTIONS, "row filter"))
def test_changes_hidden_while_the_connector_is_down_are_copied(
    pg: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    setup: tuple[str, ...],
    hide: tuple[str, ...],
    restore: tuple[str, ...],
) -> None:
    for statement in (*setup, "INSERT INTO t VALUES (1, 10)"):
        pg.run(statement)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        assert cdc.stop() == 0
        for statement in (*hide, *CHANGES, *restore, "INSERT INTO t VALUES (3, 30)"):
            pg.run(statement)
        cdc.start()
        replay.read_until(lambda: len(replay.rows) == 3, check=cdc.check)
        assert {key: row["n"] for key, row in replay.table().items()} == _rows(pg)
        assert "it is copied again" in cdc.said


@pytest.mark.parametrize(("setup", "hide", "restore"), long_but(INTERRUPTIONS, "narrowed"))
def test_changes_hidden_for_a_moment_end_a_running_connector_and_are_copied_by_the_next(
    pg: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    setup: tuple[str, ...],
    hide: tuple[str, ...],
    restore: tuple[str, ...],
) -> None:
    for statement in (*setup, "INSERT INTO t VALUES (1, 10)"):
        pg.run(statement)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        cdc.await_streaming()
        for statement in (*hide, *CHANGES, *restore):
            pg.run(statement)
        assert cdc.wait() == 1
        assert "start again, which copies the table again" in cdc.said
        cdc.start()
        replay.read_until(
            lambda: {key: r.get("n") for key, r in replay.table().items()} == _rows(pg), check=cdc.check
        )


@pytest.mark.long
@since_15
def test_a_table_that_left_its_published_schema_for_a_while_is_copied_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for statement in (TABLE, "DROP SCHEMA IF EXISTS elsewhere", "CREATE SCHEMA elsewhere"):
        pg.run(statement)
    pg.run("CREATE PUBLICATION stele FOR TABLES IN SCHEMA public")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        assert cdc.stop() == 0
        pg.run("ALTER TABLE t SET SCHEMA elsewhere")
        pg.run("INSERT INTO elsewhere.t VALUES (1, 10)")
        pg.run("ALTER TABLE elsewhere.t SET SCHEMA public")
        cdc.start()
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)


def test_changes_under_another_name_are_those_of_the_table(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run(TABLE)
    pg.run("INSERT INTO t VALUES (1, 10)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        assert cdc.stop() == 0
        pg.run("ALTER TABLE t RENAME TO was_t")
        pg.run("UPDATE was_t SET n = 11")
        pg.run("INSERT INTO was_t VALUES (2, 20)")
        pg.run("ALTER TABLE was_t RENAME TO t")
        cdc.start()
        # The rows may be in different partitions.
        replay.read_until(lambda: len(replay.records) == 3, check=cdc.check)
    assert {key: row["n"] for key, row in replay.table().items()} == {1: 11, 2: 20}
    operations = [dict(record.headers)["operation"] for record in replay.records]
    assert sorted(filter(None, operations)) == [b"c", b"r", b"u"]


@pytest.mark.long
def test_a_partition_that_was_detached_for_a_while_is_copied_again_with_its_table(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for statement in (*PARTS, "INSERT INTO t VALUES (1, 10)"):
        pg.run(statement)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        assert cdc.stop() == 0
        pg.run("ALTER TABLE t DETACH PARTITION t_1")
        pg.run("INSERT INTO t_1 VALUES (2, 20)")
        pg.run("ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (0) TO (100)")
        cdc.start()
        replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
        assert "a partition of public.t was detached and attached again" in cdc.said


@pytest.mark.long
def test_new_partitions_are_followed_and_attached_ones_are_reported(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for statement in PARTS:
        pg.run(statement)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run("CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (100) TO (200)")
        pg.run("CREATE TABLE t_3 (id int PRIMARY KEY, n int)")
        pg.run("ALTER TABLE t ATTACH PARTITION t_3 FOR VALUES FROM (200) TO (300)")
        pg.run("INSERT INTO t VALUES (101, 0), (201, 0)")
        replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
        assert cdc.stop() == 0
        cdc.start()
        pg.run("INSERT INTO t VALUES (102, 0)")
        replay.read_until(lambda: len(replay.rows) == 3, check=cdc.check)
        assert cdc.said.count("partition t_3 was attached to public.t") == 1
        assert "partition t_2 was attached" not in cdc.said
        # It was noted before the stop: a partition of today that is detached and attached tomorrow is noticed.
        assert cdc.stop() == 0
        pg.run("ALTER TABLE t DETACH PARTITION t_2")
        pg.run("ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (100) TO (200)")
        cdc.start()
        cdc.await_streaming()
        assert "detached and attached again" in cdc.said


@pytest.mark.long
def test_what_hides_no_changes_causes_no_new_copy(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for statement in (TABLE, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 10)"):
        pg.run(statement)
    pg.run("CREATE PUBLICATION stele FOR TABLE t")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        for count, statements in enumerate(
            (
                ("ALTER PUBLICATION stele ADD TABLE other", "ALTER PUBLICATION stele DROP TABLE other"),
                ("ALTER TABLE t ADD COLUMN extra text", "ALTER TABLE t REPLICA IDENTITY FULL"),
                ("VACUUM FULL t", "VACUUM FULL pg_publication", "VACUUM FREEZE pg_publication_rel"),
                ("CREATE INDEX ON t (n)", "ANALYZE t", "CLUSTER t USING t_pkey"),
            ),
            2,
        ):
            cdc.await_streaming()
            assert cdc.stop() == 0
            for statement in statements:
                pg.run(statement)
            cdc.start()
            pg.run("INSERT INTO t VALUES (%s, 0)", (count,))
            replay.read_until(lambda count=count: len(replay.rows) == count, check=cdc.check)
    assert [dict(record.headers)["operation"] for record in replay.records] == [b"r", *[b"c"] * 4]


@pytest.mark.every(4)
@pytest.mark.parametrize("snapshot", ["initial", "never"])
@pytest.mark.parametrize(
    "move",
    [
        "SELECT pg_create_logical_replication_slot('stele', 'pgoutput')",
        "SELECT pg_replication_slot_advance('stele', pg_current_wal_lsn())",
    ],
    ids=["created again", "advanced"],
)
def test_a_slot_that_was_created_again_or_advanced_is_a_gap(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, snapshot: str, move: str
) -> None:
    pg.run(TABLE)
    arguments = ("--tables", "t", "--snapshot", snapshot)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        for _ in range(2):
            # Stopped and started without anything in between, it finds no gap.
            assert cdc.stop() == 0
            cdc.start()
            cdc.await_streaming()
        assert cdc.stop() == 0
        if "create" in move:
            drop_slot(pg, "stele")
        pg.run("INSERT INTO t VALUES (1, 10)")
        pg.run(move)
        cdc.start()
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "the slot was created again or advanced" in cdc.said
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--snapshot", "again") as cdc:
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)


def test_without_copies_hidden_changes_are_an_error(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run(TABLE)
    pg.run("CREATE PUBLICATION stele FOR TABLE t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--snapshot", "never") as cdc:
        cdc.await_streaming()
        assert cdc.stop() == 0
        for statement in ("ALTER PUBLICATION stele DROP TABLE t", "ALTER PUBLICATION stele ADD TABLE t"):
            pg.run(statement)
        cdc.start()
        assert cdc.wait() == 1
        assert "run once with --snapshot again" in cdc.said


@pytest.mark.long
def test_a_publication_that_was_dropped_and_created_again_is_not_passed_over(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    """PostgreSQL refuses to decode what was written without it; since release 18 it leaves that out."""
    pg.run(TABLE)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        assert cdc.stop() == 0
        for statement in ("DROP PUBLICATION stele", *CHANGES, "CREATE PUBLICATION stele FOR TABLE t"):
            pg.run(statement)
        cdc.start()
        if release_of(postgres_bin()) < 18:
            assert cdc.wait() == 1
            assert "--snapshot again" in cdc.said
        else:
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            assert "it is copied again" in cdc.said


# ── policies and partitions that are in a copy or in the changes, and not in both ──


@pytest.mark.parametrize(
    ("setup", "is_refused"),
    long_but(
        [
            pytest.param(
                ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON t USING (n > 100)"),
                True,
                id="policy",
            ),
            pytest.param(("ALTER TABLE t ENABLE ROW LEVEL SECURITY",), True, id="no policy at all"),
            pytest.param(
                (
                    "ALTER TABLE t OWNER TO follower",
                    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
                    "ALTER TABLE t FORCE ROW LEVEL SECURITY",
                ),
                True,
                id="forced",
            ),
            pytest.param(
                ("ALTER TABLE t OWNER TO follower", "ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
                False,
                id="owner",
            ),
            pytest.param(
                ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER ROLE follower BYPASSRLS"),
                False,
                id="bypassed",
            ),
            # A policy of a partition does not apply to a query of its table.
            pytest.param(("ALTER TABLE t_1 ENABLE ROW LEVEL SECURITY",), False, id="partition"),
            pytest.param(("CREATE POLICY p ON t USING (false)",), False, id="not enabled"),
        ],
        "policy",
    ),
)
def test_a_copy_that_policies_would_filter_is_refused_with_the_statement_to_run(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, setup: tuple[str, ...], is_refused: bool
) -> None:
    pg.run("DROP ROLE IF EXISTS follower")
    pg.run("CREATE ROLE follower LOGIN REPLICATION")
    statements = (*PARTS, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 1)")
    for statement in (
        *statements,
        "GRANT USAGE ON SCHEMA public TO follower",
        "GRANT SELECT ON t, u TO follower",
        *setup,
    ):
        pg.run(statement)
    pg.run("CREATE PUBLICATION stele FOR TABLE t, u WITH (publish_via_partition_root = true)")
    dsn = pg.dsn.replace("postgres@", "follower@")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    try:
        # A table that is added later, and one that is copied again, are checked as the first copy is.
        for arguments in (("--tables", "u"), ("--tables", "u,t"), ("--tables", "t", "--snapshot", "again")):
            with running_cdc(pg, stele_broker.binary_url, log, "--dsn", dsn, *arguments) as cdc:
                if is_refused and arguments[1] != "u":
                    assert cdc.wait() == 1
                    assert 'ALTER ROLE "follower" BYPASSRLS' in cdc.said
                    assert "t has row level security" in cdc.said
                else:
                    cdc.await_streaming()
                    assert cdc.stop() == 0
        if not is_refused:
            replay.read_until(lambda: len(replay.rows) == 1)
    finally:
        for statement in (
            "DROP PUBLICATION stele",
            "DROP TABLE t, u",
            "DROP OWNED BY follower",
            "DROP ROLE follower",
        ):
            pg.run(statement)


def test_a_policy_that_comes_after_the_check_stops_the_copy(pg: PostgresServer) -> None:
    from stele.cdc.errors import CdcError
    from stele.cdc.options import CdcOptions
    from stele.cdc.postgres.catalog import Postgres
    from stele.cdc.postgres.connection import connect
    from stele.cdc.postgres.replication import copy_rows

    for statement in (TABLE, "INSERT INTO t VALUES (1, 1)", "DROP ROLE IF EXISTS follower"):
        pg.run(statement)
    pg.run("CREATE ROLE follower LOGIN REPLICATION")
    pg.run("GRANT USAGE ON SCHEMA public TO follower")
    pg.run("GRANT SELECT ON t TO follower")
    dsn = pg.dsn.replace("postgres@", "follower@")
    postgres = Postgres(CdcOptions(dsn=dsn, tables=("t",)))
    connection = connect(dsn)
    try:
        postgres.check_tables()
        pg.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        with pytest.raises(CdcError, match="row-level security policy for table"):
            copy_rows(connection, postgres.table("public", "t"), lambda _: None)
    finally:
        connection.close()
        postgres.close()
        pg.run("DROP OWNED BY follower")
        pg.run("DROP ROLE follower")


@pytest.mark.long
def test_partitions_whose_changes_are_not_logged_are_refused(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for statement in PARTS:
        pg.run(statement)
    pg.run("CREATE UNLOGGED TABLE t_2 PARTITION OF t FOR VALUES FROM (100) TO (200)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        assert cdc.wait() == 1
        assert "changes of partitions of t are not logged (t_2" in cdc.said
    pg.run("ALTER TABLE t_2 SET LOGGED")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run("CREATE UNLOGGED TABLE t_3 PARTITION OF t FOR VALUES FROM (200) TO (300)")
        assert cdc.wait() == 1
        assert "(t_3" in cdc.said
