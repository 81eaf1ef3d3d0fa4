"""``stele schemas``, and how ``stele produce``, ``consume`` and ``table`` use schemas."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from stele import Client, SchemaRegistry
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import stele

ORDER = """{"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}
]}"""


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(ORDER)
    return path


def invoke(
    broker: BrokerProcess,
    *arguments: object,
    stdin: str = "",
    status: int = 0,
    environment: dict[str, str] | None = None,
) -> Result:
    done = CliRunner().invoke(
        stele,
        [str(argument) for argument in arguments],
        env={"STELE_URL": broker.binary_url, "STELE_REGISTRY_URL": "", **(environment or {})},
        input=stdin,
    )
    assert done.exit_code == status, done.output
    return done


def lines(done: Result) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# ── schemas ──


def test_a_subject_from_its_first_version_to_its_end(broker: BrokerProcess, order: Path) -> None:
    done = invoke(broker, "schemas", "register", "life-value", order)
    assert done.stdout.startswith("version 1 of life-value is the schema ")
    assert invoke(broker, "schemas", "register", "life-value", order).stdout == done.stdout
    listed = invoke(broker, "schemas", "list", "life")
    assert listed.stdout.split()[:8] == [
        "subject",
        "version",
        "id",
        "type",
        "life-value",
        "1",
        done.stdout.split()[-1],
        "AVRO",
    ]
    shown = invoke(broker, "schemas", "show", "life-value").stdout
    assert json.loads(shown)["name"] == "Order"
    assert invoke(broker, "schemas", "show", "--id", done.stdout.split()[-1]).stdout == shown
    # What is shown can be registered again.
    order.write_text(shown)
    assert invoke(broker, "schemas", "register", "life-value", order).stdout == done.stdout
    invoke(broker, "schemas", "delete", "life-value", "--yes")
    assert "life-value" not in invoke(broker, "schemas", "list", "life").stdout
    assert "life-value" in invoke(broker, "schemas", "list", "life", "--deleted").stdout
    assert "40401" not in invoke(broker, "schemas", "show", "life-value", status=1).output
    done = invoke(broker, "schemas", "delete", "life-value", "--permanent", "--yes")
    assert done.stdout == "deleted 1 version of life-value: 1\n"


def test_a_check_says_what_is_incompatible_and_fails(broker: BrokerProcess, order: Path) -> None:
    invoke(broker, "schemas", "register", "checked-value", order)
    assert invoke(broker, "schemas", "check", "checked-value", order).stdout == (
        "the schema is compatible with checked-value\n"
    )
    order.write_text(ORDER.replace('"string"', '"int"'))
    done = invoke(broker, "schemas", "check", "checked-value", order, status=1)
    first, *reasons = done.stdout.splitlines()
    assert first == "the schema is not compatible with checked-value"
    assert reasons
    done = invoke(
        broker, "schemas", "check", "checked-value", order, "--version", "1", "--format", "json", status=1
    )
    assert json.loads(done.stdout)["is_compatible"] is False
    assert invoke(broker, "schemas", "register", "checked-value", order, status=1).stderr.startswith(
        "Error: "
    )
    invoke(broker, "schemas", "config", "checked-value", "--level", "none")
    assert "version 2 of" in invoke(broker, "schemas", "register", "checked-value", order).stdout
    assert "compatibilityLevel=NONE" in invoke(broker, "schemas", "config", "checked-value").stdout
    assert (
        "compatibilityLevel=BACKWARD"
        in invoke(broker, "schemas", "config", "checked-value", "--reset").stdout
    )


def test_a_mode_is_set_and_reset(broker: BrokerProcess, order: Path) -> None:
    assert invoke(broker, "schemas", "mode").stdout == "READWRITE\n"
    assert invoke(broker, "schemas", "mode", "mode-value", "--set", "readonly").stdout == "READONLY\n"
    invoke(broker, "schemas", "register", "mode-value", order, status=1)
    assert invoke(broker, "schemas", "mode", "mode-value", "--reset").stdout == "READWRITE\n"


def test_what_a_schema_uses_is_named_with_it(broker: BrokerProcess, order: Path, tmp_path: Path) -> None:
    invoke(broker, "schemas", "register", "used", order)
    using = tmp_path / "using.avsc"
    using.write_text('{"type":"record","name":"U","fields":[{"name":"o","type":"Order"}]}')
    invoke(broker, "schemas", "register", "using", using, status=1)
    invoke(broker, "schemas", "register", "using", using, "--reference", "Order=used:1")
    shown = json.loads(invoke(broker, "schemas", "show", "using", "--format", "json").stdout)
    assert shown["references"] == [{"name": "Order", "subject": "used", "version": 1}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show",), "SUBJECT or --id"),
        (("show", "s", "--version", "first"), "a number, or latest"),
        (("register", "s", "{file}"), "give --type"),
        (("register", "s", "{file}", "--type", "avro", "--reference", "x"), "NAME=SUBJECT:VERSION"),
        (("config", "--level", "FULL", "--reset"), "not both"),
        (("mode", "--set", "IMPORT", "--reset"), "not both"),
        (("list", "--registry", "http://a:b@127.0.0.1:1"), "STELE_PASSWORD"),
        (("list", "--registry", "stele://127.0.0.1:1"), "over HTTP"),
    ],
)
def test_wrong_usage_says_what_to_write(
    broker: BrokerProcess, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "schema.txt"
    file.write_text('"string"')
    done = invoke(broker, "schemas", *(one.format(file=file) for one in arguments), status=2)
    assert said in done.output


def test_a_registry_has_a_url_of_its_own(broker: BrokerProcess, order: Path) -> None:
    gone = {"STELE_URL": "stele://127.0.0.1:1"}
    cases: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--registry", broker.registry_url), gone),
        ((), {**gone, "STELE_REGISTRY_URL": broker.registry_url}),
        # An option for the broker takes precedence over the environment.
        (("--url", broker.http_url), {"STELE_REGISTRY_URL": "http://127.0.0.1:1"}),
    ]
    for arguments, environment in cases:
        done = invoke(broker, "schemas", "mode", *arguments, environment=environment)
        assert done.stdout == "READWRITE\n"


def test_a_broker_without_a_registry_is_named(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data", environment={"STELE_REGISTRY_ENABLE": "false"}) as other:
        done = invoke(other, "schemas", "list", status=1)
        assert "has no schema registry" in done.output
        # Its values are printed as they are.
        with Client(other.binary_url) as client:
            client.produce("t", b"\0\0\0\0\x07x")
        done = invoke(other, "consume", "t")
        assert done.stdout_bytes == b"\0\0\0\0\x07x\n"
        assert "has no schema registry" in done.stderr
        assert invoke(other, "consume", "t", "--raw").stderr == ""


# ── records ──


def test_values_are_encoded_and_decoded(broker: BrokerProcess, order: Path) -> None:
    values = [{"customer": "ada", "at": "2026-11-30T10:00:00.123Z"}, {"customer": "bob"}]
    text = "".join(json.dumps(value) + "\n" for value in values)
    invoke(
        broker,
        "produce",
        "orders",
        "--format",
        "ndjson",
        "--schema",
        order,
        "--key-field",
        "customer",
        stdin=text,
    )
    invoke(broker, "produce", "orders", "--schema", "latest", stdin='{"customer":"eve"}\n')
    with SchemaRegistry(broker.registry_url) as registry:
        schema_id = registry.version("orders-value").id
    invoke(broker, "produce", "orders", "--schema", schema_id, stdin='{"customer":"dan"}\n')
    read = lines(invoke(broker, "consume", "orders", "--format", "ndjson"))
    first = {**read[0]}
    assert (first["key"], first["value"]) == ("ada", values[0])
    assert first["schema"] == {"id": schema_id, "type": "AVRO"}
    assert [one["value"]["customer"] for one in read] == ["ada", "bob", "eve", "dan"]
    assert read[1]["value"]["at"] == "1970-01-01T00:00:00Z"
    assert json.loads(invoke(broker, "consume", "orders", "--format", "json").stdout) == read
    text = invoke(broker, "consume", "orders", "--max", "1").stdout
    assert json.loads(text) == values[0]
    raw = invoke(broker, "consume", "orders", "--max", "1", "--raw")
    assert raw.stdout_bytes.startswith(b"\0" + schema_id.to_bytes(4, "big"))
    assert "00 00 00 00" in invoke(broker, "consume", "orders", "--max", "1", "--format", "hex").stdout
    assert '""customer""' in invoke(broker, "consume", "orders", "--max", "1", "--format", "csv").stdout


def test_what_cannot_be_encoded_is_named_and_what_came_before_is_stored(
    broker: BrokerProcess, order: Path
) -> None:
    text = '{"customer":"ada"}\n{"customer":7}\n'
    done = invoke(broker, "produce", "refused", "--schema", order, stdin=text, status=1)
    assert "record 2 cannot be encoded: /customer: " in done.output
    assert len(invoke(broker, "consume", "refused").stdout.splitlines()) == 1
    assert (
        "record 1" in invoke(broker, "produce", "refused", "--schema", order, stdin="no\n", status=1).output
    )
    assert "40401" not in invoke(broker, "produce", "no-subject", "--schema", "latest", status=1).output
    assert "cannot be read" in invoke(broker, "produce", "t", "--schema", "missing.avsc", status=1).output
    assert "--schema" in invoke(broker, "produce", "t", "--subject", "s", status=2).output


def test_values_that_only_look_framed_are_printed_as_they_are(broker: BrokerProcess) -> None:
    values = [b"\0\x7f\xff\xff\xffx", (7).to_bytes(8, "big"), b"\0", b"text"]
    with Client(broker.binary_url) as client:
        for value in values:
            client.produce("bytes", value)
    assert invoke(broker, "consume", "bytes").stdout_bytes == b"".join(value + b"\n" for value in values)


def test_keys_and_tables_are_decoded(broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client, SchemaRegistry(broker.registry_url) as registry:
        client.create_topic("typed", configs={"cleanup.policy": "compact"})
        keys, values = registry.serializer('"string"', "typed", key=True), registry.serializer(ORDER, "typed")
        key = keys("k")
        client.produce("typed", values({"customer": "ada"}), key=key)
        client.produce("typed", values({"customer": "bob"}), key=key)
    (row,) = lines(invoke(broker, "table", "typed", "--format", "ndjson"))
    assert (row["key"], row["value"]["customer"]) == ("k", "bob")
    assert row["key_schema"]["type"] == row["schema"]["type"] == "AVRO"
    assert invoke(broker, "table", "typed").stdout.startswith('"k"\t{"customer":"bob"')
    assert invoke(broker, "table", "typed", "--raw").stdout_bytes.startswith(key)


def test_a_registry_that_is_named_has_to_answer(broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client:
        client.produce("named", b"\0\0\0\0\x07x")
    done = invoke(broker, "consume", "named", "--registry", "http://127.0.0.1:1", status=1)
    assert "--raw" in done.output
    assert os.linesep in done.output
