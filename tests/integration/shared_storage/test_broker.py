"""A broker over PostgreSQL, as users start it: every protocol, restarts, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerStartError
from stele.testing import BrokerProcess, run_broker

from load.postgres_server import PostgresServer
from tests.support import kafka_peer
from tests.support.kafka_peer import KafkaPeer


def read_everywhere(broker: BrokerProcess, http: httpx.Client) -> list[Sequence[tuple[int, bytes | None]]]:
    """Return offsets and values of topic ``orders`` as each protocol shows them."""
    with KafkaPeer(broker) as peer:
        response = peer.call(kafka_peer.fetch("orders", 0), 11)
        over_kafka = kafka_peer.records_in(kafka_peer.only_partition(response).records)
    with Client(broker.binary_url) as client:
        over_binary = [(record.offset, record.value) for record in client.fetch("orders", 0, 0).records]
    answer = http.get("/v1/topics/orders/partitions/0/records", params={"from": 0})
    over_http = [(record["offset"], record["value"].encode()) for record in answer.json()["records"]]
    return [over_kafka, over_binary, over_http]


def test_every_protocol_reads_what_every_protocol_wrote_also_after_kill_9(
    server: PostgresServer, tmp_path: Path
) -> None:
    environment = {"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": server.dsn}
    with (
        run_broker(tmp_path, environment=environment) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        with Client(broker.binary_url) as client:
            client.create_topic("orders")
            receipt = client.produce("orders", b"over binary")
        assert receipt.durability.name == "SYNCED"
        answer = http.post("/v1/topics/orders/records", json={"records": [{"value": "over http"}]})
        assert answer.status_code == 200, answer.text
        with KafkaPeer(broker) as peer:
            assert kafka_peer.put(peer, "orders", b"over kafka") == 2
        expected = [(0, b"over binary"), (1, b"over http"), (2, b"over kafka")]
        assert read_everywhere(broker, http) == [expected] * 3
        broker.kill()
        broker.start()
        with httpx.Client(base_url=broker.http_url) as again:
            assert read_everywhere(broker, again) == [expected] * 3


def test_what_shared_storage_cannot_do_is_refused_with_a_reason(
    server: PostgresServer, tmp_path: Path
) -> None:
    environment = {"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": server.dsn}
    with (
        run_broker(tmp_path, environment=environment) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        refused = http.put("/v1/topics/table", json={"configs": {"stele.storage": "memory"}})
        assert refused.status_code == 400, refused.text
        assert "shared storage" in refused.text
        assert http.get("/v1/topics/table").status_code == 404


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "needs postgres_url"),
        ({"STELE_POSTGRES_URL": "postgresql://127.0.0.1:1/none"}, "the storage is not available"),
        (
            {"STELE_POSTGRES_URL": "postgresql://127.0.0.1:1/none", "STELE_OBJECT_STORE": "ftp://x"},
            "begins with none of the known schemes",
        ),
    ],
)
def test_wrong_settings_end_the_start_with_a_reason(
    environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    settings = {"STELE_STORAGE": "shared", **environment}
    with pytest.raises(BrokerStartError, match=reason), run_broker(tmp_path, environment=settings):
        pytest.fail("the broker started")
