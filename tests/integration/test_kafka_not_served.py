"""What is not served ends at once, with a readable error; what is new is not forced on anybody.

Each client is one that people have. ``docs/conformance.md`` says what it shows its user.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import KafkaError as ConfluentError
from stele.broker_process import BrokerProcess, run_broker

from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kafka_peer import KafkaPeer, create_topic, put

TOPIC = "for-the-refused"
# A client that goes on asking reaches it, and fails the test; one that ends at once is far from it.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, TOPIC)
            put(peer, TOPIC, b"x")
        yield broker


@pytest.fixture(scope="module")
def java_tools() -> None:
    with kafka_or_skip():
        libs()


# ── group protocols ──


def test_the_classic_protocol_is_what_clients_take_by_default(broker: BrokerProcess) -> None:
    """Clients see the API of the new one, and do not prefer it."""
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka_bootstrap, "group.id": "old", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert message.error() is None


# ── SASL ──


def test_librdkafka_reports_that_the_listener_has_no_sasl(broker: BrokerProcess) -> None:
    errors: list[ConfluentError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "user",
            "sasl.password": "password",
            "error_cb": errors.append,
        }
    )
    deadline = time.monotonic() + PATIENCE_S
    while not errors:
        assert time.monotonic() < deadline, "no error"
        producer.poll(0.1)
    assert errors[0].name() == "_AUTHENTICATION"
    assert "SASL PLAIN mechanism handshake failed" in errors[0].str()
    assert "Request not valid in current SASL state" in errors[0].str()


@pytest.mark.long
def test_java_reports_that_the_listener_has_no_sasl(
    java_tools: None, broker: BrokerProcess, tmp_path: Path
) -> None:
    settings = tmp_path / "sasl.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="user" password="password";\n'
    )
    done = run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", broker.kafka_bootstrap, "--list", "--command-config", str(settings)),
        timeout_s=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "IllegalSaslStateException" in done.stdout + done.stderr
    assert "enabled mechanisms are []" in done.stdout + done.stderr
