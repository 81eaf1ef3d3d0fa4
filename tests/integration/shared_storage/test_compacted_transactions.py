"""Transactions on a compacted topic of two brokers: an abort leaves nothing, and takes nothing away."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.brokers import Brokers
from tests.support.waiting import eventually

BROKERS = 2
ENVIRONMENT = {"STELE_LOG_CLEANER_BACKOFF_MS": "100"}

pytestmark = pytest.mark.long

TOPIC = "accounts"
# Nothing is compacted at first.
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "3600000",
}
NOW = {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1"}

_Values = dict[str, str | None]


def call(brokers: Brokers, number: int, method: str, path: str, **request: Any) -> Any:
    answer = httpx.request(method, brokers[number].http_url + path, timeout=60, **request)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def producer_of(brokers: Brokers, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": brokers.kafka_bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    return producer


def write(producer: Producer, records: _Values) -> None:
    """Begin a transaction and store records in it."""
    producer.begin_transaction()
    for key, value in records.items():
        producer.produce(TOPIC, None if value is None else value.encode(), key.encode(), partition=0)
    assert producer.flush(60) == 0


def records_at(brokers: Brokers, number: int, isolation: str) -> list[tuple[str, str | None]]:
    """Read the topic from its start to its end, or to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers[number].kafka_bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    records: list[tuple[str, str | None]] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                return records
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            records.append((key.decode(), value.decode() if isinstance(value, bytes) else None))
    finally:
        consumer.close()


def table_at(brokers: Brokers, number: int) -> _Values:
    answer = httpx.get(f"{brokers[number].http_url}/v1/topics/{TOPIC}/table")
    *records, end = map(json.loads, answer.text.splitlines())
    assert end["end"]["reason"] == "end", end
    table: _Values = {record["key"]: record["value"] for record in records}
    return {key: value for key, value in table.items() if value is not None}


def check_keys(brokers: Brokers, expected: _Values) -> None:
    """Look up keys, and read the table, at each broker."""
    for number in (1, 2):
        for key, value in expected.items():
            answer = httpx.get(
                f"{brokers[number].http_url}/v1/topics/{TOPIC}/keys/{key}",
                headers={"accept": "application/octet-stream"},
            )
            found = answer.text if answer.status_code == 200 else None
            assert (answer.status_code in (200, 404), found) == (True, value), (number, key, answer.text)
        table = table_at(brokers, number)
        assert table == {key: value for key, value in expected.items() if value is not None}


def test_what_is_aborted_replaces_nothing_and_is_shown_nowhere(brokers: Brokers) -> None:
    call(brokers, 1, "PUT", f"/v1/topics/{TOPIC}", json={"partitions": 1, "configs": CONFIGS})
    first, second = producer_of(brokers, "first"), producer_of(brokers, "second")
    write(first, dict.fromkeys("abcdef", "first"))
    first.commit_transaction(60)
    write(second, {**dict.fromkeys("abcdef", "aborted"), "never": "aborted"})
    second.abort_transaction(60)
    write(second, {"a": "second", "b": None})
    second.commit_transaction(60)
    write(first, {"c": None, "d": "aborted"})
    first.abort_transaction(60)
    # It stays open during the first passes.
    write(first, {"e": "open", "f": None, "g": "open"})

    expected: _Values = {**dict.fromkeys("cdef", "first"), "a": "second", "b": None, "g": None, "never": None}
    committed = [*((key, "first") for key in "abcdef"), ("a", "second"), ("b", None)]
    for number in (1, 2):
        assert records_at(brokers, number, "read_committed") == committed
        assert ("d", "aborted") in records_at(brokers, number, "read_uncommitted")
    check_keys(brokers, expected)

    call(brokers, 2, "PATCH", f"/v1/topics/{TOPIC}", json={"configs": NOW})
    left = [*((key, "first") for key in "cdef"), ("a", "second"), ("b", None)]
    opened = [("e", "open"), ("f", None), ("g", "open")]
    eventually(
        lambda: all(records_at(brokers, number, "read_uncommitted") == [*left, *opened] for number in (1, 2)),
        "a pass has removed what was aborted, and left what is open",
    )
    for number in (1, 2):
        assert records_at(brokers, number, "read_committed") == left
    check_keys(brokers, expected)

    first.abort_transaction(60)
    write(second, {"a": "third", "g": "third"})
    second.commit_transaction(60)
    expected |= {"a": "third", "g": "third"}
    check_keys(brokers, expected)
    left = [*((key, "first") for key in "cdef"), ("b", None), ("a", "third"), ("g", "third")]
    eventually(
        lambda: all(records_at(brokers, number, "read_uncommitted") == left for number in (1, 2)),
        "another pass has removed what was aborted after the first",
    )
    for number in (1, 2):
        assert records_at(brokers, number, "read_committed") == left
    check_keys(brokers, expected)
