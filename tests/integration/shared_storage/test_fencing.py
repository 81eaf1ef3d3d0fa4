"""A broker that is paused in the middle of a write, and replaced meanwhile, writes nothing when it goes on.

The write has passed all checks of the broker; its transaction is on the way to PostgreSQL. There only the epoch in
the row of the lease, or that of the named producer, tells that it comes too late.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.testing import BrokerProcess
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stele.wire.kafka.produce import ProduceRequest

from app.cluster.group_shards import lease_of_group
from load.pausing import paused
from load.postgres_server import PostgresServer
from tests.support.batches import batch_of
from tests.support.brokers import Brokers, run_brokers
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, produce, records_in
from tests.support.postgres_proxy import StallingProxy
from tests.support.waiting import eventually

GROUP = "readers"
# Of the commits and of the appends: both tests have the same database.
TOPIC, LOG = "committed", "appended"
# Errors after which clients find the coordinator of their group again.
LOOK_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
TIMEOUT_S = 240.0


@contextmanager
def proxied_brokers(server: PostgresServer, path: Path) -> Generator[tuple[Brokers, list[StallingProxy]]]:
    """Two brokers, each with a proxy of its own before PostgreSQL."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(StallingProxy(server.port)) for _ in range(2)]
        urls = [server.dsn.replace(str(server.port), str(proxy.port)) for proxy in proxies]
        yield stack.enter_context(run_brokers(path, urls, 2)), proxies


@contextmanager
def paused_at(
    broker: BrokerProcess,
    proxy: StallingProxy,
    is_point: Callable[[bytearray, bytes], bool],
    write: Callable[[], object],
) -> Generator[None]:
    """Pause ``broker`` when ``write`` has got to a transaction of ``is_point``; let both go on afterwards."""
    proxy.stall(lambda carried, data: b"BEGIN" in data and is_point(carried, data))
    write()
    assert proxy.held.wait(TIMEOUT_S), "no transaction has begun"
    try:
        with paused(broker.pid):
            yield
    finally:
        proxy.release.set()


def is_of_groups(carried: bytearray, data: bytes) -> bool:
    """Return whether a connection is one of those that store groups."""
    return b"FROM group_owners" in carried


def is_of_objects(carried: bytearray, data: bytes) -> bool:
    """Return whether a transaction begins with the key of an object of appends."""
    return b"w/" in data


def put(producer: dict[str, int], value: bytes, *, sequence: int) -> ProduceRequest:
    batch = batch_of(
        [value],
        producer_id=producer["producer_id"],
        producer_epoch=producer["producer_epoch"],
        base_sequence=sequence,
    )
    return produce(LOG, batch)


def error_of_produce(answer: Any) -> int:
    return only_partition(answer).error_code


def begin(broker: BrokerProcess, version: int) -> dict[str, int]:
    """Begin a version of a named producer."""
    answer = httpx.post(
        f"{broker.http_url}/v1/producers", params={"name": "job", "version": version}, timeout=60
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


def commit_of(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    return OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    )


def error_of_commit(answer: Any) -> int:
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.error_code


def commits(broker: BrokerProcess, offset: int) -> bool:
    """Commit over HTTP; return whether the broker did."""
    offsets = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": offset}]}
    answer = httpx.put(f"{broker.http_url}/v1/groups/{GROUP}/offsets", json=offsets, timeout=60)
    return answer.status_code == 200


def committed(broker: BrokerProcess) -> int | None:
    """Return the committed offset, or None while the group moves."""
    answer = httpx.get(f"{broker.http_url}/v1/groups/{GROUP}", timeout=60)
    return answer.json()["partitions"][0]["committed"] if answer.status_code == 200 else None


def test_a_commit_of_offsets_that_was_on_its_way_during_a_pause_is_refused(
    server: PostgresServer, tmp_path: Path
) -> None:
    with proxied_brokers(server, tmp_path) as (brokers, proxies):
        old = brokers.coordinator(GROUP)
        new, proxy = brokers[3 - old], proxies[old - 1]
        with KafkaPeer(brokers[old]) as client:
            create_topic(client, TOPIC)
            for number in range(8):
                batch = batch_of([b"%d" % number])
                assert error_of_produce(client.call(produce(TOPIC, batch), 12)) == ErrorCode.NONE
            assert error_of_commit(client.call(commit_of(1), 8)) == ErrorCode.NONE
            with paused_at(brokers[old], proxy, is_of_groups, lambda: client.post(commit_of(2), 8)):
                # The other broker refuses until it has the lease.
                eventually(lambda: commits(new, 7), "the other broker commits")
            _, answer = client.next_answer()
            assert error_of_commit(answer) in LOOK_AGAIN
        assert lease_of_group(GROUP).encode() in proxy.held_data, "it was not the commit that was held"
        eventually(lambda: committed(new) is not None, "the group is served")
        assert committed(new) == 7


@pytest.mark.long
def test_an_append_of_a_named_producer_that_was_on_its_way_during_a_pause_is_refused(
    server: PostgresServer, tmp_path: Path
) -> None:
    """The next version has begun at another broker, and the partition has no batch of it yet."""
    with proxied_brokers(server, tmp_path) as (brokers, proxies), KafkaPeer(brokers[1]) as client:
        create_topic(client, LOG)
        first = begin(brokers[1], 1)
        assert error_of_produce(client.call(put(first, b"one", sequence=0), 12)) == ErrorCode.NONE
        with paused_at(
            brokers[1], proxies[0], is_of_objects, lambda: client.post(put(first, b"two", sequence=1), 12)
        ):
            eventually(lambda: len(brokers.cluster(2)["brokers"]) == 1, "the paused broker counts as dead")
            second = begin(brokers[2], 2)
            assert second["producer_id"] == first["producer_id"]
        _, answer = client.next_answer()
        assert error_of_produce(answer) in FENCED
        with KafkaPeer(brokers[2]) as other:
            assert error_of_produce(other.call(put(second, b"three", sequence=0), 12)) == ErrorCode.NONE
            found = only_partition(other.call(fetch(LOG, 0), 12))
        assert records_in(bytes(found.records)) == [(0, b"one"), (1, b"three")]
