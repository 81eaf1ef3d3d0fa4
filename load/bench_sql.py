"""Measure SQL over a topic that is an Iceberg table: beside DuckDB on the bare files, and what other clients notice.

The topic is written as a table first, then a part more is produced, which statements read from the log. Each statement
is measured as a client sees it, with the process of the broker warm; DuckDB reads the same Parquet files, in this
process, with as many threads. The last rows are of statements that must have the last second, and of the round trips of
another client while statements run without a pause.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb
import httpx
from stele import Client
from stele.broker_process import BrokerProcess
from stele.records import NewRecord

from .harness import Benchmark
from .results import Measure, at_most
from .subjects import quiet_broker

TOPIC = "flights"
PARTITIONS = 4
THREADS = 2
_PER_REQUEST = 5000
_TIMEOUT_S = 3600.0
_LOOK_S = 0.2
_BEATS, _BEAT_S = 500, 0.01
_TEXT = "coalesce(try(decode({0})), {0}::varchar)"
# By what it does; {topic} is the table.
STATEMENTS = {
    "counts rows": "select count(*) from {topic}",
    "groups by key": "select _key, count(*), max(_offset) from {topic} group by all order by all limit 10",
    "sums a field of JSON": "select sum((value->>'$.delay')::int) from {topic}",
    "finds a range of offsets": "select max(value) from {topic} where _partition = 1 and _offset between 1000 and 2000",
}


def fill(client: Client, records: int, first: int = 0) -> None:
    for start in range(first, first + records, _PER_REQUEST):
        client.produce_many(
            TOPIC,
            [
                NewRecord(
                    json.dumps({"flight": n, "carrier": "UA", "delay": n % 97, "origin": "EWR"}),
                    key=f"N{n % 4000}",
                    partition=n % PARTITIONS,
                )
                for n in range(start, min(start + _PER_REQUEST, first + records))
            ],
        )


def files_of(broker: BrokerProcess, records: int) -> list[str]:
    """Wait until the table has all records; return its files."""
    from pyiceberg.table import StaticTable

    give_up_s = time.monotonic() + _TIMEOUT_S
    while True:
        (table,) = httpx.get(f"{broker.http_url}/v1/iceberg").json()["topics"]
        if table["rows"] >= records:
            break
        assert time.monotonic() < give_up_s, table
        time.sleep(_LOOK_S)
    url = f"{broker.http_url}/iceberg/v1/namespaces/stele/tables/{TOPIC}"
    location = httpx.get(url).json()["metadata-location"]
    tasks = StaticTable.from_metadata(location).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds of ``work``."""
    start_s = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start_s)


def ask(http: httpx.Client, sql: str) -> list[list[Any]]:
    answer = http.post("/v1/sql", json={"sql": sql})
    document = answer.json()
    assert "row_count" in document, answer.text
    return document["rows"]


def bare(files: list[str]) -> duckdb.DuckDBPyConnection:
    """Return a database over the files, with the columns of SQL over topics."""
    database = duckdb.connect(config={"threads": THREADS})
    database.execute(
        f'create view {TOPIC} as select partition as _partition, "offset" as _offset, timestamp as _timestamp, '
        f"{_TEXT.format('key')} as _key, {_TEXT.format('value')} as value from read_parquet({files!r})"
    )
    return database


def last_second(broker: BrokerProcess, http: httpx.Client, first: int) -> float:
    """Return the milliseconds of a statement that has a record of a moment ago."""
    with Client(broker.binary_url) as client:
        client.produce_many(TOPIC, [NewRecord(b"now", key="last", partition=0)])
    found: list[list[Any]] = []
    took = timed(lambda: found.extend(ask(http, f"select max(_offset) from {TOPIC} where _key = 'last'")))
    assert found[0][0] is not None, first
    return took


def p99(http_url: str) -> float:
    """Return the 99th percentile of round trips of a client, in milliseconds."""
    with httpx.Client(base_url=http_url, timeout=60) as http:
        took: list[float] = []
        for _ in range(_BEATS):
            took.append(
                timed(lambda: http.get(f"/v1/topics/{TOPIC}/partitions/0/records?limit=1").raise_for_status())
            )
            time.sleep(_BEAT_S)
    return sorted(took)[int(len(took) * 0.99)]


def p99_beside_statements(broker: BrokerProcess) -> float:
    ending = threading.Event()

    def run() -> None:
        with httpx.Client(base_url=broker.http_url, timeout=_TIMEOUT_S) as http:
            while not ending.is_set():
                ask(http, STATEMENTS["sums a field of JSON"].format(topic=TOPIC))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return p99(broker.http_url)
    finally:
        ending.set()
        thread.join()


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=5)
    bench.add(
        "--records", type=int, default=10_000_000, quick=20_000, help="of the table (default: 10000000)"
    )
    bench.add("--tail", type=int, default=10_000, quick=1000, help="records after it (default: 10000)")
    environment = {
        "STELE_SQL_THREADS": str(THREADS),
        "STELE_SQL_TIMEOUT_MS": "3600000",
        "STELE_SQL_MEMORY_BYTES_MAX": str(2 * 1024**3),
    }
    with bench.run() as options, tempfile.TemporaryDirectory(prefix="bench-sql-") as scratch:
        environment["STELE_ICEBERG_WAREHOUSE"] = str(Path(scratch) / "warehouse")
        with quiet_broker(environment=environment) as broker, Client(broker.binary_url) as client:
            configs = {
                "stele.iceberg.mode": "key_value",
                "stele.iceberg.commit.interval.ms": "1000",
                "retention.ms": "-1",
            }
            client.create_topic(TOPIC, partitions=PARTITIONS, configs=configs)
            bench.say(f"writing {options.records} records")
            fill(client, options.records)
            files = files_of(broker, options.records)
            database = bare(files)
            with httpx.Client(base_url=broker.http_url, timeout=_TIMEOUT_S) as http:
                ask(http, "select 1")
                for what, statement in STATEMENTS.items():
                    sql = statement.format(topic=TOPIC)
                    ours: list[float] = []
                    theirs: list[float] = []
                    for _ in range(options.rounds):
                        ours.append(timed(lambda sql=sql: ask(http, sql)))
                        theirs.append(timed(lambda sql=sql: cast("Any", database.execute(sql)).fetchall()))
                    bench.row(
                        f"a statement that {what}, {options.records:,} records",
                        table="work",
                        baseline="DuckDB on the files",
                        value=Measure(unit="ms", stele=ours, baseline=theirs, goal=at_most(1.3)),
                    )
                # The writer of the table commits them, unless it is told not to: then they stay in the log.
                fill(client, options.tail, options.records)
                took = [last_second(broker, http, options.records) for _ in range(options.rounds)]
                bench.row(
                    "a statement that must have the last second",
                    table="work",
                    value=Measure(unit="ms", stele=took),
                )
            quiet = [p99(broker.http_url) for _ in range(options.rounds)]
            beside = [p99_beside_statements(broker) for _ in range(options.rounds)]
            bench.row(
                "round trips of another client while statements run, p99",
                table="work",
                baseline="without statements",
                value=Measure(unit="ms", stele=beside, baseline=quiet, goal=at_most(1.5)),
            )


if __name__ == "__main__":
    main()
