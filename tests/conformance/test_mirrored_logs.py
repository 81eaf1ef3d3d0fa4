"""What a mirror copies from Apache Kafka is the same to Kafka's own tools: every batch, every record, every group."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.record_batch import iter_headers

from load.apache_kafka import ApacheKafka, run_tool
from tests.conformance.clients import CLIENTS
from tests.conformance.driver import Driver, Record
from tests.conformance.moving import done
from tests.conformance.programs import home_of
from tests.conformance.support import all_kinds, numbered
from tests.support.apache_kafka import start_kafka
from tests.support.dumped_segments import TOOL
from tests.support.mirrors import read_raw
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TIMEOUT_S = 300
# Some turns of the mirror, and as many JVMs.
GROUPS_TIMEOUT_S = 60
# Of the source: segments are compacted at once. The copy compacts nothing, because it would go further.
SOURCE_PROPERTIES = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "200"}
TARGET_SETTINGS = {"STELE_LOG_CLEANER_BACKOFF_MS": "3600000"}
TOPICS, PARTITIONS = 40, 50
# The group that is elsewhere in the copy.
EARLY = "early"
DAY_MS = 86_400_000
# An argument of a program has 128 KiB at most.
_FILES_BYTES_MAX = 100_000


# ── what the source has ──


class Source:
    """Apache Kafka with records of every kind."""

    def __init__(self, kafka: ApacheKafka, java: Driver) -> None:
        self.kafka = kafka
        self.java = java
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    @property
    def data_dir(self) -> Path:
        return self.kafka.log_path.parent / "data"

    def make(self, *topics: str, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        done(
            self.admin.create_topics(
                [NewTopic(topic, partitions, 1, config=named) for topic in topics], request_timeout=TIMEOUT_S
            )
        )

    @contextmanager
    def producer(self, **options: Any) -> Generator[Producer]:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, **options})
        yield producer
        assert producer.flush(TIMEOUT_S) == 0

    def write_kinds(self) -> None:
        """Write by every codec, idempotently and not, with odd times and headers, and in transactions."""
        self.make("kinds", partitions=2)
        self.make("recompressed", compression_type="zstd")
        self.make("appended", message_timestamp_type="LogAppendTime")
        records = all_kinds(self.java)
        for codec in CODECS:
            for is_idempotent in (False, True):
                self.java.produce("kinds", records, codec=codec, idempotent=is_idempotent)
                self.java.produce("appended", records, codec=codec, idempotent=is_idempotent)
            self.java.produce("recompressed", records, codec=codec)
        # Java's producer takes no negative time.
        for codec in CODECS:
            with self.producer(**{"compression.type": codec}) as producer:
                for time in (-1, -DAY_MS, -1, 1, 4_102_444_800_000 // 4):
                    producer.produce("kinds", b"at %d" % time, timestamp=time, partition=1)
        ends: list[Literal["commit", "abort", "none"]] = [
            "commit",
            "abort",
            "abort",
            "commit",
            "commit",
            "none",
        ]
        for number, end in enumerate(ends):
            writer = "ab"[number % 2]
            some = numbered(7, partitions=2, start=number)
            self.java.transact(writer, f"kinds-{writer}", "kinds", some, end=end)

    def write_compacted(self) -> None:
        """Write until compaction has left holes, tombstones, markers without records, and batches without any."""
        self.make("compacted", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
        keyed = [Record(value=b"v" * 50, key=b"key %d" % number) for number in range(6)]
        for codec in CODECS:
            # The last batch of a producer stays, without its records, if others have written its keys since.
            for _ in range(2):
                self.java.produce("compacted", keyed, codec=codec, idempotent=True)
        tombstones = [Record(value=None, key=b"key 5"), Record(value=b"kept", key=b"once")]
        self.java.produce("compacted", tombstones, idempotent=True)
        transactions: list[Literal["commit", "abort"]] = ["commit", "abort", "commit"]
        for end in transactions:
            self.java.transact("c", "compacted-c", "compacted", keyed[:3], end=end)
        count = 0

        def is_compacted() -> bool:
            nonlocal count
            count += 1
            # A record begins a segment once the active one is old enough, and so makes that one fit for compaction.
            self.java.produce("compacted", [Record(value=b"%d" % count, key=b"counter")])
            headers = list(iter_headers(read_raw(self.kafka.bootstrap, "compacted").batches))
            has_holes = any(b.base_offset > a.next_offset for a, b in pairwise(headers))
            return has_holes and any(not header.record_count for header in headers)

        eventually(is_compacted, "the topic has holes and empty batches")
        seen = b""

        def is_at_rest() -> bool:
            nonlocal seen
            before, seen = seen, read_raw(self.kafka.bootstrap, "compacted").batches
            return seen == before

        eventually(is_at_rest, "compaction has ended")

    def write_deleted(self) -> None:
        """Write batches, and delete up to the middle of one."""
        self.make("deleted")
        for number in range(12):
            self.java.produce("deleted", numbered(10, start=number * 10), codec=CODECS[number % 5])
        assert self.java.delete_records("deleted", before_offset=37) == 37
        # All of it: the copy is empty, and ends where the source does.
        self.make("emptied")
        self.java.produce("emptied", numbered(25))
        self.java.delete_records("emptied", before_offset=25)

    def write_large(self) -> None:
        """Write batches of several MB, of one record and of many."""
        self.make("large", max_message_bytes="9000000")
        for codec in CODECS:
            options = {"message.max.bytes": 9_000_000, "batch.size": 8_000_000, "linger.ms": 500}
            with self.producer(**{"compression.type": codec}, **options) as producer:
                producer.produce("large", b"\x00\x01\x02\x03" * 1_500_000)
                producer.flush(TIMEOUT_S)
                for number in range(4000):
                    producer.produce("large", b"%08d" % number * 200, key=str(number))

    def write_many(self) -> None:
        """Write a record to each of some thousand partitions."""
        topics = [f"many-{number}" for number in range(TOPICS)]
        self.make(*topics, partitions=PARTITIONS)
        with self.producer() as producer:
            for topic in topics:
                for partition in range(PARTITIONS):
                    producer.produce(topic, f"{topic} {partition}", partition=partition)
                    producer.poll(0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    home_of("java")
    (client,) = (client for client in CLIENTS if client.name == "java")
    kafka = start_kafka(tmp_path_factory.mktemp("kafka"), SOURCE_PROPERTIES)
    try:
        java = Driver(client.command, kafka.bootstrap)
        source = Source(kafka, java)
        for write in (source.write_kinds, source.write_compacted, source.write_deleted, source.write_large):
            write()
        yield source
        java.close()
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def copy(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("copy") / "data", environment=TARGET_SETTINGS) as broker:
        body = {"from": source.kafka.bootstrap, "topics": ".*", "groups": ".*"}
        httpx.put(f"{broker.http_url}/v1/mirrors/prod", json=body, timeout=60).raise_for_status()
        await_level(broker)
        yield broker


def status(broker: BrokerProcess) -> dict[str, Any]:
    return httpx.get(f"{broker.http_url}/v1/mirrors/prod", timeout=60).raise_for_status().json()


def await_level(broker: BrokerProcess, *, partitions: int = 1) -> None:
    """Wait until all is level, and there are so many partitions at least."""

    def is_level() -> bool:
        now = status(broker)
        listed = sum(len(topic["partitions"]) for topic in now.get("topics", ()))
        unlisted = now.get("unlisted", {}).get("partitions", 0)
        return now["state"] == "level" and listed + unlisted >= partitions

    try:
        eventually(is_level, "the mirror is level", timeout_s=TIMEOUT_S)
    except pytest.fail.Exception as error:
        pytest.fail(f"{error}: {str(status(broker))[:4000]}")


# ── batches ──


class Batch(NamedTuple):
    """What the tool prints of a batch, and of its records."""

    last_offset: int
    lines: tuple[str, ...]


_LAST_OFFSET = re.compile(r"^baseOffset: \d+ lastOffset: (\d+) ")
# It is within a segment, and segments need not begin at the same offsets.
_POSITION = re.compile(r" position: \d+")


def dumped(data_dir: Path) -> dict[str, list[Batch]]:
    """Return all batches of each partition of a data directory, as ``kafka-dump-log`` prints them."""
    logs: dict[str, list[Batch]] = {}
    for some in _shares([str(path) for path in sorted(data_dir.glob("*/*.log"))]):
        done = run_tool(
            TOOL, "--deep-iteration", "--print-data-log", "--files", ",".join(some), timeout_s=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
        for section in re.split(r"^Dumping (?=/)", done.stdout, flags=re.MULTILINE)[1:]:
            path, _, *lines = section.split("\n")
            batches = logs.setdefault(Path(path).parent.name, [])
            for line in lines:
                if begins := _LAST_OFFSET.match(line):
                    batches.append(Batch(int(begins[1]), (_POSITION.sub("", line),)))
                elif line:
                    # The value of a record may have line ends.
                    last = batches.pop()
                    batches.append(Batch(last.last_offset, (*last.lines, line)))
    return logs


def _shares(paths: Sequence[str]) -> Iterator[list[str]]:
    share: list[str] = []
    for path in paths:
        if sum(map(len, share)) + len(share) + len(path) > _FILES_BYTES_MAX:
            yield share
            share = []
        share.append(path)
    yield share


def assert_same_logs(
    source: Source, copy: BrokerProcess, starts: Mapping[str, int]
) -> dict[str, list[Batch]]:
    """Fail unless all partitions are the same from their log starts on; return those of the source."""
    theirs = {name: log for name, log in dumped(source.data_dir).items() if not name.startswith("__")}
    ours = dumped(copy.data_dir)
    assert ours.keys() == theirs.keys()
    for name, log in theirs.items():
        start = starts.get(name, 0)
        assert [batch for batch in ours[name] if batch.last_offset >= start] == [
            batch for batch in log if batch.last_offset >= start
        ], name
    return theirs


def test_every_batch_is_the_same_to_kafka_dump_log(source: Source, copy: BrokerProcess) -> None:
    theirs = assert_same_logs(source, copy, {"deleted-0": 37, "emptied-0": 25})
    assert read_raw(copy.kafka_bootstrap, "deleted").start == 37
    emptied = read_raw(copy.kafka_bootstrap, "emptied")
    assert (emptied.start, emptied.end) == (25, 25)
    everything = "\n".join(line for log in theirs.values() for batch in log for line in batch.lines)
    # That the source has what this is about.
    for kind in (
        *(f"compresscodec: {codec} " for codec in CODECS),
        *("LogAppendTime: ", "CreateTime: -1 ", f"CreateTime: -{DAY_MS} "),
        *("isTransactional: true isControl: true", "endTxnMarker: COMMIT", "endTxnMarker: ABORT"),
        *(" count: 0 ", "deleteHorizonMs: OptionalLong[", "headerKeys: [lang,lang,"),
    ):
        assert kind in everything, kind
    assert max(int(size) for size in re.findall(r" size: (\d+) ", everything)) > 5_000_000


# ── groups ──


def described(bootstrap: str) -> list[tuple[str, ...]]:
    """Return the rows of ``kafka-consumer-groups --describe``: group, topic, partition, offset, end, lag and the members."""
    done = run_tool(GROUPS_TOOL, "--bootstrap-server", bootstrap, "--describe", "--offsets", "--all-groups")
    assert done.returncode == 0, done.stderr
    rows = [tuple(line.split()) for line in done.stdout.split("\n") if line.strip()]
    return sorted({row for row in rows if row[0] != "GROUP" and len(row) > 6})


def commit(source: Source, group: str, offsets: Mapping[tuple[str, int], int], **options: Any) -> None:
    """Commit offsets as a member."""
    consumer = Consumer(
        {
            "bootstrap.servers": source.kafka.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(sorted({topic for topic, _ in offsets}))
    eventually(lambda: bool(consumer.poll(0.5)) or bool(consumer.assignment()), "it has its partitions")
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def assert_same_groups(source: Source, copy: BrokerProcess, count: int) -> set[str]:
    """Return the groups."""
    theirs = [row for row in described(source.kafka.bootstrap) if row[0] != EARLY]
    assert len(theirs) == count
    ours: list[tuple[str, ...]] = []

    def is_same() -> bool:
        ours[:] = [row for row in described(copy.kafka_bootstrap) if row[0] != EARLY]
        return ours == theirs

    try:
        eventually(is_same, "the groups are the same", timeout_s=GROUPS_TIMEOUT_S)
    except pytest.fail.Exception as error:
        pytest.fail(f"{error}: {set(theirs) ^ set(ours)}")
    return {row[0] for row in theirs}


def test_groups_are_the_same_to_kafka_consumer_groups(source: Source, copy: BrokerProcess) -> None:
    """Classic ones and those of the consumer protocol; of share groups, the status says that they stay behind."""
    # At the beginning, in the middle, at the end of a copy that is empty.
    commit(source, "classic", {("kinds", 0): 0, ("kinds", 1): 3, ("deleted", 0): 99, ("emptied", 0): 25})
    # What has been deleted meanwhile is the beginning here.
    commit(source, EARLY, {("deleted", 0): 12})
    ends = {("compacted", 0): 1, ("large", 0): read_raw(source.kafka.bootstrap, "large").end}
    commit(source, "new-protocol", ends, **{"group.protocol": "consumer"})
    outcomes: list[tuple[Literal["commit", "abort"], int]] = [("commit", 99), ("abort", 50)]
    for end, offset in outcomes:
        source.java.transact(
            "g", "groups-g", "kinds", numbered(1), end=end, offset=("in-a-transaction", "deleted", offset)
        )
    source.java.call("share", member="m", group="shared", topics=["kinds"])
    # It joins with its first poll, and begins at the end.
    assert source.java.call("take", member="m", timeout_ms=5000)["records"] == []
    source.java.call("unshare", member="m")
    groups = assert_same_groups(source, copy, 4 + 2 + 1)
    assert groups == {"classic", "new-protocol", "in-a-transaction"}
    (early,) = (row for row in described(copy.kafka_bootstrap) if row[0] == EARLY)
    assert early[:6] == (EARLY, "deleted", "0", "37", "120", "83")
    eventually(
        lambda: any("share groups" in text and "shared" in text for text in status(copy)["not_copied"]),
        "the share group is named",
    )


def test_thousands_of_partitions_are_the_same(source: Source, copy: BrokerProcess) -> None:
    source.write_many()
    offsets = {(f"many-{n}", m): (n + m) % 2 for n in range(TOPICS) for m in range(PARTITIONS)}
    commit(source, "wide", offsets)
    await_level(copy, partitions=TOPICS * PARTITIONS)
    theirs = assert_same_logs(source, copy, {"deleted-0": 37, "emptied-0": 25})
    assert len(theirs) == TOPICS * PARTITIONS + 8
    assert_same_groups(source, copy, 4 + 2 + 1 + TOPICS * PARTITIONS)
