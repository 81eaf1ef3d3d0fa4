"""Fetch sessions (KIP-227) over real connections: one table for Stele and for Apache Kafka, and what only Stele must show."""

from __future__ import annotations

import os
import random
import signal
import threading
from types import SimpleNamespace
from typing import cast

import kafka
import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode

from load.apache_kafka import apache_kafka, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.fetch_session_table import LONG_MS, NAMES, SCENARIOS, Reader, Scenario
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaAddress, KafkaPeer, create_topic, put

ENVIRONMENT = WITHOUT_RETENTION


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_session_answers_as_that_of_apache_kafka(peer: KafkaPeer, scenario: Scenario) -> None:
    assert scenario.play(Reader(peer, f"{scenario.name.replace(' ', '-')}-")) == scenario.expected


@pytest.mark.long
def test_apache_kafka_answers_as_in_the_table() -> None:
    with kafka_or_skip(), apache_kafka(heap="512m") as control:
        address = cast("KafkaAddress", SimpleNamespace(host=control.host, kafka_port=control.port))
        for scenario in SCENARIOS:
            with KafkaPeer(address) as peer:
                seen = scenario.play(Reader(peer, f"{scenario.name.replace(' ', '-')}-"))
            assert seen == scenario.expected, scenario.name


@pytest.mark.parametrize("version", range(7, 19))
def test_every_version_with_sessions_has_them(peer: KafkaPeer, version: int) -> None:
    reader = Reader(peer, f"version-{version}-")
    reader.create("a", 2)
    reader.put("a", b"1")
    begun = peer.call(reader.request({"a": {0: 0, 1: 0}}, epoch=0, ids=version >= 13), version)
    assert (begun.error_code, begun.session_id > 0) == (ErrorCode.NONE, True)
    assert sum(len(topic.partitions) for topic in begun.responses) == 2
    goes_on = reader.request({"a": {0: 1}}, epoch=1, session=begun.session_id, ids=version >= 13)
    idle = peer.call(goes_on, version)
    assert (idle.error_code, idle.session_id, list(idle.responses)) == (0, begun.session_id, [])


def test_a_session_outlives_its_connection_and_not_its_broker(broker: BrokerProcess) -> None:
    with KafkaPeer(broker) as first:
        reader = Reader(first, "outlives-")
        reader.create("a", 1)
        reader.begin({"a": {0: 0}})
        reader.peer.post(reader.request(epoch=1, wait_ms=LONG_MS), NAMES)
        first.reset()
    with KafkaPeer(broker) as second:
        other = Reader(second, "outlives-")
        other.take_session_of(reader)
        # The first round may not have been taken before its connection was gone.
        if other.fetch({"a": {0: 0}}, epoch=2)[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
            assert other.fetch({"a": {0: 0}}, epoch=1)[0] == ErrorCode.NONE


def test_memory_partitions_tell_of_what_their_ring_forgot(peer: KafkaPeer) -> None:
    reader = Reader(peer, "ring-")
    create_topic(peer, "ring-a", stele_storage="memory", stele_memory_records="2")
    reader.begin({"a": {0: 0}})
    reader.fetch(epoch=1)
    reader.put("a", b"1", b"2", b"3")
    assert reader.fetch({"a": {0: 3}}, epoch=2) == (0, "S", [("a", 0, 0, 3, 1, 0)])


def test_without_slots_every_fetch_is_full() -> None:
    with (
        run_broker(environment={**WITHOUT_RETENTION, "STELE_FETCH_SESSIONS_MAX": "0"}) as broker,
        KafkaPeer(broker) as peer,
    ):
        reader = Reader(peer, "")
        reader.create("a", 4)
        error, session, partitions = reader.begin({"a": dict.fromkeys(range(4), 0)})
        assert (error, session, len(partitions)) == (0, "-", 4)


def test_beyond_the_bound_every_fetch_is_full() -> None:
    with (
        run_broker(environment={**WITHOUT_RETENTION, "STELE_FETCH_SESSION_PARTITIONS_MAX": "3"}) as broker,
        KafkaPeer(broker) as peer,
    ):
        reader = Reader(peer, "")
        reader.create("a", 4)
        assert reader.begin({"a": {0: 0, 1: 0, 2: 0}})[1] == "S"
        assert reader.fetch({"a": {3: 0}}, epoch=1) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "-", [])
        error, session, partitions = reader.begin({"a": dict.fromkeys(range(4), 0)})
        assert (error, session, len(partitions)) == (0, "-", 4)


def test_a_stopping_broker_answers_a_round_that_waits() -> None:
    with run_broker(environment=WITHOUT_RETENTION) as broker, KafkaPeer(broker) as peer:
        reader = Reader(peer, "")
        reader.create("a", 1)
        reader.begin({"a": {0: 0}})
        reader.fetch(epoch=1)
        reader.peer.post(reader.request(epoch=2, wait_ms=LONG_MS), NAMES)
        os.kill(broker.pid, signal.SIGTERM)
        _, answer = peer.next_answer()
        assert (answer.error_code, list(answer.responses)) == (0, [])


@pytest.mark.parametrize("in_session", [False, True], ids=["without", "within"])
def test_an_answer_as_large_as_its_limits_allow_does_not_wait_for_more(
    peer: KafkaPeer, in_session: bool
) -> None:
    """Whole batches rarely add up to the limit, and a minimum of the same size would never be reached."""
    reader = Reader(peer, f"full-{in_session}-")
    reader.create("a", 2)
    reader.begin({"a": {0: 0, 1: 0}})
    for _ in range(20):
        reader.put("a", b"x" * 50)
    epoch = 1 if in_session else -1
    asked = reader.request({"a": {0: 0, 1: 0}}, epoch=epoch, wait_ms=LONG_MS, partition_max_bytes=500)
    asked.min_bytes = 500
    _, _, partitions = reader.see(peer.call(asked, NAMES))
    assert 0 < sum(records for *_, records in partitions) < 20


# ── clients that use sessions ──

WIDE = 50
EACH = 30


@pytest.fixture
def wide_topic(broker: BrokerProcess) -> str:
    """A topic of many partitions with records in each, far more than one answer brings."""
    topic = f"wide-{os.urandom(4).hex()}"
    with KafkaPeer(broker) as peer:
        create_topic(peer, topic, WIDE)
        for partition in range(WIDE):
            for number in range(EACH):
                put(peer, topic, f"{partition}:{number}:".encode() + b"x" * 1000, partition=partition)
    return topic


def assert_all_are_read(values: list[str]) -> None:
    """Every record once, each partition in its order."""
    heads = [value.split(":") for value in values]
    assert sorted((int(partition), int(number)) for partition, number, _ in heads) == [
        (partition, number) for partition in range(WIDE) for number in range(EACH)
    ]
    for partition in range(WIDE):
        assert [int(number) for one, number, _ in heads if int(one) == partition] == list(range(EACH))


def test_kafka_python_reads_a_wide_topic_in_a_session(broker: BrokerProcess, wide_topic: str) -> None:
    consumer = kafka.KafkaConsumer(
        wide_topic,
        bootstrap_servers=broker.kafka_bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
        enable_incremental_fetch_sessions=True,
        fetch_max_bytes=20_000,
        max_partition_fetch_bytes=3000,
    )
    try:
        values = [next(consumer).value.decode() for _ in range(WIDE * EACH)]
    finally:
        consumer.close()
    assert_all_are_read(values)


@pytest.mark.long
def test_the_java_consumer_reads_a_wide_topic_in_a_session(broker: BrokerProcess, wide_topic: str) -> None:
    with kafka_or_skip():
        done = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.kafka_bootstrap, "--topic", wide_topic, "--from-beginning"),
            *("--max-messages", str(WIDE * EACH), "--timeout-ms", "60000"),
            *("--consumer-property", "fetch.max.bytes=20000"),
            *("--consumer-property", "max.partition.fetch.bytes=3000"),
        )
    assert done.returncode == 0, done.stderr
    # It says other things as well on its standard output.
    assert_all_are_read([line for line in done.stdout.splitlines() if line.count(":") == 2 and "x" in line])


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_session_reads_all_that_is_appended_while_its_rounds_wait(broker: BrokerProcess, seed: int) -> None:
    """Rounds of any minimum and limit, beside a producer that appends to any of the partitions."""
    rng = random.Random(seed)
    topic, records = f"live-{seed}", 600
    appended: dict[int, int] = dict.fromkeys(range(20), 0)
    with KafkaPeer(broker) as producer, KafkaPeer(broker) as peer:
        create_topic(producer, topic, len(appended))
        places = [rng.randrange(len(appended)) for _ in range(records)]

        def append() -> None:
            for partition in places:
                put(producer, topic, b"x" * 50, partition=partition)

        appending = threading.Thread(target=append)
        appending.start()
        reader = Reader(peer, "")
        offsets = dict.fromkeys(appended, 0)
        answer, epoch, read = reader.begin({topic: offsets}), 0, 0
        while True:
            changed: dict[int, int] = {}
            for _, partition, error, _, _, count in answer[2]:
                assert not error, f"seed {seed}"
                if count:
                    offsets[partition] += count
                    changed[partition] = offsets[partition]
                    read += count
            if read == records:
                break
            epoch += 1
            request = reader.request(
                {topic: changed}, epoch=epoch, wait_ms=LONG_MS, max_bytes=rng.choice([1, 500, 1 << 20])
            )
            # More than is left would be waited for until the time is over.
            request.min_bytes = 1 if records - read < 100 else rng.choice([1, 200, 2000])
            answer = reader.see(peer.call(request, NAMES))
            assert answer[:2] == (0, "S"), f"seed {seed}"
        appending.join()
    assert [offsets[partition] for partition in appended] == [
        places.count(partition) for partition in appended
    ]
