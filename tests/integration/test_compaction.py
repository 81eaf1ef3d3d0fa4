"""A compacted topic of a real broker: librdkafka writes, the broker is killed between passes, librdkafka reads."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import KafkaError
from stele import Client
from stele.testing import BrokerProcess, run_broker

from app.storage.disk.files import RealFiles
from app.storage.inspection.dump_and_verify import Verified, verify
from app.storage.recovery.checkpoint import CLEANER_OFFSETS, read_offsets
from tests.support.compaction_passes import DEADLINE_S, write_until
from tests.support.waiting import Pauses

TOPIC = "users"
KEYS = 50
# Passes begin every 20 ms.
SETTINGS = {"STELE_LOG_CLEANER_BACKOFF_MS": "20", "STELE_LOG_CHECKPOINT_INTERVAL_MS": "50"}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


def cleaned_until(data_dir: Path) -> int:
    return read_offsets(RealFiles(), data_dir / CLEANER_OFFSETS).get((TOPIC, 0), 0)


def produce_until_cleaned(
    broker: BrokerProcess, data_dir: Path, table: dict[bytes, bytes], rng: random.Random, codec: str
) -> None:
    """Write random changes, which go into ``table`` too, until two more passes have ended."""

    def write() -> None:
        for _ in range(200):
            key = b"user-%d" % rng.randrange(KEYS)
            value = None if rng.random() < 0.1 else rng.randbytes(60)
            producer.produce(TOPIC, key=key, value=value)
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        assert producer.flush(DEADLINE_S) == 0

    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 1,
        }
    )
    for _ in range(2):
        before = cleaned_until(data_dir)
        write_until(lambda before=before: cleaned_until(data_dir) > before, write)


def await_clean(broker: BrokerProcess, data_dir: Path) -> None:
    """Return when nothing but the active segment is dirty; nobody may write meanwhile."""
    deadline_s = time.monotonic() + DEADLINE_S
    pauses = Pauses()
    while cleaned_until(data_dir) < max(
        int(path.stem) for path in (data_dir / f"{TOPIC}-0").iterdir() if path.suffix == ".log"
    ):
        assert time.monotonic() < deadline_s, f"not clean within {DEADLINE_S} s: {broker.stderr}"
        pauses.pause()


def records_of(broker: BrokerProcess) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    records: list[tuple[int, bytes, bytes | None]] = []
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "the end is not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return records
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            assert not records or offset > records[-1][0], "offsets rise"
            records.append((offset, key, value))
    finally:
        consumer.close()


def table_of(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    """The table that a reader from the beginning builds."""
    table: dict[bytes, bytes] = {}
    for _, key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


@pytest.mark.every(2)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_reader_builds_the_table_after_passes_and_kills(tmp_path: Path, codec: str) -> None:
    rng = random.Random(1)
    table: dict[bytes, bytes] = {}
    with run_broker(tmp_path, environment=SETTINGS) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, configs=CONFIGS)
        for _ in range(3):
            produce_until_cleaned(broker, tmp_path, table, rng, codec)
            broker.kill()
            broker.start()
            records = records_of(broker)
            assert table_of(records) == table
            with Client(broker.binary_url) as client:
                end = client.list_offset(TOPIC)
            assert end is not None
            assert len(records) < end, "records were removed"
        assert broker.stop() == 0
    reports: list[Verified] = []
    assert verify(tmp_path, report=reports.append) == 0, [report.problems for report in reports]


def test_a_partition_with_more_keys_than_fit_into_the_buffer_takes_several_passes(tmp_path: Path) -> None:
    settings = {**SETTINGS, "STELE_LOG_CLEANER_DEDUPE_BUFFER_SIZE": str(1 << 20)}
    with run_broker(tmp_path, environment=settings) as broker, httpx.Client(base_url=broker.http_url) as http:
        # Not compacted before all keys are there.
        configs = {**CONFIGS, "cleanup.policy": "delete"}
        assert http.put(f"/v1/topics/{TOPIC}", json={"configs": configs}).is_success
        producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "linger.ms": 50})
        for number in range(60_000):
            producer.produce(TOPIC, key=b"%d" % number, value=b"x")
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        assert http.patch(f"/v1/topics/{TOPIC}", json={"configs": CONFIGS}).is_success
        await_clean(broker, tmp_path)
        found = re.search(r"^stele_log_cleaner_passes_total (\S+)", http.get("/metrics").text, re.MULTILINE)
        assert found is not None
        assert float(found[1]) > 1
