"""A record of the topic of schema changes for each change of a table's columns, once, with the change that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stele.broker_process import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc

from .test_messages import records_of

TOPIC = "pg.schema-changes"


def changes(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in records_of(broker, TOPIC)]


def column(name: str, type_: str, *, key: bool = False) -> dict[str, Any]:
    return {"name": name, "type": type_, "key": key}


@pytest.mark.parametrize("mode", ["on", pytest.param("off", marks=pytest.mark.long)])
def test_each_change_of_the_columns_is_a_record_also_after_kills(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, mode: str
) -> None:
    pg.run("CREATE TABLE orders (id int PRIMARY KEY, item varchar(20))")
    pg.run("CREATE TABLE other (id int PRIMARY KEY)")
    pg.run("INSERT INTO orders VALUES (0, 'copied')")
    replay = Replay(stele_broker.binary_url, "pg.public.orders")
    arguments = ("--tables", "orders,other", "--transactions", mode)
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        replay.read_until(lambda: len(replay.records) == 1, check=cdc.check)
        pg.run("INSERT INTO orders VALUES (1, 'a')")
        for number, change in enumerate(
            (
                "ADD COLUMN price numeric(10,2)",
                "ALTER COLUMN item TYPE text",
                "DROP COLUMN item",
                "RENAME COLUMN price TO cost",
                "ALTER COLUMN cost SET DEFAULT 1",
            )
        ):
            pg.run(f"ALTER TABLE orders {change}")
            pg.run("INSERT INTO orders (id) VALUES (%s)", (10 + number,))
            if number == 2:
                # What was stored and not confirmed, PostgreSQL sends again, with the columns of then.
                replay.read_until(lambda: b"12" in replay.rows, check=cdc.check)
                cdc.kill()
                cdc.start()
        # The columns are the same afterwards; another table has its own.
        pg.run("BEGIN; ALTER TABLE orders ADD COLUMN x int; ALTER TABLE orders DROP COLUMN x; COMMIT")
        pg.run("INSERT INTO orders (id) VALUES (20)")
        pg.run("INSERT INTO other VALUES (1)")
        replay.read_until(lambda: b"20" in replay.rows, check=cdc.check)
        cdc.await_confirmed()
        assert cdc.stop() == 0
    of_orders = [change for change in changes(stele_broker) if change["table"] == "public.orders"]
    key = column("id", "integer", key=True)
    item, price = column("item", "character varying(20)"), column("price", "numeric(10,2)")
    expected = [
        [key, item],
        [key, item, price],
        [key, column("item", "text"), price],
        [key, price],
        [key, column("cost", "numeric(10,2)")],
    ]
    assert [change["after"] for change in of_orders] == expected
    assert [change["before"] for change in of_orders] == [None, *expected[:-1]]
    assert {change["kind"] for change in of_orders} == {"schema"}
    assert {change["topic"] for change in of_orders} == {"pg.public.orders"}
    assert of_orders[0]["source"]["txid"] is None
    lsns = [change["source"]["lsn"] for change in of_orders]
    assert lsns == sorted(set(lsns))
    assert [change["after"] for change in changes(stele_broker) if change["table"] == "public.other"] == [
        [key]
    ]
