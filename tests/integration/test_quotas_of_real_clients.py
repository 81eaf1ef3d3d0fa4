"""Clients of other projects find the wait in the responses, and go on after it."""

from __future__ import annotations

import json
import re
import select
import socket
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from stele import Client
from stele import Producer as SteleProducer
from stele.cli import stele
from stele.errors import ThrottledError
from stele.testing import run_broker

from load.apache_kafka import run_tool
from tests.support.apache_kafka import kafka_or_skip

TOPIC = "t"


def quotas(url: str, *arguments: str) -> str:
    result = CliRunner().invoke(stele, ["quotas", *arguments, "--url", url], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def throttled_ms(statistics: list[str]) -> int:
    return max(
        (broker["throttle"]["max"] for text in statistics for broker in json.loads(text)["brokers"].values()),
        default=0,
    )


def test_librdkafka_reports_the_wait_and_everything_arrives() -> None:
    with run_broker() as broker:
        url = broker.http_url
        quotas(url, "set", "--for-client-id", "loader", "producer_byte_rate=20000")
        quotas(url, "set", "--for-client-id", "reader", "consumer_byte_rate=20000")
        told: list[str] = []
        events: list[Any] = []
        options = {
            "bootstrap.servers": broker.kafka_bootstrap,
            "statistics.interval.ms": 100,
            "stats_cb": told.append,
            "throttle_cb": events.append,
        }
        producer = Producer({**options, "client.id": "loader", "linger.ms": 0})
        for _ in range(23):
            producer.produce(TOPIC, b"x" * 10_000)
            producer.flush()
        assert throttled_ms(told) > 0
        assert any(event.throttle_time > 0 for event in events)

        told.clear()
        consumer = Consumer(
            {**options, "client.id": "reader", "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        seen = 0
        while seen < 23:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            seen += 1
        while not throttled_ms(told):
            consumer.poll(1)
        consumer.close()


def test_the_command_line_sets_lists_and_removes() -> None:
    with run_broker() as broker:
        url = broker.http_url
        assert quotas(url, "list") == ""
        shown = quotas(url, "set", "--for-user", "alice", "--default-client-id", "producer_byte_rate=1048576")
        assert shown == "client-id (default), user alice: producer_byte_rate=1048576\n"
        quotas(url, "set", "--default-ip", "connection_creation_rate=1000")
        assert quotas(url, "list").splitlines() == [
            "client-id (default), user alice: producer_byte_rate=1048576",
            "ip (default): connection_creation_rate=1000",
        ]
        assert quotas(url, "remove", "--default-ip") == "ip (default): no quotas\n"
        removed = quotas(url, "remove", "--for-user", "alice", "--default-client-id", "producer_byte_rate")
        assert removed == "client-id (default), user alice: no quotas\n"
        refused = CliRunner().invoke(stele, ["quotas", "set", "--for-user", "a", "nonsense=1", "--url", url])
        assert refused.exit_code == 1
        assert "is not a quota" in refused.output


def test_the_client_library_waits_over_the_binary_protocol() -> None:
    with run_broker() as broker:
        quotas(broker.http_url, "set", "--default-user", "producer_byte_rate=20000")
        with Client(broker.binary_url) as client:
            for number in range(23):
                client.produce(TOPIC, b"%d" % number + b"x" * 10_000)
            assert client.list_offset(TOPIC, 0, "latest") == 23


def test_over_http_a_call_fails_and_a_producer_tries_again() -> None:
    with run_broker() as broker:
        quotas(broker.http_url, "set", "--default-user", "producer_byte_rate=20000")
        with Client(broker.http_url) as client:
            # So much above the quota that the next request comes too early on a busy machine, too.
            client.produce(TOPIC, b"x" * 320_000)
            with pytest.raises(ThrottledError) as refused:
                client.produce(TOPIC, b"refused")
            assert refused.value.retriable
            with SteleProducer(client, TOPIC) as producer:
                producer.send(b"patient")
                producer.flush()
            assert client.list_offset(TOPIC, 0, "latest") == 2


@pytest.mark.long
def test_the_java_client_reports_the_wait() -> None:
    with kafka_or_skip(), run_broker() as broker:
        quotas(broker.http_url, "set", "--for-client-id", "loader", "producer_byte_rate=20000")
        options = ("--topic", TOPIC, "--num-records", "25", "--record-size", "10000", "--throughput", "-1")
        properties = (f"bootstrap.servers={broker.kafka_bootstrap}", "client.id=loader", "batch.size=1")
        run = run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *options,
            "--print-metrics",
            "--producer-props",
            *properties,
        )
        assert run.returncode == 0, run.stderr
        (text,) = re.findall(r"produce-throttle-time-max:\{client-id=loader\}\s*: ([\d.]+)", run.stdout)
        assert float(text) > 0


def test_an_address_that_connects_too_fast_is_refused_on_all_listeners() -> None:
    with run_broker() as broker:
        quotas(broker.http_url, "set", "--for-ip", broker.host, "connection_creation_rate=1")
        ports = (broker.binary_port, broker.kafka_port)
        waiting = {socket.create_connection((broker.host, port), timeout=60): port for port in ports * 20}
        refused: set[int] = set()
        # Those that are admitted say nothing, because they are asked nothing.
        while refused != set(ports):
            readable, _, _ = select.select(list(waiting), [], [], 60)
            assert readable, "no further connection is refused, on one of the listeners"
            for connection in readable:
                assert connection.recv(1) == b""
                connection.close()
                refused.add(waiting.pop(connection))
        assert waiting, "some are admitted"
        for connection in waiting:
            connection.close()
