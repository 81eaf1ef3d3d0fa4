"""How much memory a broker with shared storage takes for appends that wait, and for objects that were read."""

from __future__ import annotations

import re
import select
from pathlib import Path

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode

from load.postgres_server import PostgresServer
from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, produce, records_in

MIB = 1 << 20


@pytest.fixture
def environment(own_server: PostgresServer) -> dict[str, str]:
    return {"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": own_server.dsn}


def error_of(response: object) -> int:
    return response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]


def test_appends_beyond_the_buffer_are_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    # After the first append, which does not wait, the next object is written when it is full, or hours later.
    environment |= {"STELE_SHARED_BUFFER_BYTES_MAX": str(MIB), "STELE_SHARED_LINGER_MS": "36000000"}
    request = produce("orders", batch_of([b"x" * 600_000]))
    with (
        run_broker(tmp_path / "data", environment=environment) as broker,
        KafkaPeer(broker) as one,
        KafkaPeer(broker) as other,
    ):
        create_topic(one, "orders")
        assert error_of(one.call(request, 9)) == ErrorCode.NONE
        peers = {peer.socket: peer for peer in (one, other)}
        for peer in peers.values():
            peer.post(request, 9)
        # One of the two waits, and there is no room for the other.
        (refused,), _, _ = select.select([*peers], [], [], 120)
        _, answer = peers[refused].next_answer()
        assert error_of(answer) == ErrorCode.KAFKA_STORAGE_ERROR
        # A clean end would wait for the other one.
        broker.kill()


def cache_misses(broker: BrokerProcess) -> float:
    text = httpx.get(f"{broker.http_url}/metrics").text
    found = re.search(r'stele_shared_cache_blocks_total\{outcome="miss"\} (\S+)', text)
    assert found, text
    return float(found[1])


def test_objects_beyond_the_cache_are_read_again(tmp_path: Path, environment: dict[str, str]) -> None:
    environment |= {"STELE_SHARED_CACHE_BYTES_MAX": str(MIB)}
    with run_broker(tmp_path / "data", environment=environment) as broker, KafkaPeer(broker) as peer:
        create_topic(peer, "orders")
        for _ in range(4):
            assert error_of(peer.call(produce("orders", batch_of([b"x" * 900_000])), 9)) == ErrorCode.NONE
        seen: list[float] = []
        for _ in range(2):
            for offset in range(4):
                answer = peer.call(fetch("orders", offset), 12)
                assert records_in(only_partition(answer).records)[0][0] == offset
            seen.append(cache_misses(broker))
        assert 0 < seen[0] < seen[1]
