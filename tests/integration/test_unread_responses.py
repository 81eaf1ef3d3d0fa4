"""Clients that ask for much and read nothing of it: bounded memory together, and a bystander that is served."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m

from load.kafka_frames import (
    batch_of,
    check_produce,
    connect,
    fetch_request,
    make_topic,
    produce_request,
    receive,
)
from load.process_usage import PeakMemory

MIB = 1024 * 1024
TOPIC = "unread"
FETCH_BYTES_MAX = MIB
# Twice the room of 16 fetches; of each client 64 KiB and one more small response; and objects made of the records.
# Without the room it was 290 MiB for fetches of the binary protocol, and a gigabyte and more for the others.
MEMORY_MIB = 200
CLIENTS, FETCHES = 400, 5
BATCHES, BATCH_VALUES, VALUE_BYTES = 60, 10, 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment={"STELE_FETCH_BYTES_MAX": str(FETCH_BYTES_MAX)}) as broker:
        make_topic(broker.host, broker.kafka_port, TOPIC)
        with connect(broker.host, broker.kafka_port) as producer:
            for _ in range(BATCHES):
                producer.sendall(produce_request(TOPIC, batch_of(BATCH_VALUES, VALUE_BYTES), acks=-1))
                check_produce(receive(producer))
        yield broker


def kafka_fetches(broker: BrokerProcess) -> tuple[int, bytes]:
    return broker.kafka_port, fetch_request(TOPIC, 0, max_wait_ms=0) * FETCHES


def binary_fetches(broker: BrokerProcess) -> tuple[int, bytes]:
    partition = m.FetchPartition(topic=TOPIC, partition=0, offset=0, max_bytes=8 * MIB)
    return broker.binary_port, m.FetchRequest(partitions=[partition], max_bytes=8 * MIB).encode() * FETCHES


def binary_consumes(broker: BrokerProcess) -> tuple[int, bytes]:
    return broker.binary_port, m.ConsumeRequest(topic=TOPIC, offset=0, batch_size=1000).encode() * FETCHES


@pytest.mark.parametrize("requests", [kafka_fetches, binary_fetches, binary_consumes])
def test_clients_that_read_nothing_take_bounded_memory_together(
    broker: BrokerProcess, requests: Callable[[BrokerProcess], tuple[int, bytes]]
) -> None:
    port, asked = requests(broker)
    memory = PeakMemory(broker.pid)
    memory.reset()
    before = memory.mib
    with ExitStack() as stack:
        for number in range(CLIENTS):
            connection = stack.enter_context(socket.socket())
            # The system takes little of a response; the broker has to hold the rest.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((broker.host, port))
            connection.sendall(asked)
            if number % 20 == 0:
                assert records_read(broker) == BATCHES * BATCH_VALUES
        assert records_read(broker) == BATCHES * BATCH_VALUES
        assert 0 < metric(broker, "stele_unread_response_bytes") <= 33 * FETCH_BYTES_MAX
        assert memory.mib - before < MEMORY_MIB, f"{memory.mib:.0f} MiB, {before:.0f} before"


def metric(broker: BrokerProcess, name: str) -> float:
    lines = httpx.get(f"{broker.http_url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def records_read(broker: BrokerProcess) -> int:
    """Read the whole topic by both protocols, and return how many records it has."""
    over_binary = offset = 0
    with Client(broker.binary_url) as client:
        while messages := client.simple_consume(TOPIC, over_binary, 1000)[0]:
            over_binary += len(messages)
    with connect(broker.host, broker.kafka_port) as reader:
        while offset < BATCHES * BATCH_VALUES:
            reader.sendall(fetch_request(TOPIC, offset, max_wait_ms=0))
            answer = receive(reader)
            assert len(answer) < FETCH_BYTES_MAX + 10_000
            offset += BATCH_VALUES * (len(answer) // (BATCH_VALUES * VALUE_BYTES))
    assert over_binary == offset
    return offset
