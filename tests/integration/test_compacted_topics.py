"""Compacted topics as clients see them: every record needs a key, over every protocol."""

from __future__ import annotations

import json
import os
import re
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from stele import Client, InvalidRequestError, NewRecord, ProduceError
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode

from load.apache_kafka import KafkaUnavailable, apache_kafka, java, libs
from tests.support import record_keys
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, produce
from tests.support.record_keys import CASES
from tests.support.warm_processes import run_stele

COMPACT = {"cleanup.policy": "compact"}


def end_offset(peer: KafkaPeer, topic: str) -> int:
    return only_partition(peer.call(fetch(topic, 0), 12)).high_watermark


def admin_of(broker: BrokerProcess) -> Any:
    # Its futures have no types.
    return AdminClient({"bootstrap.servers": broker.kafka_bootstrap})


def keyed(key: bytes | None, value: bytes = b"x", *, producer_id: int = -1) -> bytearray:
    builder = rb.BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    builder.append(timestamp_ms=1_000, key=key, value=value)
    return builder.build()


# ── the Kafka protocol ──


@pytest.mark.parametrize("name", CASES)
def test_a_batch_with_a_record_without_a_key_is_refused_as_a_whole(peer: KafkaPeer, name: str) -> None:
    answer = record_keys.play(peer, name)
    assert (answer.code, answer.named) == record_keys.expected(name)
    assert (answer.message is None) is (answer.code == ErrorCode.NONE)
    topic = record_keys.topic_of(name)
    assert end_offset(peer, topic) == (0 if answer.named else len(CASES[name].keys))
    if answer.code == ErrorCode.INVALID_RECORD:
        assert set(answer.reasons) == {record_keys.reason_in(topic)}
        assert "has no key" in (answer.message or "")


@pytest.mark.long
def test_apache_kafka_refuses_the_same_records_with_the_same_words() -> None:
    try:
        libs()
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    with apache_kafka(heap="512m") as kafka:
        address = SimpleNamespace(host=kafka.host, kafka_port=kafka.port)
        with KafkaPeer(cast("BrokerProcess", address)) as peer:
            for name in CASES:
                answer = record_keys.play(peer, name)
                assert (answer.code, answer.named) == record_keys.expected(name), name
                if answer.code == ErrorCode.INVALID_RECORD:
                    reason = record_keys.reason_in(record_keys.topic_of(name))
                    assert set(answer.reasons) == {reason}, name


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_records_are_named_since_version_8(peer: KafkaPeer, version: int) -> None:
    answer = record_keys.play(peer, "one of three", version, topic=f"named-{version}")
    assert answer.code == ErrorCode.INVALID_RECORD
    assert answer.named == ([1] if version >= 8 else [])


def test_a_refused_batch_leaves_its_sequence_to_the_next(peer: KafkaPeer) -> None:
    create_topic(peer, "sequence", cleanup_policy="compact")

    def send(key: bytes | None) -> int:
        done = only_partition(peer.call(produce("sequence", keyed(key, producer_id=5)), 12))
        code: int = done.error_code
        return code

    assert [send(None), send(b"k")] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


def test_a_topic_asks_for_keys_from_the_moment_it_is_compacted(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "altered")
    codes: list[int] = []
    url = f"{broker.http_url}/v1/topics/altered"
    for policy in ("delete", "compact", "compact,delete", None):
        answer = httpx.patch(url, json={"configs": {"cleanup.policy": policy}})
        assert answer.status_code == 200, answer.text
        codes.append(only_partition(peer.call(produce("altered", batch_of([b"x"])), 12)).error_code)
    refused = ErrorCode.INVALID_RECORD
    assert codes == [ErrorCode.NONE, refused, refused, ErrorCode.NONE]


def test_the_default_of_the_broker_compacts_topics_that_set_no_policy() -> None:
    with run_broker() as broker, KafkaPeer(broker) as peer:
        create_topic(peer, "follows")
        create_topic(peer, "ring", stele_storage="memory")
        policy = ConfigEntry("log.cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[policy])
        admin = admin_of(broker)
        admin.incremental_alter_configs([resource])[resource].result(120)
        codes = [
            only_partition(peer.call(produce(topic, batch_of([b"x"])), 12)).error_code
            for topic in ("follows", "ring")
        ]
        # A topic in memory is never compacted.
        assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


def test_librdkafka_creates_a_compacted_topic_and_reports_the_record_at_fault(
    broker: BrokerProcess,
) -> None:
    admin = admin_of(broker)
    wanted = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "5",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "1000",
        "file.delete.delay.ms": "10",
    }
    admin.create_topics([NewTopic("librdkafka", 1, 1, config=wanted)])["librdkafka"].result(120)
    resource = ConfigResource(ResourceType.TOPIC, "librdkafka")
    described = admin.describe_configs([resource])[resource].result(120)
    assert {name: described[name].value for name in wanted} == wanted

    results: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        results[message.value() or b""] = 0 if error is None else error.code()

    producer = Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "linger.ms": 60_000, "batch.num.messages": 4}
    )
    for number, key in enumerate((b"a", None, b"c", None)):
        producer.produce("librdkafka", str(number).encode(), key=key, on_delivery=delivered)
    while len(results) < 4:
        producer.poll(1)
    # With more than one record at fault, librdkafka tells them from those beside them.
    beside = KafkaError._INVALID_DIFFERENT_RECORD
    refused = ErrorCode.INVALID_RECORD
    assert results == {b"0": beside, b"1": refused, b"2": beside, b"3": refused}


@pytest.mark.long
def test_kafka_topics_creates_a_compacted_topic(broker: BrokerProcess, peer: KafkaPeer) -> None:
    try:
        classpath = f"{libs()}/*"
        program = java()
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    command = [program, "-XX:TieredStopAtLevel=1", "-cp", classpath, "org.apache.kafka.tools.TopicCommand"]
    server = ["--bootstrap-server", broker.kafka_bootstrap]
    created = subprocess.run(
        [*command, *server, "--create", "--topic", "tool", "--config", "cleanup.policy=compact"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert created.returncode == 0, created.stdout + created.stderr
    assert httpx.get(f"{broker.http_url}/v1/topics/tool").json()["configs"]["cleanup.policy"] == "compact"
    refused = only_partition(peer.call(produce("tool", batch_of([b"x"])), 12))
    assert refused.error_code == ErrorCode.INVALID_RECORD


# ── the binary protocol, HTTP and the client library ──


def test_the_binary_protocol_says_which_record_has_no_key(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "binary", cleanup_policy="compact")
    with Peer(broker) as binary:
        batch = bytes(record_keys.batch_of_case(CASES["one of three"]))
        refused = binary.call(
            m.ProduceBatchRequest(topic="binary", partition=0, acks=1, timeout_ms=30_000, batches=batch)
        )
        assert isinstance(refused, m.ErrorResponse)
        assert refused.code == ErrorCode.INVALID_RECORD
        assert refused.message == (
            "record 1 was refused: it has no key, and topic 'binary' is compacted; send a key with every "
            "record; none of the batch was stored"
        )
        # The simple PRODUCE cannot carry a key.
        simple = binary.call(m.ProduceRequest(topic="binary", data=b"x"))
        assert isinstance(simple, m.ErrorResponse)
        assert "topic 'binary' is compacted" in simple.message
    assert end_offset(peer, "binary") == 0


def test_http_names_the_records_without_a_key(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "http", cleanup_policy="compact")
    records: list[dict[str, Any]] = [{"key": "a", "value": 1}, {"value": 2}, {"key": "c", "value": None}]
    url = f"{broker.http_url}/v1/topics/http/records"
    whole = httpx.post(url, json={"records": records})
    assert whole.status_code == 400
    (error,) = whole.json()["errors"]
    assert (error["index"], error["kafka_code"], error["type"]) == (
        1,
        ErrorCode.INVALID_RECORD,
        "/problems/missing-key",
    )
    assert error["detail"].startswith("record 1 was refused: it has no key, and topic 'http' is compacted")
    assert end_offset(peer, "http") == 0

    octets = httpx.post(url, content=b"x", headers={"content-type": "application/octet-stream"})
    assert (octets.status_code, octets.json()["errors"][0]["type"]) == (400, "/problems/missing-key")
    assert end_offset(peer, "http") == 0

    lines = "".join(json.dumps(record) + "\n" for record in records)
    mixed = httpx.post(url, content=lines, headers={"content-type": "application/x-ndjson"})
    assert mixed.status_code == 207
    results = [json.loads(line) for line in mixed.text.splitlines()]
    assert [result.get("offset") for result in results] == [0, None, 1]
    assert (results[1]["index"], results[1]["error"]["type"]) == (1, "/problems/missing-key")


def test_an_idempotent_upload_with_a_record_without_a_key_stores_nothing(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "upload", cleanup_policy="compact")
    producer = httpx.post(f"{broker.http_url}/v1/producers").json()
    answer = httpx.post(
        f"{broker.http_url}/v1/topics/upload/records",
        content='{"key":"a","value":1}\n{"value":2}\n',
        headers={
            "content-type": "application/x-ndjson",
            "producer-id": str(producer["producer_id"]),
            "producer-epoch": str(producer["producer_epoch"]),
            "producer-sequence": "0",
        },
    )
    assert answer.status_code == 400
    assert [error["index"] for error in answer.json()["errors"]] == [1]
    assert end_offset(peer, "upload") == 0


@pytest.mark.parametrize("protocol", ["http", "binary"])
def test_the_client_library_raises_an_error_that_names_the_record(
    broker: BrokerProcess, peer: KafkaPeer, protocol: str
) -> None:
    topic = f"client-{protocol}"
    create_topic(peer, topic, cleanup_policy="compact")
    with Client(broker.http_url if protocol == "http" else broker.binary_url) as client:
        with pytest.raises(
            InvalidRequestError, match=f"it has no key, and topic '{topic}' is compacted"
        ) as one:
            client.produce(topic, b"x")
        assert one.value.code == ErrorCode.INVALID_RECORD
        records = [NewRecord(value=b"x", key=b"a"), NewRecord(value=b"x")]
        with pytest.raises((ProduceError, InvalidRequestError), match="it has no key") as several:
            client.produce_many(topic, records)
        assert several.value.code == ErrorCode.INVALID_RECORD
        assert client.produce(topic, b"x", key=b"a").partition == 0


# ── what users see of compaction ──


def test_passes_are_counted_and_the_newest_values_stay() -> None:
    environment = {"STELE_LOG_CLEANER_BACKOFF_MS": "10", "STELE_SAMPLE_INTERVAL_MS": "100"}
    with (
        run_broker(environment=environment) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        configs = {**COMPACT, "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
        assert http.put("/v1/topics/plain", json={"partitions": 1}).status_code == 201
        assert http.put("/v1/topics/users", json={"partitions": 1, "configs": configs}).status_code == 201
        for number in range(60):
            record = {"key": f"k{number % 3}", "value": f"{number} " + "v" * 200}
            answer = http.post("/v1/topics/users/records", json={"records": [record]})
            assert answer.status_code == 200, answer.text
        # Each look is a request; a pass that never comes ends with the time limit of the test. A first pass
        # over one record of each key has nothing to remove: it writes what it reads.
        while not (
            (now := http.get("/v1/overview").json()["compaction"])["partitions"]
            and now["bytes_read"] > now["bytes_written"] > 0
        ):
            pass
        assert now["passes"] > 0
        assert now["failures"] == 0
        assert now["last_pass_at"] > 0
        assert now["last_pass_took_ms"] >= 0

        (partition,) = http.get("/v1/topics/users").json()["partitions"]
        assert 0 <= partition["dirty_ratio"] <= 1
        listed = http.get("/v1/topics/users/partitions/0/segments").json()
        assert listed["cleanup_policy"] == "compact"
        assert 0 <= listed["dirty_ratio"] <= 1
        assert {partition["cleaner"], listed["cleaner"]} <= {"idle", "due", "running"}
        (plain,) = http.get("/v1/topics/plain").json()["partitions"]
        assert (plain["dirty_ratio"], plain["cleaner"]) == (None, None)

        metrics = dict(
            line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[:1] != "#"
        )
        assert float(metrics["stele_log_cleaner_passes_total"]) >= now["passes"]
        assert float(metrics["stele_log_cleaner_failures_total"]) == 0
        assert float(metrics["stele_log_cleaner_read_bytes_total"]) >= now["bytes_read"]
        assert float(metrics["stele_log_cleaner_last_pass_timestamp_seconds"]) >= now["last_pass_at"] / 1000
        assert float(metrics["stele_log_cleaner_partitions"]) == 1

        read: dict[str, str] = {}
        offset, end = 0, 60
        while offset < end:
            page = http.get(f"/v1/topics/users/partitions/0/records?from={offset}").json()
            assert page["next_offset"] > offset
            offset = page["next_offset"]
            read.update({record["key"]: record["value"].split()[0] for record in page["records"]})
        assert read == {"k0": "57", "k1": "58", "k2": "59"}


def test_the_command_line_creates_alters_and_describes_a_compacted_topic(broker: BrokerProcess) -> None:
    def stele(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return run_stele("topics", *arguments, "--url", broker.http_url)

    created = stele("create", "cli", "--config", "cleanup.policy=compact,delete")
    assert created.returncode == 0, created.stderr
    altered = stele("alter", "cli", "--config", "cleanup.policy=compact", "--config", "delete.retention.ms=5")
    assert altered.returncode == 0, altered.stderr
    described = stele("describe", "cli").stdout.decode()
    assert re.search(r"cleanup\.policy\W+compact$", described, re.MULTILINE), described
    assert re.search(r"delete\.retention\.ms\W+5$", described, re.MULTILINE), described
    refused = stele(
        "create", "ring", "--config", "cleanup.policy=compact", "--config", "stele.storage=memory"
    )
    assert refused.returncode != 0
    assert b"cannot be compacted" in refused.stderr
