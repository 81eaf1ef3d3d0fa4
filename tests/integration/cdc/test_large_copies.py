"""A copy of a large table that is interrupted again and again, under load: each row once, and it meets the stream.

``STELE_TORTURE_ROWS`` and ``STELE_TORTURE_KILLS`` set how large the table is and how often the connector is killed in
``make torture`` (5,000,000 rows, 20 kills).
"""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stele import Client
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, running_cdc
from tests.support.postgres_writers import Writer
from tests.support.waiting import Pauses

TORTURE_ROWS = int(os.environ.get("STELE_TORTURE_ROWS", "5000000"))
TORTURE_KILLS = int(os.environ.get("STELE_TORTURE_KILLS", "20"))
PARTITIONS = 4
TOPIC = "pg.public.large"
# What is known of a row: nothing, that it was deleted, or its ``v``.
UNKNOWN, DELETED = -2, -1


class Row(msgspec.Struct):
    id: int
    v: int | None = None


class Change(msgspec.Struct):
    op: str
    before: Row | None
    after: Row | None


class Load(Writer):
    """Updates, deletes and inserts rows all over the table."""

    is_killed = False

    def __init__(self, pg: PostgresServer, rows: int) -> None:
        super().__init__(pg.connect)
        self._rows = rows
        self._random = random.Random(5)
        self.next_id = rows + 1

    def transact(self, cursor: Any) -> None:
        for _ in range(20):
            updated, deleted = self._random.randrange(self._rows), self._random.randrange(self._rows)
            cursor.execute("UPDATE large SET v = v + 1 WHERE id = %s", (updated,))
            cursor.execute("DELETE FROM large WHERE id = %s", (deleted,))
            cursor.execute("INSERT INTO large VALUES (%s, 0, '')", (self.next_id,))
            self.next_id += 1


class Table:
    """The table that the topic gives, and how often each row was read."""

    def __init__(self, size: int) -> None:
        self.values = array("q", [UNKNOWN]) * size
        self.reads = bytearray(size)
        self.changes_before_reads = 0

    def take(self, change: Change) -> None:
        row = change.after or change.before
        assert row is not None, "a copy has begun again"
        known = self.values[row.id]
        match change.op:
            case "r":
                assert self.reads[row.id] == 0, f"row {row.id} was copied twice"
                self.reads[row.id] = 1
                # The row is as the changes before it have made it.
                assert known in (UNKNOWN, row.v), row
                self.changes_before_reads += known != UNKNOWN
            case "c":
                assert known in (UNKNOWN, DELETED), row
            case "u":
                # A row that is still to be copied may have changed before.
                assert row.v is not None
                assert known in (UNKNOWN, row.v - 1), row
            case _:
                assert known != DELETED, row
        self.values[row.id] = DELETED if change.op == "d" or row.v is None else row.v


def end_of(broker: BrokerProcess) -> int:
    with Client(broker.binary_url) as client:
        return sum(client.list_offset(TOPIC, partition) or 0 for partition in range(PARTITIONS))


def read_all(broker: BrokerProcess, size: int) -> Table:
    table = Table(size)
    decode = msgspec.json.Decoder(Change).decode
    with Client(broker.binary_url) as client:
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                page = client.fetch(TOPIC, partition, offset, max_records=20_000)
                for record in page.records:
                    table.take(decode(record.value or b""))
                if page.next_offset <= offset:
                    break
                offset = page.next_offset
    return table


def interrupt_a_copy(
    pg: PostgresServer, broker: BrokerProcess, log: Path, *, rows: int, kills: int, seed: int
) -> None:
    """Copy a table under load, while the connector is killed ``kills`` times before the copy has its last row."""
    pg.run("CREATE TABLE large (id int PRIMARY KEY, v int NOT NULL, pad text NOT NULL)")
    pg.run(f"INSERT INTO large SELECT g, 0, repeat('x', 100) FROM generate_series(1, {rows}) g")
    chance = random.Random(seed)
    # By the end of the topic: anywhere in a part, while it is stored, and between two.
    places = sorted(chance.randrange(1, int(rows * 0.9)) for _ in range(kills))
    load = Load(pg, rows)
    arguments = ("--tables", "large", "--partitions", str(PARTITIONS))
    with Client(broker.binary_url) as client:
        client.ensure_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    with running_cdc(pg, broker.binary_url, log, *arguments) as cdc:
        load.start()
        try:
            for number, place in enumerate(places):
                _await(cdc, lambda place=place: end_of(broker) >= place)
                cdc.kill()
                assert "copied public.large: " not in cdc.said, f"the copy had ended before kill {number}"
                cdc.start()
            _await(cdc, lambda: "copied public.large: " in cdc.said)
        finally:
            load.end()
        cdc.await_confirmed()
        assert cdc.stop() == 0, cdc.said
    assert cdc.said.count("copied public.large: ") == 1

    table = read_all(broker, load.next_id)
    expected = dict(pg.run("SELECT id, v FROM large"))
    wrong = [
        (id_, value, expected.get(id_))
        for id_, value in enumerate(table.values)
        if expected.get(id_, DELETED) != value and not (value == UNKNOWN and id_ not in expected)
    ]
    assert wrong[:10] == []
    assert load.next_id > rows + 100
    print(
        f"{rows} rows, {kills} kills, {sum(table.reads)} rows copied, {end_of(broker)} records; "
        f"{table.changes_before_reads} rows were copied after a change of theirs"
    )


def _await(cdc: CdcProcess, is_there: Callable[[], bool]) -> None:
    pauses = Pauses()
    while not is_there():
        cdc.check()
        pauses.pause()


@pytest.mark.long
def test_a_large_copy_is_whole_after_interruptions(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    interrupt_a_copy(pg, stele_broker, log, rows=60_000, kills=5, seed=1)


@pytest.mark.torture
@pytest.mark.time_limit(0)
def test_torture_a_large_copy_is_whole_after_interruptions(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    interrupt_a_copy(pg, stele_broker, log, rows=TORTURE_ROWS, kills=TORTURE_KILLS, seed=2)
