"""Schemas made to cost much are refused or served within bounds, and the broker's other clients go on meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.broker_process import BrokerProcess

from tests.support.waiting import eventually

MIB = 1 << 20
# No request may take longer, on a busy machine too; most take a fraction of a second.
TIMEOUT_S = 120
# The broker keeps parsed schemas of 4 Mi characters, and parses two at a time.
MEMORY_MB = 1500
SLOW = pytest.mark.long


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{index}", "type": field} for index, field in enumerate(fields)],
        **more,
    }


def doubling_defaults(levels: int) -> dict[str, Any]:
    """Return a record whose default is twice as large with each level."""
    found: dict[str, Any] = record("L0", "int")
    for level in range(1, levels):
        found = record(f"L{level}", found, f"L{level - 1}")
        for field in found["fields"]:
            field["default"] = {}
    return found


def definitions(of: dict[str, Any], start: str = "0") -> dict[str, Any]:
    return {"$ref": f"#/definitions/{start}", "definitions": of}


def fields(text: str, count: int) -> str:
    return "".join(text.format(n=number, next=number + 1) for number in range(count))


AVRO = {
    "arrays in arrays": '{"type":"array","items":' * 60 + '"int"' + "}" * 60,
    "too many arrays in arrays": '{"type":"array","items":' * 40_000 + '"int"' + "}" * 40_000,
    "brackets": "[" * 500_000,
    "1 MiB": {"type": "int", "doc": "a" * (MIB - 1000)},
    "records that have each other": record(
        "A", *(record(f"N{n}", ["null", "A"], f"N{n - 1}" if n else "int") for n in range(300))
    ),
    "defaults that double": doubling_defaults(40),
    "a size without end": '{"type": "fixed", "name": "F", "size": ' + "9" * 4000 + "}",
    "a huge enum": {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(60_000)]},
    "a record of itself": record("R", *[["null", "R"]] * 5000),
    "many names": record("R", *(record(f"N{n}") for n in range(4900))),
    "many fields": record("R", *["int"] * 20_000),
    "many branches": [record(f"N{n}", ["null", "int", "string"]) for n in range(900)],
    "many aliases": record("R", "int", aliases=[f"A{n}" for n in range(50_000)]),
}
JSON = {
    "objects in objects": '{"properties":{"a":' * 45 + "{}" + "}}" * 45,
    "too many objects in objects": '{"not":' * 100_000 + "{}" + "}" * 100_000,
    "1 MiB": {"title": "x" * (MIB - 1000)},
    "itself": {"$ref": "#"},
    "a circle": definitions({"0": {"$ref": "#/definitions/1"}, "1": {"$ref": "#/definitions/0"}}),
    "itself twice": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "references that double": definitions(
        {str(n): {"allOf": [{"$ref": f"#/definitions/{n + 1}"}] * 2} for n in range(60)}
        | {"60": {"type": "object"}}
    ),
    "a schema of the network": {"$ref": "http://127.0.0.1:1/x.json"},
    "a pattern of patterns": {"pattern": "(a+)+$"},
    "a pattern with steps": {"pattern": r"^(?=(a+)+$)(a+)+\1c$"},
    "a pattern that repeats": {"pattern": "((a{1000}){1000}){1000}"},
    "a pattern of 800 KB": {"pattern": "a|" * 400_000},
    "groups in groups": {"pattern": "(" * 50_000 + ")" * 50_000},
    "a number without end": '{"maximum": ' + "9" * 4300 + "}",
    "many patterns": {"patternProperties": {f"^p{n}(a|b)*$": {"type": "integer"} for n in range(3000)}},
    "alternatives that multiply": {
        "allOf": [{"anyOf": [{"required": [f"p{n}{m}"]} for m in range(12)]} for n in range(12)]
    },
    "a huge enum": {"enum": list(range(100_000))},
    "a huge enum of objects": {"enum": [{"a": n} for n in range(50_000)]},
    "a huge constant": {"const": [[n] for n in range(100_000)]},
    "many properties": {"properties": {f"p{n}": {"type": "integer"} for n in range(30_000)}},
}
PROTOBUF = {
    "messages in messages": "message A { " * 10_000 + "}" * 10_000,
    "itself": 'syntax = "proto3"; import "a.proto"; message A {}',
    "1 MiB": "//" + "x" * (MIB - 2000) + '\nsyntax = "proto3"; message A {}',
    "a huge enum": 'syntax = "proto3"; enum E {' + fields("V{n} = {n};", 19_000) + "}",
    "many fields of itself": 'syntax = "proto3"; message A {' + fields("A f{n} = {next};", 18_000) + "}",
    "messages that have each other": 'syntax = "proto3"; message M4000 {} '
    + fields("message M{n} {{ M{next} a = 1; M0 b = 2; }}", 4000),
    "many unknown names": 'syntax = "proto3"; message A {' + fields("B{n} f{n} = {next};", 15_000) + "}",
    "many oneofs": 'syntax = "proto3"; message A {'
    + fields("oneof o{n} {{ int32 f{n} = {next}; }}", 8000)
    + "}",
    "a descriptor that grows": "message "
    + "p" * 10_000
    + " { message A { "
    + fields("optional A a{n} = {next};", 7000)
    + " } }",
    "semicolons": ";" * (MIB - 2000),
}
# Those of which a request takes less than a tenth of a second are tried with every run.
QUICK = {
    "AVRO": tuple(AVRO)[:7],
    "JSON": tuple(JSON)[:13],
    "PROTOBUF": ("messages in messages", "itself"),
}
CASES = [
    pytest.param(kind, schema, id=f"{kind} {name}", marks=() if name in QUICK[kind] else SLOW)
    for kind, schemas in (("AVRO", AVRO), ("JSON", JSON), ("PROTOBUF", PROTOBUF))
    for name, schema in schemas.items()
]


class Bystander:
    """A client of the broker that goes on, and notes what fails."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.answers = 0
        self._broker = broker
        self._is_over = threading.Event()
        self._failure: httpx.HTTPError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with httpx.Client(base_url=self._broker.http_url, timeout=TIMEOUT_S) as http:
                http.put("/v1/topics/bystander", json={"partitions": 1})
                while not self._is_over.is_set():
                    body = {"records": [{"value": self.answers}]}
                    http.post("/v1/topics/bystander/records", json=body).raise_for_status()
                    self.answers += 1
        except httpx.HTTPError as failure:
            self._failure = failure

    def await_more_than(self, answers: int) -> None:
        eventually(lambda: self._failure is not None or self.answers > answers, "another client goes on")

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


@pytest.fixture(scope="module")
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    bystander = Bystander(broker)
    yield bystander
    bystander.end()


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.registry_url, timeout=TIMEOUT_S) as http:
        assert http.put("/config", json={"compatibility": "FULL"}).status_code == 200
        yield http


def peak_mb(broker: BrokerProcess) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize(("kind", "schema"), CASES)
def test_a_hostile_schema_is_answered_in_bounds(
    http: httpx.Client, broker: BrokerProcess, bystander: Bystander, kind: str, schema: Any, request: Any
) -> None:
    subject = request.node.callspec.id.replace(" ", "-")
    text = schema if isinstance(schema, str) else json.dumps(schema)
    # Nearly the same, so that it is compared with the first one in whole.
    more = {"AVRO": ', "doc2": 1}', "JSON": ', "minLength": 2}', "PROTOBUF": "} message Another {}"}[kind]
    other = text[:-1] + more if text.endswith("}") else text
    answered = bystander.answers
    registered = http.post(f"/subjects/{subject}/versions", json={"schema": text, "schemaType": kind})
    assert registered.status_code in {200, 422}, registered.text[:500]
    for path, body in (
        (f"/subjects/{subject}", text),
        (f"/compatibility/subjects/{subject}/versions/latest?verbose=true", other),
        (f"/subjects/{subject}/versions?normalize=true", other),
    ):
        answer = http.post(path, json={"schema": body, "schemaType": kind})
        assert answer.status_code in {200, 404, 409, 422}, answer.text[:500]
        assert len(answer.content) < 2 * MIB
    shown = http.get(f"/subjects/{subject}/versions/latest")
    assert shown.status_code == (200 if registered.status_code == 200 else 404)
    bystander.await_more_than(answered)
    assert peak_mb(broker) < MEMORY_MB
