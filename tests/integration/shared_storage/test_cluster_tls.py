"""Three brokers with TLS and certificates: group requests are forwarded between listeners that verify each other."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerTls
from stele.errors import SteleClientError
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers
from tests.support.certificates import Authority, Pair
from tests.support.postgres import postgres_bin
from tests.support.variants import long_but
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

RULES = "RULE:^CN=([^,]+),OU=Service,.*$/$1/,RULE:^CN=([^,]+),OU=Brokers,.*$/broker-$1/"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TlsBrokers(Brokers):
    """Brokers whose HTTP listener wants a client certificate."""

    context: Any

    def http(self, broker_id: int, context: Any = None) -> httpx.Client:
        return httpx.Client(base_url=self[broker_id].http_url, verify=context or self.context)


@contextmanager
def run_tls_brokers(
    path: Path,
    postgres_url: str,
    tls: Mapping[int, BrokerTls],
    operator: Any,
    environment: Mapping[str, str],
) -> Generator[TlsBrokers]:
    with ExitStack() as stack:
        brokers = TlsBrokers(
            {
                number: stack.enter_context(
                    run_broker(
                        path / f"broker-{number}",
                        tls=of_broker,
                        environment={
                            "STELE_STORAGE": "shared",
                            "STELE_POSTGRES_URL": postgres_url,
                            "STELE_BROKER_ID": str(number),
                            "STELE_TLS_PRINCIPAL_MAPPING_RULES": RULES,
                            **environment,
                        },
                    )
                )
                for number, of_broker in tls.items()
            }
        )
        brokers.context = operator
        yield brokers


def certificate(authority: Authority, number: int) -> Pair:
    """A certificate of one broker, of the authority of the clients."""
    return authority.issue(
        f"broker-{number}", "127.0.0.1", common_name=str(number), unit="Brokers", organization="Example"
    )


def tls_of(pair: Pair, authority: Authority, client_auth: Any = "required") -> BrokerTls:
    return BrokerTls(
        certificate_file=pair.certificate_file,
        key_file=pair.key_file,
        ca_file=authority.ca_file,
        client_auth=client_auth,
    )


def binary_url(brokers: Brokers, number: int, pair: Pair) -> str:
    files = {"certificate_file": pair.certificate_file, "key_file": pair.key_file}
    return brokers[number].binary_url + "".join(f"&{name}={quote(str(file))}" for name, file in files.items())


@pytest.fixture(scope="module")
def ada(authority: Authority) -> Pair:
    return authority.client("ada")


@pytest.fixture(scope="module")
def brokers(
    server: PostgresServer, authority: Authority, ada: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBrokers]:
    """Each broker has a certificate of its own; all listeners require client certificates."""
    operator = authority.client_context(authority.client("operator"))
    tls = {number: tls_of(certificate(authority, number), authority) for number in (1, 2, 3)}
    environment = {
        "STELE_SUPER_USERS": "User:operator",
        "STELE_AUTHORIZATION": "acls",
        "STELE_CLUSTER_TLS_CA_FILE": str(authority.ca_file),
    }
    with run_tls_brokers(tmp_path_factory.mktemp("tls"), server.dsn, tls, operator, environment) as running:
        yield running


def elsewhere(brokers: TlsBrokers, group: str) -> tuple[int, int]:
    """Return the coordinator of a group and another broker."""
    coordinator = brokers.coordinator(group)
    return coordinator, next(number for number in brokers.processes if number != coordinator)


def poll(http: httpx.Client, group: str, topic: str) -> httpx.Response:
    return http.post(f"/v1/groups/{group}/poll", json={"topics": [topic]})


def test_group_requests_are_forwarded_with_the_rights_of_the_client(
    brokers: TlsBrokers, authority: Authority, ada: Pair
) -> None:
    coordinator, other = elsewhere(brokers, "readers")
    brokers.coordinator("binary readers")
    operator = authority.issue("operator", "o@example.com", common_name="operator", unit="Service")
    with brokers.http(other) as http:
        assert http.put("/v1/topics/orders", json={"partitions": 1}).status_code == 201
        answer = http.post("/v1/topics/orders/records", json={"records": [{"value": "first"}]})
        assert answer.status_code == 200, answer.text
        polled = poll(http, "readers", "orders")
        assert polled.status_code == 200, polled.text
        assert [record["value"] for record in polled.json()["records"]] == ["first"]
    with brokers.http(coordinator) as http:
        (member,) = http.get("/v1/groups/readers").json()["members"]
        assert member["client_host"] == "127.0.0.1"
    # Neither the rights of the broker that forwards nor those of the certificate that it presents.
    with brokers.http(other, authority.client_context(ada)) as http:
        refused = poll(http, "readers", "orders")
        assert refused.status_code == 403, refused.text
    with Client(binary_url(brokers, other, operator)) as client:
        joined = client.join_group("binary readers", "orders")
        client.heartbeat("binary readers", joined)
    for number in brokers.processes:
        with (
            Client(binary_url(brokers, number, ada)) as client,
            pytest.raises(SteleClientError, match="User:ada is not allowed to read group 'binary readers'"),
        ):
            client.join_group("binary readers", "orders")


def test_a_renewed_certificate_is_presented_to_other_brokers(
    brokers: TlsBrokers, authority: Authority
) -> None:
    coordinator, other = elsewhere(brokers, "renewed")

    def names() -> set[str]:
        """Return the principals of the other brokers' connections, after a request that is forwarded."""
        with brokers.http(other) as http:
            http.get("/v1/groups/renewed")
        with brokers.http(coordinator) as http:
            connections = http.get("/v1/connections").json()["connections"]
        return {c["principal"] for c in connections if str(c["principal"]).startswith("User:broker-")}

    assert f"User:broker-{other}" in names()
    authority.issue(
        f"broker-{other}", "127.0.0.1", common_name=f"{other}-new", unit="Brokers", organization="Example"
    )
    os.kill(brokers[other].pid, signal.SIGHUP)
    eventually(
        lambda: (
            {f"User:broker-{other}", f"User:broker-{other}-new"} & names() == {f"User:broker-{other}-new"}
        ),
        "only the new certificate is used",
    )


def test_a_broker_without_the_right_certificate_is_refused_both_ways(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path, "stranger")
    context = authority.client_context(authority.client("operator"))
    context.load_verify_locations(stranger.ca_file)
    tls = {
        1: tls_of(certificate(authority, 1), authority),
        2: tls_of(certificate(stranger, 2), authority),
    }
    environment = {
        "STELE_SUPER_USERS": "User:operator",
        "STELE_CLUSTER_TLS_CA_FILE": str(authority.ca_file),
    }
    database = PostgresServer(postgres_bin(), fsync="off", wal_level="replica")
    with database, run_tls_brokers(tmp_path, database.dsn, tls, context, environment) as brokers:
        groups = {brokers.coordinator(name): name for name in map(str, range(20))}
        for number, reason in ((1, "certificate verify failed"), (2, "alert")):
            with brokers.http(number) as http:
                refused = http.get(f"/v1/groups/{groups[3 - number]}")
                assert refused.status_code == 503, refused.text
                assert refused.json()["type"].endswith("coordinator-elsewhere")
                # Its own groups are served.
                assert http.get(f"/v1/groups/{groups[number]}").status_code == 404
            assert "does not answer group requests: " in brokers[number].stderr
            assert reason in brokers[number].stderr


@pytest.mark.long
def test_a_shared_certificate_is_trusted_where_clients_have_another_authority(tmp_path: Path) -> None:
    """Brokers present none then: the authority of the clients has not issued theirs."""
    of_brokers, of_clients = Authority(tmp_path, "of-brokers"), Authority(tmp_path, "of-clients")
    pair = of_brokers.server()
    # The certificate alone, without the one that issued it.
    leaf = pair.pem.partition("-----END CERTIFICATE-----")
    pair.certificate_file.write_text(leaf[0] + leaf[1] + "\n")
    tls = tls_of(pair, of_clients, "requested")
    operator = of_clients.client("operator")
    context = of_brokers.client_context(operator)
    environment = {"STELE_SUPER_USERS": "User:operator"}
    database = PostgresServer(postgres_bin(), fsync="off", wal_level="replica")
    with (
        database,
        run_tls_brokers(tmp_path, database.dsn, {1: tls, 2: tls}, context, environment) as brokers,
    ):
        _, other = elsewhere(brokers, "g")
        with brokers.http(other) as http:
            assert http.get("/v1/groups/g").status_code == 404


@pytest.mark.parametrize("listener", long_but(["BINARY", "KAFKA"], "KAFKA"))
def test_a_broker_warns_that_it_would_forward_encrypted_requests_unencrypted(
    brokers: TlsBrokers, tmp_path: Path, authority: Authority, listener: str
) -> None:
    pair = authority.server()
    environment = {
        "STELE_STORAGE": "shared",
        "STELE_BROKER_ID": "1",
        f"STELE_{listener}_TLS_CERTIFICATE_FILE": str(pair.certificate_file),
        f"STELE_{listener}_TLS_KEY_FILE": str(pair.key_file),
    }
    with PostgresServer(postgres_bin(), fsync="off", wal_level="replica") as database:
        environment["STELE_POSTGRES_URL"] = database.dsn
        with run_broker(tmp_path / "data", environment=environment) as broker:
            assert "travel between brokers unencrypted" in broker.stderr
    assert "travel between brokers unencrypted" not in brokers[1].stderr, "its HTTP listener has TLS"
