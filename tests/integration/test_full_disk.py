"""A real broker on a disk that is really full, and one with few open files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest
from stele import Client
from stele.errors import SteleClientError
from stele.testing import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, only_partition, produce
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


WAYS_OUT: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "lower retention": lambda http: http.patch(
        "/v1/topics/a", json={"configs": {"retention.bytes": 100_000}}
    ),
    "delete a topic": lambda http: http.delete("/v1/topics/a"),
    "delete records": lambda http: http.delete("/v1/topics/a/partitions/0/records?before=60"),
    "delete all records": lambda http: http.delete("/v1/topics/a/records"),
}


@pytest.mark.parametrize("way", long_but(WAYS_OUT, "delete records"))
@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "after a kill"])
def test_a_full_disk_is_freed_through_the_api(way: str, restarts: bool, full_broker: BrokerProcess) -> None:
    if restarts:
        full_broker.kill()
        full_broker.start()
    with httpx.Client(base_url=full_broker.http_url) as http:
        answer = WAYS_OUT[way](http)
        assert answer.status_code < 300, answer.text
        eventually(lambda: http.get("/readyz").status_code == 200, "the broker can write again")
        assert put(http, "b") == 200
        # Files go one after the other, and a topic needs more space than a record.
        eventually(
            lambda: http.put("/v1/topics/more", json={"partitions": 2}).status_code == 201,
            "there is space for a topic, which was not made before",
        )
