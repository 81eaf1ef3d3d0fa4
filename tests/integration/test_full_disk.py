"""A real broker on a disk that is really full, and one with few open files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.errors import SteleClientError
from stele.testing import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from tests.integration.test_kafka_admin import TOPIC, incremental_alteration
from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, delete_topic, only_partition, produce
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.variants import long_but
from tests.support.waiting import eventually

SIZE_BYTES = 24 << 20
ENVIRONMENT = {"STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "1000"}
CONFIGS = {"segment.bytes": 1 << 20}
VALUE = b"x" * 60_000


@pytest.fixture
def disk(tmp_path: Path) -> Generator[SmallDisk]:
    with small_disk(tmp_path / "disk", size_bytes=SIZE_BYTES) as disk:
        yield disk


@pytest.fixture
def full_broker(disk: SmallDisk) -> Generator[BrokerProcess]:
    """A broker with some topics, on a disk that its own records have filled."""
    with run_broker(disk.path / "data", environment=ENVIRONMENT) as broker:
        with httpx.Client(base_url=broker.http_url) as http:
            for topic in ("a", "b", "c"):
                created = http.put(f"/v1/topics/{topic}", json={"partitions": 1, "configs": CONFIGS})
                assert created.status_code == 201, created.text
            for topic in ("a", "b", "c"):
                for _ in range(40):
                    assert put(http, topic) == 200
            status = 200
            while status == 200:
                status = put(http, "a")
            assert status == 507
        disk.fill()
        yield broker


def put(http: httpx.Client, topic: str) -> int:
    return http.post(
        f"/v1/topics/{topic}/records",
        content=VALUE,
        headers={"Content-Type": "application/octet-stream"},
    ).status_code


def test_a_full_disk_refuses_at_every_listener_and_says_so(full_broker: BrokerProcess) -> None:
    with httpx.Client(base_url=full_broker.http_url) as http:
        ready = http.get("/readyz")
        assert ready.status_code == 507
        assert ready.json()["type"] == "/problems/storage-full"
        assert "lower retention" in ready.json()["detail"]
        assert http.get("/healthz").status_code == 200
        # Whatever stores something has space, or says that there is none.
        requests: list[Callable[[], httpx.Response]] = [
            lambda: http.put("/v1/topics/more", json={"partitions": 50}),
            lambda: http.patch("/v1/topics/a", json={"partitions": 50}),
            lambda: http.post("/v1/transactions/t/begin", json={}),
            lambda: http.post("/v1/transactions", json={"records": [{"topic": "a", "value": "x"}]}),
            lambda: http.put(
                "/v1/groups/g/offsets", json={"offsets": [{"topic": "a", "partition": 0, "offset": 1}]}
            ),
        ]
        for request in requests:
            answer = request()
            assert answer.status_code < 300 or answer.status_code == 507, answer.text
            if answer.status_code == 507:
                assert answer.json()["type"] == "/problems/storage-full"
        assert put(http, "b") == 507
    with KafkaPeer(full_broker) as peer:
        answer = only_partition(peer.call(produce("a", batch_of([VALUE])), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with Client(full_broker.binary_url) as client, pytest.raises(SteleClientError, match="no space left"):
        client.simple_produce("a", VALUE)


def over_http(method: str, path: str, **options: Any) -> Callable[[BrokerProcess], None]:
    def free(broker: BrokerProcess) -> None:
        httpx.request(method, f"{broker.http_url}/v1/topics/a{path}", **options).raise_for_status()

    return free


def over_kafka(free: Callable[[KafkaPeer], object]) -> Callable[[BrokerProcess], None]:
    def call(broker: BrokerProcess) -> None:
        with KafkaPeer(broker) as peer:
            free(peer)

    return call


def lower_retention(peer: KafkaPeer) -> None:
    changed = incremental_alteration(peer, TOPIC, "a", ("retention.bytes", 0, "100000"))
    assert changed.error_code == ErrorCode.NONE, changed


def delete_records(peer: KafkaPeer) -> None:
    of_topic = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=60)])
    (topic,) = peer.call(DeleteRecordsRequest(topics=[of_topic], timeout_ms=30_000), 2).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE, topic


def over_binary(free: Callable[[Client], object]) -> Callable[[BrokerProcess], None]:
    def call(broker: BrokerProcess) -> None:
        with Client(broker.binary_url) as client:
            free(client)

    return call


WAYS_OUT: dict[str, Callable[[BrokerProcess], None]] = {
    "lower retention": over_http("PATCH", "", json={"configs": {"retention.bytes": 100_000}}),
    "delete a topic": over_http("DELETE", ""),
    "delete records": over_http("DELETE", "/partitions/0/records?before=60"),
    "delete all records": over_http("DELETE", "/records"),
    "lower retention over Kafka": over_kafka(lower_retention),
    "delete a topic over Kafka": over_kafka(lambda peer: delete_topic(peer, "a")),
    "delete records over Kafka": over_kafka(delete_records),
    "lower retention over the binary protocol": over_binary(
        lambda client: client.alter_topic("a", configs={"retention.bytes": "100000"})
    ),
    "delete a topic over the binary protocol": over_binary(lambda client: client.delete_topic("a")),
}


@pytest.mark.parametrize("way", long_but(WAYS_OUT, "delete records"))
@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "after a kill"])
def test_a_full_disk_is_freed_through_the_api(way: str, restarts: bool, full_broker: BrokerProcess) -> None:
    if restarts:
        full_broker.kill()
        full_broker.start()
    WAYS_OUT[way](full_broker)
    with httpx.Client(base_url=full_broker.http_url) as http:
        eventually(lambda: http.get("/readyz").status_code == 200, "the broker can write again")
        assert put(http, "b") == 200
        # Files go one after the other, and a topic needs more space than a record.
        eventually(
            lambda: http.put("/v1/topics/more", json={"partitions": 2}).status_code == 201,
            "there is space for a topic, which was not made before",
        )
