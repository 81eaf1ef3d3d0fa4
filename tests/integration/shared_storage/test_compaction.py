"""Compacted topics at two brokers that share their storage: passes, kill -9 during one, and reads by key."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from stele import Client

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.postgres import postgres_bin
from tests.support.s3_servers import store_settings
from tests.support.waiting import eventually

CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    # A pass may begin at once.
    "max.compaction.lag.ms": "1",
}
KEYS = 40
# Slow enough for a pass to be found running.
SLOW = {"STELE_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND": "40000"}


pytestmark = pytest.mark.long


@pytest.fixture(params=["inline", "seaweedfs"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    environment = {"STELE_LOG_CLEANER_BACKOFF_MS": "100", **SLOW}
    with ExitStack() as stack:
        # Each store has a database of its own.
        server = stack.enter_context(PostgresServer(postgres_bin(), fsync="off"))
        environment |= stack.enter_context(store_settings(request.param))
        yield stack.enter_context(run_brokers(tmp_path, server.dsn, 2, environment=environment))


def test_a_compacted_topic_at_two_brokers_one_of_which_is_killed_during_a_pass(brokers: Brokers) -> None:
    with Client(brokers[1].binary_url) as client:
        client.create_topic("customers", configs=CONFIGS)
    newest: dict[bytes, bytes | None] = {}
    killed = None
    for number, codec in enumerate(itertools.cycle(("none", "lz4", "zstd"))):
        produce(brokers, newest, number, codec)
        killed = running_pass(brokers)
        if killed is not None and number >= 2:
            break
    assert killed is not None
    brokers[killed].kill()
    other = 3 - killed
    produce(brokers, newest, -1, "gzip")
    live = {key: value for key, value in newest.items() if value is not None}
    # What was acknowledged is there at once, whatever the pass had done by then.
    assert table_of(records_at(brokers, other)) == live
    brokers[killed].start()
    # The claim of the killed broker ends after ten seconds.
    eventually(lambda: len(records_at(brokers, other)) <= KEYS, "each key has one record")
    records = records_at(brokers, other)
    assert table_of(records) == live
    for number in (1, 2):
        shown = records_at(brokers, number)
        assert shown == records
        offsets = [offset for offset, _, _ in shown]
        assert offsets == sorted(set(offsets))
        # There are holes, and readers by key find what a consumer finds.
        assert offsets[-1] + 1 > len(offsets)
        check_reads_by_key(brokers[number].http_url, brokers[number].binary_url, newest)


def produce(brokers: Brokers, newest: dict[bytes, bytes | None], number: int, codec: str) -> None:
    """Write each key several times; note the last values."""
    servers = ",".join(process.kafka_bootstrap for process in brokers.running().values())
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 2}
    )
    failed: list[Any] = []
    for at in range(240):
        key = b"key %d" % (at % KEYS)
        is_tombstone = at % KEYS == 7 and at > 150
        value = None if is_tombstone else b"value %d of round %d %s" % (at, number, b"." * 50)
        producer.produce(
            "customers", value, key, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        newest[key] = value
        if not at % 50:
            producer.flush()
    assert producer.flush() == 0
    assert not failed


def running_pass(brokers: Brokers) -> int | None:
    """Return a broker that runs a pass; None if there is none."""
    for number in (1, 2):
        (partition,) = httpx.get(f"{brokers[number].http_url}/v1/topics/customers").json()["partitions"]
        if partition["cleaner"] == "running":
            return number
    return None


def records_at(brokers: Brokers, number: int) -> list[tuple[int, bytes, bytes | None]]:
    """Read the topic from its start to its end by librdkafka; metadata may send it to either broker."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers[number].kafka_bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("customers", 0, 0)])
    records: list[tuple[int, bytes, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                return records
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert isinstance(key, bytes)
            value = message.value()
            records.append((offset, key, value if isinstance(value, bytes) else None))
    finally:
        consumer.close()


def table_of(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    newest = {key: value for _, key, value in records}
    return {key: value for key, value in newest.items() if value is not None}


def check_reads_by_key(http_url: str, binary_url: str, newest: dict[bytes, bytes | None]) -> None:
    live = {key: value for key, value in newest.items() if value is not None}
    for key, value in newest.items():
        answer = httpx.get(
            f"{http_url}/v1/topics/customers/keys/{key.decode()}",
            headers={"accept": "application/octet-stream"},
        )
        assert (answer.status_code, answer.content if value else None) == (200 if value else 404, value)
    with Client(binary_url) as client:
        found = client.lookup("customers", b"key 3")
        assert found is not None
        assert found.value == newest[b"key 3"]
        with client.table("customers", follow=False) as table:
            assert dict(table.items()) == live
    listed = subprocess.run(
        [sys.executable, "-m", "stele.cli", "table", "customers", "--url", binary_url, "--format", "ndjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == len(live)
