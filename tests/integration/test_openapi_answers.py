"""Every answer of a broker is as the OpenAPI document describes it: status, media type and each field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import stele

from tests.integration.test_kafka_logins import PASSWORD, add_user

ADMIN = "root"
JSON, NDJSON = "application/json", "application/x-ndjson"
SSE, OCTETS = "text/event-stream", "application/octet-stream"
ARROW, PROBLEM = "application/vnd.apache.arrow.stream", "application/problem+json"


# One partition of several fails while it is written.
NOT_PROVOKED = {("produce", "207", JSON)}
# Answers without an end.
LIVE = {("tail", NDJSON)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("openapi") / "data"
    data_dir.mkdir()
    add_user(data_dir, ADMIN)
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{ADMIN}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    environment = {
        "STELE_AUTHENTICATION": "required",
        "STELE_LOGIN_FAILURES_FREE": "10000",
        # A connector that has ended for want of a database takes requests, too.
        "STELE_CDC_DSN": "postgresql://127.0.0.1:1/none",
        "STELE_CDC_TABLES": "orders",
        "STELE_CDC_SLOT": "NONE",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


class Checked:
    """A client that compares each answer with the document, and notes which parts of it it has seen."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.document: dict[str, Any] = http.get("/openapi.json").json()
        self.answered: set[tuple[str, str, str]] = set()
        self.taken: set[tuple[str, str]] = set()
        self._schemas = _closed(self.document["components"]["schemas"])

    def __call__(
        self,
        method: str,
        url: str,
        body: dict[str, Any] | tuple[str, bytes] | None = None,
        *,
        accept: str = "*/*",
        status: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Return the parsed answer of a request that succeeds, or that gets ``status``."""
        document = None if isinstance(body, tuple) else body
        kind, content = body if isinstance(body, tuple) else (JSON, None)
        request = self._http.build_request(
            method,
            url,
            json=document,
            content=content,
            headers={
                "Accept": accept,
                **({"Content-Type": kind} if content is not None else {}),
                **(headers or {}),
            },
        )
        operation = self._operation(method, url)
        answer = self._http.send(request, stream=True)
        try:
            media = answer.headers.get("content-type", "").partition(";")[0]
            is_live = media == SSE or (operation["operationId"], media) in LIVE
            text = b"" if is_live else answer.read()
        finally:
            answer.close()
        where = f"{operation['operationId']} {answer.status_code} {media}: {text[:2000]!r}"
        assert answer.is_success if status is None else answer.status_code == status, where
        described = operation["responses"].get(str(answer.status_code), operation["responses"]["default"])
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        contents = described.get("content", {"": {}})
        assert media in contents, where
        parsed = None
        if media in (JSON, PROBLEM):
            parsed = answer.json()
            validator = Draft202012Validator(
                {**contents[media]["schema"], "components": {"schemas": self._schemas}}
            )
            assert [error.message for error in validator.iter_errors(parsed)] == [], where
        if answer.is_success:
            self.answered.add((operation["operationId"], str(answer.status_code), media))
            if body is not None:
                self.taken.add((operation["operationId"], kind))
        return parsed

    def _operation(self, method: str, url: str) -> dict[str, Any]:
        path = url.partition("?")[0]
        for template, operations in self.document["paths"].items():
            pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path) and method.lower() in operations:
                # A parameter never stands for a literal segment of another template.
                if "{" in template and path in self.document["paths"]:
                    continue
                return operations[method.lower()]
        raise AssertionError(f"the document has no {method} {path}")

    def described(self) -> set[tuple[str, str, str]]:
        return {
            (operation["operationId"], status, media)
            for item in self.document["paths"].values()
            for operation in item.values()
            for status, answer in operation["responses"].items()
            if status.startswith("2")
            for media in answer.get("content", {"": {}})
        }

    def accepted(self) -> set[tuple[str, str]]:
        return {
            (operation["operationId"], media)
            for item in self.document["paths"].values()
            for operation in item.values()
            for media in operation.get("requestBody", {}).get("content", {})
        }


def _closed(schema: Any) -> Any:
    """Refuse properties that are not described."""
    if isinstance(schema, list):
        return [_closed(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {name: _closed(one) for name, one in cast("dict[str, Any]", schema).items()}
    is_object = closed.get("type") == "object" and "properties" in closed
    # Details of a problem depend on the error, and are described as free.
    if is_object and "additionalProperties" not in closed and "kafka_code" not in closed["properties"]:
        closed["additionalProperties"] = False
    return closed


def test_every_described_answer_is_given_and_every_given_one_is_described(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url, auth=(ADMIN, PASSWORD), timeout=60) as http:
        call = Checked(http)
        _topics_and_records(call)
        _groups(call)
        _transactions(call)
        _administration(call)
        assert call.described() - call.answered == NOT_PROVOKED
        assert call.accepted() - call.taken == set()


def test_no_operation_takes_a_media_type_that_is_not_described(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url, auth=(ADMIN, PASSWORD), timeout=60) as http:
        call = Checked(http)
        call("PUT", "/v1/topics/media", {"configs": {"cleanup.policy": "compact"}})
        refused = 0
        for template, item in call.document["paths"].items():
            for method, operation in item.items():
                path = template.replace("{topic}", "media").replace("{group}", "media")
                path = path.replace("{transactional_id}", "media")
                path = re.sub(r"\{[^}]*\}", "0", path)
                accepted = set(operation.get("requestBody", {}).get("content", {}))
                if accepted:
                    for kind in {"text/xml", NDJSON, OCTETS, "multipart/form-data"} - accepted:
                        headers = {"Content-Type": kind}
                        if "{transactional_id}" in template:
                            headers |= {"Producer-Id": "0", "Producer-Epoch": "0"}
                        answer = http.request(method, path, content=b"x", headers=headers)
                        assert answer.status_code == 415, f"{method} {path} {kind}: {answer.text}"
                        refused += 1
                contents = operation["responses"].get("200", {}).get("content", {})
                if len(contents) > 1 and "406" in operation["responses"]:
                    answer = http.request(method, path, headers={"Accept": "text/xml"})
                    assert answer.status_code == 406, f"{method} {path}: {answer.text}"
                    refused += 1
        assert refused > 50


def _topics_and_records(call: Checked) -> None:
    topic = "/v1/topics/orders"
    call("PUT", topic, {"partitions": 1})
    call("PUT", topic, {"partitions": 1})
    call("PATCH", topic, {"configs": {"retention.ms": 100000000, "cleanup.policy": None}})
    call("GET", topic)
    call("GET", "/v1/topics")
    call("GET", "/v1/topics?sizes=true")
    records = [
        {"key": "a", "value": {"n": 1}, "headers": [{"key": "h", "value": "x"}]},
        {"key_b64": "AP8=", "value_b64": "AP8="},
        {"value": None},
    ]
    call("POST", f"{topic}/records", {"records": records})
    call("POST", f"{topic}/records", (NDJSON, b'{"value":1}\n'))
    call("POST", f"{topic}/records", (NDJSON, b'{"value":1}\nno JSON\n'))
    call("POST", f"{topic}/records", (OCTETS, b"bytes"))
    # One record of several is refused where it is appended: too large for its topic.
    call("PUT", "/v1/topics/small", {"partitions": 2, "configs": {"max.message.bytes": 1000}})
    mixed = [{"partition": 0, "value": "ok"}, {"partition": 1, "value": "x" * 2000}]
    call("POST", "/v1/topics/small/records", {"records": mixed}, status=413)
    call("POST", "/v1/topics/small/records", {"records": [{"value": "ok", "partition": 7}]}, status=400)
    partition = f"{topic}/partitions/0"
    for accept in (JSON, NDJSON, SSE, OCTETS, ARROW):
        call("GET", f"{partition}/records", accept=accept)
    call("GET", f"{partition}/records?as=json&preview=1")
    for accept in (NDJSON, SSE):
        call("GET", f"{topic}/records", accept=accept)
    call("GET", f"{partition}/records/0?preview=1")
    call("GET", f"{partition}/records/1?part=value")
    call("GET", f"{partition}/records?from=999", status=416)
    call("GET", f"{partition}/offsets?at=-1h")
    call("GET", f"{topic}/search")
    call("GET", f"{topic}/search?format=csv")
    call("POST", f"{topic}/search", {"ranges": "0:0-1"})
    call("POST", f"{topic}/search?format=csv", {"ranges": "0:0-1"})
    call("GET", f"{partition}/segments")
    call("POST", f"{partition}/verify")
    call("GET", f"{partition}/segments")
    call("POST", f"{topic}/flush")
    call("POST", "/v1/flush")
    producer = call("POST", "/v1/producers")
    call("POST", "/v1/producers?name=job&version=1")
    call("GET", f"{partition}/producers/{producer['producer_id']}")
    call("PUT", "/v1/topics/users", {"configs": {"cleanup.policy": "compact"}})
    call("POST", "/v1/topics/users/records", {"records": [{"key": "ada", "value": "London"}]})
    for accept in (JSON, OCTETS):
        call("GET", "/v1/topics/users/keys/ada", accept=accept)
    for accept in (NDJSON, SSE):
        call("GET", "/v1/topics/users/table", accept=accept)
    for accept in (JSON, NDJSON, "text/csv", "application/vnd.apache.arrow.stream"):
        call("POST", "/v1/sql", {"sql": "select *, [1, null] from users"}, accept=accept)
    call("GET", "/v1/topics/users/keys/unknown", status=404)
    call("GET", "/v1/topics/users")
    call("PUT", "/v1/topics/purged", {})
    call("DELETE", "/v1/topics/purged/partitions/0/records?before=latest")
    call("DELETE", "/v1/topics/purged/records")
    call("DELETE", "/v1/topics/purged")


def _groups(call: Checked) -> None:
    group = "/v1/groups/billing"
    member = call("POST", f"{group}/members", {"topics": ["orders"]})
    own = {"member_id": member["member_id"], "generation": member["generation"]}
    heart = f"{group}/members/{own['member_id']}"
    call("POST", f"{heart}/heartbeat", {"generation": own["generation"]})
    owner = f"{group}/partitions/orders/0"
    call("PUT", f"{owner}/owner", own)
    call("GET", f"{owner}/offset")
    call("PUT", f"{owner}/offset", {**own, "offset": 1})
    call("GET", f"{owner}/offset")
    call("GET", group)
    call("GET", f"{group}/lag/history")
    call("DELETE", f"{owner}/owner", own)
    call("DELETE", heart)
    call("GET", "/v1/groups")
    call("PUT", f"{group}/offsets", {"to": "earliest", "topics": ["orders"]})
    call("GET", f"{group}/configs")
    call("PATCH", f"{group}/configs", {"configs": {"share.record.lock.duration.ms": 60000}})
    call("DELETE", group)
    lease = "/v1/groups/leased"
    poll = {"topics": ["orders"], "max_records": 1}
    held = call("POST", f"{lease}/poll", poll)["lease"]
    call("GET", lease)
    call("POST", f"{lease}/extend", {"lease": held})
    call("POST", f"{lease}/nack", {"lease": held})
    call("POST", f"{lease}/ack", {"lease": call("POST", f"{lease}/poll", poll)["lease"]})
    call("POST", f"{lease}/ack", {"lease": held}, status=409)
    share = "/v1/groups/shared"
    letters = {"errors.deadletterqueue.topic.name": "dlq.letters"}
    call("PUT", "/v1/topics/dlq.letters", {"configs": {"errors.deadletterqueue.group.enable": "true"}})
    call("PATCH", f"{share}/configs", {"configs": letters})
    taken = call("POST", f"{share}/share/poll", {**poll, "from": "earliest"})
    lock = {"lock": taken["lock"]}
    call("GET", share)
    call("POST", f"{share}/share/renew", lock)
    call("POST", f"{share}/share/release", lock)
    lock = {"lock": call("POST", f"{share}/share/poll", poll)["lock"]}
    call("POST", f"{share}/share/ack", lock)
    lock = {"lock": call("POST", f"{share}/share/poll", poll)["lock"]}
    call("POST", f"{share}/share/reject", lock)
    call("POST", f"{share}/share/redrive", {})


def _transactions(call: Checked) -> None:
    call("POST", "/v1/transactions", {"records": [{"topic": "orders", "value": "x"}]})
    path = "/v1/transactions/job"
    begun = call("POST", f"{path}/begin")
    identity = {
        "Producer-Id": str(begun["producer_id"]),
        "Producer-Epoch": str(begun["producer_epoch"]),
    }
    call("POST", f"{path}/records", {"records": [{"topic": "orders", "value": "x"}]}, headers=identity)
    offsets = [{"group": "settled", "topic": "orders", "partition": 0, "offset": 1}]
    call("POST", f"{path}/settle", {"offsets": offsets}, headers=identity)
    call("GET", path)
    call("GET", "/v1/topics/orders")
    call("GET", "/v1/transactions")
    call("GET", "/v1/open-transactions")
    call("GET", "/v1/topics/orders/partitions/0/transactions")
    next_one = call("POST", f"{path}/commit", headers=identity)
    identity["Producer-Epoch"] = str(next_one["producer_epoch"])
    call("POST", f"{path}/records", {"records": [{"topic": "orders", "value": "x"}]}, headers=identity)
    call("POST", f"{path}/abort", headers=identity)
    begun = call("POST", f"{path}/begin")
    identity["Producer-Epoch"] = str(begun["producer_epoch"])
    call("POST", f"{path}/records", {"records": [{"topic": "orders", "value": "x"}]}, headers=identity)
    call("DELETE", f"/v1/topics/orders/partitions/0/transactions/{identity['Producer-Id']}")
    call("DELETE", path)


def _administration(call: Checked) -> None:
    rule = {
        "principal": "User:alice",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
    }
    call("POST", "/v1/acls", {"acls": [rule]})
    call("GET", "/v1/acls")
    call("DELETE", "/v1/acls?principal=User:alice")
    quota = {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}}
    call("PATCH", "/v1/quotas", quota)
    call("GET", "/v1/quotas")
    mirror = {"from": "127.0.0.1:1", "topics": "none"}
    for _ in range(2):
        call("PUT", "/v1/mirrors/prod", mirror)
        call("GET", "/v1/mirrors")
        call("GET", "/v1/mirrors/prod")
        call("POST", "/v1/mirrors/prod/truncate", {"topic": None})
        call("POST", "/v1/mirrors/prod/promote", {"topic": None})
    call("PUT", "/v1/mirrors/prod", {"to": "127.0.0.1:1", "topics": "none", "offsets": "translate"})
    call("GET", "/v1/mirrors/prod")
    call("DELETE", "/v1/mirrors/prod")
    call("PUT", "/v1/topics/lake", {"configs": {"stele.iceberg.mode": "key_value"}})
    call("GET", "/v1/iceberg")
    call("GET", "/v1/iceberg/lake")
    call("DELETE", "/v1/topics/lake")
    call("POST", "/v1/cdc", {"action": "copy", "tables": ["orders"], "where": "id > 7"})
    call("POST", "/v1/users", {"name": "alice", "password": PASSWORD})
    call("GET", "/v1/users")
    call("PUT", "/v1/users/alice/password", {"password": PASSWORD + "2"})
    key = call("POST", "/v1/keys", {"user": "alice"})
    call("GET", "/v1/keys")
    call("DELETE", f"/v1/keys/{key['id']}")
    call("DELETE", "/v1/users/alice")
    for path in (
        "/v1/cdc",
        "/v1/replica",
        "/v1/overview",
        "/v1/overview/history",
        "/v1/connections",
        "/v1/cluster",
    ):
        call("GET", path)
    for path in ("/healthz", "/readyz", "/metrics"):
        call("GET", path)
