"""Changes out of PostgreSQL: a real server, a real broker, ``stele cdc`` between them, and a consumer that replays."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg2
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.cdc import run
from stele.cdc.connector import Connector
from stele.cdc.options import CdcOptions
from stele.cdc.postgres import Postgres, SlotInfo
from stele.cdc.status import Status
from stele.wire.partitioner import fnv1a_32

from load.postgres_server import PostgresServer, packaged_bin
from tests.support.cdc import CdcProcess, Replay, running_cdc
from tests.support.postgres import postgres_bin

pytestmark = pytest.mark.slow
# What the connector logs when it waits to try again.
RETRIES = "retrying in"


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
        _drop_slot(server, name)
    for (name,) in server.run("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {name}")


def _drop_slot(server: PostgresServer, name: str) -> None:
    while True:
        try:
            server.run("SELECT pg_drop_replication_slot(%s)", (name,))
        except psycopg2.errors.ObjectInUse:
            time.sleep(0.02)
        else:
            return


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cdc.log"


# ── rows and changes ──


def test_what_is_in_a_table_comes_first_then_each_change_as_people_know_it_from_debezium(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10,2))")
    pg.run("INSERT INTO orders VALUES (1, 'pen', 1.50), (2, 'ink', 12)")
    replay = Replay(stele_broker.binary_url, "pg.public.orders")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "public.orders") as cdc:
        replay.read_until(lambda: len(replay.records) == 2, check=cdc.check)
        pg.run("INSERT INTO orders VALUES (3, 'cap', 3)")
        pg.run("UPDATE orders SET price = 2 WHERE id = 1")
        pg.run("UPDATE orders SET id = 4 WHERE id = 2")
        pg.run("DELETE FROM orders WHERE id = 3")
        replay.read_until(lambda: len(replay.records) == 7, check=cdc.check)
        assert cdc.stop() == 0

    assert replay.table() == {
        1: {"id": 1, "item": "pen", "price": "2.00"},
        4: {"id": 4, "item": "ink", "price": "12.00"},
    }
    shown: dict[bytes | None, list[tuple[Any, Any, Any]]] = {}
    for record in replay.records:
        event = json.loads(record.value or b"")
        shown.setdefault(record.key, []).append((event["op"], event["before"], event["after"]))
        assert {"schema": "public", "table": "orders"}.items() <= event["source"].items()
        assert set(event["source"]) == {"lsn", "txid", "ts_ms", "schema", "table"}
        assert dict(record.headers)["channel"] == b"public.orders"
        # D4, D5: eight partitions, FNV-1a of the key.
        assert record.partition == fnv1a_32(record.key or b"") % 8
    assert shown == {
        b"1": [
            ("r", None, {"id": 1, "item": "pen", "price": "1.50"}),
            ("u", None, {"id": 1, "item": "pen", "price": "2.00"}),
        ],
        b"2": [("r", None, {"id": 2, "item": "ink", "price": "12.00"}), ("d", {"id": 2}, None)],
        b"3": [("c", None, {"id": 3, "item": "cap", "price": "3.00"}), ("d", {"id": 3}, None)],
        b"4": [("c", None, {"id": 4, "item": "ink", "price": "12.00"})],
    }
    # SIGTERM has confirmed what is stored: nothing of it is sent again.
    ((behind,),) = pg.run(
        "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('stele', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'stele')"
    )
    assert behind == 0


TYPES = {
    "boolean": ("true", True),
    "smallint": ("-32768", -32768),
    "bigint": ("9223372036854775807", 9223372036854775807),
    "double precision": ("0.1", 0.1),
    "real": ("'NaN'", "NaN"),
    "numeric": ("123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789"),
    "numeric(10,2)": ("12.3", "12.30"),
    "text": ("E'tab\\tquote\" \\\\ back\\n slash ☃'", 'tab\tquote" \\ back\n slash ☃'),
    "varchar(20)": ("''", ""),
    "char(3)": ("'a'", "a  "),
    "bytea": ("'\\x00ff10'", "AP8Q"),
    "json": ("""'{"b": 1, "a": [1.50]}'""", {"b": 1, "a": [1.5]}),
    "jsonb": ("""'{"n": 12345678901234567890, "s": "\\u00fc"}'""", {"n": 12345678901234567890, "s": "ü"}),
    "timestamptz": ("'2026-11-21 10:00:00.123456+02'", "2026-11-21T08:00:00.123456Z"),
    "timestamp": ("'2026-11-21 10:00:00'", "2026-11-21T10:00:00"),
    "date": ("'2026-11-21'", "2026-11-21"),
    "time": ("'23:59:59.5'", "23:59:59.5"),
    "interval": ("'1 day 2 hours'", "P1DT2H"),
    "uuid": ("'0b5f0e06-7f5c-4d0c-9c39-1f6b3a9c2a11'", "0b5f0e06-7f5c-4d0c-9c39-1f6b3a9c2a11"),
    "inet": ("'10.0.0.1/8'", "10.0.0.1/8"),
    "mood": ("'happy'", "happy"),
    "positive": ("7", 7),
    "int[]": ("'{1,NULL,3}'", [1, None, 3]),
    "int[][]": ("'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    "text[]": ("""ARRAY['a', '', 'NULL', 'with "quotes", \\ and {braces}']""",
               ["a", "", "NULL", 'with "quotes", \\ and {braces}']),
    "mood[]": ("'{sad,happy}'", ["sad", "happy"]),
    "numeric[]": ("'[0:1]={1.10,2}'", ["1.10", "2"]),
    "point": ("'(1,2)'", "(1,2)"),
}  # fmt: skip


def test_values_of_all_types_lose_nothing_and_are_the_same_from_the_copy_and_from_the_stream(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    pg.run("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(TYPES))
    pg.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
    values = ", ".join(literal for literal, _ in TYPES.values())
    pg.run(f"INSERT INTO kinds VALUES (1, {values})")
    pg.run("INSERT INTO kinds (id) VALUES (2)")
    replay = Replay(stele_broker.binary_url, "pg.public.kinds")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "kinds") as cdc:
        replay.read_until(lambda: len(replay.records) == 2, check=cdc.check)
        pg.run(f"INSERT INTO kinds VALUES (3, {values})")
        pg.run("INSERT INTO kinds (id) VALUES (4)")
        replay.read_until(lambda: len(replay.records) == 4, check=cdc.check)
    expected = {f"c{n}": value for n, (_, value) in enumerate(TYPES.values())}
    nothing = dict.fromkeys(expected)
    assert replay.table() == {
        1: {"id": 1, **expected},
        2: {"id": 2, **nothing},
        3: {"id": 3, **expected},
        4: {"id": 4, **nothing},
    }


def test_a_large_value_that_an_update_does_not_touch_is_named_and_not_lost(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)")
    pg.run("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    pg.run("CREATE TABLE full_docs (LIKE docs INCLUDING ALL)")
    pg.run("ALTER TABLE full_docs REPLICA IDENTITY FULL")
    body = "x" * 20_000
    pg.run("INSERT INTO docs VALUES (1, 1, %s)", (body,))
    pg.run("INSERT INTO full_docs VALUES (1, 1, %s)", (body,))
    docs = Replay(stele_broker.binary_url, "pg.public.docs")
    full = Replay(stele_broker.binary_url, "pg.public.full_docs")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "docs,full_docs") as cdc:
        full.read_until(lambda: len(full.records) == 1, check=cdc.check)
        pg.run("UPDATE docs SET n = 2")
        pg.run("UPDATE full_docs SET n = 2")
        docs.read_until(lambda: len(docs.records) == 2, check=cdc.check)
        full.read_until(lambda: len(full.records) == 2, check=cdc.check)
    event = json.loads(docs.records[1].value or b"")
    assert event["after"] == {"id": 1, "n": 2}
    assert event["unchanged"] == ["body"]
    assert docs.table() == {1: {"id": 1, "n": 2, "body": body}}
    # The whole old row is in the WAL, so the new one is whole too.
    event = json.loads(full.records[1].value or b"")
    assert event["before"] == {"id": 1, "n": 1, "body": body}
    assert event["after"] == {"id": 1, "n": 2, "body": body}
    assert "unchanged" not in event


def test_truncates_reach_every_partition_and_tombstones_follow_deletes_by_choice(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE a (id int PRIMARY KEY)")
    pg.run("CREATE TABLE b (id int PRIMARY KEY)")
    a = Replay(stele_broker.binary_url, "pg.public.a")
    with running_cdc(
        pg, stele_broker.binary_url, log, "--tables", "a,b", "--tombstones", "--partitions", "3"
    ) as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO a SELECT generate_series(1, 20)")
        pg.run("DELETE FROM a WHERE id = 7")
        pg.run("TRUNCATE a, b")
        pg.run("INSERT INTO a VALUES (99)")
        a.read_until(lambda: len(a.records) == 20 + 2 + 3 + 1, check=cdc.check)
    assert a.table() == {99: {"id": 99}}
    assert [r.value is None for r in a.records if r.key == b"7"] == [False, False, True]
    assert [r.key for r in a.records if dict(r.headers)["operation"] == b"t"] == [None] * 3


def test_a_table_may_change_its_shape_while_it_is_followed(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY, a text)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (1, 'x')")
        pg.run("ALTER TABLE t ADD COLUMN b jsonb DEFAULT '[1]'")
        pg.run("INSERT INTO t VALUES (2, 'y', '{}')")
        pg.run("ALTER TABLE t RENAME COLUMN a TO name")
        pg.run("ALTER TABLE t ALTER COLUMN name TYPE int USING 5")
        pg.run("INSERT INTO t VALUES (3, 6)")
        pg.run("ALTER TABLE t DROP COLUMN b")
        pg.run("INSERT INTO t VALUES (4, 7)")
        replay.read_until(lambda: len(replay.rows) == 4, check=cdc.check)
    assert replay.table() == {
        1: {"id": 1, "a": "x"},
        2: {"id": 2, "a": "y", "b": {}},
        3: {"id": 3, "name": 6, "b": [1]},
        4: {"id": 4, "name": 7},
    }


def test_a_large_transaction_is_spooled_until_it_commits_and_what_it_rolls_back_is_left_out(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE big (id int PRIMARY KEY, v text)")
    replay = Replay(stele_broker.binary_url, "pg.public.big")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "big") as cdc, pg.connect() as connection:
        cdc.await_streaming()
        cursor = connection.cursor()
        cursor.execute("INSERT INTO big SELECT n, repeat('x', 200) FROM generate_series(1, 5000) n")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO big SELECT n, repeat('y', 200) FROM generate_series(10001, 15000) n")
        cursor.execute("ROLLBACK TO s")
        cursor.execute("INSERT INTO big SELECT n, repeat('z', 200) FROM generate_series(5001, 6000) n")
        # One that commits while the large one is open is before it, and a large one that fails is nowhere.
        pg.run("INSERT INTO big VALUES (0, 'first')")
        with pytest.raises(psycopg2.errors.DivisionByZero):
            pg.run(
                "INSERT INTO big SELECT n, repeat('w', 200) || 1 / (29000 - n) FROM generate_series(20000, 30000) n"
            )
        replay.read_until(lambda: len(replay.records) == 1, check=cdc.check)
        connection.commit()
        cursor.execute("INSERT INTO big VALUES (7000, 'last')")
        connection.commit()
        # Its partitions are read one after the other: the last row may be seen before others of them.
        replay.read_until(lambda: len(replay.records) == 6002, check=cdc.check)
    ((streamed,),) = pg.run("SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = 'stele'")
    assert streamed >= 1
    assert set(replay.table()) == {*range(6001), 7000}
    assert replay.table()[0]["v"] == "first"
    assert len(replay.records) == 6002


# ── keys ──


def test_the_key_is_the_identity_of_the_row_else_a_column_else_the_table(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE pairs (b text, a int, v int, PRIMARY KEY (b, a))")
    pg.run("CREATE TABLE chosen (id int PRIMARY KEY, code text NOT NULL UNIQUE)")
    pg.run("ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_code_key")
    pg.run("CREATE TABLE keyless (id int, v int)")
    pg.run("ALTER TABLE keyless REPLICA IDENTITY FULL")
    pg.run("CREATE TABLE bare (v int)")
    pg.run("ALTER TABLE bare REPLICA IDENTITY FULL")
    names = ["pairs", "chosen", "keyless", "bare"]
    pg.run("INSERT INTO pairs VALUES ('x', 1, 1)")
    replays = {name: Replay(stele_broker.binary_url, f"pg.public.{name}") for name in names}
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", ",".join(names)) as cdc:
        replays["pairs"].read_until(lambda: len(replays["pairs"].records) == 1, check=cdc.check)
        pg.run("INSERT INTO pairs VALUES ('y', 2, 2)")
        pg.run("INSERT INTO chosen VALUES (1, 'c-1')")
        pg.run("INSERT INTO keyless VALUES (5, 1)")
        pg.run("INSERT INTO bare VALUES (1)")
        for name in names[1:]:
            replays[name].read_until(lambda name=name: len(replays[name].records) == 1, check=cdc.check)
        replays["pairs"].read_until(lambda: len(replays["pairs"].records) == 2, check=cdc.check)
    assert sorted(r.key or b"" for r in replays["pairs"].records) == [b'{"b":"x","a":1}', b'{"b":"y","a":2}']
    assert replays["chosen"].records[0].key == b"c-1"
    assert replays["keyless"].records[0].key == b"5"
    assert replays["bare"].records[0].key == b"public.bare"


# ── NOTIFY ──


def test_a_channel_becomes_a_topic_with_its_first_notification(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    arguments = ("--channels", "pgcdc:orders,plain", "--storage", "memory")
    with (
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
        Client(stele_broker.binary_url) as client,
    ):
        while not pg.run("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %%plain%%'"):
            cdc.check()
            time.sleep(0.02)
        assert not [t.topic for t in client.topics() if t.topic.startswith("pgcdc.")]
        pg.run("""NOTIFY "pgcdc:orders", '{"id": 41, "op": "insert", "event_id": "e-1", "total": 5}'""")
        pg.run("""NOTIFY "pgcdc:orders", '{"total": 6}'""")
        pg.run("NOTIFY plain, 'not JSON'")
        found = {topic: _first_records(client, topic, count) for topic, count in
                 (("pgcdc.orders", 2), ("pgcdc.plain", 1))}  # fmt: skip
        assert client.partition_count("pgcdc.orders") == 8
        configs = client.describe_topic("pgcdc.orders").configs
        assert (configs["stele.storage"], configs["stele.memory.records"]) == ("memory", "10000")
    by_key = {record.key: record for records in found.values() for record in records}
    assert set(by_key) == {b"41", b"pgcdc:orders", b"plain"}
    record = by_key[b"41"]
    assert json.loads(record.value or b"")["total"] == 5
    assert record.headers == (("channel", b"pgcdc:orders"), ("operation", b"insert"), ("event_id", b"e-1"))
    assert record.partition == fnv1a_32(b"41") % 8
    assert by_key[b"plain"].value == b"not JSON"
    assert dict(by_key[b"plain"].headers)["operation"] == b"notify"


def test_a_notification_that_arrives_with_the_answer_to_a_query_is_stored_at_once(
    pg: PostgresServer, stele_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the reminder every 2 s, only the socket wakes the connector.
    monkeypatch.setattr(run, "_LAG_S", 3600.0)
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    options = CdcOptions(dsn=pg.dsn, tables=("t",), channels=("orders",), broker=stele_broker.binary_url)
    status = Status(slot=options.slot, database="test")
    connector = Connector(options, status)
    ask_slot = Postgres.slot
    has_notified = threading.Event()

    def ask_slot_after_notify(postgres: Postgres) -> SlotInfo | None:
        if status.state == "streaming" and not has_notified.is_set():
            has_notified.set()
            pg.run("NOTIFY orders, 'first'")
        return ask_slot(postgres)

    monkeypatch.setattr(Postgres, "slot", ask_slot_after_notify)
    thread = threading.Thread(target=connector.run)
    thread.start()
    try:
        with Client(stele_broker.binary_url) as client:
            (record,) = _first_records(client, "pgcdc.orders", 1)
        assert record.value == b"first"
    finally:
        connector.stop()
        thread.join()
        connector.close()


def _first_records(client: Client, topic: str, count: int) -> list[Any]:
    give_up_s = time.monotonic() + 60
    while time.monotonic() < give_up_s:
        if topic in {t.topic for t in client.topics()}:
            found = [r for p in range(client.partition_count(topic)) for r in client.fetch(topic, p).records]
            if len(found) >= count:
                return found
        time.sleep(0.02)
    raise AssertionError(f"{topic} has not {count} records")


# ── what is wrong is said, with what to do ──


@pytest.mark.parametrize(
    ("setup", "arguments", "said"),
    [
        ("", ("--tables", "public.nowhere"), "there is no table public.nowhere"),
        ("CREATE TABLE t (v int)", ("--tables", "t"), "ADD PRIMARY KEY"),
        ("CREATE VIEW t AS SELECT 1", ("--tables", "t"), "not a table whose changes are logged"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION stele FOR TABLE u",
            ("--tables", "t,u"),
            'ALTER PUBLICATION "stele" ADD TABLE "public"."t"',
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY); SELECT pg_create_logical_replication_slot('stele', 'test_decoding')",
            ("--tables", "t"),
            "another --slot",
        ),
        ("", ("--tables", "t", "--slot", "Bad-Slot"), "lower case letters"),
        ("", (), "--tables public.orders"),
    ],
)
def test_what_is_not_set_up_ends_it_with_what_to_do(
    pg: PostgresServer,
    stele_broker: BrokerProcess,
    log: Path,
    setup: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    for statement in filter(None, setup.split("; ")):
        pg.run(statement)
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        assert cdc.wait() in (1, 2)
        assert said in cdc.said
        assert "Traceback" not in cdc.said


def test_a_role_that_may_not_replicate_is_told_how_to_become_one_that_may(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("DROP ROLE IF EXISTS reader")
    pg.run("CREATE ROLE reader LOGIN PASSWORD 'secret-word'")
    dsn = pg.dsn.replace("postgres@", "reader:secret-word@")
    with running_cdc(pg, stele_broker.binary_url, log, "--dsn", dsn, "--tables", "t") as cdc:
        assert cdc.wait() == 1
        assert 'ALTER ROLE "reader" REPLICATION' in cdc.said
        assert "secret-word" not in cdc.said


def test_a_server_that_does_not_decode_its_log_is_told_so(stele_broker: BrokerProcess, log: Path) -> None:
    with PostgresServer(postgres_bin(), wal_level="replica") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            assert cdc.wait() == 1
            assert "set wal_level = logical in postgresql.conf" in cdc.said


def test_a_slot_has_one_connector_and_the_next_one_waits_for_it(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as first:
        pg.run("INSERT INTO t VALUES (1)")
        replay.read_until(lambda: len(replay.rows) == 1, check=first.check)
        with running_cdc(pg, stele_broker.binary_url, tmp_path / "second.log", "--tables", "t") as second:
            while "in use by another stele cdc" not in second.said:
                second.check()
                time.sleep(0.05)
            first.kill()
            pg.run("INSERT INTO t VALUES (2)")
            replay.read_until(lambda: len(replay.rows) == 2, check=second.check)


def test_a_slot_that_is_gone_is_a_gap_and_is_said_until_the_tables_are_copied_again(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1), (2)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
        cdc.stop()
        _drop_slot(pg, "stele")
        pg.run("DELETE FROM t WHERE id = 1")
        cdc.start()
        assert cdc.wait() == 1
        assert "--snapshot again" in cdc.said
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--snapshot", "again") as cdc:
        pg.run("INSERT INTO t VALUES (3)")
        replay.read_until(lambda: b"3" in replay.rows, check=cdc.check)
    assert set(replay.table()) == {2, 3}


def test_a_table_that_is_added_later_is_copied_while_the_others_go_on(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE a (id int PRIMARY KEY)")
    pg.run("CREATE TABLE b (id int PRIMARY KEY)")
    pg.run("INSERT INTO b SELECT generate_series(1, 10)")
    pg.run("CREATE PUBLICATION stele FOR TABLE a, b")
    a, b = (Replay(stele_broker.binary_url, f"pg.public.{name}") for name in "ab")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a") as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO a VALUES (1)")
        a.read_until(lambda: len(a.rows) == 1, check=cdc.check)
        cdc.stop()
    # Both are behind the slot; the second is in the copy of b as well, and must not come twice.
    pg.run("INSERT INTO a VALUES (2)")
    pg.run("INSERT INTO b VALUES (11)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "a,b") as cdc:
        pg.run("INSERT INTO b VALUES (12)")
        a.read_until(lambda: len(a.rows) == 2, check=cdc.check)
        b.read_until(lambda: len(b.rows) == 12, check=cdc.check)
    assert [dict(r.headers)["operation"] for r in b.records].count(b"r") >= 11
    assert len(b.records) == 12


def test_an_older_and_a_newer_postgresql_speak_to_it_too(stele_broker: BrokerProcess, log: Path) -> None:
    other = packaged_bin()
    if other is None or other == postgres_bin():
        pytest.skip("a second PostgreSQL comes with: pip install pgserver")
    with PostgresServer(other, logical_decoding_work_mem="64kB") as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        pg.run("INSERT INTO t VALUES (0, 'copied')")
        replay = Replay(stele_broker.binary_url, "pg.public.t")
        with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
            replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
            pg.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 3000) n")
            replay.read_until(lambda: len(replay.rows) == 3001, check=cdc.check)
            assert cdc.stop() == 0


# ── what must not be lost, told twice, or confirmed too early ──


@pytest.fixture
def roomy() -> Iterator[PostgresServer]:
    """A server whose transactions may hold half a megabyte of changes before they are streamed."""
    with PostgresServer(postgres_bin(), logical_decoding_work_mem="512kB") as server:
        yield server


def test_a_keepalive_behind_old_changes_confirms_nothing_that_is_not_stored(
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
    while not pg.run(
        "SELECT 1 FROM pg_stat_replication AS stream JOIN pg_stat_activity USING (pid)"
        " WHERE stream.application_name = 'stele cdc'"
        " AND (sent_lsn >= %s::pg_lsn OR wait_event = 'WalSenderWriteData')",
        (end,),
    ):
        time.sleep(0.02)


def _waits_for_the_broker(cdc: CdcProcess) -> None:
    """Some rounds of retries, in each of which it speaks to PostgreSQL."""
    before = cdc.said.count(RETRIES)
    while cdc.said.count(RETRIES) < before + 3:
        cdc.check()
        time.sleep(0.02)


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


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE t RENAME TO was_t", "DROP TABLE t", "ALTER PUBLICATION stele DROP TABLE t"],
)
def test_a_table_that_goes_away_while_it_is_followed_is_said(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, change: str
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        pg.run(change)
        assert cdc.wait() == 1
        assert "public.t was dropped, renamed, recreated or removed from publication stele" in cdc.said


def test_a_table_that_was_made_anew_is_copied_again(
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


def test_without_copies_a_slot_that_is_gone_is_a_gap_too(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    arguments = ("--tables", "t", "--snapshot", "never")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        cdc.stop()
        _drop_slot(pg, "stele")
        cdc.start()
        assert cdc.wait() == 1
        assert "slot stele is gone" in cdc.said


def test_two_databases_do_not_share_a_topic_nor_fence_each_other(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    pg.run("INSERT INTO t VALUES (1)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with PostgresServer(postgres_bin()) as other:
        other.run("CREATE TABLE t (id int PRIMARY KEY)")
        # Further on than the first one.
        for _ in range(1500):
            other.run("SELECT txid_current()")
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


# ── limits and settings of others ──


def test_settings_of_the_environment_and_of_the_role_change_nothing(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    monkeypatch.setenv("PGDATESTYLE", "German")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    pg.run("ALTER ROLE postgres SET statement_timeout = '300ms'")
    try:
        pg.run("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, v text)")
        pg.run("INSERT INTO t SELECT n, '2026-11-21 10:00+00', 'é' FROM generate_series(1, 30000) n")
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


def test_an_impatient_server_is_kept_patient_through_a_long_replay(
    stele_broker: BrokerProcess, log: Path
) -> None:
    with PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", wal_sender_timeout="1s") as pg:
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
        give_up_s = time.monotonic() + 30
        while "waits for the transactions that are open now" not in cdc.said:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        assert cdc.stop() == 0


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


# ── kill -9 of everything, in turn ──

TABLES = ("accounts", "orders", "notes")


class Load(threading.Thread):
    """Transactions over three tables, from one connection, until it is told to end; PostgreSQL may be killed under it."""

    def __init__(self, pg: PostgresServer, seed: int) -> None:
        super().__init__()
        self._pg = pg
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self.transactions = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    self._work()
                except psycopg2.Error:
                    # Killed: what was under way is committed or it is not; the tables know.
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error
            raise

    def _work(self) -> None:
        connection = self._pg.connect()
        try:
            while not self._ended.is_set():
                with connection, connection.cursor() as cursor:
                    for _ in range(self._random.choice((1, 1, 3, 10))):
                        self._change(cursor)
                    if self._random.random() < 0.01:
                        cursor.execute(
                            "INSERT INTO orders SELECT nextval('ids'), n, repeat('b', 100) FROM generate_series(1, 1500) n"
                        )
                    if self._random.random() < 0.1:
                        connection.rollback()
                self.transactions += 1
        finally:
            connection.close()

    def _change(self, cursor: Any) -> None:
        table = self._random.choice(TABLES)
        match self._random.randrange(10):
            case 0 | 1 | 2:
                cursor.execute(
                    f"INSERT INTO {table} VALUES (nextval('ids'), %s, 'new')", (self._random.random() * 100,)
                )
            case 3:
                cursor.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")
            case 4:
                cursor.execute(
                    f"UPDATE {table} SET id = nextval('ids') WHERE id = (SELECT max(id) FROM {table})"
                )
            case _:
                cursor.execute(
                    f"UPDATE {table} SET n = n + 1, v = v || 'x' WHERE id = "
                    f"(SELECT id FROM {table} ORDER BY id OFFSET %s LIMIT 1)",
                    (self._random.randrange(50),),
                )

    def end(self) -> None:
        self._ended.set()
        self.join()
        assert self.failure is None, self.failure


def run_the_gauntlet(tmp_path: Path, *, rows: int, rounds: int, seed: int) -> None:
    """Load, copy and stream while broker, connector and PostgreSQL are killed in turn; then the topics are the tables."""
    chance = random.Random(seed)
    with (
        PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", fsync="on") as pg,
        run_broker() as broker,
    ):
        pg.run("CREATE SEQUENCE ids START 1000000")
        for table in TABLES:
            pg.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int, v text)")
            pg.run(f"INSERT INTO {table} SELECT g, g, 'old' FROM generate_series(1, {rows}) g")
        load = Load(pg, seed)
        load.start()
        cdc = CdcProcess(
            pg, broker.binary_url, tmp_path / "cdc.log", "--tables", ",".join(f"public.{t}" for t in TABLES)
        )
        replays = {table: Replay(broker.binary_url, f"pg.public.{table}") for table in TABLES}
        try:
            cdc.start()
            for number in range(rounds):
                # Now in the copy, now in the stream: until some more records have come.
                replay = replays[TABLES[number % 3]]
                enough = len(replay.records) + chance.choice((1, 200, 2000))
                if number % 3 == 0 or len(replays[TABLES[-1]].records) > 0:
                    replay.read_until(lambda replay=replay, enough=enough: len(replay.records) >= enough)
                match number % 3:
                    case 0:
                        cdc.kill()
                        cdc.start()
                    case 1:
                        broker.kill()
                        broker.restart()
                    case _:
                        pg.kill()
                        pg.start()
                cdc.check()
            load.end()
            for table in TABLES:
                pg.run(f"INSERT INTO {table} VALUES (-1, 0, 'the last')")
            for replay in replays.values():
                replay.read_until(lambda replay=replay: b"-1" in replay.rows, check=cdc.check)
            # A copy that held the last row may not be at its end.
            cdc.await_confirmed()
            assert cdc.stop() == 0, cdc.said
            for table, replay in replays.items():
                expected = {
                    id_: {"id": id_, "n": n, "v": v} for id_, n, v in pg.run(f"SELECT id, n, v FROM {table}")
                }
                replay.read_until(lambda replay=replay, expected=expected: replay.table() == expected)
                assert replay.table() == expected
        finally:
            load.end()
            cdc.kill()
        assert load.transactions > 100


def test_topics_give_the_tables_back_through_kills_of_broker_connector_and_postgresql(tmp_path: Path) -> None:
    run_the_gauntlet(tmp_path, rows=20_000, rounds=9, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(20))
def test_torture_topics_give_the_tables_back(tmp_path: Path, seed: int) -> None:
    run_the_gauntlet(tmp_path, rows=50_000, rounds=30, seed=100 + seed)


# ── as a part of the broker ──


def test_a_broker_that_is_told_of_a_database_follows_it_and_says_how_it_is(
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
            broker, lambda found: found["state"] == "streaming" and found["transactions"] >= 1
        )
        assert connector["tables"] == {"public.t": {"copied": 1, "expected": 0, "changes": 1}}
        assert connector["database"] == f"postgres on 127.0.0.1:{pg.port}"
        assert connector["lag_bytes"] is not None
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


def test_a_connector_that_can_not_begin_is_tried_again_and_says_why(
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ("--tables", "t", "--metrics-port", str(port))
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        assert (
            'stele_cdc_state{slot="stele",state="streaming"} 1.0'
            in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        )


def _connector(broker: BrokerProcess, is_right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the one connector says of itself, once it is right."""
    give_up_s = time.monotonic() + 60
    while True:
        (found,) = httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]
        if is_right(found):
            return found
        assert time.monotonic() < give_up_s, found
        time.sleep(0.05)
