"""With ``--format json`` every command prints one JSON document with what its text says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cli import COMMANDS, LazyGroup

from tests.support.made_replica import made_replica
from tests.support.warm_processes import run_stele

# They run until they are stopped, or print records in the formats of records.
WITHOUT = {"serve", "produce", "consume", "table", "cdc", "iceberg run", "mirror run", "pipeline run"}


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, f"{path} {name}".strip())
    else:
        yield path, command


ALL = [name for name, _ in leaves(LazyGroup(name="stele")) if not name.startswith(tuple(WITHOUT))]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="module")
def documents(stele_broker_session: BrokerProcess, directory: Path) -> dict[str, Any]:
    """What each command prints, in an order in which each has something to print."""
    broker = stele_broker_session
    environment = {
        **os.environ,
        "STELE_URL": broker.http_url,
        "STELE_PASSWORD": "",
        "STELE_NEW_PASSWORD": "secret",
    }
    offline = ("--data-dir", str(directory))
    found: dict[str, Any] = {}

    def run(command: str, *arguments: str, stdin: bytes = b"", lines: bool = False) -> Any:
        done = run_stele(*command.split(), *arguments, "--format", "json", stdin=stdin, env=environment)
        assert done.returncode == 0, (command, done.stderr)
        text = done.stdout.decode()
        found[command] = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
        return found[command]

    run("topics create", "dlq.json")
    run("topics create", "json", "--partitions", "2")
    run("topics list")
    run("topics alter", "json", "--config", "retention.ms=60000")
    with Client(broker.binary_url) as client:
        client.produce("json", b"one", key="k", partition=0)
        client.simple_produce("json", b"two")
    run("topics describe", "json")
    with Client(broker.http_url) as client, client.group("json-group", "json") as group:
        batch = group.poll()
        assert batch is not None
        batch.ack()
    run("sql", "select count(*) from json")
    run("groups list")
    run("groups describe", "json-group")
    run("groups configure", "json-share", "--config", "errors.deadletterqueue.topic.name=dlq.json")
    run("groups reset", "json-group", "--to", "earliest", "--yes")
    run("groups redrive", "json-share")
    run("groups delete", "json-group", "--yes")
    with Client(broker.http_url) as client, client.transaction("json-id") as transaction:
        transaction.produce("json", b"three")
        run("transactions list")
        run("transactions describe", "json-id")
        run("transactions hanging", "--all")
        run("transactions abort", "json-id", "--yes")
        transaction.abort()
    schema = directory.parent / "schema.avsc"
    schema.write_text('"string"')
    run("schemas register", "json-value", str(schema))
    run("schemas list")
    run("schemas show", "json-value")
    run("schemas check", "json-value", str(schema))
    run("schemas config", "json-value", "--level", "full")
    run("schemas mode", "json-value")
    run("schemas delete", "json-value", "--yes")
    mirrored = ("json", "--from", "127.0.0.1:1", "--topics", "none")
    run("mirror create", *mirrored)
    for command in ("list", "status", "pause", "resume", "truncate", "promote", "delete"):
        if command == "delete":
            run("mirror create", "json", "--to", "127.0.0.1:1", "--topics", "none", "--offsets", "translate")
        yes = ("--yes",) if command in ("truncate", "promote", "delete") else ()
        run(f"mirror {command}", *(() if command == "list" else ("json",)), *yes)
    run("iceberg status")
    run("quotas set", "producer_byte_rate=1000000000", "--for-client-id", "json")
    run("quotas list")
    run("quotas remove", "--for-client-id", "json")
    run("user add", "ada", *offline, stdin=b"secret word\n")
    run("user passwd", "ada", *offline, stdin=b"another word\n")
    run("user list", *offline)
    run("key create", "ada", *offline)
    (key,) = run("key list", *offline)
    run("key delete", key["id"], *offline)
    run("user delete", "ada", *offline)
    run("acls add", "--principal", "User:ada", "--operation", "READ", "--topic", "json", *offline)
    run("acls list", *offline)
    run("acls remove", "--principal", "User:ada", *offline)
    run("pipeline list")
    run("top")
    run("verify", str(broker.data_dir))
    bucket = made_replica().saved_in(directory.parent / "bucket")
    run("replica status", bucket)
    run("replica verify", bucket)
    run("restore", bucket, "--data-dir", str(directory.parent / "restored"))
    run("dump", str(next(broker.data_dir.glob("json-0/*.log"))), lines=True)
    run("topics delete", "json", "--yes")
    return found


@pytest.mark.parametrize("command", ALL)
def test_a_command_prints_a_document(command: str, documents: dict[str, Any]) -> None:
    assert documents[command]


def test_every_command_is_among_them() -> None:
    without = {name for name in WITHOUT if name in COMMANDS}

    assert set(COMMANDS) - {name.partition(" ")[0] for name in ALL} == without


def test_documents_have_the_values_as_they_are(documents: dict[str, Any]) -> None:
    assert documents["topics create"]["partitions"] == 2
    assert documents["topics alter"]["configs"]["retention.ms"] == "60000"
    assert documents["topics describe"]["partitions"][0] == {
        "partition": 0,
        "first_offset": 0,
        "next_offset": 2,
    }
    assert documents["groups reset"][0].keys() == {"topic", "partition", "committed", "new", "lag"}
    assert documents["transactions describe"]["partitions"][0]["topic"] == "json"
    registered = documents["schemas register"]
    assert documents["schemas list"] == [
        {"subject": "json-value", "version": 1, "id": registered["id"], "type": "AVRO"}
    ]
    assert documents["schemas show"] == registered
    assert (registered["schema"], registered["type"], len(registered["guid"])) == ('"string"', "AVRO", 36)
    assert documents["schemas check"] == {"is_compatible": True, "messages": []}
    assert documents["schemas config"]["compatibilityLevel"] == "FULL"
    assert documents["schemas mode"] == {"mode": "READWRITE"}
    assert documents["schemas delete"] == {"subject": "json-value", "deleted": [1], "permanent": False}
    assert documents["quotas set"]["quotas"] == {"producer_byte_rate": 1e9}
    assert documents["acls list"][0]["principal"] == "User:ada"
    assert documents["top"]["overview"]["health"]["status"]
    assert documents["verify"]["problems"] == 0
    assert documents["replica verify"]["problems"] == []
    (generation,) = documents["replica status"]["generations"]
    assert generation == {"generation": 1, "first_at": 0, "last_at": 0, "cuts": 1}
    assert (documents["restore"]["at"], documents["restore"]["partitions"]) == (0, 2)
    records = [entry for entry in documents["dump"] if entry["kind"] == "record"]
    assert (records[0]["key"], records[0]["value"], records[1]["key"]) == ("k", "one", None)
