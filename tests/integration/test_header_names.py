"""A header name that is no text, which Kafka clients can write, leaves the record readable over every protocol."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import crc32c
import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.record_batch import CRC_START, BatchBuilder

from tests.support.kafka_peer import KafkaPeer, only_partition, produce

TOPIC = "odd"
NAMES = ["first", "\ufffdodd", "last"]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker:
        with httpx.Client(base_url=broker.http_url) as http, KafkaPeer(broker) as peer:
            configs = {"cleanup.policy": "compact"}
            http.put(f"/v1/topics/{TOPIC}", json={"partitions": 1, "configs": configs}).raise_for_status()
            builder = BatchBuilder()
            for name in ("first", "_odd", "last"):
                builder.append(timestamp_ms=1, key=name.encode(), value=b"v", headers=[(name, b"h")])
            # After the key, which has the same letters.
            batch = builder.build()
            batch[batch.rindex(b"_odd")] = 0xFF
            struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[CRC_START:])))
            assert not only_partition(peer.call(produce(TOPIC, bytes(batch)), 9)).error_code
        yield broker


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as http:
        yield http


@pytest.mark.parametrize("protocol", ["binary_url", "http_url"])
def test_a_client_reads_all_records(broker: BrokerProcess, protocol: str) -> None:
    with Client(getattr(broker, protocol)) as client:
        records = client.fetch(TOPIC).records
    assert [name for record in records for name, _ in record.headers] == NAMES


WAYS = {
    "a page": f"/v1/topics/{TOPIC}/partitions/0/records?from=0",
    "a search": f"/v1/topics/{TOPIC}/search?value=v",
    "a table": f"/v1/topics/{TOPIC}/table",
    "a record": f"/v1/topics/{TOPIC}/partitions/0/records/1",
    "a key": f"/v1/topics/{TOPIC}/keys/_odd",
}


JSON, NDJSON = "application/json", "application/x-ndjson"
# Which forms there are.
FORMS = [
    *((way, JSON) for way in WAYS if way != "a table"),
    *((way, NDJSON) for way in WAYS if way != "a key"),
]


@pytest.mark.parametrize(("way", "accept"), FORMS)
def test_the_http_listener_shows_all_records(http: httpx.Client, way: str, accept: str) -> None:
    answer = http.get(WAYS[way], headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    assert '"error":' not in answer.text
    found = json.dumps(answer.text, ensure_ascii=False)
    expected = NAMES[1:2] if way in ("a record", "a key") else NAMES
    assert all(name in found for name in expected), answer.text


def test_the_bytes_of_a_value_are_sent_with_its_headers(http: httpx.Client) -> None:
    answer = http.get(WAYS["a key"], headers={"accept": "application/octet-stream"})
    assert (answer.status_code, answer.content) == (200, b"v")


def test_arrow_has_all_records(http: httpx.Client) -> None:
    pa = pytest.importorskip("pyarrow")
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    answer = http.get(f"/v1/topics/{TOPIC}/partitions/0/records?from=0", headers=accept)
    assert answer.status_code == 200, answer.text
    rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert [header["key"] for row in rows for header in row["headers"]] == NAMES
