"""Logins and access rules at the schema registry, and what other protocols show of rules about subjects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from stele.broker_process import BrokerProcess, BrokerTls, run_broker
from stele.cli import stele
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

from app.api.registry.rights import NEEDS
from tests.integration.test_kafka_logins import PASSWORD, add_user, handshake, plain
from tests.support.certificates import Authority
from tests.support.kafka_peer import KafkaPeer

ROOT, ALICE = "root", "alice"
INT, STRING = {"schema": '"int"'}, {"schema": '"string"'}
SUBJECTS = ("orders-value", "orders-key", "secret-value", ":.eu:orders-value")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("registry") / "data"
    data_dir.mkdir()
    for user in (ROOT, ALICE):
        add_user(data_dir, user)
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{ROOT}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    with run_broker(data_dir=data_dir, environment={"STELE_AUTHENTICATION": "required"}) as broker:
        with of(broker.registry_url, ROOT) as client:
            for subject in SUBJECTS:
                for schema in (INT, {"schema": '"long"'}):
                    assert client.post(f"/subjects/{subject}/versions", json=schema).status_code == 200
        yield broker


def of(url: str, user: str) -> httpx.Client:
    return httpx.Client(base_url=url, auth=(user, PASSWORD))


@pytest.fixture
def root(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """The administrator at the HTTP listener; after the test no rule of others is left."""
    with of(broker.http_url, ROOT) as client:
        yield client
        assert client.delete("/v1/acls", params={"principal": f"User:{ALICE}"}).status_code == 200


@pytest.fixture
def alice(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with of(broker.registry_url, ALICE) as client:
        yield client


def give(root: httpx.Client, operation: str, name: str, **fields: str) -> None:
    rule = {
        "principal": f"User:{ALICE}",
        "operation": operation,
        "resource_type": "SUBJECT",
        "resource_name": name,
    }
    answer = root.post("/v1/acls", json={"acls": [{**rule, **fields}]})
    assert answer.status_code == 201, answer.text


def logged(broker: BrokerProcess, text: str) -> list[dict[str, str]]:
    """Return the lines of the audit log that contain ``text``."""
    lines = [line for line in broker.stderr.splitlines() if text in line]
    return [json.JSONDecoder().raw_decode(line, line.index("{"))[0] for line in lines]


def code(answer: httpx.Response) -> int:
    assert answer.status_code == answer.json()["error_code"] // 100
    return answer.json()["error_code"]


# ── logins ──


def test_without_a_login_there_is_nothing_but_401(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.registry_url) as client:
        for path in ("/", "/subjects", "/nothing", "/openapi.json"):
            answer = client.get(path, headers={"accept": "text/html, */*"})
            assert code(answer) == 40101
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert code(client.get("/subjects", auth=(ALICE, "wrong"))) == 40101
        assert code(client.get("/subjects", headers={"authorization": "Bearer nothing"})) == 40101


def test_a_user_logs_in_by_a_password_or_a_key(broker: BrokerProcess, root: httpx.Client) -> None:
    key = root.post("/v1/keys", json={"user": ROOT}).json()["key"]
    with httpx.Client(base_url=broker.registry_url, headers={"authorization": f"Bearer {key}"}) as client:
        assert {*SUBJECTS} <= {*client.get("/subjects").json()}
    first = logged(broker, '"listener": "registry"')[0]
    assert {"principal": "User:root", "operation": "login", "verdict": "allowed"}.items() <= first.items()


# ── rights ──


def test_without_a_rule_a_user_sees_nothing_and_may_do_nothing(
    alice: httpx.Client, broker: BrokerProcess
) -> None:
    assert alice.get("/").json() == {}
    for path in ("/subjects", "/schemas", "/schemas/ids/1/subjects", "/schemas/ids/1/versions"):
        assert alice.get(path).json() == [], path
    assert alice.get("/contexts").json() == ["."]
    for method, path in (
        ("GET", "/subjects/orders-value/versions"),
        ("GET", "/subjects/orders-value/versions/1"),
        ("GET", "/subjects/absent/versions/1"),
        ("DELETE", "/subjects/orders-value"),
        ("DELETE", "/subjects/orders-value/versions/1"),
        ("GET", "/schemas/ids/1"),
        ("GET", "/schemas/ids/1/schema"),
        ("GET", "/config"),
        ("GET", "/mode"),
        ("GET", "/config/orders-value"),
        ("DELETE", "/mode/orders-value"),
        ("DELETE", "/contexts/.eu"),
    ):
        assert code(alice.request(method, path)) == 40301, path
    for method, path, body in (
        ("POST", "/subjects/orders-value", INT),
        ("POST", "/subjects/orders-value/versions", INT),
        ("POST", "/compatibility/subjects/orders-value/versions", INT),
        ("PUT", "/config", {"compatibility": "NONE"}),
        ("PUT", "/config/orders-value", {"compatibility": "NONE"}),
        ("PUT", "/mode/:.:", {"mode": "READONLY"}),
        ("PUT", "/mode/:.__GLOBAL:", {"mode": "READONLY"}),
    ):
        assert code(alice.request(method, path, json=body)) == 40301, path
    refused = alice.get("/subjects/orders-value/versions").json()["message"]
    assert refused.startswith("User:alice is not allowed to describe subject 'orders-value'")
    # The client does not learn which subjects there are.
    assert "value" not in alice.get("/schemas/ids/1").json()["message"]
    assert logged(broker, '"resource": "absent"')[0]["operation"] == "READ SUBJECT"


def test_read_allows_schemas_of_a_subject_by_name_and_by_id(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "READ", "orders-value")
    assert alice.get("/subjects").json() == ["orders-value"]
    assert alice.get("/subjects/orders-value/versions").json() == [1, 2]
    found = alice.get("/subjects/orders-value/versions/1").json()
    assert alice.get(f"/schemas/ids/{found['id']}").json() == INT
    assert alice.get(f"/schemas/ids/{found['id']}/subjects").json() == ["orders-value"]
    assert {one["subject"] for one in alice.get("/schemas").json()} == {"orders-value"}
    check = alice.post("/compatibility/subjects/orders-value/versions", json={"schema": '"long"'})
    assert check.json()["is_compatible"]
    # The same subject under its whole name.
    assert alice.get("/subjects/:.:orders-value/versions/1").json() == found
    assert code(alice.get("/subjects/:.eu:orders-value/versions/1")) == 40301
    assert code(alice.post("/subjects/orders-value/versions", json=STRING)) == 40301


def test_the_http_listener_asks_for_the_same_rights(
    alice: httpx.Client, root: httpx.Client, broker: BrokerProcess
) -> None:
    url = f"{broker.http_url}/v1/registry/subjects"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, auth=(ALICE, PASSWORD)).json() == []
    give(root, "WRITE", "orders-value")
    assert httpx.get(url, auth=(ALICE, PASSWORD)).json() == ["orders-value"]
    assert httpx.get(f"{url}/orders-value/versions/1", auth=(ALICE, PASSWORD)).status_code == 403
    deleted = root.delete("/v1/registry/subjects/deleted-value")
    assert deleted.json()["error_code"] == 40401
    assert root.put("/v1/registry/config/listened", json={"compatibility": "FULL"}).status_code == 200
    (line,) = logged(broker, '"SUBJECT listened"')
    assert line["listener"] == "http"


def test_write_allows_to_register_and_to_look_up(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "WRITE", "new-", pattern_type="PREFIXED")
    registered = alice.post("/subjects/new-value/versions", json=INT)
    assert registered.status_code == 200
    assert alice.post("/subjects/new-value", json=INT).json()["id"] == registered.json()["id"]
    assert code(alice.get("/subjects/new-value/versions/1")) == 40301
    assert code(alice.post("/subjects/old-value/versions", json=INT)) == 40301
    record = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    refers = {"schema": record, "references": [{"name": "s", "subject": "secret-value", "version": 1}]}
    assert code(alice.post("/subjects/new-value/versions", json=refers)) == 40301
    assert code(alice.delete("/subjects/new-value")) == 40301


def test_configurations_have_rights_of_their_own(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "ALTER_CONFIGS", "*")
    assert alice.put("/config/orders-value", json={"compatibility": "FULL"}).status_code == 200
    assert alice.get("/config/orders-value").json() == {"compatibilityLevel": "FULL"}
    assert alice.delete("/config/orders-value").status_code == 200
    # What all subjects fall back to is the cluster's, by whatever name.
    for name in ("", "/:.:", "/:.__GLOBAL:"):
        assert code(alice.put(f"/config{name}", json={"compatibility": "FULL"})) == 40301
    give(root, "ALTER_CONFIGS", "kafka-cluster", resource_type="CLUSTER")
    assert alice.put("/config", json={"compatibility": "BACKWARD"}).status_code == 200


def test_an_alias_needs_the_rights_that_it_gives(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "ALTER_CONFIGS", "alias-value")
    alias = {"alias": "secret-value"}
    assert code(alice.put("/config/alias-value", json=alias)) == 40301
    give(root, "READ", "secret-value")
    assert code(alice.put("/config/alias-value", json=alias)) == 40301
    give(root, "WRITE", "secret-value")
    assert alice.put("/config/alias-value", json=alias).json() == alias
    assert alice.delete("/config/alias-value").status_code == 200


def test_a_denial_decides_also_under_the_whole_name(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "READ", "*")
    give(root, "READ", "secret-value", permission="DENY")
    for name in ("secret-value", ":.:secret-value"):
        assert code(alice.get(f"/subjects/{name}/versions/1")) == 40301
    seen = {one["subject"] for one in alice.get("/schemas").json()}
    assert {*SUBJECTS} - seen == {"secret-value"}


def test_a_context_is_a_prefix(alice: httpx.Client, root: httpx.Client) -> None:
    give(root, "ALL", ":.eu:", pattern_type="PREFIXED")
    assert alice.get("/subjects").json() == [":.eu:orders-value"]
    assert alice.get("/contexts").json() == [".", ".eu"]
    assert alice.put("/config/:.eu:", json={"compatibility": "FULL"}).status_code == 200
    assert alice.delete("/config/:.eu:").status_code == 200
    assert alice.post("/subjects/:.eu:more/versions", json=INT).status_code == 200
    assert code(alice.post("/subjects/more/versions", json=INT)) == 40301


def test_requests_count_for_quotas(broker: BrokerProcess, alice: httpx.Client, root: httpx.Client) -> None:
    def limit(percentage: float | None) -> None:
        values = {"entity": {"user": ALICE}, "values": {"request_percentage": percentage}}
        assert root.patch("/v1/quotas", json=values).status_code == 200

    limit(0.01)
    answers = [alice.get("/schemas/types") for _ in range(20)]
    limit(None)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error_code"] == 429
    assert int(refused.headers["retry-after"]) > 0
    assert alice.get("/schemas/types").status_code == 200
    metrics = httpx.get(f"{broker.http_url}/metrics", auth=(ROOT, PASSWORD)).text
    assert 'stele_quota_violations_total{protocol="registry",quota="request_percentage"}' in metrics


def test_deletions_and_changes_of_rules_are_in_the_audit_log(broker: BrokerProcess) -> None:
    with of(broker.registry_url, ROOT) as client:
        client.post("/subjects/doomed/versions", json=INT)
        client.put("/config/doomed", json={"compatibility": "NONE"})
        client.put("/mode/doomed", json={"mode": "READWRITE"})
        client.delete("/subjects/doomed/versions/1")
    found = logged(broker, '"resource": "SUBJECT doomed"')
    operations = [entry["operation"] for entry in found]
    assert operations == ["set-config", "set-mode-READWRITE", "delete-version-1"]
    assert {(entry["listener"], entry["principal"]) for entry in found} == {("registry", "User:root")}


# ── rules about subjects over other protocols ──


def test_the_command_line_manages_rules_about_subjects(
    broker: BrokerProcess, root: httpx.Client, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    environment = {"STELE_USER": ROOT, "STELE_PASSWORD_FILE": str(password)}

    def run(*arguments: str) -> list[str]:
        done = CliRunner().invoke(stele, ["acls", *arguments, "--url", broker.http_url], env=environment)
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    rule = f"ALLOW  User:{ALICE}  READ  SUBJECT orders…  from *"
    subject = ("--subject", "orders", "--prefixed")
    assert run("add", "--principal", f"User:{ALICE}", "--operation", "READ", *subject) == [rule]
    assert rule in run("list", "--subject", "orders-value")
    assert run("remove", "--principal", f"User:{ALICE}", *subject) == [rule]


def test_the_kafka_protocol_neither_shows_nor_changes_rules_about_subjects(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    give(root, "READ", "orders-value")
    every: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": f"User:{ALICE}",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    with KafkaPeer(broker) as peer:
        handshake(peer)
        assert peer.call(plain(ROOT), 2).error_code == ErrorCode.NONE
        assert list(peer.call(DescribeAclsRequest(**every), 3).resources) == []
        (removed,) = peer.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**every)]), 3).filter_results
        assert (removed.error_code, list(removed.matching_acls)) == (ErrorCode.NONE, [])
        creation = AclCreation(
            resource_type=100,
            resource_name="orders-value",
            resource_pattern_type=3,
            principal=f"User:{ALICE}",
            host="*",
            operation=3,
            permission_type=3,
        )
        (created,) = peer.call(CreateAclsRequest(creations=[creation]), 3).results
        assert created.error_code == ErrorCode.INVALID_REQUEST
    assert (
        len(
            root.get("/v1/acls", params={"resource_type": "SUBJECT", "principal": f"User:{ALICE}"}).json()[
                "acls"
            ]
        )
        == 1
    )


# ── TLS, and a listener without what others have ──


def test_the_listener_has_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    tls = BrokerTls(certificate_file=pair.certificate_file, key_file=pair.key_file, ca_file=authority.ca_file)
    with run_broker(tls=tls) as broker:
        assert broker.registry_url.startswith("https://")
        url = broker.registry_url.replace("127.0.0.1", "localhost")
        assert httpx.get(f"{url}/subjects", verify=authority.client_context()).json() == []


def test_every_route_of_the_registry_has_a_row_and_every_row_a_route(broker: BrokerProcess) -> None:
    with of(broker.registry_url, ROOT) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, item in paths.items() for method in item} == set(NEEDS)
