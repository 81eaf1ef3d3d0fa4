"""Two producers with one transactional id, as Apache Flink's sinks have after a failure, with real clients.

A Flink sink that recovers begins with the transactional ids of the run before, which may still run: the producer
of that run must not be able to commit, and reports it by the exception of its own library.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.errors import ProducerFencedError  # type: ignore[import-untyped]
from stele import Client
from stele.broker_process import BrokerProcess

from tests.support.waiting import Pauses

TIMEOUT_S = 240.0
_numbers = itertools.count()


ENVIRONMENT = {"STELE_TRANSACTION_CHECK_INTERVAL_MS": "50"}


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    topic = f"topic-{next(_numbers)}"
    with Client(broker.http_url) as client:
        client.create_topic(topic, partitions=1)
    return topic


def librdkafka(broker: BrokerProcess, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
    """Return a producer that has begun with its transactional id."""
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, value: bytes) -> None:
    """Write one record, which is in the log on return."""
    producer.begin_transaction()
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def error_of(call: Callable[[float], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call(TIMEOUT_S)
    return raised.value.args[0]


def committed(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    with Client(broker.http_url) as client:
        return [record.value for record in client.fetch(topic).records]


def await_end_of_transactions(broker: BrokerProcess, topic: str) -> None:
    """Return when readers of committed records are held back no longer."""
    give_up_s = time.monotonic() + TIMEOUT_S
    pauses = Pauses()
    with Client(broker.http_url) as client:
        while client.list_offset(topic) != client.list_offset(topic, isolation="read_uncommitted"):
            assert time.monotonic() < give_up_s, "the transaction did not time out"
            pauses.pause()


def test_a_second_producer_aborts_the_open_transaction_and_fences_the_first(
    broker: BrokerProcess, topic: str
) -> None:
    first = librdkafka(broker, topic)
    write(first, topic, b"of the first")
    second = librdkafka(broker, topic)
    write(second, topic, b"of the second")

    error = error_of(first.commit_transaction)
    assert error.code() == KafkaError._FENCED
    assert error.fatal()
    assert not error.retriable()
    assert not error.txn_requires_abort()
    # It stays fenced.
    assert error_of(first.abort_transaction).code() == KafkaError._FENCED

    second.commit_transaction(TIMEOUT_S)
    assert committed(broker, topic) == [b"of the second"]


def test_a_record_of_a_fenced_producer_is_refused(broker: BrokerProcess, topic: str) -> None:
    first = librdkafka(broker, topic)
    write(first, topic, b"of the first")
    second = librdkafka(broker, topic)
    first.produce(topic, b"late")
    assert error_of(first.flush).code() == KafkaError._FENCED
    assert error_of(first.commit_transaction).code() == KafkaError._FENCED
    write(second, topic, b"of the second")
    second.commit_transaction(TIMEOUT_S)
    assert committed(broker, topic) == [b"of the second"]


def test_a_producer_of_kafka_python_is_fenced_by_one_of_librdkafka(broker: BrokerProcess, topic: str) -> None:
    first: Any = KafkaProducer(bootstrap_servers=broker.kafka_bootstrap, transactional_id=topic)
    first.init_transactions()
    first.begin_transaction()
    first.send(topic, b"of the first").get(TIMEOUT_S)
    second = librdkafka(broker, topic)
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    first.close(timeout=0)
    write(second, topic, b"of the second")
    second.commit_transaction(TIMEOUT_S)
    assert committed(broker, topic) == [b"of the second"]


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(
    broker: BrokerProcess, topic: str
) -> None:
    late = librdkafka(broker, topic, timeout_ms=1000)
    write(late, topic, b"too late")
    await_end_of_transactions(broker, topic)
    error = error_of(late.commit_transaction)
    assert error.fatal()
    assert committed(broker, topic) == []

    # A new producer with the id recovers.
    recovered = librdkafka(broker, topic)
    write(recovered, topic, b"again")
    recovered.commit_transaction(TIMEOUT_S)
    assert committed(broker, topic) == [b"again"]


def test_a_producer_begins_again_after_a_kill_of_the_broker_and_commits(
    topic: str, broker: BrokerProcess
) -> None:
    """As a sink that restores from a checkpoint: what was not committed is aborted, and written again."""
    lost = librdkafka(broker, topic)
    write(lost, topic, b"before the kill")
    broker.kill()
    broker.start()
    restored = librdkafka(broker, topic)
    assert committed(broker, topic) == []
    write(restored, topic, b"after the kill")
    restored.commit_transaction(TIMEOUT_S)
    error = error_of(lost.commit_transaction)
    assert error.code() == KafkaError._FENCED
    assert committed(broker, topic) == [b"after the kill"]


def test_a_timeout_beyond_the_limit_of_the_broker_fails_at_the_beginning(broker: BrokerProcess) -> None:
    """Flink asks for an hour by default; librdkafka allows more than this."""
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "transactional.id": "half an hour",
            "transaction.timeout.ms": 1_800_000,
            "log_level": 0,
        }
    )
    error = error_of(producer.init_transactions)
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    assert error.fatal()
