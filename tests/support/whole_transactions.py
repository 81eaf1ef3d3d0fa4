"""Loads of money transfers over three tables, and a reader that finds every transaction whole.

Each transaction of PostgreSQL takes an amount from one account, gives it to another, and writes
what it did into a third table, with a number of its own. So of the records that a reader has at
any time, each number must have all of its records, and the balances must add up to zero.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stele import Client
from stele.errors import SteleClientError, UnknownTopicError

from load.postgres_server import PostgresServer
from tests.support.cdc import TIMEOUT_S
from tests.support.postgres_writers import Pgbench, Writer
from tests.support.waiting import Pauses

TABLES = ("payer", "payee", "transfer")
TOPICS = tuple(f"pg.public.{table}" for table in TABLES)


def create_tables(pg: PostgresServer) -> None:
    pg.run("CREATE SEQUENCE numbers")
    for table in TABLES:
        pg.run(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, number bigint, rows int, amount bigint)")


class Transfers(Writer):
    """Transfers from one connection."""

    def __init__(self, pg: PostgresServer, seed: int, *, large_share: float = 0.02) -> None:
        super().__init__(pg.connect)
        self._random = random.Random(seed)
        self._large_share = large_share

    def transact(self, cursor: Any) -> None:
        # Large ones are streamed by PostgreSQL before they commit, and some are rolled back.
        rows = 2000 if self._random.random() < self._large_share else self._random.choice((1, 1, 2, 5))
        amount = self._random.randrange(1, 1000)
        cursor.execute("SELECT nextval('numbers')")
        (number,) = cursor.fetchone() or (0,)
        for table, signed in (("payer", -amount), ("payee", amount), ("transfer", 0)):
            cursor.execute(
                f"INSERT INTO {table} (number, rows, amount) SELECT %s, %s, %s FROM generate_series(1, %s)",
                (number, rows, signed, rows),
            )
        if self._random.random() < 0.1:
            cursor.connection.rollback()


# Each client of pgbench makes the transfers of ``Transfers``, without large ones.
_SCRIPT = """\
\\set amount random(1, 999)
\\set rows random(1, 5)
BEGIN;
SELECT nextval('numbers') AS number \\gset
INSERT INTO payer (number, rows, amount) SELECT :number, :rows, 0 - :amount FROM generate_series(1, :rows);
INSERT INTO payee (number, rows, amount) SELECT :number, :rows, :amount FROM generate_series(1, :rows);
INSERT INTO transfer (number, rows, amount) SELECT :number, :rows, 0 FROM generate_series(1, :rows);
END;
"""
_PER_SECOND = 100


def pgbench_of(pg: PostgresServer, bin_dir: Path, directory: Path, *, clients: int) -> Pgbench:
    """Return pgbench with the script of transfers."""
    script = directory / "transfers.sql"
    script.write_text(_SCRIPT)
    options = f"-n -c {clients} -T 36000 -R {_PER_SECOND} -f {script}"
    return Pgbench(bin_dir, pg.dsn, *options.split())


class WholeReader:
    """Reads all topics with read_committed, on and on, as far as one moment of the log after the other.

    Each round takes the last stable offsets of all partitions first, then reads up to them. A
    transaction may commit while they are asked for, so that some offsets are before its markers and
    some behind. The transactions that such a round cuts must be whole in the next one: the reader
    asks again until two answers in a row agree, which is a moment at which nothing committed.
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._offsets: dict[tuple[str, int], int] = {}
        self._ids: set[tuple[str, int]] = set()
        self._sizes: dict[int, int] = {}
        self._counts: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(TABLES, 0))
        self.records = 0
        self.rounds = 0

    @property
    def transactions(self) -> int:
        return len(self._sizes)

    @property
    def numbers(self) -> set[int]:
        return set(self._sizes)

    def read_until(self, is_done: Callable[[], bool], *, check: Callable[[], None] = lambda: None) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        pauses = Pauses()
        with Client(self._broker, timeout_s=10) as client:
            while not is_done():
                before = self.records
                try:
                    self.read(client)
                except SteleClientError as error:
                    # The broker was killed, or the topics are not created yet.
                    if not (error.retriable or isinstance(error, UnknownTopicError)):
                        raise
                check()
                if self.records > before:
                    give_up_s = time.monotonic() + TIMEOUT_S
                    pauses = Pauses()
                else:
                    pauses.pause()
                assert time.monotonic() < give_up_s, (self.records, self.transactions)

    def read(self, client: Client) -> None:
        ends = self._ends(client)
        while (again := self._ends(client)) != ends:
            ends = again
        for (topic, partition), end in ends.items():
            offset = self._offsets.get((topic, partition), 0)
            while offset < end:
                page = client.fetch(topic, partition, offset)
                for record in page.records:
                    if record.offset < end:
                        self._take(topic, record.value)
                if page.next_offset <= offset:
                    break
                offset = min(page.next_offset, end)
                self._offsets[topic, partition] = offset
        self._check()

    def _ends(self, client: Client) -> dict[tuple[str, int], int]:
        return {
            (topic, partition): client.list_offset(topic, partition) or 0
            for topic in TOPICS
            for partition in range(client.partition_count(topic))
        }

    def _take(self, topic: str, value: bytes | None) -> None:
        assert value is not None
        row = json.loads(value)["after"]
        table = topic.rpartition(".")[2]
        assert (table, row["id"]) not in self._ids, (table, row)
        self._ids.add((table, row["id"]))
        self._sizes[row["number"]] = row["rows"]
        self._counts[row["number"]][table] += 1
        self.records += 1

    def _check(self) -> None:
        self.rounds += 1
        partial = {
            number: counts
            for number, counts in self._counts.items()
            if any(count != self._sizes[number] for count in counts.values())
        }
        assert not partial, partial
        # What is whole stays whole, because no row comes twice.
        self._counts.clear()
