"""Measure change data capture from PostgreSQL: its rate, its latency, and how long a failed broker interrupts it.

The yardstick of the rate is pg_recvlogical, which only reads the changes. Both have a slot of their own at the same
point of the log; the changes are made first, so that what is timed is decoding, transport and storing, not
PostgreSQL's own writing. The time begins when PostgreSQL begins to send; CPU time is that of the connector.

``--only latency`` inserts rows at a steady rate, one per transaction, and measures the time from each commit until a
consumer, which reads committed records only, has the change.

``--only takeover`` runs two brokers on one PostgreSQL server, whose changes one of them captures. In each round that
broker is killed (SIGKILL) or paused (SIGSTOP), while rows are inserted, until the other broker serves the first row
that was inserted after the signal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
from stele import Client
from stele.broker_process import BrokerProcess
from stele.errors import SteleClientError

from .harness import Benchmark, percentile
from .pausing import paused
from .postgres_server import PostgresServer, committing, find_bin
from .process_usage import process_cpu_s
from .results import Measure, at_least, at_most
from .subjects import SteleCluster, quiet_broker, stele_cluster

# Rows of one transaction: pgbench has few, a load job many.
TRANSACTIONS = (1, 100, 10_000)
SHOWN = 100
TABLE = "t"
TOPIC = f"pg.public.{TABLE}"
_TIMEOUT_S = 120.0
_LOOK_S = 0.02
# Rows per second; each is a transaction.
_RATE = 50
_FILL = """
CREATE OR REPLACE PROCEDURE fill(rows int, per int) LANGUAGE plpgsql AS $$ BEGIN
  FOR n IN 1 .. rows / per LOOP
    INSERT INTO changes (account, amount, note)
    SELECT g, n, 'a note of some length, as notes are: ' || g FROM generate_series(1, per) g;
    COMMIT;
  END LOOP;
END $$
"""


# ── the rate ──


def fill(pg: PostgresServer, rows: int, per_transaction: int) -> str:
    """Insert rows, all on the server; return the end of the log after them."""
    for slot in ("plain", "stele"):
        if not pg.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (slot,)):
            pg.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    with committing(pg.dsn) as cursor:
        # The WAL is what is read; whether it was synced at each commit is not measured here.
        cursor.execute("SET synchronous_commit = off")
        cursor.execute("CALL fill(%s, %s)", (rows, per_transaction))
    # A commit that is synced, and all before it with it.
    return pg.run("SELECT pg_logical_emit_message(true, 'bench', '')::text")[0][0]


def seconds_of_recvlogical(pg: PostgresServer, end: str) -> float:
    """pg_recvlogical from the slot ``plain`` up to ``end``, into /dev/null."""
    program = shutil.which("pg_recvlogical", path=f"{find_bin()}:{os.environ['PATH']}")
    assert program is not None
    options = f"--slot plain --start --endpos {end} --no-loop -f {os.devnull} -o proto_version=1 -o publication_names=bench"
    start = time.perf_counter()
    subprocess.run([program, "-d", pg.dsn, *options.split()], check=True)
    return time.perf_counter() - start


@contextmanager
def running_connector(
    pg: PostgresServer, broker: BrokerProcess, *arguments: str
) -> Generator[subprocess.Popen[bytes]]:
    options = f"--broker {broker.binary_url} --publication bench --snapshot never"
    process = subprocess.Popen(
        [sys.executable, "-m", "stele.cli", "cdc", *options.split(), *arguments],
        env={**os.environ, "STELE_CDC_DSN": pg.dsn},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_until(pg: PostgresServer, process: subprocess.Popen[bytes], query: str) -> float:
    """Wait until ``query`` has a row; return the time of the last look without one.

    One connection asks, because each new one is a process of PostgreSQL.
    """
    looked_s = time.perf_counter()
    with committing(pg.dsn) as cursor:
        while True:
            now_s = time.perf_counter()
            cursor.execute(query)
            if cursor.fetchone() is not None:
                return looked_s
            assert process.poll() is None
            looked_s = now_s
            time.sleep(_LOOK_S)


def seconds_of_stele(pg: PostgresServer, broker: BrokerProcess, end: str) -> tuple[float, float]:
    """Let ``stele cdc`` follow the slot until the last change is synced and confirmed; return time and CPU time."""
    slot = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'stele' AND"
    with running_connector(pg, broker, "--tables", "changes") as process:
        start_s = wait_until(pg, process, f"{slot} active")
        cpu_s = process_cpu_s(process.pid)
        wait_until(pg, process, f"{slot} confirmed_flush_lsn >= '{end}'")
        return time.perf_counter() - start_s, process_cpu_s(process.pid) - cpu_s


def stored(broker: BrokerProcess) -> int:
    topic = "pg.public.changes"
    with Client(broker.binary_url) as client:
        client.ensure_topic(topic, partitions=8, configs={"retention.ms": -1})
        return sum(client.list_offset(topic, number) or 0 for number in range(client.partition_count(topic)))


def create_changes(pg: PostgresServer) -> None:
    pg.run("CREATE TABLE changes (id bigserial PRIMARY KEY, account int, amount numeric(12,2), note text)")
    pg.run("CREATE PUBLICATION bench FOR TABLE changes")


def measure_rate(bench: Benchmark, rounds: int, rows: int) -> None:
    with PostgresServer(find_bin()) as pg, quiet_broker() as broker:
        create_changes(pg)
        pg.run(_FILL)
        for per_transaction in TRANSACTIONS:
            ours: list[float] = []
            theirs: list[float] = []
            cpu_us: list[float] = []
            # The first round is for warmth.
            for _ in range(rounds + 1):
                end, before = fill(pg, rows, per_transaction), stored(broker)
                seconds, cpu_s = seconds_of_stele(pg, broker, end)
                ours.append(rows / seconds)
                cpu_us.append(cpu_s / rows * 1e6)
                # Markers of transactions have offsets, too.
                assert stored(broker) - before >= rows, (stored(broker), before)
                theirs.append(rows / seconds_of_recvlogical(pg, end))
            bench.row(
                f"changes/s from PostgreSQL, {per_transaction:,} per transaction",
                table="work" if per_transaction == SHOWN else "",
                baseline="`pg_recvlogical`",
                value=Measure(unit="/s", stele=ours[1:], baseline=theirs[1:], goal=at_least(0.8)),
                measures={"cpu": Measure(unit="µs", stele=cpu_us[1:])},
            )


# ── the latency ──


def latencies_ms(pg: PostgresServer, broker: BrokerProcess, rows: int) -> list[float]:
    """Return the time of each row from its commit until a consumer has the change."""
    committed_s: list[float] = []
    seen_s: list[float] = []
    is_ready = threading.Event()
    topic = "latency.public.changes"

    def read() -> None:
        with Client(broker.binary_url) as client:
            offset = client.list_offset(topic, 0) or 0
            is_ready.set()
            while len(seen_s) < rows:
                page = client.fetch(topic, 0, offset, wait_ms=1000)
                seen_s.extend([time.perf_counter()] * len(page.records))
                offset = page.next_offset

    arguments = ("--tables", "changes", "--slot", "latency", "--prefix", "latency", "--partitions", "1")
    with committing(pg.dsn) as cursor, running_connector(pg, broker, *arguments) as process:
        wait_until(pg, process, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        reader = threading.Thread(target=read)
        reader.start()
        is_ready.wait(_TIMEOUT_S)
        for number in range(rows):
            time.sleep(1 / _RATE)
            cursor.execute("INSERT INTO changes (account, amount, note) VALUES (%s, 1, 'a note')", (number,))
            committed_s.append(time.perf_counter())
        reader.join(_TIMEOUT_S)
    return [(seen - committed) * 1000 for committed, seen in zip(committed_s, seen_s, strict=True)]


def measure_latency(bench: Benchmark, rounds: int, rows: int) -> None:
    with PostgresServer(find_bin()) as pg, quiet_broker() as broker:
        create_changes(pg)
        p50: list[float] = []
        p99: list[float] = []
        for _ in range(rounds):
            times_ms = latencies_ms(pg, broker, rows)
            p50.append(percentile(times_ms, 0.5))
            p99.append(percentile(times_ms, 0.99))
        bench.row(
            f"change in PostgreSQL to consume, {_RATE} transactions/s",
            table="latency",
            measures={"p50": Measure(unit="ms", stele=p50), "p99": Measure(unit="ms", stele=p99)},
        )


# ── taking over ──


class Inserts(threading.Thread):
    """Inserts a row every ``interval_s``, each in a transaction of its own.

    ``count`` rows have been committed; their ids begin with 0.
    """

    def __init__(self, server: PostgresServer, *, interval_s: float) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._interval_s = interval_s
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        with committing(self._server.dsn) as cursor:
            # A bounded rate: the brokers share the machine with this thread.
            while not self._ended.wait(self._interval_s):
                cursor.execute(f"INSERT INTO {TABLE} (id) VALUES (%s)", (self.count,))
                self.count += 1

    def end(self) -> None:
        """Return when the last row has been committed."""
        self._ended.set()
        self.join()


def create_table(server: PostgresServer) -> None:
    """Create the table, without rows."""
    server.run(f"DROP TABLE IF EXISTS {TABLE}")
    server.run(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, v text)")


def connector_state(broker: BrokerProcess) -> str:
    """Return the state of the connector at ``broker``: streaming, standby and so on."""
    (connector,) = _get(broker, "/v1/cdc")["connectors"]
    return connector["state"]


def _get(broker: BrokerProcess, path: str) -> Any:
    answer = httpx.get(f"{broker.http_url}{path}", timeout=_TIMEOUT_S)
    answer.raise_for_status()
    return answer.json()


class Reader:
    """Reads the topic of the table from one broker."""

    def __init__(self) -> None:
        self._offset = 0

    def wait_for_row(self, broker: BrokerProcess, row: int) -> None:
        """Return as soon as the broker serves ``row`` or a later one."""
        until_s = time.monotonic() + _TIMEOUT_S
        with Client(broker.binary_url, timeout_s=10) as client:
            while time.monotonic() < until_s:
                try:
                    page = client.fetch(TOPIC, 0, self._offset, wait_ms=100, max_records=10_000)
                except SteleClientError as error:
                    if not error.retriable:
                        raise
                    time.sleep(_LOOK_S)
                    continue
                self._offset = page.next_offset
                if any(int(record.key or b"-1") >= row for record in page.records):
                    return
        raise TimeoutError(f"row {row} was not captured")


def settled(cluster: SteleCluster) -> tuple[BrokerProcess, BrokerProcess]:
    """Wait until one broker captures and the other stands by; return them in this order."""
    until_s = time.monotonic() + _TIMEOUT_S
    first, second = cluster.members
    while (states := [connector_state(broker) for broker in cluster.members]) != ["streaming", "standby"]:
        if states == ["standby", "streaming"]:
            return second, first
        if time.monotonic() > until_s:
            raise TimeoutError(f"the connector does not settle: {states}")
        time.sleep(_LOOK_S)
    return first, second


def take_over(cluster: SteleCluster, inserts: Inserts, reader: Reader, *, is_pause: bool) -> float:
    """Let the capturing broker fail; return the seconds to the first change after that."""
    failing, other = settled(cluster)
    reader.wait_for_row(other, inserts.count)
    begun_s = time.monotonic()

    def seconds_to_change() -> float:
        # The failed broker has stopped working, so the first row from here on is captured by the other.
        reader.wait_for_row(other, inserts.count + 1)
        return time.monotonic() - begun_s

    if is_pause:
        with paused(failing.pid):
            return seconds_to_change()
    failing.kill()
    seconds = seconds_to_change()
    failing.start()
    return seconds


def measure_takeover(bench: Benchmark, rounds: int) -> None:
    connector = {"STELE_CDC_DSN": "{dsn}", "STELE_CDC_TABLES": TABLE}
    with stele_cluster(
        brokers=2,
        store="inline",
        linger_ms=5,
        environment=connector,
        before=create_table,
        wal_level="logical",
    ) as cluster:
        inserts = Inserts(cluster.postgres, interval_s=1 / _RATE)
        inserts.start()
        try:
            reader = Reader()
            for what in ("killed", "paused"):
                is_pause = what == "paused"
                seconds = [take_over(cluster, inserts, reader, is_pause=is_pause) for _ in range(rounds)]
                bench.row(
                    f"CDC, its broker is {what}: changes continue after",
                    table="events",
                    value=Measure(unit="s", stele=seconds, goal=at_most(10, "stele")),
                )
        finally:
            inserts.end()


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument("--only", choices=["rate", "latency", "takeover"])
    bench.add("--rows", type=int, default=200_000, quick=20_000, help="of each round (default: 200,000)")
    bench.add(
        "--inserts", type=int, default=1_000, quick=100, help="whose latency is measured (default: 1,000)"
    )
    with bench.run() as options:
        if options.only in (None, "rate"):
            measure_rate(bench, options.rounds, options.rows)
        if options.only in (None, "latency"):
            measure_latency(bench, options.rounds, options.inserts)
        if options.only in (None, "takeover"):
            measure_takeover(bench, options.rounds)


if __name__ == "__main__":
    main()
