"""``stele transactions``, topics and metrics while real producers leave transactions open."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from stele.cli import stele
from stele.testing import BrokerProcess, run_broker

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment={"STELE_SAMPLE_INTERVAL_MS": "100"}) as broker:
        httpx.put(f"{broker.http_url}/v1/topics/{TOPIC}", json={"partitions": 1})
        yield broker


def command(broker: BrokerProcess, *arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(
        stele, ["transactions", *arguments, "--url", broker.http_url], input=text, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def begin(broker: BrokerProcess, transactional_id: str) -> Producer:
    """A producer with one record in an open transaction."""
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, transactional_id.encode(), partition=0)
    assert producer.flush(30) == 0
    return producer


def test_a_forgotten_transaction_is_found_and_ended(broker: BrokerProcess) -> None:
    forgotten = begin(broker, "etl/1")
    begin(broker, "fine").commit_transaction(30)
    with httpx.Client(base_url=broker.http_url) as http:
        (partition,) = http.get(f"/v1/topics/{TOPIC}").json()["partitions"]
        assert (partition["last_stable_offset"], partition["high_watermark"]) == (0, 3)
        assert partition["held_back_by"]["transactional_id"] == "etl/1"
        gauges: dict[str, str] = {}
        while gauges.get("stele_last_stable_offset_held_partitions") != "1.0":
            gauges = dict(re.findall(r"(?m)^(stele_\w+) (\S+)$", http.get("/metrics").text))
        assert (gauges["stele_transactions_open"], gauges["stele_transactions_hanging"]) == ("1.0", "0.0")
        assert gauges["stele_transactions_committed_total"] == "1.0"

    shown = command(broker, "list")
    assert re.search(r"(?m)^  etl/1 +Ongoing +\d+ +[\d.]+ s$", shown), shown
    assert re.search(r"(?m)^  fine +CompleteCommit +\d+ +-$", shown), shown
    assert "fine" not in command(broker, "list", "--open")
    assert "etl/1" not in command(broker, "list", "--open-longer-than", "3600")
    assert "1 more" in command(broker, "list", "--limit", "1")
    assert "fine" not in command(broker, "list", "--pattern", "etl.*")
    shown = command(broker, "describe", "etl/1")
    assert re.search(
        r"^etl/1: Ongoing, open for [\d.]+ s, timeout 60.0 s, producer \d+ epoch 0$", shown, re.M
    )
    assert re.search(r"(?m)^  orders-0 +0 +yes$", shown), shown
    assert command(broker, "hanging") == "no transaction hangs\n"
    assert re.search(r"(?m)^  orders-0 +\d+ +0 +[\d.]+ s +yes +etl/1$", command(broker, "hanging", "--all"))

    config = {"bootstrap.servers": broker.kafka_bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.subscribe([TOPIC])
    assert "aborted the transaction of etl/1" in command(broker, "abort", "etl/1", text="y\n")
    (record,) = consumer.consume(1, timeout=120)
    assert record.value() == b"fine"
    consumer.close()
    with pytest.raises(KafkaException):
        forgotten.commit_transaction(30)


def test_an_operator_who_does_not_confirm_or_names_nothing_aborts_nothing(broker: BrokerProcess) -> None:
    producer = begin(broker, "kept")
    for arguments, status in (
        (["abort", "kept"], 1),
        (["abort"], 2),
        (["abort", "kept", "--topic", TOPIC], 2),
        (["abort", "--topic", TOPIC, "--partition", "0"], 2),
        (["abort", "nobody", "--yes"], 1),
        (["abort", "--topic", TOPIC, "--partition", "0", "--producer-id", "77", "--yes"], 1),
    ):
        result = CliRunner().invoke(
            stele, ["transactions", *arguments, "--url", broker.http_url], input="n\n"
        )
        assert result.exit_code == status, result.output
    producer.commit_transaction(30)
