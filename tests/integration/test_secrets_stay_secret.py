"""No secret that a client or an operator gives to the broker comes back anywhere.

Redpanda logged keys (CVE-2023-24619); NATS showed its arguments, passwords among them, on its
monitoring page (CVE-2026-33247).
"""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
from click.testing import CliRunner
from stele.broker_process import run_broker
from stele.cli import stele
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import DescribeConfigsRequest, DescribeConfigsResource
from stele.wire.kafka.users import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

from app.security.scram import salt_password
from tests.integration.test_kafka_logins import PASSWORD, USER, add_user, handshake, plain
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer
from tests.support.waiting import eventually

OF_HTTP, OF_KAFKA, WRONG = "set-over-HTTP-19", "set-over-Kafka-28", "a-wrong-password-37"
DSN_PASSWORD = "dsn-Zephyr-46"
SALT = b"salt"
PAGES = (
    "/metrics", "/openapi.json", "/v1/overview", "/v1/overview/history", "/v1/connections", "/v1/users", "/v1/keys",
    "/v1/acls", "/v1/quotas", "/v1/cdc", "/v1/cluster", "/v1/topics", "/healthz", "/readyz", "/console/access",
)  # fmt: skip
BROKER, BROKER_LOGGER = 4, 8


def forms(secret: str) -> list[bytes]:
    """The ways in which a secret could be written: as it is, in hexadecimal, in Base64 at any place."""
    data = secret.encode()
    # Without the characters at both ends, which depend on what stands beside it.
    shifted = [base64.b64encode(b"-" * shift + data)[4 : (shift + len(data)) // 3 * 4] for shift in range(3)]
    return [data, data[:8].hex(" ").encode(), data[:8].hex().encode(), *shifted]


def process_arguments() -> list[bytes]:
    """The arguments of every process of this machine that may be read."""
    found: list[bytes] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_no_secret_comes_back(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    key = add_user(data_dir)
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{USER}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    audit_log = tmp_path / "audit.jsonl"
    environment = {
        "STELE_AUTHENTICATION": "required",
        "STELE_AUDIT_LOG_FILE": str(audit_log),
        "STELE_LOG_LEVEL": "debug",
        "STELE_TRACE_CONNECTIONS": "true",
        "STELE_TRACE_HEX": "true",
        # Nothing listens there, so the connector reports that it cannot connect.
        "STELE_CDC_DSN": f"postgresql://capture:{DSN_PASSWORD}@127.0.0.1:1/shop",
        "STELE_CDC_TABLES": "public.orders",
    }
    salted = salt_password("SCRAM-SHA-256", OF_KAFKA, SALT, 4096)
    secrets = [PASSWORD, OF_HTTP, OF_KAFKA, WRONG, DSN_PASSWORD, key.split("_", 2)[2]]
    answers: list[bytes] = []
    with (
        run_broker(data_dir=data_dir, environment=environment) as broker,
        httpx.Client(base_url=broker.http_url, timeout=120) as http,
    ):
        own = {"Sec-Fetch-Site": "same-origin"}
        form = {"user": USER, "password": PASSWORD, "next": "/"}
        assert http.post("/console/login", data=form, headers=own).status_code == 303
        secrets += list(http.cookies.values())
        form["password"] = WRONG
        answers.append(http.post("/console/login", data=form, headers=own, follow_redirects=True).content)
        bearer = {"Authorization": f"Bearer {key}"}
        admin = httpx.BasicAuth(USER, PASSWORD)
        assert (
            http.post("/v1/users", json={"name": "bob", "password": OF_HTTP}, auth=admin).status_code == 201
        )
        # Requests that are refused, whose bodies and headers an error could repeat.
        for body in (
            {"name": "bob", "password": OF_HTTP},
            {"name": "*", "password": OF_HTTP},
            {"name": ["x"], "password": OF_HTTP},
            {"name": "eve", "password": [OF_HTTP]},
            {"name": "eve", "password": OF_HTTP, "unknown": OF_HTTP},
        ):
            answer = http.post("/v1/users", json=body, auth=admin)
            assert answer.status_code in (400, 409), answer.text
            answers.append(answer.content)
        answers.append(http.get("/v1/topics", auth=(USER, WRONG)).content)
        answers.append(http.get("/v1/topics", headers={"Authorization": f"Bearer {key}x"}).content)
        with KafkaPeer(broker) as peer:
            handshake(peer)
            answers.append(str(peer.call(plain(USER, WRONG), 2)).encode())
        with KafkaPeer(broker) as peer:
            handshake(peer)
            assert peer.call(plain(), 2).error_code == ErrorCode.NONE
            upsertion = ScramCredentialUpsertion(
                name="carol", mechanism=1, iterations=4096, salt=SALT, salted_password=salted
            )
            request = AlterUserScramCredentialsRequest(deletions=(), upsertions=[upsertion])
            (result,) = peer.call(request, 0).results
            assert result.error_code == ErrorCode.NONE
            for kind in (BROKER, BROKER_LOGGER):
                resource = DescribeConfigsResource(
                    resource_type=kind, resource_name="1", configuration_keys=None
                )
                described = peer.call(DescribeConfigsRequest(resources=[resource]), 4)
                assert len(described.results[0].configs) > 3
                answers.append(str(described).encode())
        with Peer(broker) as peer:
            login = m.AuthenticateRequest(mechanism="PLAIN", data=f"\0{USER}\0{WRONG}".encode())
            answers.append(peer.ask(login.encode()))
        eventually(
            lambda: b"127.0.0.1" in http.get("/v1/cdc", headers=bearer).content, "an error of the connector"
        )
        for page in PAGES:
            answer = http.get(page, headers=bearer)
            assert answer.status_code in (200, 503), f"{page}: {answer.status_code}"
            answers.append(answer.content)
        arguments = process_arguments()
        log = broker._stderr_path.read_bytes()
    assert b"SaslAuthenticate" in log, "the trace is on"
    assert b'"denied"' in audit_log.read_bytes()
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    assert any(form in basic for form in forms(PASSWORD)), "a header that is written out would be found"
    places = {"the log": log, "the audit log": audit_log.read_bytes(), "arguments": b"\n".join(arguments)}
    places |= {f"answer {number}": answer for number, answer in enumerate(answers)}
    assert all(len(secret) >= 8 for secret in secrets)
    wanted = [form for secret in secrets for form in forms(secret)]
    wanted += [salted, salted[:8].hex(" ").encode(), salted.hex().encode(), base64.b64encode(salted)]
    for place, text in places.items():
        for form in wanted:
            assert form not in text, (place, form, text[max(0, text.find(form) - 300) :][:600])
