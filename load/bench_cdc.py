"""Measure change data capture from PostgreSQL against pg_recvlogical.

The latter only reads the changes.

Both have a slot of their own at the same point of the log; the changes are made first,
so that what is timed is decoding, transport and storing, not PostgreSQL's own writing.
Needs PostgreSQL's programs: initdb, postgres and pg_recvlogical.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from stele import Client
from stele.broker_process import BrokerProcess

from .broker_process import running_broker
from .measure import in_turn, report
from .postgres_server import PostgresMissing, PostgresServer, find_bin

ROWS = 200_000
# Rows of one transaction: pgbench has few, a load job many.
TRANSACTIONS = (1, 100, 10_000)
ROUNDS = 3


FILL = """
CREATE OR REPLACE PROCEDURE fill(rows int, per int) LANGUAGE plpgsql AS $$ BEGIN
  FOR n IN 1 .. rows / per LOOP
    INSERT INTO changes (account, amount, note)
    SELECT g, n, 'a note of some length, as notes are: ' || g FROM generate_series(1, per) g;
    COMMIT;
  END LOOP;
END $$
"""


def fill(pg: PostgresServer, rows: int, per_transaction: int) -> None:
    """Insert rows, all on the server."""
    connection = pg.connect()
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            # The WAL is what is read; whether it was synced at each commit is not measured here.
            cursor.execute("SET synchronous_commit = off")
            cursor.execute("CALL fill(%s, %s)", (rows, per_transaction))
    finally:
        connection.close()


def seconds_of_recvlogical(pg: PostgresServer, end: str, protocol: str) -> float:
    """pg_recvlogical from the slot ``plain`` up to ``end``, into /dev/null."""
    program = shutil.which("pg_recvlogical", path=f"{find_bin()}:{os.environ['PATH']}")
    assert program is not None
    start = time.perf_counter()
    subprocess.run(
        [
            program, "-d", pg.dsn, "--slot", "plain", "--start", "--endpos", end, "--no-loop", "-f", "/dev/null",
            "-o", f"proto_version={protocol}", "-o", "publication_names=bench",
        ],
        check=True,
    )  # fmt: skip
    return time.perf_counter() - start


def seconds_of_stele(pg: PostgresServer, broker: BrokerProcess, rows: int, end: str) -> float:
    """``stele cdc`` from its start until the last change is synced and confirmed."""
    command = [sys.executable, "-m", "stele.cli", "cdc", "--broker", broker.binary_url, "--tables", "changes"]
    command += ["--publication", "bench", "--snapshot", "never"]
    environment = {**os.environ, "STELE_CDC_DSN": pg.dsn}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while not pg.run(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'stele' AND confirmed_flush_lsn >= %s",
            (end,),
        ):
            assert process.poll() is None
            time.sleep(0.02)
        took = time.perf_counter() - start
    finally:
        process.terminate()
        process.wait()
    return took


def stored(broker: BrokerProcess) -> int:
    with Client(broker.binary_url) as client:
        client.ensure_topic("pg.public.changes", partitions=8, configs={"retention.ms": -1})
        return sum(
            client.list_offset("pg.public.changes", partition) or 0
            for partition in range(client.partition_count("pg.public.changes"))
        )


def compare(pg: PostgresServer, broker: BrokerProcess, per_transaction: int, rows: int) -> None:
    def prepare() -> str:
        for slot in ("plain", "stele"):
            if not pg.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (slot,)):
                pg.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        fill(pg, rows, per_transaction)
        # A commit that is synced, and all before it with it.
        return pg.run("SELECT pg_logical_emit_message(true, 'bench', '')::text")[0][0]

    ends: list[str] = []

    def ours() -> float:
        ends.append(prepare())
        before = stored(broker)
        took = seconds_of_stele(pg, broker, rows, ends[-1])
        # Markers of transactions have offsets, too.
        assert stored(broker) - before >= rows, (stored(broker), before)
        return rows / took

    def yardstick() -> float:
        return rows / seconds_of_recvlogical(pg, ends[-1], "1")

    comparison = in_turn(ours, yardstick, rounds=ROUNDS)
    report(
        f"CDC, {rows:,} rows, {per_transaction:,} a transaction, to topics on disk, synced and confirmed",
        comparison,
        unit="changes/s",
        yardstick="pg_recvlogical of the same slot's changes to /dev/null",
        goal=0.3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    rows: int = parser.parse_args().rows
    try:
        programs = find_bin()
    except PostgresMissing as missing:
        print(f"left out: {missing}")
        return
    with PostgresServer(programs) as pg, running_broker() as broker:
        pg.run(
            "CREATE TABLE changes (id bigserial PRIMARY KEY, account int, amount numeric(12,2), note text)"
        )
        pg.run("CREATE PUBLICATION bench FOR TABLE changes")
        pg.run(FILL)
        for per_transaction in TRANSACTIONS:
            compare(pg, broker, per_transaction, rows)
        copy(pg, broker)


def copy(pg: PostgresServer, broker: BrokerProcess) -> None:
    """Measure the snapshot of a table beside COPY of its rows to /dev/null."""
    ((rows,),) = pg.run("SELECT count(*) FROM changes")
    run = 0

    def ours() -> float:
        nonlocal run
        run += 1
        command = [
            sys.executable,
            "-m",
            "stele.cli",
            "cdc",
            "--broker",
            broker.binary_url,
            "--tables",
            "changes",
        ]
        command += ["--publication", "bench", "--slot", f"copy_{run}", "--prefix", f"copy{run}"]
        topic = f"__cdc.copy{run}.copy_{run}"
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env={**os.environ, "STELE_CDC_DSN": pg.dsn}, stderr=subprocess.DEVNULL
        )
        try:
            with Client(broker.binary_url) as client:
                # The third note in its own topic says that the copy is done, and synced.
                while topic not in {t.topic for t in client.topics()} or (client.list_offset(topic) or 0) < 3:
                    assert process.poll() is None
                    time.sleep(0.02)
            took = time.perf_counter() - start
        finally:
            process.terminate()
            process.wait()
            pg.run("SELECT pg_drop_replication_slot(%s)", (f"copy_{run}",))
        return rows / took

    def yardstick() -> float:
        start = time.perf_counter()
        connection = pg.connect()
        with Path(os.devnull).open("wb") as nowhere, connection.cursor() as cursor:
            cursor.copy_expert("COPY changes TO STDOUT", nowhere)
        connection.close()
        return rows / (time.perf_counter() - start)

    comparison = in_turn(ours, yardstick, rounds=ROUNDS)
    report(
        f"CDC, the first copy of a table of {rows:,} rows, synced",
        comparison,
        unit="rows/s",
        yardstick="COPY of the same rows to /dev/null, in Python",
        goal=0.02,
    )


if __name__ == "__main__":
    main()
