"""Produces that are looked into: timestamps, codecs, records at fault named to each kind of client."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode

from load.apache_kafka import libs
from tests.support import record_timestamps
from tests.support.apache_kafka import kafka_or_skip, start_kafka
from tests.support.batches import batch_of, with_new_crc
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import (
    KafkaPeer,
    create_topic,
    delete_topic,
    fetch,
    only_partition,
    produce,
    put,
)
from tests.support.record_timestamps import CASES, HOUR_MS

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def now_ms() -> int:
    return int(time.time() * 1000)


def stored(peer: KafkaPeer, topic: str) -> tuple[list[int], list[bytes | None]]:
    """The codec of each batch of partition 0, and the values of all records; checks that offsets have no hole."""
    codecs: list[int] = []
    values: list[bytes | None] = []
    while batches := bytes(only_partition(peer.call(fetch(topic, len(values)), 12)).records or b""):
        for header in rb.iter_headers(batches):
            assert header.base_offset == len(values)
            rb.check_batch(batches, header.position)
            codecs.append(header.compression)
            values += [record.value for record in rb.decode_records(batches, header)]
    return codecs, values


# ── timestamps ──


@pytest.mark.parametrize("name", CASES)
def test_records_with_timestamps_that_the_topic_does_not_accept(peer: KafkaPeer, name: str) -> None:
    code, named, message = record_timestamps.play(peer, name)
    assert (code, named) == record_timestamps.expected(name)
    assert (message is None) is (code == ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_records_are_named_since_version_8(peer: KafkaPeer, version: int) -> None:
    code, named, message = record_timestamps.play(peer, "some ahead", version, topic=f"named-{version}")
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert named == ([1, 3] if version >= 8 else [])
    assert (message is not None) is (version >= 8)


def test_a_refused_batch_leaves_its_sequence_to_the_next(peer: KafkaPeer) -> None:
    create_topic(peer, "refused")

    def send(timestamp_ms: int) -> int:
        batch = batch_of([b"x"], timestamp_ms=timestamp_ms, producer_id=5)
        return only_partition(peer.call(produce("refused", batch), 12)).error_code

    assert send(now_ms() + 2 * HOUR_MS) == ErrorCode.INVALID_TIMESTAMP
    assert send(now_ms()) == ErrorCode.NONE


def test_a_header_that_claims_a_future_does_not_stay(peer: KafkaPeer) -> None:
    create_topic(peer, "claimed")
    batch = bytearray(batch_of([b"x"], timestamp_ms=now_ms()))
    struct.pack_into(">q", batch, 35, now_ms() + 9 * HOUR_MS)
    assert (
        only_partition(peer.call(produce("claimed", with_new_crc(bytes(batch))), 12)).error_code
        == ErrorCode.NONE
    )
    header = rb.read_header(bytes(only_partition(peer.call(fetch("claimed", 0), 12)).records))
    assert header.max_timestamp == header.base_timestamp


@pytest.mark.long
def test_apache_kafka_refuses_the_same_timestamps(tmp_path: Path) -> None:
    kafka = start_kafka(tmp_path)
    try:
        with KafkaPeer(
            cast("BrokerProcess", SimpleNamespace(host=kafka.host, kafka_port=kafka.port))
        ) as peer:
            for name in CASES:
                code, named, _ = record_timestamps.play(peer, name)
                assert (code, named) == record_timestamps.expected(name), name
    finally:
        kafka.stop()


# ── what clients make of it ──


def test_librdkafka_reports_all_records_of_the_batch(broker: BrokerProcess) -> None:
    results: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        results[message.value() or b""] = 0 if error is None else error.code()

    # Only the fourth record ends the batch: flush() would send what has reached the partition's queue so far.
    producer = Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "linger.ms": 60_000, "batch.num.messages": 4}
    )
    for number in range(4):
        ahead_ms = 2 * HOUR_MS if number == 2 else 0
        producer.produce(
            "librdkafka", str(number).encode(), timestamp=now_ms() + ahead_ms, on_delivery=delivered
        )
    while len(results) < 4:
        producer.poll(1)
    # It tells them apart for INVALID_RECORD only; with Apache Kafka it reports the same.
    assert results == {b"%d" % number: ErrorCode.INVALID_TIMESTAMP for number in range(4)}


JAVA_SOURCE = """
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;

public class RecordErrors {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("linger.ms", "60000");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.partitionsFor("java");
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            long now = System.currentTimeMillis();
            for (int number = 0; number < 3; number++) {
                long time = number == 1 ? now + 7_200_000L : now;
                futures.add(producer.send(new ProducerRecord<>("java", 0, time, null, "value " + number)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : futures) {
                try {
                    future.get();
                    System.out.println("stored");
                } catch (ExecutionException failed) {
                    Throwable cause = failed.getCause();
                    System.out.println(cause.getClass().getSimpleName() + ": " + cause.getMessage());
                }
            }
        }
    }
}
"""


@pytest.mark.long
def test_the_java_client_tells_the_record_at_fault_from_those_beside_it(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    java = shutil.which("java")
    with kafka_or_skip():
        classpath = f"{libs()}/*"
    source = tmp_path / "RecordErrors.java"
    source.write_text(JAVA_SOURCE)
    assert java is not None
    done = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", classpath, str(source), broker.kafka_bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
    )
    beside = "KafkaException: Failed to append record because it was part of a batch"
    first, second, third = done.stdout.splitlines()
    assert first.startswith(beside), done.stderr
    assert third.startswith(beside)
    assert second.startswith("InvalidTimestampException: record 1 was refused: its timestamp "), second


def test_the_binary_protocol_names_the_refused_record_and_the_reason(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "binary")
    batch = record_timestamps.batch_of_case(CASES["some ahead"])
    with Peer(broker) as binary:
        refused = binary.call(
            m.ProduceBatchRequest(topic="binary", partition=0, acks=1, timeout_ms=30_000, batches=batch)
        )
    assert isinstance(refused, m.ErrorResponse)
    assert refused.code == ErrorCode.INVALID_TIMESTAMP
    assert refused.message.startswith("record 1 was refused: its timestamp ")


def test_http_refuses_only_the_records_at_fault(broker: BrokerProcess) -> None:
    ahead = {"value": "late", "timestamp": now_ms() + 2 * HOUR_MS}
    records: list[dict[str, Any]] = [{"value": "a"}, ahead, {"value": "b"}]
    url = f"{broker.http_url}/v1/topics/http/records"
    whole = httpx.post(url, json={"records": records})
    assert whole.status_code == 400
    (error,) = whole.json()["errors"]
    assert (error["index"], error["kafka_code"]) == (1, ErrorCode.INVALID_TIMESTAMP)
    assert error["type"] == "/problems/invalid-timestamp"
    assert error["detail"].startswith("record 1 was refused: its timestamp ")
    lines = "".join(json.dumps(record) + "\n" for record in records)
    mixed = httpx.post(url, content=lines, headers={"content-type": "application/x-ndjson"})
    assert mixed.status_code == 207
    results = [json.loads(line) for line in mixed.text.splitlines()]
    assert [result.get("offset") for result in results] == [0, None, 1]
    assert results[1]["error"]["kafka_code"] == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", [3, 6, 7, 12])
def test_zstd_is_refused_below_version_7(peer: KafkaPeer, version: int) -> None:
    topic = f"zstd-{version}"
    create_topic(peer, topic)
    builder = rb.BatchBuilder(compression=Compression.ZSTD)
    builder.append(timestamp_ms=now_ms(), value=b"x")
    done = only_partition(peer.call(produce(topic, builder.build()), version))
    wanted = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
    assert done.error_code == wanted


# ── batches in the codec of their topic ──


@pytest.mark.every(5)
@pytest.mark.parametrize("codec", CODECS)
def test_every_producers_batches_are_stored_in_the_codec_of_the_topic(
    broker: BrokerProcess, peer: KafkaPeer, codec: str
) -> None:
    topic = f"stored-{codec}"
    create_topic(peer, topic, compression_type=codec)
    sent: list[bytes] = []
    for source in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": broker.kafka_bootstrap,
                "compression.type": source,
                "enable.idempotence": True,
                "linger.ms": 1,
            }
        )
        for number in range(500):
            sent.append(f"{source} {number}".encode() * 5)
            producer.produce(topic, sent[-1])
        assert producer.flush(30) == 0
    with Peer(broker) as binary:
        for number in range(20):
            sent.append(f"binary {number}".encode() * 5)
            binary.call(m.ProduceRequest(topic=topic, data=sent[-1]))
    with Client(broker.http_url) as client:
        values = [f"http {number}" for number in range(500)]
        client.produce_many(topic, [NewRecord(value=value) for value in values])
        sent += [value.encode() for value in values]
    codecs, records = stored(peer, topic)
    assert records == sent
    assert set(codecs) == {CODECS[codec]}
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[bytes | None] = []
    while len(read) < len(sent):
        read += [message.value() for message in consumer.consume(1000, 1.0)]
    consumer.close()
    assert read == sent


def test_duplicates_in_flight_are_stored_once(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "once", compression_type="zstd")
    batches = [
        batch_of([b"%d" % n] * 50, timestamp_ms=now_ms(), producer_id=42, base_sequence=50 * n)
        for n in range(5)
    ]
    requests = [(produce("once", batch, acks=-1), 9) for batch in batches]
    with KafkaPeer(broker) as lost:
        lost.post_all(requests)
        lost.next_answer()
        lost.reset()
    peer.post_all(requests + requests)
    answered = [only_partition(peer.next_answer()[1]) for _ in range(10)]
    assert [done.base_offset for done in answered] == [0, 50, 100, 150, 200] * 2
    _, values = stored(peer, "once")
    assert values == [b"%d" % n for n in range(5) for _ in range(50)]


def test_a_configuration_that_changes_on_the_way_changes_no_order(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "changing", compression_type="gzip")
    batches = [batch_of([b"%d" % n * 500] * 100, timestamp_ms=now_ms()) for n in range(60)]
    for batch in batches[:30]:
        peer.post(produce("changing", batch), 9)
    url = f"{broker.http_url}/v1/topics/changing"
    changed = httpx.patch(url, json={"configs": {"compression.type": "producer"}})
    assert changed.status_code == 200, changed.text
    for batch in batches[30:]:
        peer.post(produce("changing", batch), 9)
    answered = [only_partition(peer.next_answer()[1]) for _ in batches]
    assert [done.error_code for done in answered] == [ErrorCode.NONE] * len(batches)
    codecs, values = stored(peer, "changing")
    assert values == [b"%d" % n * 500 for n in range(60) for _ in range(100)]
    assert set(codecs) == {Compression.GZIP, Compression.NONE}


def test_a_flush_covers_what_is_still_to_be_compressed(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "flushed", compression_type="gzip", compression_gzip_level="9")
    with Peer(broker) as binary:
        batch = bytes(batch_of([os.urandom(400) * 2] * 1000, timestamp_ms=now_ms()))
        produced = m.ProduceBatchRequest(
            topic="flushed", partition=0, acks=1, timeout_ms=30_000, batches=batch
        )
        binary.send(produced.encode(), m.FlushRequest().encode())
        assert [frame[4] for frame in binary.frames(2)] == [
            m.MessageType.PRODUCE_BATCH_RESPONSE,
            m.MessageType.FLUSH_RESPONSE,
        ]
    assert len(stored(peer, "flushed")[1]) == 1000


def test_an_unanswered_produce_that_fails_ends_the_connection(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "unanswered", compression_type="zstd")
    put(peer, "unanswered", b"good", timestamp_ms=now_ms())
    with KafkaPeer(broker) as other:
        other.expect(produce("unanswered", b"", acks=0), 9)
        good = batch_of([b"unanswered"], timestamp_ms=now_ms())
        bad = batch_of([b"late"], timestamp_ms=now_ms() + 2 * HOUR_MS)
        other.post(produce("unanswered", good, acks=0), 9)
        other.post(produce("unanswered", bad, acks=0), 9)
        assert other.rest() == b""
    assert stored(peer, "unanswered")[1] == [b"good", b"unanswered"]


def test_a_topic_that_is_deleted_on_the_way_gets_no_records_of_its_predecessor(peer: KafkaPeer) -> None:
    slow = batch_of([os.urandom(700)] * 1000, timestamp_ms=now_ms())
    create_topic(peer, "deleted", compression_type="zstd", compression_zstd_level="19")
    for _ in range(5):
        peer.post(produce("deleted", slow, acks=1), 9)
    with_codes = [only_partition(peer.next_answer()[1]).error_code for _ in range(5)]
    assert with_codes == [ErrorCode.NONE] * 5
    delete_topic(peer, "deleted")
    create_topic(peer, "deleted")
    assert stored(peer, "deleted")[1] == []


def test_many_producers_at_a_full_queue_lose_nothing_and_keep_their_order() -> None:
    environment = {"STELE_PRODUCE_QUEUE_BYTES_MAX": "4096", "STELE_PRODUCE_THREADS": "1"}
    with run_broker(environment=environment) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "full", compression_type="lz4")
            create_topic(peer, "plain")
        codes: list[int] = []

        def send(producer_id: int) -> None:
            with KafkaPeer(broker) as peer:
                batches = [
                    batch_of(
                        [b"%d/%d" % (producer_id, number)] * 100,
                        timestamp_ms=now_ms(),
                        producer_id=producer_id,
                        base_sequence=100 * number,
                    )
                    for number in range(40)
                ]
                peer.post_all([(produce("full", batch, acks=-1), 9) for batch in batches])
                codes.extend(only_partition(peer.next_answer()[1]).error_code for _ in batches)

        senders = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        for sender in senders:
            sender.start()
        with KafkaPeer(broker) as peer:
            for number in range(50):
                put(peer, "plain", b"%d" % number, timestamp_ms=now_ms())
        with Peer(broker) as binary:
            for number in range(50):
                binary.call(m.ProduceRequest(topic="full", data=b"binary/%d" % number))
        lines = b"".join(b'{"value":"http/%d"}\n' % number for number in range(2000))
        answer = httpx.post(
            f"{broker.http_url}/v1/topics/full/records",
            content=lines,
            headers={"content-type": "application/x-ndjson"},
            timeout=60,
        )
        for sender in senders:
            sender.join()
        assert answer.status_code == 200
        assert codes == [ErrorCode.NONE] * 240
        with KafkaPeer(broker) as peer:
            codecs, values = stored(peer, "full")
            assert len(stored(peer, "plain")[1]) == 50
    assert set(codecs) == {Compression.LZ4}
    for producer_id in range(6):
        mine = [value for value in values if value and value.startswith(b"%d/" % producer_id)]
        assert mine == [b"%d/%d" % (producer_id, number) for number in range(40) for _ in range(100)]
    assert [value for value in values if value and value.startswith(b"http/")] == [
        b"http/%d" % number for number in range(2000)
    ]
    assert [value for value in values if value and value.startswith(b"binary/")] == [
        b"binary/%d" % number for number in range(50)
    ]
