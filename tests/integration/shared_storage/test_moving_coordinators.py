"""librdkafka's calls end in the time that they were given while no broker coordinates the group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from app.cluster.group_shards import lease_of_group
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers

pytestmark = pytest.mark.long

GROUP = "moves"
# The time that the calls are given; no broker has the group for longer than librdkafka asks three times.
CALL_S = 8
NOBODY_S = 40
# Far longer than the calls may take; a call that waits for good takes ten minutes, if it ends at all.
PATIENCE_S = 150


@pytest.fixture(scope="module")
def brokers(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with run_brokers(tmp_path_factory.mktemp("brokers"), server.dsn) as brokers:
        brokers.settle()
        yield brokers


def give_to_nobody(server: PostgresServer, group: str) -> None:
    """Let a broker that no client can reach have the group for a while."""
    server.run(
        "INSERT INTO stele.brokers (broker_id, incarnation, endpoints, seen) VALUES "
        f"(99, gen_random_uuid(), '{{}}', now() + interval '{NOBODY_S} s')"
    )
    server.run(
        "UPDATE stele.leases SET broker_id = 99, epoch = epoch + 1, "
        f"expires = now() + interval '{NOBODY_S} s', "
        "incarnation = (SELECT incarnation FROM stele.brokers WHERE broker_id = 99) "
        f"WHERE name = '{lease_of_group(group)}'"
    )


def in_time(call: Callable[[], object]) -> KafkaError | None:
    """Return the error of a call that must end by itself."""
    errors: list[KafkaError | None] = []

    def run() -> None:
        try:
            call()
        except KafkaException as failed:
            errors.append(failed.args[0])
        else:
            errors.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert errors, "the call waits for good"
    return errors[0]


def test_offsets_of_a_transaction_fail_in_time_and_are_committed_once_a_broker_has_the_group(
    server: PostgresServer, brokers: Brokers
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.kafka_bootstrap})
    admin.create_topics([NewTopic("in-transactions", 1)])["in-transactions"].result(60)
    producer = Producer({"bootstrap.servers": brokers.kafka_bootstrap, "transactional.id": "moves"})
    consumer = Consumer({"bootstrap.servers": brokers.kafka_bootstrap, "group.id": GROUP})
    group = consumer.consumer_group_metadata()
    assert group is not None
    producer.init_transactions(60)

    def send(offset: int) -> KafkaError | None:
        producer.begin_transaction()
        producer.produce("in-transactions", b"record")
        wanted = [TopicPartition("in-transactions", 0, offset)]
        return in_time(lambda: producer.send_offsets_to_transaction(wanted, group, CALL_S))

    assert send(1) is None
    producer.commit_transaction(60)
    give_to_nobody(server, GROUP)
    error = send(2)
    assert error is not None
    assert not error.fatal()
    assert in_time(lambda: producer.abort_transaction(60)) is None
    brokers.coordinator(GROUP)
    assert send(3) is None
    producer.commit_transaction(60)
    (position,) = consumer.committed([TopicPartition("in-transactions", 0)], 60)
    assert position.offset == 3
    consumer.close()
