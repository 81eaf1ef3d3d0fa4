"""Copies in parts, whatever the key is and whatever is altered meanwhile: each row once.

Other connectors copy rows of partitioned tables twice (PeerDB #1569, Estuary #2878), or stop when a table is altered.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.requests import request
from stele.wire.cdc_requests import topic_of

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay, running_cdc
from tests.support.postgres import postgres_bin
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

# More than the first part of a copy has, and the second.
ROWS = 500
# Type of the key and an expression of the number of the row. Some have an order that is not that of their text.
KEYS = {
    "enumerated": ("mood", None),
    "padded": ("char(8)", "chr(97 + g % 26) || g"),
    "ignoring_case": ('text COLLATE "ignoring"', "CASE g % 2 WHEN 0 THEN 'A' ELSE 'a' END || g"),
    "linguistic": ('text COLLATE "und-x-icu"', "chr(224 + g % 20) || '-' || g"),
    "bytes": ("bytea", "decode(md5(g::text), 'hex')"),
    "double": ("double precision", "CASE g WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' ELSE g / 7.0 - 30 END"),
    "numbers": ("numeric", "CASE g WHEN 1 THEN 'NaN' ELSE g / 7.0 - 30 END"),
    "moments": (
        "timestamptz",
        "CASE g WHEN 1 THEN '-infinity' WHEN 2 THEN 'infinity' ELSE timestamptz '0044-03-15 BC' + g * interval '1 week' END",
    ),
    "spans": ("interval", "g * interval '31 hours'"),
    "uuids": ("uuid", "md5(g::text)::uuid"),
    "odd_text": ("text", r"E'\\ \t\n%,\"''☃' || g"),
}


def tables_with(pg: PostgresServer) -> list[str]:
    """Create the tables; return their names."""
    pg.run("CREATE COLLATION ignoring (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    labels = ", ".join(f"'{name}'" for name in sorted((f"m{n}" for n in range(ROWS)), key=lambda m: m[::-1]))
    pg.run("DROP TYPE IF EXISTS mood")
    pg.run(f"CREATE TYPE mood AS ENUM ({labels})")
    for name, (kind, key) in KEYS.items():
        pg.run(f"CREATE TABLE {name} (k {kind} PRIMARY KEY, g int)")
        if key is None:
            pg.run(f"INSERT INTO {name} SELECT ('m' || g)::mood, g FROM generate_series(0, {ROWS - 1}) g")
        else:
            pg.run(f"INSERT INTO {name} SELECT {key}, g FROM generate_series(1, {ROWS}) g")
    pg.run("CREATE TABLE parts (a int, b text, g int, PRIMARY KEY (b, a)) PARTITION BY LIST (a)")
    pg.run("CREATE TABLE parts1 PARTITION OF parts FOR VALUES IN (1) PARTITION BY HASH (b)")
    for number in range(2):
        pg.run(
            f"CREATE TABLE parts1_{number} PARTITION OF parts1 FOR VALUES WITH (modulus 2, remainder {number})"
        )
    pg.run("CREATE TABLE parts_default PARTITION OF parts DEFAULT")
    pg.run(f"INSERT INTO parts SELECT g % 3, 'x' || g, g FROM generate_series(1, {ROWS}) g")
    return [*KEYS, "parts"]


def ask(broker: BrokerProcess, *tables: str) -> None:
    with Client(broker.binary_url) as client:
        request(client, topic_of("pg", "stele"), "copy", tables)


def test_each_row_is_copied_once_by_any_key(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    tables = tables_with(pg)
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", ",".join(tables)) as cdc:
        cdc.await_streaming()
        ask(stele_broker, *tables)
        _await_copies(cdc, 2 * len(tables))
        assert cdc.stop() == 0, cdc.said
    for table in tables:
        topic = f"pg.public.{table}"
        read: Counter[bytes | None] = Counter()
        with Client(stele_broker.binary_url) as client:
            for partition in range(client.partition_count(topic)):
                page = client.fetch(topic, partition, 0, max_records=10_000)
                read.update(record.key for record in page.records)
        assert (len(read), set(read.values())) == (ROWS, {2}), table


def test_a_table_is_altered_and_emptied_while_it_is_copied(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pg.run("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 30000) g")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        ask(stele_broker, "t")
        eventually(lambda: "are copied beside the stream" in cdc.said, "the copy has begun")
        for number in range(1, 11):
            # Another column, another name of one, another type of the key, which writes the table anew.
            pg.run(f"ALTER TABLE t ADD COLUMN c{number} int DEFAULT {number}")
            pg.run(f"ALTER TABLE t RENAME COLUMN c{number} TO d{number}")
            pg.run(f"ALTER TABLE t ALTER COLUMN id TYPE {'bigint' if number % 2 else 'int'}")
            pg.run(f"UPDATE t SET v = 'new' WHERE id % 97 = {number % 97}")
            if number > 3:
                pg.run(f"ALTER TABLE t DROP COLUMN d{number - 3}")
            if number == 6:
                pg.run("TRUNCATE t")
                pg.run("INSERT INTO t SELECT g, 'again' FROM generate_series(1, 30000) g")
        _await_copies(cdc, 2)
        pg.run("UPDATE t SET v = v")
        cdc.await_confirmed()
        assert cdc.stop() == 0, cdc.said
    assert rows_of(stele_broker, "pg.public.t") == dict(pg.run("SELECT id, v FROM t"))


def test_changes_go_on_while_a_session_holds_a_lock_on_a_table(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    """Since release 16, to read which tables are published waits for a lock on each of them."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("CREATE TABLE other (id int PRIMARY KEY)")
    replay = Replay(stele_broker.binary_url, "pg.public.other")
    with (
        running_cdc(pg, stele_broker.binary_url, log, "--tables", "t,other") as cdc,
        closing(pg.connect()) as connection,
    ):
        cdc.await_streaming()
        connection.cursor().execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        ask(stele_broker, "t")
        eventually(lambda: "are copied beside the stream" in cdc.said, "the copy has begun")
        pg.run("INSERT INTO other VALUES (1)")
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        connection.rollback()
        _await_copies(cdc, 3)


def rows_of(broker: BrokerProcess, topic: str) -> dict[int, str]:
    """Return the rows, by ``id``, that a topic gives; after its first copy each is read once at most."""
    rows: dict[int, str] = {}
    with Client(broker.binary_url) as client:
        for partition in range(client.partition_count(topic)):
            end, mine = client.list_offset(topic, partition) or 0, dict[int, str]()
            offset, reads = 0, Counter[int]()
            while offset < end:
                page = client.fetch(topic, partition, offset, max_records=20_000)
                offset = page.next_offset
                for record in page.records:
                    change = json.loads(record.value or b"")
                    if change["op"] == "t":
                        mine.clear()
                        reads.clear()
                        continue
                    id_, value = change["after"]["id"], change["after"]["v"]
                    if change["op"] == "r":
                        reads[id_] += 1
                        # Columns with a default are there without a change of the row.
                        assert mine.get(id_, value) == value, record
                    mine[id_] = value
            assert set(reads.values()) <= {1, 2}
            rows |= mine
    return rows


def test_a_transaction_that_was_prepared_is_followed_and_waited_for(
    stele_broker: BrokerProcess, log: Path
) -> None:
    with PostgresServer(postgres_bin(), max_prepared_transactions="10") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        pg.run("INSERT INTO t VALUES (1, 'old')")
        replay = Replay(stele_broker.binary_url, "pg.public.t", is_resumed=True)
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            cdc.await_streaming()
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            replay.forget_reads()
            _prepare(pg, "INSERT INTO t VALUES (2, 'prepared')", "UPDATE t SET v = 'prepared' WHERE id = 1")
            # Its changes are neither in the copy nor before it, as long as it is not committed.
            ask(stele_broker, "t")
            pg.run("INSERT INTO t VALUES (3, 'beside it')")
            replay.read_until(lambda: b"3" in replay.rows, check=cdc.check)
            cdc.kill()
            cdc.start()
            pg.run("COMMIT PREPARED 'p'")
            replay.read_until(lambda: b"2" in replay.rows, check=cdc.check)
            _await_copies(cdc, 2)
            cdc.await_confirmed()
            assert cdc.stop() == 0, cdc.said
        replay.read_all()
        assert {n: row["v"] for n, row in replay.table().items()} == dict(pg.run("SELECT id, v FROM t"))


def _await_copies(cdc: CdcProcess, count: int) -> None:
    def are_made() -> bool:
        cdc.check()
        return cdc.said.count(": copied public.") >= count

    # Each time that the table is written anew, the connector begins again, after a pause.
    eventually(are_made, f"{count} copies are made", timeout_s=300)


def _prepare(pg: PostgresServer, *statements: str) -> None:
    connection = pg.connect()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("PREPARE TRANSACTION 'p'")
    connection.close()
