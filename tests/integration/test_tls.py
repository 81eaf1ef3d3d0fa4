"""TLS on all listeners, seen by real clients: curl, httpx, the client library, librdkafka."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)
from cryptography.hazmat.primitives import serialization
from stele import AsyncClient, AsyncConsumer, AsyncProducer, Client
from stele.broker_process import BrokerProcess, BrokerTls, run_broker
from stele.errors import BrokerUnavailableError
from stele.wire.messages import MetadataRequest

from load.apache_kafka import run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.certificates import Authority, Pair

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def orders(authority: Authority) -> Pair:
    """The certificate of a client."""
    return authority.client("orders")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[BrokerProcess]:
    """TLS everywhere; the binary listener demands client certificates, the others ask for them."""
    server = authority.server("broker")
    tls = BrokerTls(
        certificate_file=server.certificate_file,
        key_file=server.key_file,
        ca_file=authority.ca_file,
        client_auth="requested",
    )
    environment = {
        "STELE_BINARY_TLS_CLIENT_AUTH": "required",
        "STELE_TLS_PRINCIPAL_MAPPING_RULES": "RULE:^CN=([^,]+),OU=Service,.*$/$1/,RULE:^CN=robot,.*$//,DEFAULT",
    }
    with run_broker(tls=tls, environment=environment) as broker:
        yield broker


def with_pair(url: str, pair: Pair) -> str:
    return f"{url}&certificate_file={pair.certificate_file}&key_file={pair.key_file}"


def https(broker: BrokerProcess, authority: Authority, pair: Pair | None = None) -> httpx.Client:
    return httpx.Client(base_url=broker.http_url, verify=authority.client_context(pair), timeout=TIMEOUT_S)


def metric(broker: BrokerProcess, authority: Authority, series: str) -> float:
    with https(broker, authority) as http:
        lines = http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))


def librdkafka(broker: BrokerProcess, authority: Authority, pair: Pair | None = None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.kafka_bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca_file),
    }
    if pair is not None:
        config |= {
            "ssl.certificate.location": str(pair.certificate_file),
            "ssl.key.location": str(pair.key_file),
        }
    return config


# ── clients ──


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (apt install curl)")
def test_curl_writes_and_reads(broker: BrokerProcess, authority: Authority) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "-sS", "--cacert", str(authority.ca_file), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

    curl("-X", "POST", f"{broker.http_url}/v1/topics/curl/records", "-d", '{"records": [{"value": "over TLS"}]}',
         "-H", "content-type: application/json")  # fmt: skip
    page = json.loads(curl(f"{broker.http_url}/v1/topics/curl/partitions/0/records?from=0"))
    assert page["records"][0]["value"] == "over TLS"


def test_one_record_is_the_same_over_every_protocol(
    broker: BrokerProcess, authority: Authority, orders: Pair
) -> None:
    with Client(with_pair(broker.binary_url, orders)) as client:
        client.create_topic("shared")
        client.produce("shared", b"binary")
    with Client(f"{broker.http_url}?ca_file={authority.ca_file}") as client:
        client.produce("shared", b"http")
    producer = Producer(librdkafka(broker, authority))
    producer.produce("shared", b"kafka")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {**librdkafka(broker, authority, orders), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["shared"])
    try:
        messages = consumer.consume(3, TIMEOUT_S)
    finally:
        consumer.close()
    assert [message.value() for message in messages] == [b"binary", b"http", b"kafka"]


async def test_the_asynchronous_client_reads_what_it_wrote(
    broker: BrokerProcess, authority: Authority, orders: Pair
) -> None:
    url = broker.binary_url.partition("?")[0]
    async with AsyncClient(
        url,
        ca_file=authority.ca_file,
        certificate_file=orders.certificate_file,
        key_file=orders.key_file,
    ) as client:
        await client.create_topic("async")
        async with AsyncProducer(client, "async") as producer:
            for number in range(1000):
                await producer.send_and_wait(b"x" * 1000 + b"%d" % number)
        values: list[bytes | None] = []
        async with AsyncConsumer(client, "async", start="earliest") as consumer:
            async for record in consumer:
                values.append(record.value)
                if len(values) == 1000:
                    break
    assert values == [b"x" * 1000 + b"%d" % number for number in range(1000)]


@pytest.mark.long
def test_the_command_line_takes_the_files_from_the_environment(
    broker: BrokerProcess, authority: Authority, orders: Pair
) -> None:
    environment = {
        **os.environ,
        "STELE_URL": broker.binary_url.partition("?")[0],
        "STELE_CA_FILE": str(authority.ca_file),
        "STELE_CERTIFICATE_FILE": str(orders.certificate_file),
        "STELE_KEY_FILE": str(orders.key_file),
    }

    def stele(*arguments: str, url: str = "") -> str:
        command = [sys.executable, "-m", "stele.cli", *arguments]
        given = {**environment, "STELE_URL": url or environment["STELE_URL"]}
        return subprocess.run(
            command, env=given, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout

    stele("topics", "create", "by-cli")
    assert "by-cli" in stele("topics", "list")
    assert "binary" in stele("top", "--once", url=broker.http_url)


def test_kafka_clients_see_that_the_listener_speaks_ssl(broker: BrokerProcess, authority: Authority) -> None:
    admin = AdminClient(librdkafka(broker, authority))
    (future,) = cast(
        "dict[Any, Any]", admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")])
    ).values()
    configs: dict[str, Any] = future.result(TIMEOUT_S)
    assert configs["listeners"].value.startswith("SSL://")
    assert configs["listener.security.protocol.map"].value == "SSL:SSL"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (apt install openssl)")
def test_the_certificate_of_the_documentation_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text().splitlines()
    (command,) = (line for line in page if line.startswith("openssl "))
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True, timeout=TIMEOUT_S)
    certificate = tmp_path / "server.pem"
    tls = BrokerTls(certificate_file=certificate, key_file=tmp_path / "server.key", ca_file=certificate)
    with run_broker(tls=tls) as broker:
        with Client(broker.binary_url) as client:
            client.produce("orders", b"x")
        context = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"https://localhost:{broker.http_port}/v1/topics", verify=context).is_success
        config = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
        admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap, **config})
        assert "orders" in admin.list_topics(timeout=TIMEOUT_S).topics


# ── principals ──


def test_connections_have_the_principal_of_their_certificate(
    broker: BrokerProcess, authority: Authority, orders: Pair
) -> None:
    other = authority.client("reports", unit="Analytics")
    with Client(with_pair(broker.binary_url, orders)) as named, https(broker, authority, other) as http:
        named.topics()
        connections = http.get("/v1/connections").json()["connections"]
        seen = {(c["protocol"], c["principal"], c["tls_version"]) for c in connections}
    assert ("binary", "User:orders", "TLSv1.3") in seen
    assert ("http", "User:CN=reports,OU=Analytics,O=Example", "TLSv1.3") in seen


@pytest.mark.parametrize(
    ("common_name", "unit"),
    [
        ("orders,OU=Service", "Analytics"),
        ("orders,OU=Service,O=Example", "Analytics"),
        ("orders+OU=Service", "Analytics"),
        ("x+CN=orders,OU=Service", "Analytics"),
        ("orders", "Service,O=Example"),
        ("orders", "Service\\"),
        ("orders\nOU=Service", "Analytics"),
    ],
)
def test_a_value_in_a_certificate_is_no_further_attribute(
    broker: BrokerProcess, authority: Authority, common_name: str, unit: str
) -> None:
    """NATS took parts of a name for the name (CVE-2026-33248)."""
    forged = authority.issue("forged", "x.example", common_name=common_name, organization="O", unit=unit)
    with https(broker, authority, forged) as http:
        (principal,) = {
            connection["principal"]
            for connection in http.get("/v1/connections").json()["connections"]
            if connection["principal"] != "User:ANONYMOUS" and connection["protocol"] == "http"
        }
    assert principal.startswith("User:CN="), principal


def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    broker: BrokerProcess, authority: Authority
) -> None:
    with Client(broker.binary_url) as client, pytest.raises(BrokerUnavailableError, match="certificate_file"):
        client.topics()
    robot = authority.client("robot", unit="Machines")
    url = f"{broker.http_url}?ca_file={authority.ca_file}"
    with https(broker, authority, robot) as http, pytest.raises(httpx.TransportError):
        http.get("/healthz")
    with Client(url) as client:
        client.topics()


async def test_the_asynchronous_client_names_the_missing_certificate(broker: BrokerProcess) -> None:
    async with AsyncClient(broker.binary_url) as client:
        with pytest.raises(BrokerUnavailableError, match="certificate_file"):
            await client.topics()


# ── certificates that are not trusted ──


@pytest.mark.parametrize("scheme", ["stele+tls", "https"])
def test_a_broker_of_another_ca_is_not_trusted(broker: BrokerProcess, tmp_path: Path, scheme: str) -> None:
    stranger = Authority(tmp_path)
    port = broker.binary_port if scheme == "stele+tls" else broker.http_port
    url = f"{scheme}://127.0.0.1:{port}?ca_file={stranger.ca_file}"
    # A call that tried again until the time is up would take longer than this test may.
    with (
        Client(url, timeout_s=600, connect_timeout_s=600) as client,
        pytest.raises(BrokerUnavailableError, match=r"is not trusted: .*; name its CA with ca_file"),
    ):
        client.topics()


def test_librdkafka_does_not_trust_a_broker_of_another_ca(broker: BrokerProcess, tmp_path: Path) -> None:
    reasons: list[KafkaError] = []
    config = librdkafka(broker, Authority(tmp_path))
    config["error_cb"] = reasons.append
    admin = AdminClient(config)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    assert any(reason.code() == KafkaError._SSL for reason in reasons)


def test_an_expired_certificate_of_the_broker_is_refused_by_clients(
    authority: Authority, tmp_path: Path
) -> None:
    expired = authority.issue(
        "expired-broker",
        "127.0.0.1",
        not_before=datetime(2020, 1, 1, tzinfo=UTC),
        not_after=datetime(2021, 1, 1, tzinfo=UTC),
    )
    tls = BrokerTls(
        certificate_file=expired.certificate_file, key_file=expired.key_file, ca_file=authority.ca_file
    )
    # HTTP without TLS: a listener may be left out.
    with run_broker(tls=tls, environment={"STELE_HTTP_TLS_ENABLE": "false"}) as broker:
        with Client(broker.binary_url) as client, pytest.raises(BrokerUnavailableError, match="expired"):
            client.topics()
        text = httpx.get(f"http://127.0.0.1:{broker.http_port}/metrics").text
        expiry = int(datetime(2021, 1, 1, tzinfo=UTC).timestamp())
        assert (
            f'stele_tls_certificate_expiry_timestamp_seconds{{protocol="kafka"}} {expiry / 1e9}e+09' in text
        )
        assert 'stele_tls_certificate_expiry_timestamp_seconds{protocol="http"}' not in text


# ── the wrong protocol ──


def test_plaintext_clients_get_a_reason(authority: Authority) -> None:
    server = authority.server("server")
    tls = BrokerTls(
        certificate_file=server.certificate_file, key_file=server.key_file, ca_file=authority.ca_file
    )
    # A broker of its own: what the others logged less than a few seconds ago would hold these lines back.
    with run_broker(tls=tls) as broker:
        before = metric(
            broker, authority, 'stele_tls_handshakes_failed_total{protocol="kafka",reason="plaintext"}'
        )
        answer = httpx.get(f"http://127.0.0.1:{broker.http_port}/healthz")
        assert (answer.status_code, answer.text) == (400, "This port speaks TLS; use https:// in the URL.\n")
        with socket.create_connection(("127.0.0.1", broker.binary_port), timeout=TIMEOUT_S) as plain:
            plain.sendall(MetadataRequest(topics=()).encode())
            assert b"this listener speaks TLS; connect with stele+tls://HOST:PORT" in plain.recv(65536)
        with socket.create_connection(("127.0.0.1", broker.kafka_port), timeout=TIMEOUT_S) as plain:
            plain.sendall(bytes.fromhex("00000011001200000000000100076b61666b612d31"))
            with contextlib.suppress(ConnectionResetError):
                assert plain.recv(65536) == b""
        after = metric(
            broker, authority, 'stele_tls_handshakes_failed_total{protocol="kafka",reason="plaintext"}'
        )
        assert after == before + 1
        assert "no TLS with 127.0.0.1: it does not speak TLS" in broker.stderr


def test_tls_clients_of_plaintext_listeners_get_a_reason(authority: Authority) -> None:
    with run_broker() as broker:
        for port in (broker.http_port, broker.binary_port, broker.kafka_port):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection,
                pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"),
            ):
                authority.client_context().wrap_socket(connection, server_hostname="127.0.0.1")
        assert broker.stderr.count("speaks TLS, and this listener has none") == 3
        url = f"stele+tls://127.0.0.1:{broker.binary_port}?ca_file={authority.ca_file}"
        with Client(url) as client, pytest.raises(BrokerUnavailableError, match="TLS"):
            client.topics()


# ── files ──


@pytest.mark.long
def test_a_broker_with_files_that_cannot_be_used_does_not_start(authority: Authority, tmp_path: Path) -> None:
    server = authority.server("never")
    environment = {
        **os.environ,
        "STELE_TLS_CERTIFICATE_FILE": str(server.certificate_file),
        "STELE_TLS_KEY_FILE": str(authority.ca_file),
    }
    done = subprocess.run(
        [sys.executable, "-m", "stele.cli", "serve", "--data-dir", str(tmp_path), "--http-port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("stele: http: the certificate in ")


def test_certificates_are_replaced_under_traffic(
    tmp_path: Path, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    server = first.server("server")
    tls = BrokerTls(certificate_file=server.certificate_file, key_file=server.key_file, ca_file=first.ca_file)
    environment = {"STELE_TLS_RELOAD_INTERVAL_MS": "50"}
    both = tmp_path / "both.pem"
    both.write_text(first.ca_file.read_text() + second.ca_file.read_text())
    with run_broker(tls=tls, environment=environment) as broker:
        url = f"stele+tls://127.0.0.1:{broker.binary_port}?ca_file={both}"
        written = 0
        is_over = threading.Event()

        def write() -> None:
            nonlocal written
            with Client(url) as client:
                while not is_over.is_set():
                    client.produce("busy", b"%d" % written)
                    written += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with Client(url) as client:
                client.topics()
                # A pair that does not fit: the old one stays, and a metric says so.
                other = second.server("other")
                shutil.copy(other.certificate_file, server.certificate_file)
                wait_for(lambda: metric(broker, first, "stele_tls_reload_failed{") == 4)
                with Client(f"{broker.http_url}?ca_file={first.ca_file}") as old:
                    old.topics()
                shutil.copy(other.key_file, server.key_file)
                wait_for(lambda: is_trusted(broker, second))
                # The listeners reload one after the other.
                wait_for(lambda: metric(broker, second, "stele_tls_reload_failed{") == 0)
                assert metric(broker, second, "stele_tls_reload_failures_total{") >= 4
                with (
                    Client(broker.binary_url) as late,
                    pytest.raises(BrokerUnavailableError, match="not trusted"),
                ):
                    late.topics()
                assert "does not belong to the certificate" in broker.stderr
                before = metric(broker, second, "stele_tls_reloads_total{")
                os.kill(broker.pid, signal.SIGHUP)
                wait_for(lambda: metric(broker, second, "stele_tls_reloads_total{") == before + 4)
                seen = written
                wait_for(lambda: written > seen)
                client.topics()
        finally:
            is_over.set()
            writer.join()
        with Client(url) as client:
            assert client.list_offset("busy") == written


def is_trusted(broker: BrokerProcess, authority: Authority) -> bool:
    try:
        with https(broker, authority) as http:
            return http.get("/healthz").is_success
    except httpx.ConnectError:
        return False


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Look again and again; a process reports no event."""

    def wait(is_so: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(1200):
            if is_so():
                return
            pause.wait(0.05)
        raise AssertionError("it did not happen within a minute")

    return wait


@pytest.mark.long
def test_a_java_client_reads_with_a_certificate_of_its_own(
    broker: BrokerProcess, authority: Authority, orders: Pair, tmp_path: Path
) -> None:
    with Client(with_pair(broker.binary_url, orders)) as client:
        client.create_topic("java")
        for value in (b"first", b"second"):
            client.produce("java", value)
    # Java reads keys in PKCS #8 alone, from one file with the chain.
    key = serialization.load_pem_private_key(orders.key_file.read_bytes(), None)
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    keystore = tmp_path / "orders.pem"
    keystore.write_bytes(pkcs8 + orders.certificate_file.read_bytes())
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca_file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={keystore}\n"
    )
    with kafka_or_skip():
        done = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.kafka_bootstrap, "--topic", "java", "--from-beginning"),
            *("--max-messages", "2", "--timeout-ms", "60000", "--command-config", str(properties)),
        )
    assert done.stdout.splitlines() == ["first", "second"], done.stderr
