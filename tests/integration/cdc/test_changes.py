"""Rows and changes of PostgreSQL as records: values, keys, truncates, large transactions, and NOTIFY."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc import run
from stele.cdc.connector import Connector
from stele.cdc.options import CdcOptions
from stele.cdc.postgres.catalog import Postgres, SlotInfo
from stele.cdc.status import Status
from stele.wire.partitioner import fnv1a_32

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay, running_cdc
from tests.support.waiting import Pauses

# ── rows and changes ──


def test_the_rows_of_a_table_come_first_then_changes_in_debeziums_form(
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
        pg.run("UPDATE docs SET id = 2")
        pg.run("UPDATE full_docs SET id = 2")
        moved, whole = (_created(stele_broker, name, b"2", cdc) for name in ("docs", "full_docs"))
    event = json.loads(docs.records[1].value or b"")
    assert event["after"] == {"id": 1, "n": 2}
    assert event["unchanged"] == ["body"]
    assert docs.table() == {1: {"id": 1, "n": 2, "body": body}}
    # The whole old row is in the WAL, so the new one is whole too.
    event = json.loads(full.records[1].value or b"")
    assert event["before"] == {"id": 1, "n": 1, "body": body}
    assert event["after"] == {"id": 1, "n": 2, "body": body}
    assert "unchanged" not in event
    assert (moved["after"], moved["unchanged"]) == ({"id": 2, "n": 2}, ["body"])
    assert whole["after"] == {"id": 2, "n": 2, "body": body}
    assert "unchanged" not in whole


def _created(broker: BrokerProcess, table: str, key: bytes, cdc: CdcProcess) -> dict[str, Any]:
    """Return the event of the record that created a key."""
    replay = Replay(broker.binary_url, f"pg.public.{table}")
    replay.read_until(lambda: key in replay.rows, check=cdc.check)
    (event,) = (json.loads(r.value or b"") for r in replay.records if r.key == key)
    assert event["op"] == "c"
    return event


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


@pytest.mark.long
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


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_a_channel_becomes_a_topic_with_its_first_notification(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    arguments = ("--channels", "pgcdc:orders,plain", "--storage", "memory")
    with (
        running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc,
        Client(stele_broker.binary_url) as client,
    ):
        pauses = Pauses()
        while not pg.run("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %%plain%%'"):
            cdc.check()
            pauses.pause()
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
    give_up_s = time.monotonic() + 300
    pauses = Pauses()
    while time.monotonic() < give_up_s:
        if topic in {t.topic for t in client.topics()}:
            found = [r for p in range(client.partition_count(topic)) for r in client.fetch(topic, p).records]
            if len(found) >= count:
                return found
        pauses.pause()
    raise AssertionError(f"{topic} has not {count} records")
