"""Old segments leave the disk for the bucket (KIP-405), and no reader notices."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from stele import Client
from stele.testing import BrokerProcess, BrokerStartError, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from tests.support.kafka_peer import KafkaPeer, fetch, only_partition, request_frame
from tests.support.waiting import eventually

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
# Segments of about 1 MB, the least that the broker allows, of which one or two stay.
CONFIGS = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.bytes": "1500000",
    "segment.bytes": "1048576",
}
RECORDS = 6_000
BEGUN_MS = 1_763_664_052_224


def value_of(offset: int) -> bytes:
    return random.Random(offset).randbytes(900) + b"%d" % offset


@contextmanager
def running(path: Path, *, replica: bool = True, **settings: str) -> Generator[BrokerProcess]:
    environment = {"STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "200", **settings}
    if replica:
        environment |= {
            "STELE_REPLICATE_TO": (path / "bucket").as_uri(),
            "STELE_REPLICA_INTERVAL_MS": "100",
        }
    with run_broker(path / "data", environment=environment) as broker:
        yield broker


def fill(broker: BrokerProcess, **configs: str) -> None:
    created = httpx.put(f"{broker.http_url}/v1/topics/old", json={"configs": {**CONFIGS, **configs}})
    assert created.is_success, created.text
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "batch.num.messages": 50})
    for offset in range(RECORDS):
        producer.produce("old", value_of(offset), timestamp=BEGUN_MS + offset)
        producer.poll(0)
    producer.flush()


def logs(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "data" / "old-0").glob("*.log"))


def await_tiered(path: Path) -> None:
    listed = path / "data" / "old-0" / "remote-segments"
    eventually(lambda: listed.exists() and len(logs(path)) <= 3, "most segments have left the disk")


def read_all(broker: BrokerProcess) -> list[bytes]:
    return read_until(broker, RECORDS)


def read_until(broker: BrokerProcess, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka_bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("old", 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None
            values.append(message.value() or b"")
    consumer.close()
    return values


def offset_at(broker: BrokerProcess, at: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=at)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="old", partitions=[partition])])
    with KafkaPeer(broker) as peer:
        (topic,) = peer.call(request, 11).topics
    (found,) = topic.partitions
    assert found.error_code == ErrorCode.NONE
    return found.offset


def series(broker: BrokerProcess, name: str) -> float:
    """Return the value of one series of ``/metrics``."""
    lines = httpx.get(f"{broker.http_url}/metrics").text.splitlines()
    (value,) = [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]
    return float(value)


def page(broker: BrokerProcess, query: str) -> dict[str, Any]:
    answer = httpx.get(f"{broker.http_url}/v1/topics/old/partitions/0/records?{query}")
    assert answer.is_success, answer.text
    return answer.json()


def test_records_whose_segments_have_left_the_disk_are_read_as_before(tmp_path: Path) -> None:
    expected = [value_of(offset) for offset in range(RECORDS)]
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
        for _ in range(2):
            assert read_all(broker) == expected
            with Client(broker.binary_url) as client:
                assert [record.value for record in client.fetch("old", offset=17).records][:9] == expected[
                    17:26
                ]
            assert [record["offset"] for record in page(broker, "from=1234&limit=2")["records"]] == [
                1234,
                1235,
            ]
            # By time: in the bucket, and at its edge.
            for offset in (0, 1, 2_500, RECORDS - 1):
                assert offset_at(broker, BEGUN_MS + offset) == offset
            local = offset_at(broker, EARLIEST_LOCAL)
            assert f"{local:020d}.log" == logs(tmp_path)[0]
            tiered_end = offset_at(broker, EARLIEST_PENDING_UPLOAD)
            assert local <= tiered_end == offset_at(broker, LATEST_TIERED) + 1
            assert page(broker, "from=0&limit=1")["log_start_offset"] == 0
            broker.kill()
            broker.start()
            eventually(lambda: offset_at(broker, LATEST_TIERED) >= 0, "the replica goes on")


def test_without_its_checkpoints_a_log_begins_where_it_did(tmp_path: Path) -> None:
    # KAFKA-15351: a log whose checkpoints are lost must not begin with what is on the disk.
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
        broker.kill()
        for checkpoint in (tmp_path / "data").glob("*-checkpoint"):
            checkpoint.unlink()
        assert (tmp_path / "data" / "old-0" / "leader-epoch-checkpoint").exists(), (
            "no start finds its epochs again"
        )
        broker.start()
        assert page(broker, "from=earliest&limit=1")["log_start_offset"] == 0
        assert read_all(broker) == [value_of(offset) for offset in range(RECORDS)]


@pytest.mark.parametrize("lost", [False, True], ids=["whole", "without an index of aborted transactions"])
def test_aborted_transactions_stay_hidden_in_the_bucket(tmp_path: Path, lost: bool) -> None:
    with running(tmp_path) as broker:
        created = httpx.put(f"{broker.http_url}/v1/topics/old", json={"configs": CONFIGS})
        assert created.is_success, created.text
        producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "transactional.id": "t"})
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            for _ in range(200):
                producer.produce("old", b"%d " % number + random.Random(number).randbytes(1000))
            # Those that are not sent are not in the log.
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        await_tiered(tmp_path)
        for _ in range(2):
            seen = [int(value.partition(b" ")[0]) for value in read_until(broker, 10 * 200)]
            assert seen == [number for number in range(0, 20, 2) for _ in range(200)]
            broker.kill()
            if lost:
                min((tmp_path / "data" / "old-0").glob("*.txnindex")).unlink(missing_ok=True)
            broker.start()


def test_retention_deletes_what_is_in_the_bucket_alone(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
        changed = httpx.patch(
            f"{broker.http_url}/v1/topics/old", json={"configs": {"retention.bytes": "2500000"}}
        )
        assert changed.is_success, changed.text
        eventually(
            lambda: page(broker, "from=earliest&limit=1")["log_start_offset"] > 0,
            "retention has deleted some",
        )
        start = page(broker, "from=earliest&limit=1")["log_start_offset"]
        directory = tmp_path / "data" / "old-0"
        eventually(
            lambda: min(file.stem for file in directory.glob("*.index")) == f"{start:020d}",
            "their indexes go, too",
        )
        with KafkaPeer(broker) as peer:
            code = only_partition(peer.call(fetch("old", start - 1), 11)).error_code
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE
        broker.kill()
        broker.start()
        assert page(broker, "from=earliest&limit=1")["log_start_offset"] == start
        deleted = httpx.delete(f"{broker.http_url}/v1/topics/old")
        assert deleted.is_success
        eventually(lambda: not directory.exists(), "the topic is gone")


@pytest.mark.long
def test_a_bucket_that_is_away_stops_old_records_alone(tmp_path: Path) -> None:
    with running(tmp_path, STELE_REMOTE_CACHE_BYTES_MAX=str(16 << 20)) as broker:
        fill(broker)
        await_tiered(tmp_path)
        broker.kill()
        broker.start()
        bucket = tmp_path / "bucket"
        eventually(lambda: offset_at(broker, LATEST_TIERED) >= 0, "the replica goes on")
        hidden = bucket.rename(tmp_path / "hidden")
        bucket.write_text("")
        newest = page(broker, f"from={RECORDS - 1}&limit=1")["records"]
        assert [record["offset"] for record in newest] == [RECORDS - 1]
        away = httpx.get(f"{broker.http_url}/v1/topics/old/partitions/0/records?from=0", timeout=60)
        assert (away.status_code, away.json()["type"].rpartition("/")[2]) == (503, "storage-unavailable")
        assert series(broker, "stele_replica_failed_reads_total") > 0
        bucket.unlink()
        hidden.rename(bucket)
        assert [record["offset"] for record in page(broker, "from=0&limit=1")["records"]] == [0]
        assert series(broker, "stele_replica_read_bytes_total") > 0
        assert series(broker, 'stele_replica_cache_blocks_total{outcome="miss"}') > 0


def test_without_its_bucket_the_broker_does_not_start(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
    with (
        pytest.raises(
            BrokerStartError, match=r"segments that are in the bucket alone .*--replicate-to URL that it had"
        ),
        running(tmp_path, replica=False),
    ):
        pass
    (tmp_path / "bucket").rename(tmp_path / "elsewhere")
    with running(tmp_path) as broker:
        eventually(
            lambda: "copy all objects of the earlier bucket to this one" in broker.stderr,
            "the broker says what to do",
        )
        assert page(broker, f"from={RECORDS - 1}&limit=1")["records"]


def test_a_damaged_list_of_what_is_in_the_bucket_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
        broker.stop()
        listed = tmp_path / "data" / "old-0" / "remote-segments"
        whole = listed.read_bytes()
        listed.write_bytes(whole.replace(b'"base_offset":0', b'"base_offset":x', 1))
        with pytest.raises(BrokerStartError, match="remote-segments is damaged"):
            broker.start()
        listed.write_bytes(whole)
        broker.start()
        assert read_all(broker) == [value_of(offset) for offset in range(RECORDS)]


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"cleanup.policy": "compact"}, "the segments of a compacted topic stay on the disk"),
        ({"stele.storage": "memory"}, "a topic in memory is not in the replica"),
        (
            {"retention.ms": "1000", "local.retention.ms": "2000"},
            "must not be above retention.ms, which is 1000",
        ),
        (
            {"retention.ms": "1000", "local.retention.ms": "-1"},
            "must not be above retention.ms, which is 1000",
        ),
        (
            {"retention.bytes": "9", "local.retention.bytes": "10"},
            "must not be above retention.bytes, which is 9",
        ),
    ],
)
def test_what_cannot_be_tiered_is_refused(tmp_path: Path, configs: dict[str, str], reason: str) -> None:
    with running(tmp_path) as broker:
        answer = httpx.put(
            f"{broker.http_url}/v1/topics/t", json={"configs": {"remote.storage.enable": "true", **configs}}
        )
        assert answer.status_code == 400
        assert reason in answer.text


def test_a_broker_stops_while_a_read_waits_for_the_bucket(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        fill(broker)
        await_tiered(tmp_path)
        broker.kill()
        broker.start()
        eventually(lambda: offset_at(broker, LATEST_TIERED) >= 0, "the replica goes on")
        objects = list((tmp_path / "bucket" / "s").rglob("*.*"))
        for sealed in objects:
            sealed.unlink()
            # Whoever opens it waits for a writer.
            os.mkfifo(sealed)
        with KafkaPeer(broker) as peer:
            peer.send(request_frame(fetch("old", 0), 11))
            eventually(lambda: any(map(is_read, objects)), "the read waits")
            assert broker.stop(timeout_s=60) == 0


def is_read(fifo: Path) -> bool:
    """Return whether somebody waits for a writer."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True
