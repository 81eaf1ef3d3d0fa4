"""Changes that are read together beside those that are not: what the topics say is what the tables have."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from stele.broker_process import BrokerProcess

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


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    at, price = row["at"], row["price"]
    return json.loads(json.dumps(row)) | {
        "at": at and at.replace("+00:00", "Z"),
        "price": None if price is None else float(price),
    }
