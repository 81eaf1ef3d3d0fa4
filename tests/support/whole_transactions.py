"""Loads of money transfers over three tables, and a reader that finds every transaction whole.

Each transaction of PostgreSQL takes an amount from one account, gives it to another, and writes
what it did into a third table, with a number of its own. So of the records that a reader has at
any time, each number must have all of its records, and the balances must add up to zero.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psycopg2
from stele import Client
from stele.errors import SteleClientError, UnknownTopicError

from load.postgres_server import PostgresServer
from tests.support.cdc import TIMEOUT_S
from tests.support.postgres import pgbench
from tests.support.waiting import Pauses

TABLES = ("payer", "payee", "transfer")
TOPICS = tuple(f"pg.public.{table}" for table in TABLES)


def create_tables(pg: PostgresServer) -> None:
    pg.run("CREATE SEQUENCE numbers")
    for table in TABLES:
        pg.run(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, number bigint, rows int, amount bigint)")


class Transfers(threading.Thread):
    """Transfers from one connection until it is told to end; PostgreSQL may be killed meanwhile."""

    def __init__(self, pg: PostgresServer, seed: int, *, large_share: float = 0.02) -> None:
        super().__init__()
        self._pg = pg
        self._random = random.Random(seed)
        self._large_share = large_share
        self._ended = threading.Event()
        self.committed = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    self._work()
                except psycopg2.Error:
                    # PostgreSQL was killed; the tables know what it had committed.
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error
            raise

    def _work(self) -> None:
        connection = self._pg.connect()
        try:
            while not self._ended.is_set():
                with connection, connection.cursor() as cursor:
                    # Large ones are streamed by PostgreSQL before they commit, and some are rolled back.
                    rows = (
                        2000
                        if self._random.random() < self._large_share
                        else self._random.choice((1, 1, 2, 5))
                    )
                    amount = self._random.randrange(1, 1000)
                    cursor.execute("SELECT nextval('numbers')")
                    (number,) = cursor.fetchone() or (0,)
                    for table, signed in (("payer", -amount), ("payee", amount), ("transfer", 0)):
                        cursor.execute(
                            f"INSERT INTO {table} (number, rows, amount)"
                            " SELECT %s, %s, %s FROM generate_series(1, %s)",
                            (number, rows, signed, rows),
                        )
                    if self._random.random() < 0.1:
                        connection.rollback()
                        continue
                self.committed += 1
        finally:
            connection.close()

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()
        assert self.failure is None, self.failure


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


class Pgbench(threading.Thread):
    """pgbench, begun again whenever PostgreSQL was killed, until it is told to end."""

    def __init__(self, pg: PostgresServer, directory: Path, *, clients: int) -> None:
        super().__init__()
        script = directory / "transfers.sql"
        script.write_text(_SCRIPT)
        options = f"-n -c {clients} -T 36000 -R {_PER_SECOND} -f {script}"
        self._command = [str(pgbench()), *options.split(), pg.dsn]
        self._ended = threading.Event()
        self._failure = ""

    def run(self) -> None:
        while not self._ended.is_set():
            process = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            while process.poll() is None and not self._ended.wait(0.05):
                pass
            process.terminate()
            _, said = process.communicate()
            # PostgreSQL that is killed or starts answers FATAL, or nothing; these are mistakes of the script.
            if "ERROR:" in said or "syntax error" in said or "undefined variable" in said:
                self._failure = said
                return

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()
        assert not self._failure, self._failure


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
