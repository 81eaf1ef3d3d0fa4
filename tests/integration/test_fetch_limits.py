"""What a client allows a fetch to bring is never exceeded but by the first batch alone (KIP-74), by every protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import confluent_kafka
import httpx
import pytest
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire import record_batch as rb
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic

from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer, create_topic, put

TOPIC = "limited"
VALUE_BYTES = 9000
PARTITIONS, BATCHES = 3, 2
BATCH_BYTES = len(batch_of([b"x" * VALUE_BYTES]))
# Around each boundary, in bytes.
LIMITS = sorted({1, *(n * BATCH_BYTES + d for n in range(1, PARTITIONS * BATCHES + 1) for d in (-1, 0, 1))})
FETCH_VERSIONS = (3, 4, 12, 16)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker, with two batches of one size in each partition of a topic."""
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, TOPIC, PARTITIONS, retention_ms="-1")
            for partition, _ in itertools.product(range(PARTITIONS), range(BATCHES)):
                put(peer, TOPIC, b"x" * VALUE_BYTES, partition=partition)
        yield broker


def batches_within(limit: int, partition_limit: int) -> list[int]:
    """How many batches each partition brings."""
    fetched: list[int] = []
    for _ in range(PARTITIONS):
        left = min(partition_limit, limit - sum(fetched) * BATCH_BYTES)
        fitting = min(BATCHES, max(0, left // BATCH_BYTES))
        fetched.append(fitting or int(not any(fetched)))
    return fetched


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_kafka_fetch(broker: BrokerProcess, version: int) -> None:
    with KafkaPeer(broker) as peer:
        topic_id = topic_id_of(peer)
        for limit, partition_limit in itertools.product(
            LIMITS, (1, BATCH_BYTES, 2 * BATCH_BYTES - 1, 1 << 20)
        ):
            answer = peer.call(
                FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    max_bytes=limit,
                    session_id=0,
                    session_epoch=-1,
                    topics=[
                        FetchTopic(
                            topic=TOPIC,
                            topic_id=topic_id,
                            partitions=[
                                FetchPartition(
                                    partition=partition, fetch_offset=0, partition_max_bytes=partition_limit
                                )
                                for partition in range(PARTITIONS)
                            ],
                        )
                    ],
                ),
                version,
            )
            (topic,) = answer.responses
            if version >= 4:
                found = [len(list(rb.iter_headers(p.records or b""))) for p in topic.partitions]
                assert found == batches_within(limit, partition_limit), (limit, partition_limit)
            else:
                # Converted to the older format, which is no larger here.
                sizes = [len(p.records or b"") // VALUE_BYTES for p in topic.partitions]
                assert sizes == batches_within(limit, partition_limit), (limit, partition_limit)


def topic_id_of(peer: KafkaPeer) -> bytes:
    answer = peer.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False), 12
    )
    (topic,) = answer.topics
    found: bytes = topic.topic_id
    return found


def test_binary_fetch(broker: BrokerProcess) -> None:
    with Peer(broker) as peer:
        for limit, partition_limit in itertools.product(
            LIMITS, (1, BATCH_BYTES, 2 * BATCH_BYTES - 1, 1 << 20)
        ):
            answer = peer.call(
                m.FetchRequest(
                    partitions=[
                        m.FetchPartition(
                            topic=TOPIC, partition=partition, offset=0, max_bytes=partition_limit
                        )
                        for partition in range(PARTITIONS)
                    ],
                    max_bytes=limit,
                )
            )
            assert isinstance(answer, m.FetchResponse)
            found = [len(list(rb.iter_headers(p.batches))) for p in answer.partitions]
            assert found == batches_within(limit, partition_limit), (limit, partition_limit)


@pytest.mark.parametrize("value_bytes", [9000, 60_000, 300_000])
def test_http_read(broker: BrokerProcess, value_bytes: int) -> None:
    topic = f"http-{value_bytes}"
    size = len(batch_of([b"x" * value_bytes]))
    with KafkaPeer(broker) as peer:
        create_topic(peer, topic, retention_ms="-1")
        for _ in range(4):
            put(peer, topic, b"x" * value_bytes)
    with httpx.Client(base_url=broker.http_url) as client:
        for batches, extra in itertools.product(range(1, 5), (-1, 0, 1)):
            answer = client.get(
                f"/v1/topics/{topic}/partitions/0/records",
                params={"from": 0, "max_bytes": batches * size + extra},
                headers={"accept": "application/octet-stream"},
            )
            assert answer.status_code == 200, answer.text
            found = len(list(rb.iter_headers(answer.content)))
            assert found == max(1, batches - (extra < 0)), (batches, extra)


def test_lease_poll(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url) as client:
        for limit in LIMITS:
            group = f"group-{limit}"
            body = {"topics": [TOPIC], "max_bytes": limit, "wait_ms": 10_000}
            answer = client.post(f"/v1/groups/{group}/poll", json=body)
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["records"]) == max(1, min(PARTITIONS * BATCHES, limit // BATCH_BYTES))


def test_librdkafka_reads_batches_nearly_as_large_as_all_it_allows(broker: BrokerProcess) -> None:
    topic, value = "large", b"x" * 900_000
    with KafkaPeer(broker) as peer:
        create_topic(peer, topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka_bootstrap, "linger.ms": 0})
    for number in range(9):
        producer.produce(topic, value, partition=number % PARTITIONS)
    producer.flush()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": "large",
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 1_048_576,
            "message.max.bytes": 1_048_576,
            "receive.message.max.bytes": 1_049_600,
        }
    )
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        )
        seen = 0
        while seen < 9:
            message = consumer.poll(120)
            assert message is not None, f"nothing came after {seen} records"
            assert message.error() is None, message.error()
            seen += 1
    finally:
        consumer.close()
