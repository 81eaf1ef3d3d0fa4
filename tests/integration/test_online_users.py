"""Users and API keys of a running broker: the HTTP routes, and the commands that call them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import stele

from app.security.policy import ListenerSecurity
from tests.integration.test_kafka_logins import PASSWORD, USER, add_user

NEW_PASSWORD = "another-Long-password"


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("online-users") / "data"
    data_dir.mkdir()
    add_user(data_dir)
    environment = {
        "STELE_AUTHENTICATION": "required",
        "STELE_SUPER_USERS": f"User:{USER}",
        "STELE_LOGIN_FAILURES_FREE": "10000",
        "STELE_AUDIT_LOG_FILE": str(audit_log),
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, auth=(USER, PASSWORD)) as client:
        yield client


def status(broker: BrokerProcess, user: str, password: str) -> int:
    return httpx.get(f"{broker.http_url}/v1/topics", auth=(user, password)).status_code


def test_a_user_is_added_changed_and_deleted(
    broker: BrokerProcess, admin: httpx.Client, audit_log: Path
) -> None:
    added = admin.post("/v1/users", json={"name": "b/ob", "password": NEW_PASSWORD})
    assert (added.status_code, added.json()) == (201, {"name": "b/ob"})
    again = admin.post("/v1/users", json={"name": "b/ob", "password": NEW_PASSWORD})
    assert (again.status_code, again.json()["type"]) == (409, "/problems/duplicate-user")
    assert {"name": "b/ob", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} in admin.get(
        "/v1/users"
    ).json()["users"]
    assert status(broker, "b/ob", NEW_PASSWORD) == 200
    changed = admin.put("/v1/users/b%2Fob/password", json={"password": PASSWORD})
    assert changed.status_code == 204
    assert status(broker, "b/ob", NEW_PASSWORD) == 401
    assert status(broker, "b/ob", PASSWORD) == 200
    assert admin.delete("/v1/users/b%2Fob").status_code == 204
    assert status(broker, "b/ob", PASSWORD) == 401
    assert admin.delete("/v1/users/b%2Fob").status_code == 404
    lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
    operations = [(one["operation"], one["resource"]) for one in lines if one.get("resource") == "User:b/ob"]
    assert operations == [(kind, "User:b/ob") for kind in ("create-user", "alter-user", "delete-user")]
    assert all(one["principal"] == "User:alice" for one in lines if one.get("resource") == "User:b/ob")
    assert NEW_PASSWORD not in audit_log.read_text()


def test_the_secret_of_a_key_is_in_the_answer_to_its_creation_alone(
    admin: httpx.Client, audit_log: Path
) -> None:
    made = admin.post("/v1/keys", json={"user": USER, "description": "ingest", "expires_in_ms": 60_000})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    key = made.json()["key"]
    bearer = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{admin.base_url}/v1/topics", headers=bearer).status_code == 200
    listed = admin.get("/v1/keys")
    (shown,) = [one for one in listed.json()["keys"] if one["id"] == made.json()["id"]]
    assert (shown["principal"], shown["description"]) == ("User:alice", "ingest")
    assert key.split("_", 2)[2] not in listed.text
    assert key.split("_", 2)[2] not in audit_log.read_text()
    assert admin.delete(f"/v1/keys/{shown['id']}").status_code == 204
    assert httpx.get(f"{admin.base_url}/v1/topics", headers=bearer).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/users", None),
        ("POST", "/v1/users", {"name": "eve", "password": NEW_PASSWORD}),
        ("PUT", "/v1/users/alice/password", {"password": NEW_PASSWORD}),
        ("DELETE", "/v1/users/alice", None),
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"user": "alice"}),
        ("DELETE", "/v1/keys/0", None),
    ],
)
def test_all_of_it_needs_a_login(broker: BrokerProcess, method: str, path: str, body: object) -> None:
    assert httpx.request(method, f"{broker.http_url}{path}", json=body).status_code == 401


@pytest.mark.parametrize(
    "cookie", ["\xff=\xff", "=;;=", 'stele-session="\\377', "$Version=1; $Path", "a b c", "\x80"]
)
def test_a_malformed_cookie_is_no_login(broker: BrokerProcess, cookie: str) -> None:
    port = broker.http_port
    for value in (cookie, f"stele-session-{port}={cookie}"):
        answer = httpx.get(f"{broker.http_url}/v1/topics", headers={b"Cookie": value.encode("latin-1")})
        assert answer.status_code == 401, answer.text


def test_an_anonymous_client_is_kept_out_where_another_listener_has_logins() -> None:
    with run_broker(environment={"STELE_KAFKA_AUTHENTICATION": "optional"}) as broker:
        assert httpx.get(f"{broker.http_url}/v1/users").status_code == 401


def test_without_logins_the_first_user_is_created_over_loopback() -> None:
    with run_broker() as broker:
        body = {"name": "first", "password": NEW_PASSWORD}
        assert httpx.post(f"{broker.http_url}/v1/users", json=body).status_code == 201
        assert run(broker, "user", "list").output.startswith("first ")


@pytest.mark.parametrize(("host", "is_encrypted"), [("192.0.2.1", False)])
def test_secrets_need_tls_on_a_network(host: str, is_encrypted: bool) -> None:
    security = ListenerSecurity(listener="http", mode="required")
    assert not security.may_carry_secrets(host, is_encrypted=is_encrypted)


# ── rights ──


def test_a_user_without_rights_has_only_keys_of_its_own(
    broker: BrokerProcess, admin: httpx.Client, audit_log: Path
) -> None:
    for name in ("dave", "erin"):
        assert admin.post("/v1/users", json={"name": name, "password": NEW_PASSWORD}).status_code == 201
    other = admin.post("/v1/keys", json={"user": "erin"}).json()["id"]
    with httpx.Client(base_url=broker.http_url, auth=("dave", NEW_PASSWORD)) as dave:
        made = dave.post("/v1/keys", json={"user": "dave"})
        assert made.status_code == 201
        assert [key["id"] for key in dave.get("/v1/keys").json()["keys"]] == [made.json()["id"]]
        bearer = {"Authorization": f"Bearer {made.json()['key']}"}
        refusals = [
            dave.post("/v1/keys", json={"user": "erin"}),
            # A key that makes keys could not be taken back.
            httpx.post(f"{broker.http_url}/v1/keys", json={"user": "dave"}, headers=bearer),
            dave.delete(f"/v1/keys/{other}"),
            # The same as for a key that exists.
            dave.delete("/v1/keys/unknown"),
            dave.get("/v1/users"),
            dave.post("/v1/users", json={"name": "mallory", "password": NEW_PASSWORD}),
            dave.put("/v1/users/erin/password", json={"password": PASSWORD}),
            dave.delete("/v1/users/erin"),
            dave.get("/v1/quotas"),
            dave.patch("/v1/quotas", json={"entity": {"user": "dave"}, "values": {}}),
        ]
        assert [(one.status_code, one.json()["kafka_code"]) for one in refusals] == [(403, 31)] * len(
            refusals
        )
        assert dave.delete(f"/v1/keys/{made.json()['id']}").status_code == 204
        allow = {"principal": "User:dave", "resource_type": "USER", "resource_name": "User:erin"}
        rules = [{**allow, "operation": "CREATE_TOKENS"}, {**allow, "operation": "DESCRIBE_TOKENS"}]
        assert admin.post("/v1/acls", json={"acls": rules}).is_success
        assert [key["id"] for key in dave.get("/v1/keys").json()["keys"]] == [other]
        assert dave.post("/v1/keys", json={"user": "erin"}).status_code == 201
    denials = [
        line
        for line in map(json.loads, audit_log.read_text().splitlines())
        if line["principal"] == "User:dave" and line["verdict"] == "denied"
    ]
    assert {(line["operation"], line["resource"]) for line in denials} == {
        ("CREATE_TOKENS USER", "User:erin"),
        ("CREATE_TOKENS USER", "User:dave"),
        ("ALTER CLUSTER", "kafka-cluster"),
        ("DESCRIBE CLUSTER", "kafka-cluster"),
        ("DESCRIBE_CONFIGS CLUSTER", "kafka-cluster"),
        ("ALTER_CONFIGS CLUSTER", "kafka-cluster"),
    }
    for name in ("dave", "erin"):
        assert admin.delete(f"/v1/users/{name}").status_code == 204


# ── commands ──


def run(broker: BrokerProcess, *arguments: str, password: str = "", **environment: str) -> Result:
    arguments = (*arguments, "--url", broker.http_url)
    return CliRunner().invoke(stele, arguments, input=f"{password}\n", env=environment)


def test_the_commands_change_a_running_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    login = {"STELE_USER": USER, "STELE_PASSWORD_FILE": str(file)}
    added = run(broker, "user", "add", "carol", password=NEW_PASSWORD, **login)
    assert added.exit_code == 0, added.output
    assert status(broker, "carol", NEW_PASSWORD) == 200
    assert "carol  SCRAM-SHA-256, SCRAM-SHA-512" in run(broker, "user", "list", **login).output
    made = run(broker, "key", "create", "carol", "--expires-days", "1", **login)
    key = made.output.strip()
    # Without a right, only what is its own.
    own = run(broker, "key", "list", STELE_API_KEY=key)
    assert [line.split()[:2] for line in own.output.splitlines()] == [[key.split("_")[1], "User:carol"]]
    refused = run(broker, "user", "list", STELE_API_KEY=key)
    assert refused.exit_code == 1
    assert "User:carol" in refused.output
    changed = run(broker, "user", "passwd", "carol", STELE_NEW_PASSWORD=PASSWORD, **login)
    assert changed.exit_code == 0, changed.output
    assert status(broker, "carol", PASSWORD) == 200
    assert key.split("_")[1] in run(broker, "key", "list", **login).output
    assert run(broker, "key", "delete", key.split("_")[1], **login).exit_code == 0
    assert run(broker, "user", "delete", "carol", "--user", USER, STELE_PASSWORD=PASSWORD).exit_code == 0
    assert status(broker, "carol", PASSWORD) == 401


def test_commands_take_the_user_as_an_option_and_the_password_from_a_file(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    for url in (broker.binary_url, broker.http_url):
        options = ["--url", url, "--user", USER, "--password-file", str(file)]
        listed = CliRunner().invoke(stele, ["topics", "list", *options])
        assert listed.exit_code == 0, listed.output
    file.chmod(0o644)
    refused = CliRunner().invoke(stele, ["topics", "list", *options])
    assert "chmod 600" in refused.output


@pytest.mark.parametrize(
    "command", [("topics", "list"), ("groups", "list"), ("user", "list"), ("top", "--once")]
)
def test_a_password_in_an_argument_is_refused(broker: BrokerProcess, command: tuple[str, ...]) -> None:
    url = broker.http_url.replace("://", f"://{USER}:{PASSWORD}@")
    refused = CliRunner().invoke(stele, [*command, "--url", url])
    assert refused.exit_code == 2
    assert "holds a password" in refused.output
    assert PASSWORD not in refused.output


def test_an_error_of_the_broker_ends_the_command_with_its_message(broker: BrokerProcess) -> None:
    failed = run(broker, "user", "list", STELE_USER=USER, STELE_PASSWORD="wrong-password")
    assert failed.exit_code == 1
    assert "the login failed" in failed.output
    assert "wrong-password" not in failed.output
