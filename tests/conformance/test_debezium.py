"""``stele cdc --format debezium-schemas`` writes what Debezium's connector does, from the same database at the same time.

Where the two must differ, the comparison says why. Then Debezium's JDBC sink makes a second database of the topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.errors import UnknownTopicError
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.conformance.clients import DEBEZIUM
from tests.conformance.debezium_types import DIFFERENT, LEFT_OUT, TYPES
from tests.conformance.programs import RecordProperty, home_of, jar_version, running
from tests.conformance.test_kafka_connect import Worker
from tests.support.cdc import CdcProcess, running_cdc
from tests.support.postgres import postgres_bin

CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"
UNAVAILABLE = "__debezium_unavailable_value"
OURS, THEIRS = "ours", "theirs"
SCHEMA_OF_TYPES = "kinds"

TABLES = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN price AS numeric(8,3);
CREATE DOMAIN tag AS varchar(9);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE docs (id int PRIMARY KEY, n int, body text, bin bytea, arr text[], ia int[], js jsonb, hs hstore);
CREATE TABLE full_docs (id int PRIMARY KEY, n int, body text, bin bytea, arr text[], ia int[], js jsonb, hs hstore);
ALTER TABLE full_docs REPLICA IDENTITY FULL;
CREATE TABLE by_index (a int NOT NULL, b text NOT NULL, c int);
CREATE UNIQUE INDEX by_index_i ON by_index (b, a);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_i;
CREATE TABLE no_key (a int, b text);
ALTER TABLE no_key REPLICA IDENTITY FULL;
CREATE TABLE part (id int, r int, v text, PRIMARY KEY (id, r)) PARTITION BY LIST (r);
CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF part FOR VALUES IN (2);
CREATE TABLE "Odd Name" ("the id" int PRIMARY KEY, "größe" text, "a-b" int);
CREATE TABLE keys (u uuid, d date, n numeric(4,1), ts timestamptz, v text, PRIMARY KEY (u, d, n, ts));
CREATE TABLE generated (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, i int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE listed (id int PRIMARY KEY, a text, secret text);
CREATE TABLE filtered (id int PRIMARY KEY, v text);
CREATE TABLE altered (id int PRIMARY KEY, v text);
CREATE TABLE the_end (id int PRIMARY KEY)
"""
PUBLISHED = (
    'docs, full_docs, by_index, no_key, part, "Odd Name", keys, generated, listed (id, a), filtered WHERE (id > 10), '
    "altered, the_end"
)
BIG = "repeat('x', 20000)"
ROW = (
    f"1, {BIG}, decode(repeat('ab', 20000), 'hex'), ARRAY[{BIG}], array(SELECT generate_series(1, 9000)), "
    f"jsonb_build_object('a', {BIG}), hstore('a', {BIG})"
)
BEFORE = f"""
INSERT INTO docs VALUES (100, {ROW});
INSERT INTO no_key VALUES (7, 'seven');
INSERT INTO part VALUES (100, 1, 'copied'), (101, 2, 'copied');
INSERT INTO listed VALUES (100, 'a', 'secret');
INSERT INTO filtered VALUES (1, 'hidden'), (100, 'seen')
"""
CHANGES = f"""
INSERT INTO docs VALUES (1, {ROW});
UPDATE docs SET n = 2 WHERE id = 1;
UPDATE docs SET id = 2 WHERE id = 1;
DELETE FROM docs WHERE id = 2;
INSERT INTO full_docs VALUES (1, {ROW});
UPDATE full_docs SET n = 2;
UPDATE full_docs SET id = 2;
DELETE FROM full_docs;
INSERT INTO by_index VALUES (1, 'x', 2);
UPDATE by_index SET c = 3;
UPDATE by_index SET a = 2;
DELETE FROM by_index;
INSERT INTO no_key VALUES (1, 'x');
UPDATE no_key SET b = 'y' WHERE a = 1;
DELETE FROM no_key WHERE a = 1;
INSERT INTO part VALUES (1, 1, 'a'), (2, 2, 'b');
UPDATE part SET v = 'c' WHERE id = 2;
UPDATE part SET r = 2 WHERE id = 1;
DELETE FROM part WHERE id = 2;
INSERT INTO "Odd Name" VALUES (1, 'x', 2);
INSERT INTO keys VALUES ('0b5f0e06-7f5c-4d0c-9c39-1f6b3a9c2a11', '2026-11-21', 1.5, '2026-11-21 10:00+00', 'v');
UPDATE keys SET d = '2026-11-22', n = 2;
INSERT INTO generated VALUES (1), (2);
INSERT INTO listed VALUES (1, 'a', 'secret');
UPDATE listed SET secret = 'other' WHERE id = 1;
UPDATE listed SET a = 'b' WHERE id = 1;
INSERT INTO filtered VALUES (2, 'comes in'), (12, 'seen');
UPDATE filtered SET id = 13 WHERE id = 2;
UPDATE filtered SET id = 3 WHERE id = 12;
INSERT INTO altered VALUES (1, 'a');
ALTER TABLE altered ADD COLUMN w numeric(6,2) DEFAULT 1.5;
INSERT INTO altered VALUES (2, 'b', 2.5);
ALTER TABLE altered DROP COLUMN v;
UPDATE altered SET w = 3 WHERE id = 1;
TRUNCATE altered;
INSERT INTO the_end VALUES (1)
"""


class Change(NamedTuple):
    """A record without what is of a moment or a process; ``schema`` is that of the rows."""

    op: str | None
    key: Any
    before: Any
    after: Any
    headers: dict[str, Any]
    source: dict[str, Any]
    schema: dict[str, Any]
    key_schema: Any


class Both(NamedTuple):
    pg: PostgresServer
    broker: BrokerProcess
    cdc: CdcProcess
    check: Callable[[], None]

    def changes(self, prefix: str, table: str) -> list[Change]:
        """Return what one of the two wrote about a table, in the order of the stream."""
        topic = f"{prefix}.public.{table}".replace(" ", "_")
        found: list[tuple[Any, ...]] = []
        with Client(self.broker.binary_url) as client:
            try:
                end = client.list_offset(topic) or 0
            except UnknownTopicError:
                return []
            offset = 0
            while offset < end:
                page = client.fetch(topic, 0, offset)
                found += [(r.key, r.value, dict(r.headers)) for r in page.records]
                offset = page.next_offset
        return [_change(prefix, key, value, headers) for key, value, headers in found]

    def run(self, statements: str) -> None:
        for statement in statements.split(";\n"):
            self.pg.run(statement)


def _change(prefix: str, key: bytes | None, value: bytes | None, headers: dict[str, bytes | None]) -> Change:
    kept = {
        name: json.loads(content or b"null") for name, content in headers.items() if name.startswith("__debezium.")
        and "context" not in name
    }  # fmt: skip
    shown_key: Any = {} if key is None else json.loads(key)
    if value is None:
        return Change(
            None, shown_key.get("payload"), None, None, kept, {}, {}, _of(prefix, shown_key.get("schema"))
        )
    document = json.loads(_of_text(prefix, value.decode()))
    payload, schema = document["payload"], document["schema"]
    assert payload["ts_us"] // 1000 == payload["ts_ms"]
    assert payload["ts_ns"] // 1000 == payload["ts_us"]
    source = payload["source"]
    assert source["ts_us"] // 1000 == source["ts_ms"]
    assert source["ts_ns"] == source["ts_us"] * 1000
    sequence = json.loads(source["sequence"])
    assert int(sequence[1]) == source["lsn"]
    is_copy = payload["op"] == "r"
    of_a_moment = {"ts_ms", "ts_us", "ts_ns", "sequence", *({"lsn", "txId", "snapshot"} if is_copy else ())}
    kept_source = {name: content for name, content in source.items() if name not in of_a_moment}
    return Change(
        payload["op"],
        shown_key.get("payload"),
        payload["before"],
        payload["after"],
        kept,
        kept_source,
        schema,
        _of(prefix, shown_key.get("schema")),
    )


def _of(prefix: str, schema: Any) -> Any:
    return json.loads(_of_text(prefix, json.dumps(schema)))


def _of_text(prefix: str, text: str) -> str:
    """Return a document with names that do not tell whose it is."""
    return text.replace(f'"{prefix}.', '"').replace(f'"name":"{prefix}"', '"name":"-"')


def _headers(change: Change) -> dict[str, Any]:
    """Return the headers without decimals, which Debezium rounds there."""
    return {
        name: {column: value for column, value in key.items() if column != "n"}
        for name, key in change.headers.items()
    }


def rows_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schemas of the columns of an envelope, by name."""
    after = next(field for field in schema["fields"] if field["field"] == "after")
    return {field["field"]: field for field in after["fields"]}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    home = home_of(DEBEZIUM)
    path = tmp_path_factory.mktemp("debezium")
    with (
        PostgresServer(postgres_bin(), logical_decoding_work_mem="64kB") as pg,
        run_broker() as broker,
        closing(Worker(home, path, broker.kafka_bootstrap)) as worker,
        running(worker.program),
    ):
        for statement in TABLES.split(";"):
            pg.run(statement)
        for column in ("body", "bin", "arr", "ia", "js", "hs"):
            pg.run(f"ALTER TABLE docs ALTER {column} SET STORAGE EXTERNAL")
            pg.run(f"ALTER TABLE full_docs ALTER {column} SET STORAGE EXTERNAL")
        names = [f"kind_{number}" for number in range(len(TYPES))]
        for name, kind in zip(names, TYPES, strict=True):
            pg.run(f"CREATE TABLE {name} (id int PRIMARY KEY, c {kind})")
            _insert(pg, name, kind, start=0)
        for statement in BEFORE.split(";\n"):
            pg.run(statement)
        for name in (OURS, THEIRS):
            pg.run(
                f"CREATE PUBLICATION {name} FOR TABLE {PUBLISHED}, {', '.join(names)} WITH (publish_via_partition_root = true)"
            )
        worker.put("source", source_of(pg))
        tables = [
            *("docs", "full_docs", "by_index", "no_key", "part", "Odd Name", "keys", "generated", "listed"),
            *("filtered", "altered", "the_end", *names),
        ]
        arguments = ("--format", "debezium-schemas", "--prefix", OURS, "--slot", OURS, "--publication", OURS)
        log = path / "cdc.log"
        with running_cdc(
            pg,
            broker.binary_url,
            log,
            *arguments,
            "--partitions",
            "1",
            "--tables",
            ",".join(f"public.{t}" for t in tables),
        ) as cdc:
            found = Both(pg, broker, cdc, worker.program.need_running)
            worker.eventually(
                lambda: len(pg.run("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")) == 2,
                "both stream",
            )
            for name, kind in zip(names, TYPES, strict=True):
                _insert(pg, name, kind, start=100)
            found.run(CHANGES)
            for prefix in (OURS, THEIRS):
                worker.eventually(
                    lambda prefix=prefix: bool(found.changes(prefix, "the_end")),
                    f"all changes are in {prefix}",
                )
            yield found


def source_of(pg: PostgresServer) -> dict[str, str]:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": CONNECTOR,
        "tasks.max": "1",
        "key.converter": converter,
        "value.converter": converter,
        "database.hostname": "127.0.0.1",
        "database.port": str(pg.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": THEIRS,
        "plugin.name": "pgoutput",
        "slot.name": THEIRS,
        "publication.name": THEIRS,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.*",
        # By default it leaves truncates out.
        "skipped.operations": "none",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }


def _insert(pg: PostgresServer, name: str, kind: str, *, start: int) -> None:
    rows = [*TYPES[kind], "NULL"]
    values = ", ".join(f"({start + number}, {literal})" for number, literal in enumerate(rows))
    pg.run(f"INSERT INTO {name} VALUES {values}")


@pytest.mark.program("debezium")
def test_every_type_has_the_value_and_the_schema_that_debezium_gives_it(
    both: Both, record_property: RecordProperty
) -> None:
    record_property("version", jar_version(home_of(DEBEZIUM), "debezium-connector-postgres"))
    wrong: list[Any] = []
    for number, (kind, literals) in enumerate(TYPES.items()):
        ours, theirs = (both.changes(prefix, f"kind_{number}") for prefix in (OURS, THEIRS))
        assert len(ours) == len(theirs) == 2 * len(literals) + 2, kind
        values, their_values = (
            {change.after["id"]: change.after.get("c", "left out") for change in changes}
            for changes in (ours, theirs)
        )
        for place in range(len(literals) + 1):
            assert values[place] == values[100 + place], f"{kind}: copy and stream differ"
        if kind in LEFT_OUT:
            assert set(their_values.values()) == {"left out"}, kind
            continue
        if kind in DIFFERENT:
            expected = [*DIFFERENT[kind][1], None]
            if [values[100 + place] for place in range(len(literals) + 1)] != expected:
                wrong.append((kind, values, expected))
            assert [their_values[100 + place] for place in range(len(literals))] != expected[:-1], kind
            continue
        schema, their_schema = rows_of(ours[0].schema)["c"], rows_of(theirs[0].schema)["c"]
        if kind == "mood[]":
            # There may be NULL in it, which Debezium's schema does not allow.
            their_schema["items"]["optional"] = True
        if schema != their_schema:
            wrong.append((kind, schema, their_schema))
        for place, literal in enumerate((*literals, None)):
            mine, other = values[100 + place], their_values[100 + place]
            if kind.startswith("hstore") and isinstance(mine, str):
                mine, other = json.loads(mine), json.loads(other)
            if mine != other:
                wrong.append((kind, literal, mine, other))
    assert wrong == []


@pytest.mark.program("debezium")
@pytest.mark.parametrize(
    "table",
    [
        "full_docs",
        "by_index",
        "part",
        "Odd Name",
        "generated",
        "listed",
        "filtered",
        "docs",
        "keys",
        "no_key",
        "altered",
    ],
)
def test_changes_are_those_of_debezium(both: Both, table: str) -> None:
    ours, theirs = (both.changes(prefix, table) for prefix in (OURS, THEIRS))
    # A tombstone without a key says nothing, and is not written here.
    theirs = [change for change in theirs if change.op is not None or change.key is not None]
    if table in ("listed", "filtered"):
        # Debezium's copy has the columns and the rows that the publication leaves out.
        ours, theirs = ([change for change in changes if change.op != "r"] for changes in (ours, theirs))
        assert "hidden" not in str(ours)
        assert "secret" not in str(ours)
    assert [change.op for change in ours] == [change.op for change in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.op, mine.key) == (other.op, other.key)
        assert _headers(mine) == _headers(other)
        assert mine.source == other.source
        assert mine.key_schema == other.key_schema
        if mine.op is None:
            continue
        assert mine.before == other.before
        assert mine.after == other.after
        assert rows_of(mine.schema).keys() == rows_of(other.schema).keys()
        envelope, their_envelope = (
            [field for field in change.schema["fields"] if field["field"] not in ("before", "after")]
            for change in (mine, other)
        )
        assert envelope == their_envelope
        assert {n: v for n, v in mine.schema.items() if n != "fields"} == {
            n: v for n, v in other.schema.items() if n != "fields"
        }
