"""Random bytes from clients that have not logged in, over sockets of a running broker that requires logins.

It lives, keeps its memory, and serves those that log in. ``tests/unit/security/test_before_login.py`` plays
millions of the same inputs without sockets.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from stele import Client
from stele.broker_process import BrokerProcess, run_broker

from app.api.http.connection import HEAD_BYTES_MAX
from tests.integration.test_kafka_logins import add_user
from tests.support.certificates import Authority
from tests.support.hostile_bytes import Source, binary_source, http_source, kafka_source, pieces, tls_source

INPUTS = 100
# Ten thousand of the ten million.
TORTURE_INPUTS = int(os.environ.get("STELE_TORTURE_INPUTS", "10000000")) // 1000
MEMORY_GROWTH_MAX_KB = 64 * 1024
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    broker: BrokerProcess
    api_key: str
    ca_file: Path

    def peak_kb(self) -> int:
        """Return the most memory that the broker has had."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def port(self, listener: str) -> int:
        broker = self.broker
        if listener == "http":
            return int(broker.http_url.rpartition(":")[2])
        return broker.kafka_port if listener == "kafka" else broker.binary_port

    def send(self, listener: str, parts: list[bytes]) -> None:
        """Send the parts, and read until the broker closes or has nothing to say."""
        with socket.create_connection((self.broker.host, self.port(listener)), timeout=TIMEOUT_S) as peer:
            try:
                for part in parts:
                    peer.sendall(part)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
            except OSError as error:
                # The broker closed while more bytes were on the way to it; ENOTCONN is that of a shutdown.
                if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                    raise

    def check_good_clients(self) -> None:
        """Fail unless a client with an API key is served on each listener."""
        key_id = self.api_key.split("_")[1]
        answer = httpx.get(
            f"{self.broker.http_url}/v1/topics", headers={"Authorization": f"Bearer {self.api_key}"}
        )
        assert answer.status_code == 200
        admin = KafkaAdminClient(
            bootstrap_servers=self.broker.kafka_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=key_id,
            sasl_plain_password=self.api_key,
        )
        assert "witness" in admin.list_topics()
        admin.close()
        url = f"stele+tls://127.0.0.1:{self.broker.binary_port}"
        with Client(url, api_key=self.api_key, ca_file=str(self.ca_file)) as client:
            assert client.simple_consume("witness", 0, 1)[0] == [(0, b"warm")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("before-login")
    authority = Authority(path)
    server = authority.server()
    data_dir = path / "data"
    data_dir.mkdir()
    api_key = add_user(data_dir)
    environment = {
        "STELE_AUTHENTICATION": "required",
        "STELE_AUTHORIZATION": "none",
        # Only the binary listener, so that the others can be sent their own bytes.
        "STELE_BINARY_TLS_CERTIFICATE_FILE": str(server.certificate_file),
        "STELE_BINARY_TLS_KEY_FILE": str(server.key_file),
        # Sizes are bounded without the help of times.
        "STELE_LOGIN_TIMEOUT_MS": "600000",
        "STELE_FRAME_TIMEOUT_MS": "600000",
        "STELE_TLS_HANDSHAKE_TIMEOUT_MS": "600000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        url = f"stele+tls://127.0.0.1:{broker.binary_port}"
        with Client(url, api_key=api_key, ca_file=str(authority.ca_file)) as client:
            client.simple_produce("witness", b"warm")
        yield Served(broker, api_key, authority.ca_file)
        assert "Traceback" not in broker.stderr


# What is sent to the listener with TLS is TLS, or the binary protocol in plaintext.
SOURCES = {
    "kafka": ("kafka", kafka_source),
    "http": ("http", http_source),
    "tls": ("binary", tls_source),
    "plaintext to TLS": ("binary", binary_source),
}


def play(served: Served, name: str, seeds: range) -> None:
    listener, make = SOURCES[name]
    source: Source = make()
    served.check_good_clients()
    before_kb = served.peak_kb()
    for seed in seeds:
        rng = random.Random(f"{name} {seed}")
        served.send(listener, pieces(rng, source(rng)))
    assert served.peak_kb() - before_kb < MEMORY_GROWTH_MAX_KB
    served.check_good_clients()


@pytest.mark.parametrize("name", SOURCES)
def test_the_broker_outlives_what_comes_before_a_login(served: Served, name: str) -> None:
    play(served, name, range(INPUTS))


@pytest.mark.torture
@pytest.mark.parametrize("name", SOURCES)
def test_the_broker_outlives_thousands_of_peers_before_a_login(served: Served, name: str) -> None:
    play(served, name, range(INPUTS, INPUTS + TORTURE_INPUTS // len(SOURCES)))


def test_a_head_without_an_end_costs_no_memory(served: Served) -> None:
    before_kb = served.peak_kb()
    served.send("http", [b"GET / HTTP/1.1\r\nX: ", *[b"x" * HEAD_BYTES_MAX] * 1600])
    assert served.peak_kb() - before_kb < MEMORY_GROWTH_MAX_KB
    served.check_good_clients()


def test_a_login_form_that_ends_early_is_no_error_of_the_broker(served: Served) -> None:
    head = b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    served.send("http", [head + b"user=alice"])
    served.check_good_clients()
    assert "Exception" not in served.broker.stderr
    assert "Traceback" not in served.broker.stderr
