"""What requests of all protocols must not leave in the process of a broker.

No request has the event loop import a module: that holds it for as long as hundreds of requests take. And none leaves
cycles of objects: they take memory until the garbage collector visits all that is old, which holds the loop as well.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from stele import Client
from stele.broker_process import BrokerProcess

from tests.support.waiting import eventually

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Without those of answers that never end.
MEDIA_TYPES = ["application/json", "text/csv", "application/vnd.apache.arrow.stream"]
PATHS = ["/", "/docs", "/metrics", "/healthz", "/readyz", "/v1/nowhere"]


class Watched(BrokerProcess):
    """A broker that reports what it imports, and the garbage that it has."""

    def spawn(
        self, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.watched_broker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**environment, "REPORTS": str(self.reports)},
        )

    @property
    def reports(self) -> Path:
        return self.data_dir.parent

    def garbage(self) -> str:
        """Return the types of objects that only their cycles keep, with their number."""
        os.kill(self.pid, signal.SIGUSR1)
        report = self.reports / "garbage"
        eventually(report.exists, "the report of garbage")
        return report.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Watched]:
    broker = Watched(tmp_path / "data", environment={"STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"})
    broker.start()
    yield broker
    if broker.is_running:
        broker.kill()


def use_http(http: httpx.Client) -> None:
    for codec in CODECS:
        configs = {"compression.type": codec.replace("none", "producer")}
        assert http.put(f"/v1/topics/{codec}", json={"partitions": 1, "configs": configs}).is_success
        records = {"records": [{"key": "a", "value": {"x": 1}}]}
        assert http.post(f"/v1/topics/{codec}/records", json=records).is_success
    for path in PATHS:
        http.get(path)
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        named = path.replace("{topic}", "zstd").replace("{partition}", "0").replace("{offset}", "0")
        if "get" in operations:
            for media_type in MEDIA_TYPES:
                http.get(re.sub(r"\{\w+\}", "a", named), headers={"Accept": media_type})


def use_groups(http: httpx.Client) -> None:
    """Work as a member, wait for records that do not come, and leave a tail."""
    topic = {"topics": ["zstd"]}
    lease = http.post("/v1/groups/a/poll", json=topic).json()["lease"]
    assert http.post("/v1/groups/a/ack", json={"lease": lease}).is_success
    assert not http.post("/v1/groups/a/poll", json={**topic, "wait_ms": 50}).json()["records"]
    member = http.post("/v1/groups/b/members", json=topic).json()["member_id"]
    assert http.delete(f"/v1/groups/b/members/{member}").is_success
    assert http.post("/v1/groups/c/share/poll", json={**topic, "from": "earliest", "lock": "mine"}).is_success
    assert http.post("/v1/groups/c/share/ack", json={"lock": "mine"}).is_success
    assert http.get("/v1/topics/zstd/partitions/0/records?from=latest&wait_ms=50").is_success
    with http.stream(
        "GET", "/v1/topics/zstd/records?from=earliest", headers={"Accept": "text/event-stream"}
    ) as tail:
        assert next(tail.iter_lines())


def use_registry(http: httpx.Client) -> None:
    schemas = {"AVRO": '"int"', "JSON": "{}", "PROTOBUF": 'syntax = "proto3"; message A { int32 a = 1; }'}
    for kind, schema in schemas.items():
        body = {"schema": schema, "schemaType": kind}
        for path in ("subjects/a", "compatibility/subjects/a"):
            http.post(f"/{path}{kind}/versions", json=body)
        http.post(f"/subjects/a{kind}", json=body)
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            http.request(method, re.sub(r"\{\w+\}", "1", path), json={})


def use_kafka(bootstrap: str) -> None:
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": codec}
        producer = Producer(settings)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(codec, b"value" * 100, key=b"key")
        producer.commit_transaction()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(CODECS)
    read = set[str | None]()
    while len(read) < len(CODECS):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        read.add(message.topic())
    consumer.commit(asynchronous=False)
    consumer.close()


def use_client(url: str) -> None:
    with Client(url) as client:
        client.simple_produce("none", b"value")
        assert client.topics()


def test_requests_leave_no_late_imports_and_no_cycles(broker: Watched) -> None:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        use_http(http)
        use_groups(http)
    with httpx.Client(base_url=broker.registry_url, timeout=60) as registry:
        use_registry(registry)
    use_kafka(broker.kafka_bootstrap)
    use_client(broker.binary_url)
    assert broker.garbage() == ""
    broker.stop()
    assert (broker.reports / "imports").read_text() == ""
