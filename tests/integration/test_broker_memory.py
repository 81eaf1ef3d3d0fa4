"""A broker uses freed memory again, which the kernel counts in page faults."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest
from stele.testing import BrokerProcess
from stele.wire.record_batch import build_values

from load.kafka_frames import connect, make_topic, produce_request, receive

TOPIC = "large"
BATCH = bytes(build_values([b"x" * 1_000] * 100, time.time_ns() // 1_000_000))
IN_FLIGHT, ROUNDS = 40, 10


def page_faults(pid: int) -> int:
    # The name in parentheses may hold anything; after it, minflt is the 8th field.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_requests_of_100_kb_take_their_memory_from_earlier_ones(stele_broker: BrokerProcess) -> None:
    host, port = stele_broker.host, stele_broker.kafka_port
    make_topic(host, port, TOPIC)
    request = produce_request(TOPIC, BATCH, acks=1)

    def produce_rounds(rounds: int) -> None:
        with connect(host, port) as connection:
            for _ in range(rounds):
                connection.sendall(request * IN_FLIGHT)
                for _ in range(IN_FLIGHT):
                    receive(connection)

    produce_rounds(2)
    before = page_faults(stele_broker.pid)
    produce_rounds(ROUNDS)
    faults = page_faults(stele_broker.pid) - before
    # Every request would have 25 pages of its own; there are a few faults for other things.
    assert faults < 5 * IN_FLIGHT * ROUNDS, f"{faults} page faults for {IN_FLIGHT * ROUNDS} requests"
