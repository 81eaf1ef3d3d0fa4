"""SQL over topics: what statements see, what they may do, and what stops them."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest
from stele import Client
from stele.testing import BrokerProcess, run_broker

from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

_numbers = itertools.count()
SETTINGS = {
    "STELE_SQL_MEMORY_BYTES_MAX": str(320 * 1024**2),
    "STELE_SQL_TIMEOUT_MS": "600000",
    "STELE_SQL_SCAN_BYTES_MAX": "2000000",
    "STELE_SQL_ROWS_MAX": "20000",
    "STELE_SQL_ANSWER_BYTES_MAX": str(4 * 1024**2),
}
NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("sql"), environment=SETTINGS) as process:
        yield process


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=600) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    name = f"sql.t{next(_numbers)}-x"
    http.put(f"/v1/topics/{name}", json={"partitions": 2}).raise_for_status()
    return name


def put(http: httpx.Client, topic: str, *records: dict[str, Any]) -> None:
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": list(records)})
    assert answer.status_code == 200, answer.text


def ask(http: httpx.Client, sql: str, **fields: Any) -> httpx.Response:
    return http.post("/v1/sql", json={"sql": sql, **fields})


def rows(http: httpx.Client, sql: str, **fields: Any) -> list[list[Any]]:
    answer = ask(http, sql, **fields)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert "error" not in document, document["error"]
    return document["rows"]


def refusal(http: httpx.Client, sql: str) -> str:
    answer = ask(http, sql)
    assert answer.status_code == 400, (answer.status_code, answer.text)
    return answer.json()["detail"]


def test_columns_of_a_topic(http: httpx.Client, topic: str) -> None:
    put(
        http,
        topic,
        {"key": "ada", "value": {"city": "London", "n": [1, 2]}, "partition": 1, "timestamp": 1763664000123},
        {"value": "plain ü", "partition": 0, "headers": [{"key": "h", "value": "x"}], "timestamp": 5},
        {
            "value_b64": base64.b64encode(b"a\xffb").decode(),
            "key": "k",
            "partition": 0,
            "timestamp": -62135596800000,
        },
        {"key": "gone", "value": None, "partition": 0, "timestamp": 7},
    )
    assert rows(http, f'select * from "{topic}" order by _partition, _offset') == [
        [0, 0, "1970-01-01T00:00:00.005000Z", None, [{"key": "h", "value": "x"}], "plain ü"],
        [0, 1, "0001-01-01T00:00:00.000000Z", "k", None, "a\\xFFb"],
        [0, 2, "1970-01-01T00:00:00.007000Z", "gone", None, None],
        [1, 0, "2025-11-20T18:40:00.123000Z", "ada", None, '{"city":"London","n":[1,2]}'],
    ]
    # JSON, headers and bytes are reachable.
    query = f"""select value->>'$.city', (value->'$.n[1]')::int, _key from "{topic}" where _partition = 1"""
    assert rows(http, query) == [["London", 2, "ada"]]
    assert rows(http, f'select _headers[1].value from "{topic}" where _headers is not null') == [["x"]]
    assert rows(http, f'select hex(value::blob) from "{topic}" where _offset = 1') == [["61FF62"]]
    assert [name for name, *_ in rows(http, f'describe "{topic}"')] == [
        "_partition",
        "_offset",
        "_timestamp",
        "_key",
        "_headers",
        "value",
    ]


@pytest.mark.long
def test_conditions_on_offsets_partitions_and_times_read_no_more_than_they_need(
    http: httpx.Client, topic: str
) -> None:
    for start in range(0, 4000, 1000):
        put(
            http,
            topic,
            *(
                {"value": f"v{n}" * 50, "partition": n % 2, "timestamp": n * 1000}
                for n in range(start, start + 1000)
            ),
        )
    whole = ask(http, f'select count(*) from "{topic}"').json()
    assert whole["rows"] == [[4000]]
    assert whole["offsets"] == 4000
    for condition, count in (
        ("_offset >= 1990", 20),
        ("_offset = 7 and _partition = 1", 1),
        ("_partition in (1)", 2000),
        ("_offset between 10 and 19 or _offset between 15 and 24", 30),
        ("_timestamp >= '1970-01-01 01:06:30Z'", 10),
        ("_timestamp >= '1970-01-01 01:06:30Z' and _offset < 1996", 2),
        ("_timestamp is null", 0),
        ("_partition = 7", 0),
        ("_offset > 100000", 0),
    ):
        answer = ask(http, f'select count(*) from "{topic}" where {condition}').json()
        assert answer["rows"] == [[count]], condition
        if condition != "_timestamp is null":
            assert answer["bytes"] <= whole["bytes"] * 0.6, condition


def test_the_newest_records_are_read_from_the_end(http: httpx.Client) -> None:
    topic = f"newest{next(_numbers)}"
    http.put(f"/v1/topics/{topic}", json={"partitions": 20}).raise_for_status()
    put(http, topic, *({"key": f"k{n}", "value": str(n), "partition": 0} for n in range(1500)))
    put(http, topic, *({"value": "few", "partition": n} for n in range(1, 20)))
    whole = f"select _offset, value from {topic} order by _offset desc, _partition"
    everything = rows(http, whole)
    for limit, read in ((1, 500), (20, 500), (700, 700), (1000, 1000)):
        answer = ask(http, f"{whole} limit {limit}").json()
        assert answer["rows"] == everything[:limit]
        assert answer["offsets"] == read
    # What is not among the newest is found, too; the end is then read twice.
    for key, read in (("k1400", 500), ("k7", 500 + 1519), ("k", 500 + 1519)):
        answer = ask(
            http, f"select value from {topic} where _key = '{key}' order by _offset desc limit 1"
        ).json()
        assert answer["rows"] == ([[key[1:]]] if key != "k" else [])
        assert answer["offsets"] == read
    answer = ask(http, f"{whole} limit 5", limit=2).json()
    assert (answer["rows"], answer["is_truncated"]) == (everything[:2], True)


def test_statements_that_end_early_leave_nothing_to_the_next(http: httpx.Client, topic: str) -> None:
    put(http, topic, *({"value": "x" * 500, "partition": n % 2} for n in range(2000)))
    for n in range(20):
        assert ask(http, f'select value from "{topic}"', limit=1 + n).json()["is_truncated"]
        assert rows(http, f'select count(*) from "{topic}"') == [[2000]]


def test_a_statement_sees_what_was_visible_when_it_began_even_twice(http: httpx.Client, topic: str) -> None:
    put(http, topic, *({"value": str(n)} for n in range(500)))
    sql = f'select (select count(*) from "{topic}"), (select max(_offset) from "{topic}" where _partition = 0), count(*) from "{topic}"'
    with ThreadPoolExecutor(2) as pool:
        writes = pool.submit(lambda: [put(http, topic, {"value": "more"}) for _ in range(50)])
        while not writes.done():
            ((first, _, last),) = rows(http, sql)
            assert first == last
        writes.result()
    assert rows(http, f'select count(*) from "{topic}"') == [[550]]


class _Aborted(Exception):
    pass


def test_only_committed_records_are_seen(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    with Client(broker.http_url) as client:
        for outcome in ("commit", "abort"):
            with suppress(_Aborted), client.transaction(f"{topic}-{outcome}") as transaction:
                for _ in range(3):
                    transaction.produce(topic, outcome.encode(), partition=0)
                if outcome == "abort":
                    raise _Aborted
    put(http, topic, {"value": "after", "partition": 0})
    assert rows(http, f'select value, count(*) from "{topic}" group by 1 order by 1') == [
        ["after", 1],
        ["commit", 3],
    ]


def test_forms_of_an_answer(http: httpx.Client, topic: str) -> None:
    put(http, topic, *({"key": f"k{n}", "value": f"={n}", "partition": 0} for n in range(5)))
    sql = f"select _offset, value, null as nothing, [1, 2] as list, 'ab'::blob as bytes from \"{topic}\" order by 1"
    answer = http.post("/v1/sql", json={"sql": sql, "limit": 2}, headers={"accept": "text/csv"})
    assert list(csv.reader(io.StringIO(answer.text))) == [
        ["_offset", "value", "nothing", "list", "bytes"],
        ["0", "'=0", "", "[1,2]", "YWI="],
        ["1", "'=1", "", "[1,2]", "YWI="],
    ]
    answer = http.post(
        "/v1/sql", json={"sql": sql}, headers={"accept": "application/vnd.apache.arrow.stream"}
    )
    with cast("Any", pa).ipc.open_stream(answer.content) as reader:
        assert reader.read_all().column("value").to_pylist() == [f"={n}" for n in range(5)]
    answer = http.post("/v1/sql", json={"sql": sql, "limit": 3}, headers={"accept": NDJSON})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [next(iter(line)) for line in lines if "progress" not in line] == ["columns", "rows", "end"]
    assert lines[-1]["end"]["is_truncated"] is True
    assert lines[-1]["end"]["row_count"] == 3


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("170141183460469231731687303715884105727::hugeint", 170141183460469231731687303715884105727),
        ("1.50::decimal(10,2)", 1.5),
        ("'nan'::double", None),
        ("timestamp '290000-01-01 00:00:00'", "290000-01-01T00:00:00.000000"),
        ("'-infinity'::timestamp", "-infinity"),
        ("interval '1 month 2 days 3 seconds'", "P1M2DT3S"),
        ("date '2026-11-30'", "2026-11-30"),
        ("{'a': [1, null], 'b': map {'x': 1}}", {"a": [1, None], "b": [["x", 1]]}),
        ("blob '\\xAA'", "qg=="),
        ("uuid '12345678-1234-1234-1234-123456789012'", "12345678-1234-1234-1234-123456789012"),
        ("chr(0) || 'x'", "\0x"),
    ],
)
def test_types_in_json(http: httpx.Client, expression: str, value: Any) -> None:
    assert rows(http, f"select {expression}") == [[value]]


def test_rows_come_before_the_end_of_the_statement(http: httpx.Client) -> None:
    sql = "select range from range(1000000000000)"
    with http.stream("POST", "/v1/sql", json={"sql": sql}) as answer:
        assert next(answer.iter_raw()).startswith(
            b'{"columns":[{"name":"range","type":"BIGINT"}],"rows":[[0],[1]'
        )


@pytest.mark.long
def test_names_that_are_not_topics_get_a_hint(http: httpx.Client, topic: str) -> None:
    for name in (f'"{topic}x"', f'"{topic.upper()}"'):
        answer = ask(http, f"select * from {name}")
        assert answer.status_code == 404, answer.text
        assert f'did you mean "{topic}"? Names with dots' in answer.json()["detail"]
    assert f'did you mean "{topic}"' in refusal(http, f"select * from {topic}")
    for name in ("duckdb_tables", "pragma_database_list", "pg_settings"):
        assert ask(http, f"select * from {name}").status_code == 404, name
    assert ask(http, "select * from sqlite_master").status_code == 404
    assert ask(http, "from '/etc/passwd'").status_code in (400, 404)


@pytest.mark.long
def test_statements_in_all_notations(http: httpx.Client, topic: str) -> None:
    put(http, topic, *({"key": f"k{n % 3}", "value": {"n": n}, "partition": n % 2} for n in range(10)))
    for sql, count in (
        ('select count(*) from "{0}" x join "{0}" y using (_offset)', 20),
        ('with "{0}" as (select 1) select count(*) from "{0}"', 1),
        ('with o as (select * from main."{0}") select count(*) from o', 10),
        ('from "{0}" select count(*)', 10),
        ('select count(*) from (from "{0}" pivot (count(*) for _partition in (0, 1)))', 10),
        ('select count(*) from (select * from "{0}" limit 3)', 3),
        ('select count(*) from (select * from "{0}" qualify row_number() over (partition by _key) = 1)', 3),
        ('select sum(n.value::int) from "{0}" t, lateral (select value from json_each(t.value)) n', 45),
        (
            'select count(*) from "{0}" where _offset in (select max(_offset) from "{0}" group by _partition)',
            2,
        ),
    ):
        assert rows(http, sql.format(topic)) == [[count]], sql


REFUSED = (
    "select * from read_csv('/etc/passwd')",
    "select * from read_parquet('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from (select * from read_blob('/etc/*'))",
    "with x as (select 1) select * from x, lateral (select * from glob('*'))",
    "select (select count(*) from read_json('/etc/passwd'))",
    "select * from query('select 1')",
    "select * from query_table('x')",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from pragma_version()",
    "select * from arrow_scan(1, 2, 3)",
    "select * from python_arrow_scan(1, 2, 3)",
    "select * from pandas_scan(1)",
    "select * from seq_scan('x')",
    "select current_setting('temp_directory')",
    "select * from information_schema.tables",
    "select * from pg_catalog.pg_settings",
    "select * from system.main.sqlite_master",
    "select * from system.information_schema.tables",
    'select * from temp."the log 0"',
    "select getenv('HOME')",
    "attach '/tmp/x.db'",
    "detach memory",
    "install httpfs",
    "load httpfs",
    "copy (select 1) to '/tmp/x'",
    "export database '/tmp/x'",
    "set threads = 64",
    "reset threads",
    "pragma enable_profiling",
    "call pragma_version()",
    "create table x as select 1",
    "with x as (select 1) insert into y select * from x",
    "explain analyze select 1",
    "prepare p as select 1",
    "use memory",
    "begin",
    "vacuum",
    "checkpoint",
    "update extensions",
    "pivot x on y",
    "select 1; select 2",
    "select ?",
    "select $a",
    "",
    ";",
    "-- nothing",
    "/* nothing",
    "select 'open",
    'select * from "Orders", orders',
    "select \0",
    f"select {'(' * 100_000}1{')' * 100_000}",
    f"select {'- ' * 50_000}1",
    f"select {'+'.join(['1'] * 100_000)}",
    f"select {'(select ' * 5000}1{')' * 5000}",
)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(sql, marks=[pytest.mark.long] * (number % 5 > 0), id=sql[:40])
        for number, sql in enumerate(REFUSED)
    ],
)
def test_statements_that_are_refused(http: httpx.Client, sql: str) -> None:
    assert refusal(http, sql)


def test_no_error_advises_to_change_a_setting(http: httpx.Client) -> None:
    assert "SET " not in refusal(http, "select list_transform([1], x -> x)")


def test_a_statement_of_10_mb_is_too_large(http: httpx.Client) -> None:
    assert ask(http, f"select '{'x' * 10_000_000}'").status_code == 413


STOPPED = (
    ("select * from range(1000000000000) order by 1 desc", "sql_memory_bytes_max"),
    ("select repeat('x', 4000000000)", "sql_memory_bytes_max"),
    ("select list(i) from range(10000000000) t(i)", "sql_memory_bytes_max"),
    ("select string_agg(repeat('x', 1000000), '') from range(100000)", "sql_memory_bytes_max"),
    ("select range(1000000000)", "sql_memory_bytes_max"),
    ("select hash(i) h, count(*) from range(10000000000) t(i) group by 1", "sql_memory_bytes_max"),
    ("select * from range(100000)", "sql_rows_max"),
    ("select repeat('x', 1000) from range(10000)", "sql_answer_bytes_max"),
)


@pytest.mark.parametrize(
    ("sql", "setting"),
    [
        pytest.param(*stopped, marks=[pytest.mark.long] * (number > 0), id=stopped[0][:40])
        for number, stopped in enumerate(STOPPED)
    ],
)
def test_statements_that_are_stopped_at_a_limit(http: httpx.Client, sql: str, setting: str) -> None:
    document = ask(http, sql).json()
    problem = document.get("error", document)
    assert problem["type"] == "/problems/statement-stopped"
    assert problem["setting"] == setting
    # The rows before it may be there, and the next statement runs.
    assert rows(http, "select 1") == [[1]]


ENDLESS = (
    "select count(*) from range(1000000000000000000)",
    "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
    "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range % 7 = 3",
    "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    environment = {
        **SETTINGS,
        "STELE_SQL_TIMEOUT_MS": "2000",
        "STELE_SQL_STATEMENTS_MAX": "1",
        "STELE_SQL_THREADS": "1",
    }
    with run_broker(tmp_path_factory.mktemp("strict"), environment=environment) as process:
        yield process


@pytest.mark.parametrize(
    "sql", [ENDLESS[0], *(pytest.param(sql, marks=pytest.mark.long, id=sql[:40]) for sql in ENDLESS[1:])]
)
def test_statements_without_end_take_no_longer_than_they_may(strict: BrokerProcess, sql: str) -> None:
    with httpx.Client(base_url=strict.http_url, timeout=60) as http, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, http, sql)
        # Others are served meanwhile, but no other statement.
        eventually(lambda: _metric(http, "stele_sql_statements_active") == 1 or asked.done(), "it runs")
        assert http.put(f"/v1/topics/meanwhile{len(sql)}", json={}).status_code == 201
        assert ask(http, "select 1").status_code == 429 or asked.done()
        assert asked.result().json()["setting"] == "sql_timeout_ms"


def test_a_statement_that_reads_too_much_is_stopped(http: httpx.Client, topic: str) -> None:
    for _ in range(5):
        put(http, topic, {"value": "x" * 600_000, "partition": 0})
    assert ask(http, f'select count(*) from "{topic}"').json()["setting"] == "sql_scan_bytes_max"
    assert rows(http, f'select length(value) from "{topic}" where _offset = 2') == [[600_000]]


def _metric(http: httpx.Client, name: str) -> float:
    for line in http.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(name)


def test_a_client_that_leaves_ends_its_statement(broker: BrokerProcess, http: httpx.Client) -> None:
    for sql in ("select count(*) from range(1000000000000000000)", "select range from range(1000000000000)"):
        with httpx.Client(base_url=broker.http_url, timeout=1 if "count" in sql else 60) as leaving:
            if "count" in sql:
                with pytest.raises(httpx.TimeoutException):
                    ask(leaving, sql)
            else:
                with leaving.stream("POST", "/v1/sql", json={"sql": sql}) as answer:
                    next(answer.iter_raw())
        eventually(lambda: _metric(http, "stele_sql_statements_active") == 0, "the statement has ended")
    assert rows(http, "select 1") == [[1]]


def test_a_process_that_is_killed_is_replaced(broker: BrokerProcess, http: httpx.Client) -> None:
    assert rows(http, "select 1") == [[1]]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, http, "select count(*) from range(1000000000000000000)")
        eventually(lambda: _metric(http, "stele_sql_statements_active") == 1, "the statement runs")
        for pid in _workers(broker):
            os.kill(pid, 9)
        assert asked.result().json()["type"] == "/problems/statement-stopped"
    # One that died without a statement, too.
    assert rows(http, "select 1") == [[1]]
    killed = _workers(broker)
    for pid in killed:
        os.kill(pid, 9)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in killed), "they are gone")
    assert rows(http, "select 2") == [[2]]


def _workers(broker: BrokerProcess) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if b"stele.sql.start" in command and parent == broker.pid:
            found.append(int(path.name))
    return found


def test_a_process_has_no_secret_of_the_broker(broker: BrokerProcess, http: httpx.Client) -> None:
    assert rows(http, "select 1") == [[1]]
    for pid in _workers(broker):
        assert b"STELE_" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_command(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    put(http, topic, {"key": "a", "value": "line\nline", "partition": 0}, {"value": "b", "partition": 0})
    sql = f'select _key, value from "{topic}" order by _offset'
    shown = run_stele("sql", sql, "--url", broker.http_url)
    assert shown.stdout.decode().splitlines() == [
        "  _key       value",
        "  a     line\\nline",
        "  null           b",
    ]
    assert shown.stderr == b"2 rows\n"
    shown = run_stele("sql", sql, "--format", "ndjson", "--limit", "1", "--url", broker.binary_url)
    assert json.loads(shown.stdout) == {"_key": "a", "value": "line\nline"}
    shown = run_stele("sql", "-", "--format", "csv", "--url", broker.binary_url, stdin=sql.encode())
    assert shown.stdout.startswith(b'"_key","value"')
    shown = run_stele("sql", "select * from nowhere", "--url", broker.binary_url)
    assert shown.returncode == 1
    assert b"topic 'nowhere' does not exist" in shown.stderr
