"""The schema registry Karapace keeps its schemas in Stele over kills and compaction, and they move between both registries."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess

from load.server_start import free_ports
from tests.conformance.clients import DRIVERS, KARAPACE
from tests.conformance.programs import (
    SMALL_SEGMENTS,
    Program,
    RecordProperty,
    compacting_broker,
    home_of,
    removed_records,
    running,
)
from tests.support.waiting import eventually

SCHEMAS, TOPIC, SUBJECT = "_schemas", "users", "users-value"
TIMEOUT_S = 120
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
CITY: dict[str, Any] = {"name": "city", "type": ["null", "string"], "default": None}
SECOND: dict[str, Any] = {**FIRST, "fields": [*FIRST["fields"], CITY]}
AGE: dict[str, Any] = {"name": "age", "type": ["null", "int"], "default": None}
THIRD: dict[str, Any] = {**FIRST, "fields": [*SECOND["fields"], AGE]}
INCOMPATIBLE: dict[str, Any] = {**FIRST, "fields": [{"name": "id", "type": "string"}]}


class Registry:
    """A Karapace, and the clients of its REST interface."""

    def __init__(self, home: Path, directory: Path, broker: BrokerProcess) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap_uri": broker.kafka_bootstrap,
            "host": "127.0.0.1",
            "port": str(port),
            "advertised_hostname": "127.0.0.1",
            "advertised_port": str(port),
            "karapace_registry": "true",
            "topic_name": SCHEMAS,
            "session_timeout_ms": "6000",
            # Other registries might write while a new one becomes the master; there are none.
            "waiting_time_before_acting_as_master_ms": "100",
        }
        self.program = Program(
            [os.environ["KARAPACE_PYTHON"], "-m", "karapace"],
            directory / "karapace.log",
            environment={f"KARAPACE_{name.upper()}": value for name, value in settings.items()},
        )
        self._python = home / "venv" / "bin" / "python"
        self._bootstrap = broker.kafka_bootstrap
        self._http = httpx.Client(base_url=self.url, timeout=30)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        answer = self._http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def register(self, schema: dict[str, Any]) -> httpx.Response:
        return self._http.post(f"/subjects/{SUBJECT}/versions", json={"schema": json.dumps(schema)})

    def set_compatibility(self, level: str) -> httpx.Response:
        return self._http.put(f"/config/{SUBJECT}", json={"compatibility": level})

    def await_master(self, level: str) -> None:
        """Return when it takes writes, of which a compatibility level is one."""

        def is_master() -> bool:
            try:
                return self.set_compatibility(level).status_code == 200
            except httpx.TransportError:
                return False

        self.eventually(is_master, "the registry takes writes")

    @property
    def state(self) -> dict[str, Any]:
        """All that it knows of the subject."""
        versions = self.get(f"/subjects/{SUBJECT}/versions")
        return {
            "subjects": self.get("/subjects"),
            "versions": [self.get(f"/subjects/{SUBJECT}/versions/{version}") for version in versions],
            "compatibility": self.get(f"/config/{SUBJECT}"),
        }

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.program.need_running()
            return condition()

        eventually(is_so, what)

    # ── records ──

    def write(self, schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
        self._avro("write", schema, json.dumps(records))

    def read(self, schema: dict[str, Any], count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._avro("read", schema, str(count)))
        return found

    def _avro(self, mode: str, schema: dict[str, Any], argument: str) -> str:
        command = [str(self._python), str(DRIVERS / KARAPACE / "avro.py"), self._bootstrap, self.url, TOPIC]
        done = subprocess.run(
            [*command, mode, json.dumps(schema), argument],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-4000:] + self.program.log
        return done.stdout


@pytest.mark.program("karapace")
def test_schemas_outlast_kills_and_compaction(tmp_path: Path, record_property: RecordProperty) -> None:
    home = home_of(KARAPACE)
    record_property("version", karapace_version())
    with (
        compacting_broker(tmp_path / "brokers") as broker,
        closing(Registry(home, tmp_path, broker)) as registry,
        running(registry.program),
    ):
        registry.await_master("BACKWARD")
        with Client(broker.binary_url) as client:
            assert client.describe_topic(SCHEMAS).configs["cleanup.policy"] == "compact"
            client.alter_topic(SCHEMAS, configs=SMALL_SEGMENTS)
        old = [{"id": number, "name": f"name {number}"} for number in range(20)]
        new = [{"id": number, "name": f"name {number}", "city": "Rome"} for number in range(20, 40)]
        registry.write(FIRST, old)
        assert registry.set_compatibility("FULL").status_code == 200
        registry.write(SECOND, new)
        read = [*({**record, "city": None} for record in old), *new]
        assert registry.read(SECOND, len(read)) == read
        assert registry.register(INCOMPATIBLE).status_code == 409

        levels = itertools.cycle(["BACKWARD", "FULL"])

        def is_compacted() -> bool:
            assert registry.set_compatibility(next(levels)).status_code == 200
            return removed_records(broker, SCHEMAS) > 2

        registry.eventually(is_compacted, f"{SCHEMAS} is compacted")
        state = registry.state
        assert [version["id"] for version in state["versions"]] == [1, 2]

        registry.program.kill()
        broker.kill()
        broker.start()
        registry.program.start()
        registry.await_master(state["compatibility"]["compatibilityLevel"])
        assert registry.state == state
        assert registry.read(SECOND, len(read)) == read
        assert registry.register(INCOMPATIBLE).status_code == 409
        assert registry.register(THIRD).json() == {"id": 3}


JSON_ITEM = {"$id": "item.json", "type": "object", "properties": {"name": {"type": "string"}}}
JSON_ORDER = {"type": "object", "properties": {"item": {"type": "string"}}}
AVRO_CART: dict[str, Any] = {"type": "record", "name": "Cart", "fields": [{"name": "user", "type": "User"}]}


def send(http: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 200, f"{method} {path}: {answer.text}"
    return answer.json()


def register(http: httpx.Client, subject: str, schema: Any, kind: str = "AVRO", **references: str) -> int:
    body = {
        "schema": json.dumps(schema),
        "schemaType": kind,
        "references": [{"name": name, "subject": of, "version": 1} for name, of in references.items()],
    }
    return send(http, "POST", f"/subjects/{subject}/versions", body)["id"]


def all_of(http: httpx.Client) -> dict[str, Any]:
    """All that a registry knows: what is deleted as well, texts by what they mean."""

    def get(path: str) -> Any:
        return send(http, "GET", path)

    subjects: dict[str, Any] = {}
    # Karapace also lists a subject that has a level and no version.
    for subject in sorted({*get("/subjects?deleted=true"), SUBJECT}):
        versions: dict[int, Any] = {}
        numbers = http.get(f"/subjects/{subject}/versions?deleted=true")
        for number in numbers.json() if numbers.status_code == 200 else ():
            version = get(f"/subjects/{subject}/versions/{number}?deleted=true")
            versions[number] = (
                version["id"],
                version.get("schemaType", "AVRO"),
                json.loads(version["schema"]),
                version.get("references", []),
                json.loads(get(f"/schemas/ids/{version['id']}")["schema"]),
            )
        level = http.get(f"/config/{subject}").json().get("compatibilityLevel")
        alive = http.get(f"/subjects/{subject}/versions")
        subjects[subject] = (versions, level, alive.json() if alive.status_code == 200 else [])
    return {"subjects": subjects, "alive": sorted(get("/subjects")), "config": get("/config")}


@pytest.mark.long
@pytest.mark.program("karapace")
def test_schemas_move_to_the_registry_of_the_broker_and_back(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    """Both registries are over the same topic, one after the other."""
    home = home_of(KARAPACE)
    record_property("version", karapace_version())
    with (
        compacting_broker(tmp_path / "brokers") as broker,
        closing(Registry(home, tmp_path, broker)) as registry,
        httpx.Client(base_url=registry.url, timeout=30) as theirs,
        httpx.Client(base_url=broker.registry_url, timeout=30) as ours,
        running(registry.program),
    ):
        registry.await_master("BACKWARD")
        register(theirs, "users", FIRST)
        register(theirs, "users", SECOND)
        register(theirs, "other-users", FIRST)
        register(theirs, "carts", AVRO_CART, User="users")
        register(theirs, "items", JSON_ITEM, "JSON")
        # Karapace takes no references of JSON Schema.
        register(theirs, "orders", JSON_ORDER, "JSON")
        send(theirs, "PUT", "/config", {"compatibility": "FULL"})
        send(theirs, "PUT", "/config/orders", {"compatibility": "NONE"})
        last = register(theirs, "gone", INCOMPATIBLE)
        register(theirs, "removed", THIRD)
        send(theirs, "DELETE", "/subjects/users/versions/2")
        send(theirs, "DELETE", "/subjects/gone")
        send(theirs, "DELETE", "/subjects/removed")
        send(theirs, "DELETE", "/subjects/removed?permanent=true")
        before = all_of(theirs)
        assert before["alive"] == ["carts", "items", "orders", "other-users", "users"]
        assert all_of(ours) == before

        registry.program.kill()
        # An id is not given again, though the schema that had it is gone.
        new = {**FIRST, "name": "New"}
        assert register(ours, "new", new) == last + 2
        assert register(ours, "users", SECOND) == before["subjects"]["users"][0][2][0]
        register(ours, "new-carts", {**AVRO_CART, "name": "NewCart"}, User="users")
        send(ours, "PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
        send(ours, "PUT", "/config/new", {"compatibility": "FORWARD"})
        send(ours, "DELETE", "/config/orders")
        send(ours, "DELETE", "/subjects/gone?permanent=true")
        send(ours, "DELETE", "/subjects/other-users")
        after = all_of(ours)
        assert after["alive"] == ["carts", "items", "new", "new-carts", "orders", "users"]

        registry.program.start()
        registry.eventually(lambda: answers(theirs), "the registry answers")
        assert all_of(theirs) == after
        registry.await_master("BACKWARD")
        assert register(theirs, "new", {**new, "fields": SECOND["fields"]}) == last + 4
        assert all_of(ours) == all_of(theirs)


def answers(http: httpx.Client) -> bool:
    try:
        return http.get("/subjects").status_code == 200
    except httpx.TransportError:
        return False


def karapace_version() -> str:
    command = [
        os.environ["KARAPACE_PYTHON"],
        "-c",
        "from karapace.version import version; print(version)",
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout.strip()
