"""The Kafka door where Apache Kafka's own behaviour decides what is right, and where a peer asks for too much."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess, run_broker

from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, put, request_frame


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker for this file; each test has topics of its own."""
    with run_broker() as broker:
        yield broker


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(broker) as peer:
        yield peer


def resident_kb(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


# ── what a peer may cost ──


def test_requests_that_wait_for_their_turn_stay_with_the_peer(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "flood")
    put(peer, "flood", b"x")
    # Each is answered at once, so that there are never many unanswered ones; but each takes a turn.
    asks = request_frame(fetch("flood", 1), 4) * 10_000
    before, highest, sent = resident_kb(broker), 0, 0
    ended = time.monotonic() + 1.5

    def read() -> None:
        with contextlib.suppress(OSError):
            while peer.socket.recv(1 << 20):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    writer = peer.socket.dup()
    writer.settimeout(0.1)
    while time.monotonic() < ended:
        with contextlib.suppress(TimeoutError):
            sent += writer.send(asks)
        highest = max(highest, resident_kb(broker) - before)
    peer.socket.shutdown(socket.SHUT_RDWR)
    reader.join()
    writer.close()
    assert highest < 32 * 1024, f"{highest} KiB for the {sent >> 20} MiB that were sent"
