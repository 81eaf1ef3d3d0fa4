"""Mirrors into Apache Kafka: equal offsets, translated ones, and what stops, through kills of all three sides."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, cast

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import UnexpectedEndError
from stele.mirror.definition import addresses
from stele.mirror.errors import SourceReplied, SourceUnavailable
from stele.mirror.outward import target as kafka_target
from stele.mirror.outward.batches import number_batch
from stele.mirror.outward.target import KafkaTarget
from stele.mirror.positions import NOTHING, CopyState, NotCopyable
from stele.mirror.properties import parse
from stele.mirror.source.cluster import Source
from stele.records import TopicPartition as Name
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api import Api
from stele.wire.kafka.produce import PRODUCE_API, ProduceRequest
from stele.wire.kafka.transactions import (
    DESCRIBE_PRODUCERS_API,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from stele.wire.record_batch import assign_offsets, build_rows, iter_headers, read_header

from load.apache_kafka import ApacheKafka
from tests.support.apache_kafka import start_kafka
from tests.support.mirrors import MirrorProcess, partition_of, read_raw, run_mirror
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

_numbers = itertools.count()
TIMEOUT_S = 60
Row = tuple[int, int, bytes | None, bytes | None, Any]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    kafka = start_kafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "STELE_LOG_CLEANER_BACKOFF_MS": "50",
        "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    with run_broker(tmp_path_factory.mktemp("source"), environment=settings) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def make(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    done(admin.create_topics([NewTopic(topic, partitions, 1, config=named)]))


def done(futures: Any) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def produce(bootstrap: str, topic: str, count: int, *, partition: int = 0, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **options})
    for number in range(count):
        producer.produce(
            topic,
            f"value {number}",
            key=str(number % 7),
            partition=partition,
            headers=[("h", b"x"), ("n", None)],
        )
        producer.poll(0)
        if number % 10 == 0:
            producer.flush(TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0


def rows(bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
    """Read the committed records of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Row] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error():
                return found
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.timestamp()[1], message.key(), message.value(), message.headers()))
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset, "here")], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
        return found.offset
    finally:
        consumer.close()


def out(
    broker: BrokerProcess, kafka: ApacheKafka, topics: str, **more: Any
) -> AbstractContextManager[MirrorProcess]:
    return run_mirror(broker, kafka.bootstrap, topics, to=kafka.bootstrap, **more)


def state_of(mirror: MirrorProcess, topic: str, state: str) -> str:
    """Wait for the state of a partition; return its error."""
    status = mirror.await_status(lambda status: partition_of(status, topic).get("state") == state, state)
    return partition_of(status, topic)["error"] or ""


# ── equal offsets ──


def test_records_groups_partitions_and_configurations_are_the_same_in_kafka(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(broker.kafka_bootstrap, topic, 2, retention_ms="86400000", message_timestamp_type="CreateTime")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for is_idempotent in (False, True):
            options: dict[str, Any] = {"compression.type": codec, "enable.idempotence": is_idempotent}
            produce(broker.kafka_bootstrap, topic, 25, **options)
    produce(broker.kafka_bootstrap, topic, 300, partition=1)
    commit(broker.kafka_bootstrap, f"group-{topic}", topic, 77)
    with out(broker, kafka, topic, groups="group-.*") as mirror:
        mirror.await_level({Name(topic, 0): 250, Name(topic, 1): 300})
        for partition in range(2):
            here = rows(broker.kafka_bootstrap, topic, partition)
            there = rows(kafka.bootstrap, topic, partition)
            assert here == there
        eventually(
            lambda: committed(kafka.bootstrap, f"group-{topic}", topic) == 77, "the group is at 77 there"
        )
        commit(broker.kafka_bootstrap, f"group-{topic}", topic, 250)
        admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
        done(admin.create_partitions([NewPartitions(topic, 3)]))
        produce(broker.kafka_bootstrap, topic, 10, partition=2)
        mirror.await_level({Name(topic, 2): 10})
        eventually(
            lambda: committed(kafka.bootstrap, f"group-{topic}", topic) == 250, "the group is at 250 there"
        )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = cast("dict[Any, Any]", admin.describe_configs([resource]))
    assert described[resource].result(TIMEOUT_S)["retention.ms"].value == "86400000"
    # Kafka has joined the small batches of one codec.
    copied = read_raw(kafka.bootstrap, topic)
    assert {header.compression for header in iter_headers(copied.batches)} == {0, 1, 2, 3, 4}
    assert len(copied.headers()) < len(read_raw(broker.kafka_bootstrap, topic).headers())


@pytest.mark.long
def test_times_that_the_broker_has_set_are_kept(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(broker.kafka_bootstrap, topic, message_timestamp_type="LogAppendTime")
    produce(broker.kafka_bootstrap, topic, 20)
    with out(broker, kafka, topic) as mirror:
        status = mirror.await_level({Name(topic, 0): 20})
    assert rows(broker.kafka_bootstrap, topic) == rows(kafka.bootstrap, topic)
    assert any("message.timestamp.type" in text for text in status["not_copied"])


def refused(broker: BrokerProcess, kafka: ApacheKafka, topic: str, reason: str) -> None:
    with out(broker, kafka, topic) as mirror:
        status = mirror.await_status(lambda status: status["state"] == "failed", "it is refused")
        assert reason in status["last_error"]
        assert "--offsets translate" in status["last_error"]


@pytest.mark.long
def test_what_cannot_have_equal_offsets_is_refused_with_the_reason(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(broker.kafka_bootstrap, f"{topic}-compacted", cleanup_policy="compact")
    refused(broker, kafka, f"{topic}-compacted", "is compacted")
    make(broker.kafka_bootstrap, f"{topic}-begun")
    produce(broker.kafka_bootstrap, f"{topic}-begun", 10)
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    done(admin.delete_records([TopicPartition(f"{topic}-begun", 0, 4)]))
    refused(broker, kafka, f"{topic}-begun", "its first record here has offset 4")
    make(broker.kafka_bootstrap, f"{topic}-transactions")
    produce(broker.kafka_bootstrap, f"{topic}-transactions", 3)
    transact(broker.kafka_bootstrap, f"{topic}-transactions", ["a"])
    refused(broker, kafka, f"{topic}-transactions", "offset 3 is of a transaction")
    # What comes before is there.
    assert read_raw(kafka.bootstrap, f"{topic}-transactions").end == 3


def transact(bootstrap: str, topic: str, values: list[str], *, commits: bool = True) -> None:
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{commits}"})
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    for value in values:
        writer.produce(topic, value, key=value)
    writer.flush(TIMEOUT_S)
    if commits:
        writer.commit_transaction(TIMEOUT_S)
    else:
        writer.abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize("has_paused", [False, pytest.param(True, marks=pytest.mark.long)])
def test_another_producer_stops_the_copy(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str, has_paused: bool
) -> None:
    make(broker.kafka_bootstrap, topic)
    produce(broker.kafka_bootstrap, topic, 10)
    with out(broker, kafka, topic) as mirror:
        mirror.await_level({Name(topic, 0): 10})
        if not has_paused:
            produce(kafka.bootstrap, topic, 1)
            produce(broker.kafka_bootstrap, topic, 5)
            assert "offset 10" in state_of(mirror, topic, "diverged")
    if has_paused:
        produce(kafka.bootstrap, topic, 1)
        produce(broker.kafka_bootstrap, topic, 5)
        with out(broker, kafka, topic) as mirror:
            assert "offset 10" in state_of(mirror, topic, "diverged")
    # Nothing is appended after it.
    assert read_raw(kafka.bootstrap, topic).end == 11


@pytest.mark.long
def test_the_way_back_goes_on_where_the_topic_of_kafka_ends(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(kafka.bootstrap, topic)
    options: dict[str, Any] = {"enable.idempotence": True}
    produce(kafka.bootstrap, topic, 50, **options)
    body = {"from": kafka.bootstrap, "topics": topic}
    with httpx.Client(base_url=broker.http_url, timeout=TIMEOUT_S) as here:
        here.put(f"/v1/mirrors/in-{topic}", json=body).raise_for_status()

        def state(name: str) -> str:
            return here.get(f"/v1/mirrors/{name}").json()["state"]

        eventually(lambda: state(f"in-{topic}") == "level", "the mirror is level")
        here.post(f"/v1/mirrors/in-{topic}/promote").raise_for_status()
        produce(broker.kafka_bootstrap, topic, 50)
        back = {"to": kafka.bootstrap, "topics": topic}
        shown = here.put(f"/v1/mirrors/out-{topic}", json=back).raise_for_status().json()
        assert (shown["definition"]["from"], shown["definition"]["to"]) == (None, kafka.bootstrap)
        eventually(lambda: state(f"out-{topic}") == "level", "the mirror is level")
        assert len(rows(kafka.bootstrap, topic)) == 100
        assert rows(broker.kafka_bootstrap, topic) == rows(kafka.bootstrap, topic)
        # Pausing, and what cannot be done.
        here.put(f"/v1/mirrors/out-{topic}", json={**back, "paused": True}).raise_for_status()
        assert state(f"out-{topic}") == "paused"
        produce(broker.kafka_bootstrap, topic, 5)
        here.put(f"/v1/mirrors/out-{topic}", json=back).raise_for_status()
        eventually(lambda: read_raw(kafka.bootstrap, topic).end == 105, "it goes on")
        assert here.post(f"/v1/mirrors/out-{topic}/promote").status_code == 400
        here.delete(f"/v1/mirrors/out-{topic}").raise_for_status()


class Storm:
    """Produces to a broker until it is stopped, and survives kills of the broker."""

    def __init__(self, broker: BrokerProcess, write: Callable[[Client, int], None]) -> None:
        self._broker = broker
        self._write = write
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with Client(self._broker.binary_url) as client:
                    while not self._is_over.is_set():
                        self._write(client, self.count)
                        self.count += 1
            except Exception:  # noqa: BLE001 - the broker was killed
                self._is_over.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


Write = Callable[[Client, int], None]


def storm(
    tmp_path: Path, kafka: ApacheKafka, topic: str, rounds: int, write: Write, **more: Any
) -> BrokerProcess:
    """Kill the mirror, the target and the source while records are written; return the source once all is copied."""
    broker = BrokerProcess(tmp_path / "source", environment={"STELE_LOG_CLEANER_BACKOFF_MS": "50"})
    broker.start()
    make(broker.kafka_bootstrap, topic, **more.pop("configs", {}))
    # The broker of the other tests has a mirror to the same cluster.
    more["name"] = topic
    with Storm(broker, write) as writer:
        for number in range(rounds):
            with out(broker, kafka, topic, **more) as mirror:
                mirror.await_status(lambda status: status["copied_bytes"] > 0, "it copies")
                written = writer.count
                goal = written + random.randrange(1, 60)
                eventually(lambda goal=goal: writer.count >= goal, "more is written")
                if number % 3 == 1:
                    kafka.kill()
                    kafka.start()
                elif number % 3 == 2:
                    broker.kill()
                    broker.start()
                if number % 2:
                    mirror.kill()
    with out(broker, kafka, topic, **more) as mirror:
        mirror.await_level({Name(topic, 0): end_of(broker, topic)})
    return broker


def end_of(broker: BrokerProcess, topic: str) -> int:
    return read_raw(broker.kafka_bootstrap, topic).end


@pytest.mark.long
def test_equal_offsets_outlast_kills_of_the_mirror_the_target_and_the_source(
    kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    def write(client: Client, number: int) -> None:
        client.produce_many(topic, [b"%d-%d" % (number, at) for at in range(number % 5 + 1)])

    broker = storm(tmp_path, kafka, topic, 9, write)
    try:
        assert rows(broker.kafka_bootstrap, topic) == rows(kafka.bootstrap, topic)
    finally:
        broker.stop()


# ── translated offsets ──


def assert_translated(broker: BrokerProcess, kafka: ApacheKafka, topic: str, **more: Any) -> None:
    """Fail unless the records are the same, and each committed offset leads to the same record."""
    here, there = rows(broker.kafka_bootstrap, topic), rows(kafka.bootstrap, topic)
    assert [row[1:] for row in here] == [row[1:] for row in there]
    end = end_of(broker, topic)
    offsets = [*range(end + 1)] if end < 60 else [*sorted(random.sample(range(end), 50)), end]
    for offset in offsets:
        commit(broker.kafka_bootstrap, f"{topic}-at-{offset}", topic, offset)
    with out(broker, kafka, topic, groups=f"{topic}-at-.*", **more) as mirror:
        mirror.await_level()
        for offset in offsets:
            group = f"{topic}-at-{offset}"
            eventually(lambda group=group: committed(kafka.bootstrap, group, topic) >= 0, "it is translated")
            at = committed(kafka.bootstrap, group, topic)
            assert [row[1:] for row in there if row[0] >= at] == [row[1:] for row in here if row[0] >= offset]


@pytest.mark.long
def test_what_has_no_equal_offsets_is_copied_with_translated_ones(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    """A log that begins later, transactions that were committed and aborted, and times of the broker."""
    make(broker.kafka_bootstrap, topic, message_timestamp_type="LogAppendTime")
    produce(broker.kafka_bootstrap, topic, 10)
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    done(admin.delete_records([TopicPartition(topic, 0, 4)]))
    transact(broker.kafka_bootstrap, topic, ["a", "b"])
    transact(broker.kafka_bootstrap, topic, ["never"], commits=False)
    with out(broker, kafka, topic, offsets="translate") as mirror:
        mirror.await_level({Name(topic, 0): 14})
        produce(broker.kafka_bootstrap, topic, 5)
        transact(broker.kafka_bootstrap, topic, ["never"], commits=False)
        transact(broker.kafka_bootstrap, topic, ["c"])
        mirror.await_level({Name(topic, 0): end_of(broker, topic)})
    assert_translated(broker, kafka, topic, offsets="translate")
    assert not {b"never"} & {row[3] for row in rows(kafka.bootstrap, topic)}


@pytest.mark.long
def test_records_that_were_deleted_before_they_were_copied_have_offsets_there(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    """A log that has only its end is level, and a group at its end is there at the end, too."""
    make(broker.kafka_bootstrap, topic)
    produce(broker.kafka_bootstrap, topic, 10)
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    done(admin.delete_records([TopicPartition(topic, 0, 10)]))
    commit(broker.kafka_bootstrap, topic, topic, 10)
    with out(broker, kafka, topic, offsets="translate", groups=topic) as mirror:
        mirror.await_level({Name(topic, 0): 10})
        eventually(lambda: committed(kafka.bootstrap, topic, topic) >= 0, "the offset is translated")
        at = committed(kafka.bootstrap, topic, topic)
        produce(broker.kafka_bootstrap, topic, 5)
        mirror.await_level({Name(topic, 0): 15})
    assert [row[3] for row in rows(kafka.bootstrap, topic) if row[0] >= at] == [
        row[3] for row in rows(broker.kafka_bootstrap, topic)
    ]


@pytest.mark.long
@pytest.mark.parametrize("offsets", ["equal", "translate"])
def test_a_topic_that_was_deleted_there_is_copied_again(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str, offsets: str
) -> None:
    make(broker.kafka_bootstrap, topic)
    produce(broker.kafka_bootstrap, topic, 10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with out(broker, kafka, topic, offsets=offsets) as mirror:
        mirror.await_level({Name(topic, 0): 10})
        done(admin.delete_topics([topic]))
        produce(broker.kafka_bootstrap, topic, 5)
        mirror.await_level({Name(topic, 0): 15})
        eventually(lambda: len(rows(kafka.bootstrap, topic)) == 15, "all are there again")


def test_nothing_is_written_to_a_topic_of_others(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(broker.kafka_bootstrap, topic)
    make(kafka.bootstrap, topic)
    produce(broker.kafka_bootstrap, topic, 3)
    produce(kafka.bootstrap, topic, 2)
    for offsets in ("equal", "translate"):
        with out(broker, kafka, topic, offsets=offsets) as mirror:
            assert "delete it there to copy it again" in state_of(mirror, topic, "diverged")
    assert read_raw(kafka.bootstrap, topic).end == 2


@pytest.mark.long
def test_translated_offsets_outlast_kills_of_the_mirror_the_target_and_the_source(
    kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    """A topic that is compacted while it is copied, so that batches with holes are copied."""

    def write(client: Client, number: int) -> None:
        rows = [(b"%d" % (at % 4), b"%d-%d" % (number, at)) for at in range(number % 5 + 1)]
        client.produce_many(topic, [NewRecord(key=key, value=value) for key, value in rows])

    configs = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.01",
        "segment_bytes": "2000",
    }
    broker = storm(tmp_path, kafka, topic, 9, write, offsets="translate", configs=configs)
    try:
        here = [row[1:4] for row in rows(broker.kafka_bootstrap, topic)]
        there = [row[1:4] for row in rows(kafka.bootstrap, topic)]
        # Each once, in their order; those that have been compacted here since come in addition.
        assert len(set(there)) == len(there)
        assert [row for row in there if row in set(here)] == here
    finally:
        broker.stop()


# ── requests of a mirror that was killed ──


class HoldingBack(Source):
    """A cluster whose produce requests stay under way: ``release`` lets them arrive later."""

    def __init__(self, servers: str) -> None:
        super().__init__(addresses(servers), lambda: parse({}, mirror="test"))
        self._held: list[tuple[object, dict[str, Any]]] = []
        # The topic whose records do not arrive.
        self.holds = ""

    async def call(self, api: Api, request: object, **more: Any) -> Any:
        if self.holds and isinstance(request, ProduceRequest) and request.topic_data[0].name == self.holds:
            self._held.append((request, more))
            raise SourceUnavailable("the mirror was killed")
        return await super().call(api, request, **more)

    async def release(self) -> list[tuple[int, int]]:
        """Return the error and the offset of each."""
        found: list[tuple[int, int]] = []
        for request, more in self._held:
            response = await super().call(PRODUCE_API, request, **more)
            (result,) = response.responses[0].partition_responses
            found.append((result.error_code, result.base_offset))
        return found


def batch(first: int, count: int) -> bytes:
    made = build_rows([(1000 + number, b"k", b"%d" % (first + number), []) for number in range(count)])
    assign_offsets(made, 0, first, 0)
    return bytes(made)


@pytest.mark.parametrize("is_empty", [True, False])
def test_what_a_killed_mirror_has_under_way_is_not_appended_a_second_time(
    kafka: ApacheKafka, topic: str, is_empty: bool
) -> None:
    """With equal offsets: it arrives before or after that of the next mirror, and may be cut in another way."""
    make(kafka.bootstrap, topic, 3)
    asyncio.run(_stale_equal(kafka.bootstrap, topic, is_empty))
    for partition in range(3):
        values = [row[3] for row in rows(kafka.bootstrap, topic, partition)]
        assert values == [b"%d" % number for number in range(10 if is_empty else 20)]


async def begun(target: KafkaTarget, copies: dict[Name, bytes]) -> set[int]:
    """Begin as a mirror does: again, until leaders and coordinators are there; return the ends."""
    while True:
        try:
            states = (await target.states(copies)).values()
        except SourceReplied:
            continue
        ends = [state.end for state in states if isinstance(state, CopyState)]
        if len(ends) == len(copies):
            return set(ends)


async def _stale_equal(bootstrap: str, topic: str, is_empty: bool) -> None:
    killed, cluster = HoldingBack(bootstrap), HoldingBack(bootstrap)
    first = KafkaTarget(killed, mirror=topic, keeps_offsets=True)
    second = KafkaTarget(cluster, mirror=topic, keeps_offsets=True)
    copy = await first.describe(topic)
    assert copy is not None
    copies = {Name(topic, number): copy.topic_id for number in range(3)}

    async def append(target: KafkaTarget, number: int, at: int, count: int) -> None:
        name = Name(topic, number)
        await target.append(
            name, copies[name], batch(at, count), expected_end=at, log_start=0, left_out=NOTHING
        )

    try:
        await begun(first, copies)
        if not is_empty:
            for number in range(3):
                await append(first, number, 0, 10)
        begin = 0 if is_empty else 10
        killed.holds = topic
        for number in range(3):
            with pytest.raises(SourceUnavailable):
                await append(first, number, begin, 10)
        assert await begun(second, copies) == {begin}
        # The same batch, a part of it, and nothing yet.
        await append(second, 0, begin, 10)
        await append(second, 1, begin, 4)
        (_, same), (refused, _), (error, offset) = await killed.release()
        assert (same, error, offset) == (begin, 0, begin)
        assert refused == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await append(second, 1, begin + 4, 6)
        with pytest.raises(UnexpectedEndError):
            await append(second, 2, begin, 10)
    finally:
        await first.close()
        await second.close()


@pytest.mark.long
def test_what_a_killed_mirror_has_under_way_is_refused_by_translated_copies(
    kafka: ApacheKafka, topic: str
) -> None:
    make(kafka.bootstrap, topic)
    asyncio.run(_stale_translated(kafka.bootstrap, topic))
    assert [row[3] for row in rows(kafka.bootstrap, topic)] == [
        b"%d" % number for number in (7, 8, 9, 10, 20, 21, 30)
    ]


async def _stale_translated(bootstrap: str, topic: str) -> None:
    killed, cluster = HoldingBack(bootstrap), HoldingBack(bootstrap)
    first = KafkaTarget(killed, mirror=topic, keeps_offsets=False)
    second = KafkaTarget(cluster, mirror=topic, keeps_offsets=False)
    copy = await first.describe(topic)
    assert copy is not None
    name, copies = Name(topic, 0), {Name(topic, 0): copy.topic_id}

    async def append(target: KafkaTarget, position: int, batches: bytes) -> None:
        await target.append(
            name, copy.topic_id, batches, expected_end=position, log_start=0, left_out=NOTHING
        )

    try:
        await begun(first, copies)
        await append(first, 0, batch(7, 3))
        killed.holds = topic
        more = batch(10, 1) + batch(20, 2) + batch(30, 1)
        with pytest.raises(SourceUnavailable):
            # The holes are noted, and the records have not arrived.
            await append(first, 10, more)
        # Some begin, and are killed before they note where.
        for _ in range(3):
            begins = KafkaTarget(cluster, mirror=topic, keeps_offsets=False)
            assert await begun(begins, copies) == {10}
        assert await begun(second, copies) == {10}
        ((error, _),) = await killed.release()
        assert error == ErrorCode.INVALID_PRODUCER_EPOCH
        await append(second, 10, more)
        last = KafkaTarget(cluster, mirror=topic, keeps_offsets=False)
        assert await begun(last, copies) == {31}
    finally:
        await first.close()
        await second.close()


@pytest.mark.long
@pytest.mark.parametrize("late", ["a", "b"])
def test_of_two_clusters_that_write_at_the_same_offsets_the_target_tells_the_difference(
    kafka: ApacheKafka, topic: str, late: str
) -> None:
    """What the other one has written is never taken for what this one sends."""
    make(kafka.bootstrap, topic)
    asyncio.run(_two_clusters(kafka.bootstrap, topic, late))


async def _two_clusters(bootstrap: str, topic: str, late: str) -> None:
    clusters = {"a": HoldingBack(bootstrap), "b": HoldingBack(bootstrap)}
    targets = {
        number: KafkaTarget(cluster, mirror=topic, keeps_offsets=True, source_id=lambda number=number: number)
        for number, cluster in clusters.items()
    }
    first = "b" if late == "a" else "a"
    name = Name(topic, 0)
    copy = await targets["a"].describe(topic)
    assert copy is not None
    copies = {name: copy.topic_id}

    async def append(number: str, at: int) -> None:
        await targets[number].append(
            name, copy.topic_id, batch(at, 10), expected_end=at, log_start=0, left_out=NOTHING
        )

    try:
        for target in targets.values():
            assert await begun(target, copies) == {0}
        clusters[late].holds = topic
        with pytest.raises(SourceUnavailable):
            await append(late, 0)
        await append(first, 0)
        ((error, offset),) = await clusters[late].release()
        clusters[late].holds = ""
        # The one whose epoch is later is appended after the other one: both mirrors notice that.
        assert (error, offset) in ((ErrorCode.INVALID_PRODUCER_EPOCH, -1), (0, 10))
        if offset == 10:
            with pytest.raises(UnexpectedEndError):
                await append(first, 10)
        else:
            await append(first, 10)
    finally:
        for target in targets.values():
            await target.close()


@pytest.mark.long
def test_a_translation_belongs_to_one_cluster(kafka: ApacheKafka, topic: str) -> None:
    make(kafka.bootstrap, topic)
    asyncio.run(_two_translations(kafka.bootstrap, topic))
    assert [row[3] for row in rows(kafka.bootstrap, topic)] == [b"0", b"1", b"2", b"10"]


async def _two_translations(bootstrap: str, topic: str) -> None:
    def target(number: str) -> KafkaTarget:
        cluster = Source(addresses(bootstrap), lambda: parse({}, mirror="test"))
        return KafkaTarget(cluster, mirror=topic, keeps_offsets=False, source_id=lambda: number)

    ours, others, again = target("a"), target("b"), target("a")
    name = Name(topic, 0)
    try:
        copy = await ours.describe(topic)
        assert copy is not None
        copies = {name: copy.topic_id}
        assert await begun(ours, copies) == {0}
        await ours.append(name, copy.topic_id, batch(0, 2), expected_end=0, log_start=0, left_out=NOTHING)
        while not isinstance(refused := (await others.states(copies))[name], NotCopyable):
            assert isinstance(refused, SourceReplied), refused
        assert "a mirror of the same name of another cluster, a:" in str(refused)
        await ours.append(name, copy.topic_id, batch(2, 1), expected_end=2, log_start=0, left_out=NOTHING)
        # What the owner notes is refused once, because the other one has begun; then it begins again.
        with pytest.raises(SourceReplied):
            await ours.append(
                name, copy.topic_id, batch(10, 1), expected_end=3, log_start=0, left_out=NOTHING
            )
        assert await begun(again, copies) == {3}
        await again.append(name, copy.topic_id, batch(10, 1), expected_end=3, log_start=0, left_out=NOTHING)
    finally:
        for one in (ours, others, again):
            await one.close()


# ── what the target has forgotten ──


@pytest.mark.long
def test_copies_go_on_although_kafka_has_forgotten_their_producer(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """After a pause of a mirror, and while one runs."""
    short = {"producer.id.expiration.ms": "200", "producer.id.expiration.check.interval.ms": "100"}
    kafka = start_kafka(tmp_path / "kafka", short)
    try:
        make(broker.kafka_bootstrap, topic)
        end = 0
        for _ in range(2):
            with out(broker, kafka, topic) as mirror:
                for _ in range(2):
                    end += 5
                    produce(broker.kafka_bootstrap, topic, 5)
                    mirror.await_level({Name(topic, 0): end})
                    eventually(lambda: producers_of(kafka, topic) == [], "Kafka has forgotten the producer")
        assert rows(broker.kafka_bootstrap, topic) == rows(kafka.bootstrap, topic)
    finally:
        kafka.stop()


def producers_of(kafka: ApacheKafka, topic: str) -> list[int]:
    """Return the producers that a partition of Kafka remembers."""

    async def ask() -> list[int]:
        cluster = Source(addresses(kafka.bootstrap), lambda: parse({}, mirror="test"))
        try:
            wanted = DescribeProducersTopic(name=topic, partition_indexes=[0])
            answer = await cluster.call(DESCRIBE_PRODUCERS_API, DescribeProducersRequest(topics=[wanted]))
            (one,) = answer.topics[0].partitions
            assert not one.error_code
            return [producer.producer_id for producer in one.active_producers]
        finally:
            await cluster.close()

    return asyncio.run(ask())


class Forgetful(Source):
    """A cluster that takes no sequence number but 0 of a producer that it does not know, as Kafka before 2.5."""

    def __init__(self, servers: str) -> None:
        super().__init__(addresses(servers), lambda: parse({}, mirror="test"))
        self.known: set[int] = set()

    async def call(self, api: Api, request: object, **more: Any) -> Any:
        if isinstance(request, ProduceRequest):
            records = cast("bytearray", request.topic_data[0].partition_data[0].records)
            header = read_header(records)
            if header.producer_id not in self.known and header.base_sequence:
                # Kafka itself refuses what does not follow: here, a sequence number that is far away.
                number_batch(records, header.producer_id, header.producer_epoch, 1 << 20)
            else:
                self.known.add(header.producer_id)
        return await super().call(api, request, **more)


@pytest.mark.long
def test_a_producer_that_the_target_does_not_take_any_more_is_followed_by_another_one(
    kafka: ApacheKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kafka.bootstrap, topic)
    asyncio.run(_forgotten(kafka.bootstrap, topic, monkeypatch))
    values = [row[3] for row in rows(kafka.bootstrap, topic)]
    assert values == [b"%d" % number for number in range(30)]


async def _forgotten(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Forgetful(bootstrap)
    target = KafkaTarget(cluster, mirror=topic, keeps_offsets=True)
    name = Name(topic, 0)
    copy = await target.describe(topic)
    assert copy is not None

    async def append(at: int) -> None:
        await target.append(
            name, copy.topic_id, batch(at, 10), expected_end=at, log_start=0, left_out=NOTHING
        )

    try:
        assert await begun(target, {name: copy.topic_id}) == {0}
        await append(0)
        await append(10)
        cluster.known.clear()
        # It may be that a replica lags; then the producer is known again soon.
        for _ in range(2):
            with pytest.raises(SourceReplied):
                await append(20)
            assert await begun(target, {name: copy.topic_id}) == {20}
        monkeypatch.setattr(kafka_target, "_FORGOTTEN_S", 0.0)
        assert await begun(target, {name: copy.topic_id}) == {20}
        await append(20)
    finally:
        await target.close()


# ── groups and configurations ──


@pytest.mark.long
@pytest.mark.parametrize("offsets", ["equal", "translate"])
def test_a_group_that_has_moved_to_kafka_is_not_set_back(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str, offsets: str
) -> None:
    make(broker.kafka_bootstrap, topic)
    produce(broker.kafka_bootstrap, topic, 10)
    commit(broker.kafka_bootstrap, topic, topic, 4)
    more: dict[str, Any] = {"offsets": offsets, "groups": f"{topic}.*"}
    for number in range(2):
        # Each is a process of its own, which does not know what the one before has written.
        with out(broker, kafka, topic, **more) as mirror:
            mirror.await_level({Name(topic, 0): 10})
            if number == 0:
                eventually(
                    lambda: committed(kafka.bootstrap, topic, topic) == 4 + base(kafka, topic), "copied"
                )
                consume(kafka.bootstrap, topic, topic, 3)
            moved = 7 + base(kafka, topic)
            commit(broker.kafka_bootstrap, f"{topic}-later-{number}", topic, 1)
            eventually(
                lambda number=number: committed(kafka.bootstrap, f"{topic}-later-{number}", topic) >= 0,
                "a later one is copied",
            )
            assert committed(kafka.bootstrap, topic, topic) == moved
            if number == 1:
                commit(broker.kafka_bootstrap, topic, topic, 5)
                eventually(
                    lambda: committed(kafka.bootstrap, topic, topic) == 5 + base(kafka, topic),
                    "what was set here is copied",
                )


def base(kafka: ApacheKafka, topic: str) -> int:
    """Return the offset of the first record, which is the same as here, or after the begin of a translation."""
    return rows(kafka.bootstrap, topic)[0][0]


def consume(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Consume as a member, commit, and leave."""
    options = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.subscribe([topic])
    for _ in range(count):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert not message.error()
    # Up to what was polled.
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.long
def test_a_copy_does_not_wait_for_replicas_that_the_target_does_not_have(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str
) -> None:
    make(broker.kafka_bootstrap, topic, min_insync_replicas="2", retention_ms="86400000")
    produce(broker.kafka_bootstrap, topic, 3)
    with out(broker, kafka, topic) as mirror:
        status = mirror.await_level({Name(topic, 0): 3})
        assert any("min.insync.replicas" in text for text in status["not_copied"])


@pytest.mark.long
@pytest.mark.parametrize("offsets", ["equal", "translate"])
def test_a_topic_of_small_messages_gets_no_larger_ones(
    broker: BrokerProcess, kafka: ApacheKafka, topic: str, offsets: str
) -> None:
    """Batches are joined only as far as the topic there takes them."""
    make(broker.kafka_bootstrap, topic, max_message_bytes="20000")
    with Client(broker.binary_url) as client:
        for number in range(40):
            client.produce(topic, b"%d" % number + bytes(10_000))
    with out(broker, kafka, topic, offsets=offsets) as mirror:
        mirror.await_level({Name(topic, 0): 40})
    assert [row[3] for row in rows(broker.kafka_bootstrap, topic)] == [
        row[3] for row in rows(kafka.bootstrap, topic)
    ]
