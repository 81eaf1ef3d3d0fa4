"""Debezium and ``stele cdc --format debezium`` follow one database through kills of everything: the same changes.

Debezium writes some of them twice, which is why its duplicates are removed first. Ours are there once, and a reader
never sees a part of a transaction. The load is pgbench, and a table whose columns change all the time.

``STELE_TORTURE_KILLS`` sets how many kills ``make torture`` makes (300).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.records.events import Position
from stele.errors import SteleClientError, UnknownTopicError
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.conformance.clients import DEBEZIUM
from tests.conformance.programs import RecordProperty, home_of, jar_version, running
from tests.conformance.test_debezium import OURS, THEIRS, source_of
from tests.conformance.test_kafka_connect import Worker
from tests.support.cdc import CdcProcess, running_cdc
from tests.support.postgres import pgbench, postgres_bin
from tests.support.postgres_writers import Pgbench, Writer

TORTURE_KILLS = int(os.environ.get("STELE_TORTURE_KILLS", "300"))
HISTORY = "pgbench_history"
# What a transaction of pgbench changes, with the column that it changes and that of the key.
BALANCES = {
    "pgbench_accounts": ("aid", "abalance"),
    "pgbench_tellers": ("tid", "tbalance"),
    "pgbench_branches": ("bid", "bbalance"),
}
TABLES = (HISTORY, *BALANCES, "altered", "the_end")
# Of pgbench, so that Debezium keeps up on a machine with few cores.
PGBENCH = ["--no-vacuum", "--client", "2", "--jobs", "1", "--time", "1000000", "--rate", "40"]
# Debezium takes up to a second for each on a machine that has other things to do.
ALTERATION_S = 0.5
PROGRESS_S = 300.0


class Alterations(Writer):
    """Adds, renames, widens and drops columns of a table, with changes of rows before and after each."""

    def __init__(self, pg: PostgresServer, seed: int) -> None:
        super().__init__(pg.connect)
        self._random = random.Random(seed)
        self.count = 0

    def transact(self, cursor: Any) -> None:
        self._ended.wait(ALTERATION_S)
        cursor.execute(
            "SELECT attname, atttypid::regtype::text FROM pg_attribute "
            "WHERE attrelid = 'altered'::regclass AND attnum > 2 AND NOT attisdropped ORDER BY attnum"
        )
        columns: list[tuple[str, str]] = cursor.fetchall()
        name = f"c{self._random.randrange(10**9)}"
        match self._random.randrange(8):
            case 0 | 1 if len(columns) < 6:
                kind = self._random.choice(("int", "text", "numeric(8,2)", "int DEFAULT 7"))
                cursor.execute(f"ALTER TABLE altered ADD COLUMN {name} {kind}")
            case 0 | 1:
                cursor.execute(f"ALTER TABLE altered DROP COLUMN {columns[0][0]}")
            case 2 if columns:
                cursor.execute(f"ALTER TABLE altered RENAME COLUMN {columns[-1][0]} TO {name}")
            case 3 if columns and columns[0][1] == "integer":
                cursor.execute(f"ALTER TABLE altered ALTER COLUMN {columns[0][0]} TYPE bigint")
            case 4:
                cursor.execute("DELETE FROM altered WHERE id = (SELECT min(id) FROM altered)")
                return
            case _:
                pass
        # In the transaction of the alteration, too.
        cursor.execute("INSERT INTO altered (v) VALUES ('new')")
        cursor.execute("UPDATE altered SET v = v || 'x' WHERE id > (SELECT max(id) - 3 FROM altered)")
        self.count += 1


class Change(NamedTuple):
    """A change of a row; ``position`` is None in Debezium's."""

    table: str
    lsn: int
    txid: int
    op: str
    key: Any
    after: Any
    position: Position | None

    @property
    def identity(self) -> str:
        """What must be the same in both, with the columns in the order of their names."""
        return msgspec.json.encode(self[:6], order="sorted").decode()


class Reader:
    """Reads what one of the two has written, on and on."""

    def __init__(self, broker: BrokerProcess, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._offsets = dict.fromkeys(TABLES, 0)

    def read(self, table: str) -> Iterator[Change]:
        """Return the changes of a table since the last time. Raises SteleClientError."""
        topic = f"{self._prefix}.public.{table}"
        with Client(self._broker.binary_url, timeout_s=10) as client:
            while True:
                try:
                    page = client.fetch(topic, 0, self._offsets[table], max_records=10_000)
                except UnknownTopicError:
                    return
                for record in page.records:
                    if record.value is None:
                        continue
                    value = msgspec.json.decode(record.value)
                    source, at = value["source"], dict(record.headers).get("event_id")
                    yield Change(
                        table,
                        source["lsn"],
                        source["txId"],
                        value["op"],
                        None if record.key is None else msgspec.json.decode(record.key),
                        value["after"],
                        None if at is None else Position.parse(at.decode()),
                    )
                if page.next_offset <= self._offsets[table]:
                    return
                self._offsets[table] = page.next_offset


class State:
    """The tables that changes make of those before."""

    def __init__(self, pg: PostgresServer) -> None:
        self.balances = balances(pg)
        self.history: Counter[int] = Counter()
        self.altered: dict[int, str] = {}
        self.is_at_end = False

    def take(self, change: Change) -> None:
        match change.table:
            case "the_end":
                self.is_at_end = True
            case "altered" if change.op == "d":
                self.altered.pop(change.key["id"], None)
            case "altered":
                self.altered[change.after["id"]] = change.after["v"]
            case "pgbench_history":
                self.history[change.after["delta"]] += 1
            case table:
                key, balance = BALANCES[table]
                self.balances[table][change.after[key]] = change.after[balance]


def balances(pg: PostgresServer) -> dict[str, dict[int, int]]:
    return {
        table: dict(pg.run(f"SELECT {key}, {value} FROM {table}")) for table, (key, value) in BALANCES.items()
    }


class Ours:
    """What our connector has written, checked while it comes."""

    def __init__(self, broker: BrokerProcess, state: State) -> None:
        self._reader = Reader(broker, OURS)
        self.state = state
        self.identities: set[str] = set()
        self._last: dict[str, Position] = {}
        self._transactions: dict[str, set[int]] = {table: set() for table in TABLES}

    def read(self) -> None:
        """Read what is visible: each change once and in order, of each transaction all."""
        # Of a transaction that is in the table that is read first, the rest must be there by now.
        for table in TABLES:
            for change in self._reader.read(table):
                assert change.position is not None
                assert change.position > self._last.get(table, Position(0, 0, -1)), change
                self._last[table] = change.position
                assert change.identity not in self.identities, change
                self.identities.add(change.identity)
                self._transactions[table].add(change.txid)
                self.state.take(change)
        for table in BALANCES:
            torn = self._transactions[HISTORY] - self._transactions[table]
            assert torn == set(), f"transactions {sorted(torn)[:5]} lack their change of {table}"

    def read_until(self, is_done: Callable[[], bool], cdc: CdcProcess) -> None:
        """Return when ``is_done``; fail when no more changes come for long."""
        give_up_s = time.monotonic() + PROGRESS_S
        while not is_done():
            before = len(self.identities)
            with suppress(SteleClientError):
                self.read()
            cdc.check()
            if len(self.identities) > before:
                give_up_s = time.monotonic() + PROGRESS_S
            assert time.monotonic() < give_up_s, cdc.said[-4000:]
            time.sleep(0.05)


def revive(worker: Worker) -> None:
    """Restart the task of Debezium if it has given up, which it does after some of the kills."""
    with suppress(httpx.TransportError):
        status = worker.get("/connectors/source/status")
        if status is not None and any(task["state"] == "FAILED" for task in status["tasks"]):
            worker.restart("source")


def run_both_through(tmp_path: Path, record_property: RecordProperty, *, kills: int, seed: int) -> None:
    home = home_of(DEBEZIUM)
    record_property("version", jar_version(home, "debezium-connector-postgres"))
    chance = random.Random(seed)
    with (
        PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB", fsync="on") as pg,
        run_broker() as broker,
        closing(Worker(home, tmp_path, broker.kafka_bootstrap)) as worker,
        running(worker.program),
    ):
        subprocess.run([str(pgbench()), "--initialize", "--quiet", pg.dsn], check=True, capture_output=True)
        pg.run(f"ALTER TABLE {HISTORY} REPLICA IDENTITY FULL")
        pg.run("CREATE TABLE altered (id serial PRIMARY KEY, v text)")
        pg.run("CREATE TABLE the_end (id int PRIMARY KEY)")
        for name in (OURS, THEIRS):
            pg.run(f"CREATE PUBLICATION {name} FOR TABLE {', '.join(TABLES)}")
        source = source_of(pg) | {
            "snapshot.mode": "no_data",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "retriable.restart.connector.wait.ms": "500",
        }
        worker.put("source", source)
        ours = Ours(broker, State(pg))
        theirs = State(pg)
        how = f"--prefix {OURS} --slot {OURS} --publication {OURS} --format debezium --partitions 1 --snapshot never"
        with running_cdc(
            pg, broker.binary_url, tmp_path / "cdc.log", *how.split(), "--tables", ",".join(TABLES)
        ) as cdc:
            worker.eventually(
                lambda: len(pg.run("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")) == 2,
                "both stream",
            )
            bench, alterations = Pgbench(pg.dsn, *PGBENCH), Alterations(pg, seed)
            bench.start()
            alterations.start()
            try:
                for number in range(kills):
                    enough = len(ours.identities) + chance.choice((1, 20, 100, 200))
                    ours.read_until(lambda enough=enough: len(ours.identities) >= enough, cdc)
                    match number % 3:
                        case 0:
                            # Positions of slots are on the disk since the last checkpoint, which is every few minutes.
                            if chance.random() < 0.5:
                                pg.run("CHECKPOINT")
                            pg.kill()
                            pg.start()
                        case 1:
                            cdc.kill()
                            if number % 10 == 1:
                                worker.program.kill()
                                worker.program.start()
                            cdc.start()
                        case _:
                            broker.kill()
                            broker.restart()
                    revive(worker)
            finally:
                bench.end()
                alterations.end()
            pg.run("INSERT INTO the_end VALUES (1)")
            ours.read_until(lambda: ours.state.is_at_end, cdc)
            # A table may have been read before the end was there.
            ours.read()
            assert cdc.stop() == 0, cdc.said
        reader, written, repeated = Reader(broker, THEIRS), set[str](), 0

        def is_done() -> bool:
            nonlocal repeated
            revive(worker)
            was_at_end, before = theirs.is_at_end, len(written)
            for table in TABLES:
                for change in reader.read(table):
                    repeated += change.identity in written
                    written.add(change.identity)
                    theirs.take(change)
            return was_at_end and len(written) == before

        # Debezium looks up the columns after each alteration, and may be far behind by now.
        give_up_s, came = time.monotonic() + PROGRESS_S, 0
        while not is_done():
            if len(written) > came:
                give_up_s, came = time.monotonic() + PROGRESS_S, len(written)
            assert time.monotonic() < give_up_s, f"Debezium has {came} of {len(ours.identities)} changes"
            time.sleep(0.5)

        print(
            f"{kills} kills, {len(ours.identities)} changes, {alterations.count} changes of the altered table; Debezium has "
            f"repeated {repeated}"
        )
        assert sorted(ours.identities - written)[:5] == [], "Debezium lacks changes"
        assert sorted(written - ours.identities)[:5] == [], "we lack changes"
        # Debezium's history has its repetitions, and no key by which to tell them.
        expected = balances(pg)
        assert ours.state.balances == theirs.balances == expected
        assert ours.state.altered == theirs.altered == dict(pg.run("SELECT id, v FROM altered"))
        assert ours.state.history == Counter(delta for (delta,) in pg.run(f"SELECT delta FROM {HISTORY}"))


@pytest.mark.long
@pytest.mark.program("debezium")
@pytest.mark.one_broker
def test_both_write_the_same_changes_through_kills(tmp_path: Path, record_property: RecordProperty) -> None:
    run_both_through(tmp_path, record_property, kills=6, seed=1)


@pytest.mark.torture
@pytest.mark.time_limit(0)
@pytest.mark.one_broker
def test_torture_both_write_the_same_changes_through_kills(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    run_both_through(tmp_path, record_property, kills=TORTURE_KILLS, seed=random.randrange(2**32))
