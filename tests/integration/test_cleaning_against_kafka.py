"""One log, compacted by Apache Kafka's cleaner and by ours: the same batches remain, byte for byte."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from stele.wire import record_batch as rb

from app.storage.cleaning.batch_filter import DELETE_HORIZON
from app.storage.disk.files import RealFiles
from app.storage.recovery.checkpoint import CLEANER_OFFSETS, read_offsets
from load.apache_kafka import ApacheKafka, apache_kafka
from tests.support.apache_kafka import kafka_or_skip
from tests.support.compaction import NOW_MS, RULES, CleanedPartition, records_of

# The least that Apache Kafka takes since 4.0.
SEGMENT_BYTES = 1024 * 1024
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"compression.type": "none"},
    "idempotent": {"compression.type": "none", "enable.idempotence": True},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
}
CLEANED_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    properties = {
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.001",
        "log.cleaner.dedupe.buffer.size": "20000000",
    }
    with kafka_or_skip(), apache_kafka(properties=properties, heap="512m") as running:
        yield running


@pytest.fixture(scope="module")
def logs(kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``before/TOPIC`` and ``after/TOPIC``: the ``.log`` files around Apache Kafka's own pass."""
    root = tmp_path_factory.mktemp("cleaning")
    # Its futures have no types.
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {"segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "delete"}
    created = admin.create_topics([NewTopic(name, 1, 1, config=config) for name in TOPICS])
    await_all(created.values())
    for number, (name, producer_config) in enumerate(TOPICS.items()):
        write(kafka, name, producer_config, Random(number))
    data = kafka.log_path.parent / "data"
    for name in TOPICS:
        copy_logs(data / f"{name}-0", root / "before" / name)
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        for name in TOPICS
    ]
    await_all(admin.incremental_alter_configs(resources).values())
    deadline = time.monotonic() + CLEANED_TIMEOUT_S
    wanted = {(name, 0): last_base(root / "before" / name) for name in TOPICS}
    while not wanted.items() <= read_offsets(RealFiles(), data / CLEANER_OFFSETS).items():
        assert time.monotonic() < deadline, kafka.log
        time.sleep(0.2)
    for name in TOPICS:
        copy_logs(data / f"{name}-0", root / "after" / name)
    return root


def await_all(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result()


def write(kafka: ApacheKafka, topic: str, config: dict[str, object], random: Random) -> None:
    """Some segments: keys that come back, keys that do not, tombstones."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "batch.size": 20_000, **config}
    )
    written = 0
    now_ms = int(time.time() * 1000)
    while written < 2.2 * SEGMENT_BYTES:
        key = random.choice((b"hot %d" % random.randrange(50), b"cold %d" % written))
        value = None if random.random() < 0.02 else random.randbytes(random.randrange(400))
        headers: list[tuple[str, str | bytes | None]] = [("h", b"1")] if random.random() < 0.1 else []
        while True:
            try:
                producer.produce(
                    topic, value, key, timestamp=now_ms - random.randrange(10_000), headers=headers
                )
                break
            except BufferError:
                producer.poll(0.1)
        written += len(key) + len(value or b"") + 10
    assert producer.flush(60) == 0


def copy_logs(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in source.glob("*.log"):
        shutil.copy(path, target)


def last_base(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob("*.log"))


@pytest.mark.long
@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_batches_remain(logs: Path, topic: str, tmp_path: Path) -> None:
    before = logs / "before" / topic
    theirs = CleanedPartition(RealFiles(), logs / "after" / topic)
    shutil.copytree(before, tmp_path / topic)
    ours = CleanedPartition(RealFiles(), tmp_path / topic)
    end = last_base(before)
    last_of_producer = {
        header.producer_id: header.last_offset
        for base in ours.base_offsets()
        for header in rb.iter_headers(ours.log(base))
        if header.has_producer_id
    }
    mapped_end = ours.clean(
        memory_bytes=8 << 20,
        first_uncleanable=end,
        rules=replace(RULES, segment_bytes=SEGMENT_BYTES),
        now_ms=NOW_MS,
        last_batches=ours.batch_offsets(
            lambda header: last_of_producer.get(header.producer_id) == header.last_offset
        ),
    )
    assert mapped_end == end
    assert ours.counts.records_kept < ours.counts.records_read
    assert ours.base_offsets() == theirs.base_offsets()
    for base in ours.base_offsets():
        mine, kafkas = batches(ours.log(base)), batches(theirs.log(base))
        assert [described(raw) for raw in mine] == [described(raw) for raw in kafkas]
        assert any(rb.read_header(raw).attributes & DELETE_HORIZON for raw in mine) or base == end
        for raw, other in zip(mine, kafkas, strict=True):
            if not rb.read_header(raw).attributes & (DELETE_HORIZON | 0x07):
                assert raw == other


def batches(log: bytes) -> list[bytes]:
    """All but the empty ones: ours keep the place of the last one of each segment."""
    return [
        log[header.position : header.position + header.size]
        for header in rb.iter_headers(log)
        if header.record_count
    ]


def described(raw: bytes) -> object:
    """A batch, but for its size where it is compressed and for the time from which tombstones may go."""
    header = rb.check_batch(raw)
    fields = {name: getattr(header, name) for name in header.__slots__}
    for name in ("batch_length", "crc"):
        del fields[name]
    if header.attributes & DELETE_HORIZON:
        del fields["base_timestamp"]
    return fields, records_of(raw)
