"""The REST catalog: what clients of Iceberg find with it, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from stele.cli import stele
from stele.client import Client
from stele.records import NewRecord
from stele.testing import BrokerProcess, run_broker

from app.errors import StorageUnavailable
from app.iceberg import catalog as catalog_module
from app.iceberg.catalog import IcebergCatalog, select_in_file
from tests.integration.test_kafka_logins import PASSWORD, add_user
from tests.support.iceberg import BY_HAND, Writing, writing
from tests.support.iceberg_tables import append, catalog_in, make_table
from tests.support.iceberg_tables import rows_of as places_of
from tests.support.s3_servers import use_test_credentials, versitygw

ROOT, ALICE = "root", "alice"
OPEN, SECRET = "open-orders", "secret-salaries"
TABLE = {"stele.iceberg.mode": "key_value"}
COUNT = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("catalog") / "data"
    data_dir.mkdir()
    for user in (ROOT, ALICE):
        add_user(data_dir, user)
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{ROOT}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    environment = {
        **BY_HAND,
        "STELE_AUTHENTICATION": "required",
        "STELE_BINARY_AUTHENTICATION": "none",
        "STELE_LOGIN_FAILURES_FREE": "1000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as running:
        with httpx.Client(base_url=running.http_url, auth=(ROOT, PASSWORD)) as root:
            rules = [
                {
                    "principal": f"User:{user}",
                    "operation": operation,
                    "resource_type": "TOPIC",
                    "resource_name": name,
                }
                for user, operation, name in (("ANONYMOUS", "ALL", "*"), (ALICE, "READ", OPEN))
            ]
            assert root.post("/v1/acls", json={"acls": rules}).status_code == 201
        yield running


@pytest.fixture(scope="module")
def tables(broker: BrokerProcess) -> Iterator[Writing]:
    """The tables of two topics, the first with records that do not fit."""
    directory = Path(broker.data_dir) / "iceberg"
    with writing(broker, directory) as made:
        made._http = Client(broker.http_url, user=ROOT, password=PASSWORD)
        for topic in (OPEN, SECRET):
            made.client.create_topic(topic, partitions=2, configs=TABLE)
            made.client.produce_many(
                topic, [NewRecord(b"value", partition=number % 2) for number in range(COUNT)]
            )
        made.client.produce_many(OPEN, [NewRecord(b"far", timestamp=-62_135_596_800_001)])
        for topic in (OPEN, SECRET):
            made.write(topic)
        yield made


def _catalog(broker: BrokerProcess, user: str = ROOT, **properties: Any) -> RestCatalog:
    auth = {"type": "basic", "basic": {"username": user, "password": PASSWORD}}
    given: dict[str, Any] = {"type": "rest", "uri": f"{broker.http_url}/iceberg", "auth": auth, **properties}
    return cast("RestCatalog", load_catalog("stele", **given))


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http_url}/iceberg/v1", auth=(ROOT, PASSWORD)) as client:
        yield client


def test_pyiceberg_finds_and_reads_tables(broker: BrokerProcess, tables: Writing) -> None:
    catalog = _catalog(broker)
    assert catalog.list_namespaces() == [("stele",)]
    assert catalog.list_namespaces("stele") == []
    assert catalog.load_namespace_properties("stele") == {}
    assert catalog.list_tables("stele") == [("stele", name) for name in (OPEN, f"{OPEN}_errors", SECRET)]
    assert catalog.list_views("stele") == []
    assert catalog.namespace_exists("stele")
    assert catalog.table_exists(f"stele.{OPEN}")
    assert not catalog.table_exists("stele.none")
    assert not catalog.view_exists(f"stele.{OPEN}")

    table = catalog.load_table(f"stele.{OPEN}")
    assert places_of(table) == [(partition, offset) for partition in (0, 1) for offset in range(COUNT // 2)]
    assert table.metadata == tables.table(OPEN).metadata
    assert cast("Any", catalog.load_table(f"stele.{OPEN}_errors").scan()).to_arrow().num_rows == 1


def test_pandas_reads_the_files_that_a_plan_names(broker: BrokerProcess, tables: Writing) -> None:
    scan: Any = _catalog(broker).load_table(f"stele.{SECRET}").scan()
    files = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
    frame = cast("Any", pq.read_table)(files).to_pandas()
    assert sorted(zip(frame["partition"], frame["offset"], strict=True)) == [
        (partition, offset) for partition in (0, 1) for offset in range(COUNT // 2)
    ]
    assert len(scan.to_pandas()) == COUNT


def test_a_table_can_be_read_as_of_an_earlier_snapshot(broker: BrokerProcess, tables: Writing) -> None:
    tables.client.create_topic("travel", partitions=1, configs=TABLE)
    for _ in range(3):
        tables.client.produce_many("travel", [NewRecord(b"v")] * 5)
        tables.write("travel")
    table = _catalog(broker).load_table("stele.travel")
    ends = [
        json.loads(each.summary["stele.offsets"] or "")["0"] for each in table.snapshots() if each.summary
    ]
    assert ends == [5, 10, 15]
    for snapshot, end in zip(table.snapshots(), ends, strict=True):
        assert places_of(table, snapshot.snapshot_id) == [(0, offset) for offset in range(end)]


def test_what_does_not_exist_is_named(broker: BrokerProcess, http: httpx.Client, tables: Writing) -> None:
    catalog = _catalog(broker)
    with pytest.raises(NoSuchTableError, match="'none' does not exist"):
        catalog.load_table("stele.none")
    for call in (catalog.list_tables, catalog.load_namespace_properties, catalog.list_namespaces):
        with pytest.raises(NoSuchNamespaceError, match="all tables are in 'stele'"):
            call("other")
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("stele", "deeper", OPEN))
    answer = http.get("/namespaces/stele/tables/none")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "error": {"message": "table 'none' does not exist", "type": "NoSuchTableException", "code": 404}
    }
    assert http.get("/namespaces/stele/views").json()["error"]["type"] == "NotFoundException"


def test_every_write_is_refused(broker: BrokerProcess, http: httpx.Client, tables: Writing) -> None:
    catalog = _catalog(broker)
    table = catalog.load_table(f"stele.{OPEN}")
    calls = (
        lambda: catalog.create_namespace("other"),
        lambda: catalog.drop_namespace("stele"),
        lambda: catalog.create_table("stele.other", Schema(NestedField(1, "id", LongType()))),
        lambda: catalog.drop_table(f"stele.{OPEN}"),
        lambda: catalog.rename_table(f"stele.{OPEN}", "stele.other"),
        lambda: table.transaction().set_properties({"a": "b"}).commit_transaction(),
        lambda: catalog.register_table("stele.other", table.metadata_location),
    )
    for call in calls:
        # pyiceberg does not send what the catalog does not name.
        with pytest.raises((NotImplementedError, RESTError), match=r"does not support|read-only"):
            call()
    one = f"/namespaces/stele/tables/{OPEN}"
    for method, path in (
        ("POST", "/namespaces"),
        ("DELETE", "/namespaces/stele"),
        ("POST", "/namespaces/stele/properties"),
        ("POST", "/namespaces/stele/tables"),
        ("POST", "/namespaces/stele/register"),
        ("POST", one),
        ("DELETE", one),
        ("POST", f"{one}/metrics"),
        ("POST", f"{one}/plan"),
        ("POST", "/tables/rename"),
        ("POST", "/transactions/commit"),
        ("POST", "/namespaces/stele/views"),
        ("POST", "/oauth/tokens"),
    ):
        answer = http.request(method, path, json={})
        assert answer.status_code == 406, (method, path)
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("UnsupportedOperationException", 406)
        assert "read-only" in error["message"]
    assert len(catalog.load_table(f"stele.{OPEN}").snapshots()) == len(table.snapshots())


def test_a_list_has_pages_for_those_who_ask(
    broker: BrokerProcess, http: httpx.Client, tables: Writing
) -> None:
    url = "/namespaces/stele/tables"
    whole = http.get(url).json()
    assert whole["next-page-token"] is None
    names = [each["name"] for each in whole["identifiers"]]
    assert names == sorted(names)
    assert http.get(url, params={"pageSize": 1}).json() == whole
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = http.get(url, params={"pageToken": token, "pageSize": 2}).json()
        assert len(page["identifiers"]) <= 2
        found += [each["name"] for each in page["identifiers"]]
        token = page["next-page-token"]
    assert found == names
    assert http.get(url, params={"pageSize": 0}).json()["error"]["type"] == "BadRequestException"
    assert http.get(url, params={"unknown": 1}).json() == whole
    assert _catalog(broker, **{"rest-page-size": "1"}).list_tables("stele") == [
        ("stele", name) for name in names
    ]


def test_a_table_has_the_rights_of_its_topic(broker: BrokerProcess, tables: Writing) -> None:
    catalog = _catalog(broker, ALICE)
    assert catalog.list_tables("stele") == [("stele", OPEN), ("stele", f"{OPEN}_errors")]
    assert catalog.load_table(f"stele.{OPEN}").metadata == tables.table(OPEN).metadata
    catalog.load_table(f"stele.{OPEN}_errors")
    for name in (SECRET, f"{SECRET}_errors", "none"):
        with pytest.raises(ForbiddenError, match="User:alice"):
            catalog.load_table(f"stele.{name}")
        with pytest.raises(ForbiddenError):
            catalog.table_exists(f"stele.{name}")
    # Spark looks for a metadata table in this way, and for the table itself only after this answer.
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("stele", OPEN, "snapshots"))
    # A topic that is called so is no table of errors.
    tables.client.create_topic(f"{OPEN}_x_errors", partitions=1)
    with pytest.raises(ForbiddenError):
        catalog.load_table(f"stele.{OPEN}_x_errors")


def test_clients_log_in_as_everywhere(broker: BrokerProcess, tables: Writing) -> None:
    url = f"{broker.http_url}/iceberg/v1"
    for path in ("/config", f"/namespaces/stele/tables/{OPEN}", "/nothing"):
        answer = httpx.get(f"{url}{path}")
        assert answer.status_code == 401
        assert answer.json()["error"]["type"] == "NotAuthorizedException"
        assert "Bearer" in answer.headers["www-authenticate"]
    with httpx.Client(base_url=broker.http_url, auth=(ROOT, PASSWORD)) as root:
        key = root.post("/v1/keys", json={"user": ALICE}).json()["key"]
    given = {"type": "rest", "uri": f"{broker.http_url}/iceberg", "token": key}
    with_key = load_catalog("stele", **given)
    assert with_key.load_table(f"stele.{OPEN}").name() == ("stele", OPEN)
    with pytest.raises(ForbiddenError):
        with_key.load_table(f"stele.{SECRET}")
    # There is no endpoint for tokens: the answer says how to log in.
    with pytest.raises(Exception, match="API key"):
        load_catalog(
            "stele",
            type="rest",
            uri=f"{broker.http_url}/iceberg",
            credential="alice:secret",
            **{"oauth2-server-uri": f"{url}/oauth/tokens"},
        )


def test_a_client_is_configured_with_what_there_is(http: httpx.Client, tables: Writing) -> None:
    answer = http.get("/config", params={"warehouse": "any"}).json()
    assert (answer["defaults"], answer["overrides"]) == ({}, {})
    assert all(each.split(" ")[0] in ("GET", "HEAD") for each in answer["endpoints"])


# ── the catalog beneath ──


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "a b"
    folder.mkdir()
    return folder


def _reads(directory: Path, warehouse: str = "") -> IcebergCatalog:
    return IcebergCatalog(select_in_file(directory / "catalog.sqlite"), warehouse=warehouse)


def test_metadata_is_read_as_pyiceberg_writes_it(directory: Path) -> None:
    reads = _reads(directory)
    assert asyncio.run(reads.list_tables()) == []
    assert asyncio.run(reads.load("orders")) is None
    catalog = catalog_in(directory)
    table, found = make_table(catalog), None
    for _ in range(3):
        append(table, 5)
        found = asyncio.run(reads.load("orders"))
        assert found is not None
        assert found.location == table.metadata_location
        assert json.loads(found.text)["current-snapshot-id"] == table.metadata.current_snapshot_id
    assert asyncio.run(reads.list_tables()) == ["orders"]
    Path(table.metadata_location.removeprefix("file://")).unlink()
    assert asyncio.run(reads.load("orders")) == found, "it is cached"
    with pytest.raises(StorageUnavailable, match="is missing"):
        asyncio.run(_reads(directory).load("orders"))


def test_what_is_not_whole_or_too_large_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(catalog_in(directory))
    file = Path(table.metadata_location.removeprefix("file://"))
    whole = file.read_bytes()
    for text in (b"", whole[:-1], b"[]", b"\xff"):
        file.write_bytes(text)
        with pytest.raises(StorageUnavailable):
            asyncio.run(_reads(directory).load("orders"))
    file.write_bytes(whole)
    monkeypatch.setattr(catalog_module, "METADATA_BYTES_MAX", len(whole) - 1)
    with pytest.raises(StorageUnavailable, match="more than"):
        asyncio.run(_reads(directory).load("orders"))
    with sqlite3.connect(directory / "catalog.sqlite") as database:
        database.execute("DROP TABLE iceberg_tables")
    assert asyncio.run(_reads(directory).list_tables()) == []
    (directory / "catalog.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageUnavailable, match="not a database"):
        asyncio.run(_reads(directory).list_tables())


def test_a_catalog_of_a_writer_that_was_killed_in_a_commit_can_be_read(directory: Path) -> None:
    make_table(catalog_in(directory))
    path = directory / "catalog.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA cache_spill = ON")
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("BEGIN IMMEDIATE")
    for number in range(200):
        row = ("stele", "stele", f"t{number}", "x" * 900)
        writer.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) VALUES (?, ?, ?, ?)",
            row,
        )
    # What is on the disk is what a kill leaves.
    left = directory / "left"
    left.mkdir()
    for file in directory.glob("catalog.sqlite*"):
        (left / file.name).write_bytes(file.read_bytes())
    writer.execute("ROLLBACK")
    writer.close()
    assert (left / "catalog.sqlite-journal").exists()
    assert asyncio.run(_reads(left).list_tables()) == ["orders"]


def test_metadata_in_a_bucket_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials(monkeypatch)
    with versitygw() as url:
        place, _, endpoint = url.partition("?endpoint=")
        table = make_table(
            catalog_in(
                tmp_path,
                warehouse=f"{place}/lake",
                **{"s3.endpoint": endpoint, "s3.region": "us-east-1"},
            )
        )
        append(table, 5)
        reads = _reads(tmp_path, url)
        found = asyncio.run(reads.load("orders"))
        assert found is not None
        assert json.loads(found.text)["current-snapshot-id"] == table.metadata.current_snapshot_id
        assert reads.client_properties == {
            "s3.endpoint": endpoint,
            "client.region": "us-east-1",
            "s3.path-style-access": "true",
        }
        monkeypatch.setattr(catalog_module, "METADATA_BYTES_MAX", len(found.text) - 1)
        with pytest.raises(StorageUnavailable, match="more than"):
            asyncio.run(_reads(tmp_path, url).load("orders"))
        table.io.delete(found.location)
        with pytest.raises(StorageUnavailable, match="is missing"):
            asyncio.run(_reads(tmp_path, url).load("orders"))
