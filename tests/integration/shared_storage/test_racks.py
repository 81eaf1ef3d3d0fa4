"""Consumers read from a broker of their own rack (KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic

from load.postgres_server import PostgresServer
from tests.support.batches import batch_of
from tests.support.brokers import Brokers, run_brokers
from tests.support.kafka_peer import KafkaPeer, create_topic, only_partition, produce, records_in

pytestmark = pytest.mark.long

_names = count()


@pytest.fixture(scope="module")
def brokers(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with run_brokers(tmp_path_factory.mktemp("brokers"), server.dsn) as running:
        for number in (1, 2, 3):
            while len(running.cluster(number)["brokers"]) < 3:
                pass
        yield running


@pytest.fixture
def topic(brokers: Brokers) -> tuple[str, bytes, int]:
    """Return the name, the id and the leader of a topic with two records."""
    name = f"near-{next(_names)}"
    with KafkaPeer(brokers[1]) as peer:
        topic_id = create_topic(peer, name)
        assert only_partition(peer.call(produce(name, batch_of([b"a", b"b"])), 9)).error_code == 0
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (described,) = peer.call(request, 12).topics
    (partition,) = described.partitions
    assert sorted(partition.replica_nodes) == [1, 2, 3]
    return name, topic_id, partition.leader_id


def fetch_from_rack(
    topic: str | bytes, rack: str, *, session_id: int = 0, session_epoch: int = -1
) -> FetchRequest:
    named: dict[str, Any] = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(partitions=[partition], **named)],
        rack_id=rack,
    )


@pytest.mark.parametrize("version", [11, 12, 13, 18])
def test_a_consumer_is_sent_to_the_broker_of_its_rack_and_served_there(
    brokers: Brokers, topic: tuple[str, bytes, int], version: int
) -> None:
    name, topic_id, leader = topic
    asked = name if version < 13 else topic_id
    other = next(number for number in (1, 2, 3) if number != leader)
    with KafkaPeer(brokers[leader]) as at_leader, KafkaPeer(brokers[other]) as at_other:
        # At once, although it may wait for records.
        sent = only_partition(at_leader.call(fetch_from_rack(asked, f"rack-{other}"), version))
        assert (sent.error_code, sent.preferred_read_replica) == (ErrorCode.NONE, other)
        assert not sent.records
        # The end is as this broker knows it, perhaps from before the records were written at another.
        assert sent.log_start_offset == 0
        assert sent.high_watermark in (0, 2)
        for served in (
            only_partition(at_other.call(fetch_from_rack(asked, f"rack-{other}"), version)),
            # A rack without a broker, no rack, and the rack of the leader itself.
            only_partition(at_leader.call(fetch_from_rack(asked, "rack-9"), version)),
            only_partition(at_leader.call(fetch_from_rack(asked, ""), version)),
            only_partition(at_leader.call(fetch_from_rack(asked, f"rack-{leader}"), version)),
        ):
            assert (served.error_code, served.preferred_read_replica) == (ErrorCode.NONE, -1)
            assert records_in(bytes(served.records)) == [(0, b"a"), (1, b"b")]


def test_a_fetch_session_sends_a_consumer_on_as_well(brokers: Brokers, topic: tuple[str, bytes, int]) -> None:
    name, _, leader = topic
    other = next(number for number in (1, 2, 3) if number != leader)
    with KafkaPeer(brokers[leader]) as peer:
        begun = peer.call(fetch_from_rack(name, f"rack-{other}", session_epoch=0), 12)
        assert begun.session_id
        assert only_partition(begun).preferred_read_replica == other
        later = peer.call(
            fetch_from_rack(name, f"rack-{other}", session_id=begun.session_id, session_epoch=1), 12
        )
        assert only_partition(later).preferred_read_replica == other


def test_a_kafka_consumer_with_a_rack_reads_there_and_goes_on_when_that_broker_dies(
    brokers: Brokers, topic: tuple[str, bytes, int]
) -> None:
    name, _, leader = topic
    near = next(number for number in (1, 2, 3) if number != leader)
    served_by: list[tuple[int, int]] = []

    def note(text: str) -> None:
        stats = json.loads(text)
        partition = stats["topics"].get(name, {}).get("partitions", {}).get("0")
        if partition is not None:
            served_by.append((partition["broker"], partition["leader"]))

    consumer = Consumer(
        {
            "bootstrap.servers": brokers.kafka_bootstrap,
            "group.id": "unused",
            "client.rack": f"rack-{near}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 50,
            "stats_cb": note,
        }
    )
    producer = Producer({"bootstrap.servers": brokers.kafka_bootstrap})
    values: list[bytes | None] = []

    def read(until: int) -> None:
        while len(values) < until:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())

    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        read(2)
        while served_by[-1:] != [(near, leader)]:
            consumer.poll(0.1)
        brokers[near].kill()
        producer.produce(name, b"c")
        assert producer.flush(60) == 0
        read(3)
        assert values == [b"a", b"b", b"c"]
    finally:
        consumer.close()
        if not brokers[near].is_running:
            brokers[near].start()
