"""A broker that admits no client without TLS and a login: its users, rights, tokens and certificates."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from stele import Client, NewRecord
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerTls, run_broker

from app.clock import SystemClock
from tests.support.certificates import Authority

ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "stele", "one"
PASSWORD = "a-long-generated-password"
TOKEN_LIFETIME_S = 600
_TIMEOUT_S = 60.0
SCRAM_256, SCRAM_512, PLAIN, OAUTHBEARER = "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"


class LockedBroker:
    """The broker, and the tests as its administrator.

    Login files lie in ``directory``; tests/conformance/README.md has their format.
    """

    def __init__(self, broker: BrokerProcess, authority: Authority, directory: Path, key: Any) -> None:
        # Its URLs have the login of the tests.
        self.process = broker
        self._authority = authority
        self._directory = directory
        self._key = key
        self._http = httpx.Client(
            base_url=broker.http_url, verify=authority.client_context(), timeout=_TIMEOUT_S
        )
        self.bootstrap = broker.kafka_bootstrap
        self.binary_address = f"{broker.host}:{broker.binary_port}"
        self.binary_url = broker.binary_url
        self.ca_file = authority.ca_file
        self.audit_log = directory / "audit.log"

    def close(self) -> None:
        self._http.close()

    # ── users and their rights ──

    def add_user(self, *, may_do_everything: bool = False) -> str:
        """Create a user, who has no rights unless told otherwise; returns the name."""
        user = f"user-{uuid.uuid4().hex[:12]}"
        self._checked(self._http.post("/v1/users", json={"name": user, "password": PASSWORD}))
        if may_do_everything:
            for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID"):
                self.allow(user, "ALL", kind, "*")
            self.allow(user, "ALL", "CLUSTER", "kafka-cluster")
        return user

    def allow(self, user: str, operation: str, kind: str, name: str, *, pattern: str = "LITERAL") -> None:
        rule = {
            "principal": f"User:{user}",
            "operation": operation,
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": pattern,
        }
        self._checked(self._http.post("/v1/acls", json={"acls": [rule]}))

    def disallow(self, user: str) -> None:
        """Remove all that was allowed to ``user``."""
        self._checked(self._http.delete("/v1/acls", params={"principal": f"User:{user}"}))

    def password_file(self, password: str = PASSWORD) -> Path:
        """A file that only its owner can read."""
        file = self._directory / f"password-{uuid.uuid4().hex[:12]}"
        file.write_text(password)
        file.chmod(0o600)
        return file

    def login_file(self, user: str, mechanism: str, *, password: str = PASSWORD) -> Path:
        """A file that has a driver log in as ``user``."""
        login = {"ca_file": str(self.ca_file), "mechanism": mechanism}
        if mechanism == OAUTHBEARER:
            login["token_file"] = str(self.token_file(user))
        else:
            login |= {"user": user, "password": password}
        file = self._directory / f"login-{uuid.uuid4().hex[:12]}.json"
        file.write_text(json.dumps(login))
        return file

    def token_file(self, user: str, *, lifetime_s: int = TOKEN_LIFETIME_S) -> Path:
        """A file with a token of ``user``, which replaces an earlier one at once."""
        file = self._directory / f"{user}.token"
        new = file.with_suffix(".new")
        new.write_text(self.token(user, lifetime_s=lifetime_s))
        return new.replace(file)

    def token(self, user: str, *, lifetime_s: int = TOKEN_LIFETIME_S) -> str:
        now_s = SystemClock().now_ms() // 1000
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + lifetime_s}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": KEY_ID})

    def _checked(self, answer: httpx.Response) -> None:
        assert answer.is_success, answer.text

    # ── records ──

    def make_topic(self) -> str:
        """A topic of one partition."""
        topic = f"topic-{uuid.uuid4().hex[:12]}"
        with Client(self.binary_url) as client:
            client.create_topic(topic, partitions=1)
        return topic

    def write(self, topic: str, values: list[bytes]) -> None:
        with Client(self.binary_url) as client:
            client.produce_many(topic, [NewRecord(value, partition=0) for value in values])

    def values(self, topic: str) -> list[bytes | None]:
        with Client(self.binary_url) as client:
            return [
                record.value
                for partition in range(client.partition_count(topic))
                for record in client.fetch(topic, partition).records
            ]

    # ── certificates ──

    def renew_certificate(self) -> None:
        """Replace the certificate of the broker; returns when new connections get the new one."""
        before = self._served_certificate()
        self._authority.server()
        os.kill(self.process.pid, signal.SIGHUP)
        give_up_s = time.monotonic() + _TIMEOUT_S
        while self._served_certificate() == before:
            assert time.monotonic() < give_up_s, "the broker did not reload its certificate"
            time.sleep(0.02)

    def _served_certificate(self) -> bytes | None:
        address = (self.process.host, self.process.kafka_port)
        context = self._authority.client_context()
        with (
            socket.create_connection(address, timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=self.process.host) as tls,
        ):
            return tls.getpeercert(binary_form=True)

    # ── connections ──

    def connections(self, user: str) -> set[str]:
        """The addresses of the open connections of the Kafka listener that are logged in as ``user``."""
        answer = self._http.get("/v1/connections")
        self._checked(answer)
        return {
            found["peer"]
            for found in answer.json()["connections"]
            if found["protocol"] == "kafka" and found["principal"] == f"User:{user}"
        }

    def logins(self, user: str, *, verdict: str = "allowed", listener: str = "kafka") -> Counter[str]:
        """How many times each connection has logged in as ``user``, by the audit log."""
        lines = [json.loads(line) for line in self.audit_log.read_text().splitlines()]
        return Counter(
            line["peer"]
            for line in lines
            if line["operation"] == "login"
            and line["verdict"] == verdict
            and line["listener"] == listener
            and line["principal"] == f"User:{user}"
        )


@contextmanager
def locked_broker(directory: Path, *, session_ms: int = 0) -> Generator[LockedBroker]:
    """Run one whose sessions end after ``session_ms``, with 0 never."""
    authority = Authority(directory)
    server = authority.server()
    key = ec.generate_private_key(ec.SECP256R1())
    public: dict[str, Any] = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    key_set = directory / "jwks.json"
    key_set.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID}]}))
    environment = {
        "STELE_OAUTH_JWKS": str(key_set),
        "STELE_OAUTH_ISSUER": ISSUER,
        "STELE_OAUTH_AUDIENCE": AUDIENCE,
        "STELE_CONNECTIONS_MAX_REAUTH_MS": str(session_ms),
        "STELE_AUDIT_LOG_FILE": str(directory / "audit.log"),
        # All of these tests come from one address.
        "STELE_LOGIN_FAILURES_FREE": "10000",
        "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    tls = BrokerTls(
        certificate_file=server.certificate_file, key_file=server.key_file, ca_file=authority.ca_file
    )
    with run_broker(environment=environment, tls=tls, login=BrokerLogin()) as process:
        broker = LockedBroker(process, authority, directory, key)
        try:
            yield broker
        finally:
            broker.close()
