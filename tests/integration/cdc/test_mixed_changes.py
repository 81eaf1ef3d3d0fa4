"""Changes that are read together beside those that are not: what the topics say is what the tables have."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.records.events import Position

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc

_COLUMNS = "id, note, big, at, price"
_STATEMENTS = (
    # A run; and COPY, whose rows have one LSN.
    "INSERT INTO {t} SELECT n, 'a \"note\" %', NULL, now(), n FROM generate_series({a}, {b}) n ON CONFLICT DO NOTHING",
    "COPY",
    # With NULL, text that JSON escapes, and large values, which later updates leave out.
    "UPDATE {t} SET note = CASE WHEN id % 3 = 0 THEN NULL ELSE E'\\t\\\\é' || id END WHERE id BETWEEN {a} AND {b}",
    "UPDATE {t} SET big = (SELECT string_agg(md5(id || '-' || g), '') FROM generate_series(1, 90) g) WHERE id = {a}",
    "UPDATE {t} SET price = price + 1 WHERE id BETWEEN {a} AND {b}",
    "UPDATE {t} SET id = id + 10000 WHERE id = {a} AND NOT EXISTS (SELECT 1 FROM {t} WHERE id = {a} + 10000)",
    "DELETE FROM {t} WHERE id BETWEEN {a} AND {a} + 3",
)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_transactions_of_all_kinds_of_changes_give_the_tables_back(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, seed: int
) -> None:
    chance = random.Random(seed)
    tables = ("first", "second")
    for table in tables:
        pg.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, note text, big text, at timestamptz, price numeric(10,2))"
        )
    pg.run("ALTER TABLE second REPLICA IDENTITY FULL")
    replays = {table: Replay(stele_broker.binary_url, f"pg.public.{table}") for table in tables}
    connection = pg.connect()
    cursor = connection.cursor()

    def change() -> None:
        table, first = chance.choice(tables), chance.randrange(400)
        statement = chance.choice(_STATEMENTS)
        last = first + chance.choice((0, 1, 30))
        if statement == "COPY":
            cursor.execute(f"SELECT COALESCE(max(id), 0) + 1 FROM {table} WHERE id < 10000")
            free = cursor.fetchone()[0]
            lines = "".join(
                f"{n}\tcopied\t\\N\t2026-11-21\t1\n" for n in range(free, free + last - first + 1)
            )
            cursor.copy_expert(f"COPY {table} ({_COLUMNS}) FROM STDIN", io.StringIO(lines))
        else:
            cursor.execute(statement.format(t=table, a=first, b=last))

    with running_cdc(pg, stele_broker.binary_url, log, "--tables", ",".join(tables)) as cdc:
        cdc.await_streaming()
        # Small transactions, and large ones, which PostgreSQL streams before they commit.
        for size in (1, 3, 1, 30, 5, 60, 1):
            for _ in range(size):
                cursor.execute("SAVEPOINT s")
                change()
                if chance.random() < 0.2:
                    cursor.execute("ROLLBACK TO s")
                    change()
            connection.commit()
        for table, replay in replays.items():
            cursor.execute(f"INSERT INTO {table} (id) VALUES (-1)")
            connection.commit()
            replay.read_until(lambda replay=replay: b"-1" in replay.rows, check=cdc.check)
        cdc.await_confirmed()
        for table, replay in replays.items():
            replay.read_all()
            cursor.execute(f"SELECT id, to_jsonb({table}) FROM {table}")
            # numeric is a string, and a time has its zone as Z.
            expected = {row[0]: _shown(row[1]) for row in cursor.fetchall()}
            assert {key: _shown(row) for key, row in replay.table().items()} == expected
    connection.close()


def test_transactions_that_are_read_together_stay_apart(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    for table in ("t", "other"):
        pg.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t,other", "--partitions", "1") as cdc:
        cdc.await_streaming()
        # So that all of them wait in its socket.
        cdc.freeze()
        connection = pg.connect()
        connection.autocommit = True
        connection.cursor().execute(
            "DO $$ BEGIN FOR n IN 1 .. 700 LOOP"
            " INSERT INTO t SELECT id, n FROM generate_series(10 * n, 10 * n + (n % 3 = 0)::int) id;"
            " IF n % 7 = 0 THEN UPDATE t SET v = 0 WHERE id = 10 * n; END IF;"
            " IF n % 50 = 0 THEN INSERT INTO other VALUES (n); END IF;"
            " COMMIT; END LOOP; END $$"
        )
        connection.close()
        cdc.thaw()
        replay.read_until(lambda: b"7000" in replay.rows, check=cdc.check)
        cdc.await_confirmed()
    with Client(stele_broker.binary_url) as client:
        records = client.fetch("pg.public.t", 0, 0, max_records=2000).records
    assert len(records) == 700 + 700 // 3 + 700 // 7
    sources = [json.loads(record.value or b"")["source"] for record in records]
    # Nothing has changed a row after the transaction of its insert.
    transactions = dict(pg.run("SELECT id::text, xmin::text::int FROM t"))
    assert [source["txid"] for source in sources] == [
        transactions[(record.key or b"").decode()] for record in records
    ]
    assert [source["ts_ms"] for source in sources] == [record.timestamp for record in records]
    positions = [Position.parse((dict(record.headers)["event_id"] or b"").decode()) for record in records]
    assert positions == sorted(set(positions))
    assert [position.change_lsn for position in positions] == [source["lsn"] for source in sources]
    commits = {
        (position.commit_lsn, source["txid"]) for position, source in zip(positions, sources, strict=True)
    }
    assert len(commits) == len({lsn for lsn, _ in commits}) == 700


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    at, price = row["at"], row["price"]
    return json.loads(json.dumps(row)) | {
        "at": at and at.replace("+00:00", "Z"),
        "price": None if price is None else float(price),
    }
