"""A data directory that is lost comes back from the bucket: records, offsets, users, rules, and clients go on."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, BrokerStartError
from stele.operations.produce import BeginProducerVersion

from app.storage.replica.staging import RESTORING
from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.replicating_brokers import (
    await_cut,
    command,
    contents,
    newest_header,
    newest_state,
    partition_of,
    records_of,
    replicating,
    restore,
    stele,
)
from tests.support.s3_servers import seaweedfs, use_test_credentials, versitygw
from tests.support.small_disk import small_disk
from tests.support.variants import long_but
from tests.support.waiting import eventually

SMALL = {"segment.bytes": "4096"}
# Access rules can be stored, and everyone may do everything.
RULES = {"STELE_AUTHORIZATION": "acls", "STELE_SUPER_USERS": "User:ANONYMOUS"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture
def broker(tmp_path: Path, url: str) -> Iterator[BrokerProcess]:
    """A broker that replicates every change."""
    process = replicating(tmp_path / "data", url, **RULES)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def lose(broker: BrokerProcess) -> None:
    """Kill the broker and delete its directory."""
    broker.kill()
    shutil.rmtree(broker.data_dir)


def write_everything(broker: BrokerProcess) -> None:
    """Write over each protocol what a replica has to keep."""
    with Client(broker.http_url) as client:
        client.create_topic("orders", partitions=3, configs=SMALL)
        client.create_topic("table", configs={**SMALL, "cleanup.policy": "compact"})
        client.create_topic("shortened", configs=SMALL)
        client.create_topic("deleted", partitions=2)
        client.create_topic("again")
        for topic in ("orders", "shortened", "deleted", "again"):
            for start in range(0, 300, 30):
                numbers = range(start, start + 30)
                client.produce_many(
                    topic, [NewRecord(f"{topic} {n}".encode() * 9, key=f"k{n}") for n in numbers]
                )
        for start in range(0, 400, 20):
            numbers = range(start, start + 20)
            client.produce_many("table", [NewRecord(b"%d" % n * 50, key=f"k{n % 7}") for n in numbers])
        client.delete_topic("deleted")
        client.delete_topic("again")
        client.create_topic("again")
        client.produce("again", b"of the second topic of this name")
    httpx.post(
        f"{broker.http_url}/v1/topics/orders/records",
        content=b'{"key":"json","value":{"n":1}}\n',
        headers={"content-type": "application/x-ndjson"},
    ).raise_for_status()
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    for future in cast("Any", admin.delete_records([TopicPartition("shortened", 0, 250)])).values():
        future.result()
    write_over_kafka(broker)
    commit(broker, "readers", "orders", 17)
    command(broker, "user", "add", "ada", stdin=b"a secret word\n")
    command(broker, "acls", "add", "--principal", "User:ada", "--operation", "READ", "--topic", "orders")
    command(broker, "quotas", "set", "producer_byte_rate=1000000000", "--for-client-id", "quick")
    command(broker, "topics", "alter", "orders", "--config", "retention.ms=7200000")


def write_over_kafka(broker: BrokerProcess) -> None:
    idempotent = Producer({"bootstrap.servers": broker.kafka_bootstrap, "enable.idempotence": True})
    for n in range(100):
        idempotent.produce("orders", f"idempotent {n}", key=f"k{n}")
    assert idempotent.flush(60) == 0
    producer = transactional(broker, "whole")
    for n in range(4):
        producer.begin_transaction()
        producer.produce("orders", f"transaction {n}", partition=1)
        producer.produce("table", f"transaction {n}", key="of a transaction")
        if n % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


def commit(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.kafka_bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_what_was_lost_comes_back_and_clients_go_on(broker: BrokerProcess, url: str) -> None:
    write_everything(broker)
    await_cut(broker, url)
    before = contents(broker)
    header = newest_header(url)
    lose(broker)

    restored = restore(url, broker.data_dir)

    assert restored["topics"] == len(before["topics"])
    broker.start()
    after = contents(broker)
    assert after == before
    assert [topic for topic in after["topics"] if topic == "deleted"] == []
    assert after["records"]["shortened"][0][1] == 250
    assert len(after["records"]["again"]) == 1
    write_over_kafka(broker)
    commit(broker, "readers", "orders", 18)
    await_cut(broker, url)
    follower = newest_header(url)
    assert (follower.cluster_id, follower.generation) == (header.cluster_id, header.generation + 1)
    assert follower.leader_epoch > header.leader_epoch
    # A second loss, in the next generation.
    again = contents(broker)
    lose(broker)
    restore(url, broker.data_dir)
    broker.start()
    assert contents(broker) == again
    assert "ERROR" not in broker.stderr


def test_an_earlier_moment_is_restored_and_goes_on_as_the_next_generation(
    broker: BrokerProcess, url: str
) -> None:
    with Client(broker.http_url) as client:
        client.create_topic("moments")
        client.produce("moments", b"first")
        await_cut(broker, url)
        moment_ms = newest_header(url).time_ms
        client.produce("moments", b"second")
    await_cut(broker, url)
    lose(broker)

    restored = restore(url, broker.data_dir, "--to", str(moment_ms))

    assert restored["at"] == moment_ms
    broker.start()
    assert [record[4] for record in records_of(broker, "moments")] == [b"first"]
    with Client(broker.http_url) as client:
        client.produce("moments", b"another second")
    await_cut(broker, url)
    lose(broker)
    restore(url, broker.data_dir)
    broker.start()
    assert [record[4] for record in records_of(broker, "moments")] == [b"first", b"another second"]


def test_a_time_before_the_first_cut_is_refused(broker: BrokerProcess, url: str, tmp_path: Path) -> None:
    await_cut(broker, url)

    done = stele("restore", url, "--data-dir", str(tmp_path / "other"), "--to", "2020-01-01T00:00Z")

    assert done.returncode == 1
    assert b"the replica does not go back to 2020-01-01T00:00:00.000Z" in done.stderr
    assert not (tmp_path / "other").exists()


def test_only_the_topics_that_are_named(broker: BrokerProcess, url: str, tmp_path: Path) -> None:
    write_everything(broker)
    await_cut(broker, url)
    before = contents(broker)
    broker.kill()

    restore(url, tmp_path / "some", "--topic", "orders", "--topic", "table")

    other = replicating(tmp_path / "some", f"file://{tmp_path / 'other-bucket'}", **RULES)
    other.start()
    try:
        after = contents(other)
        assert sorted(after["topics"]) == ["orders", "table"]
        assert after["records"] == {topic: before["records"][topic] for topic in ("orders", "table")}
        assert after["groups"] == {}
        assert (after["users"], after["acls"], after["quotas"]) == (
            before["users"],
            before["acls"],
            before["quotas"],
        )
    finally:
        other.kill()


def test_a_topic_that_the_replica_lacks_is_named(broker: BrokerProcess, url: str, tmp_path: Path) -> None:
    await_cut(broker, url)

    done = stele("restore", url, "--data-dir", str(tmp_path / "some"), "--topic", "ordres")

    assert (done.returncode, b"has no topic 'ordres'" in done.stderr) == (1, True)


def test_segments_that_are_in_the_bucket_alone_come_back_to_the_disk(tmp_path: Path, url: str) -> None:
    broker = replicating(tmp_path / "data", url, STELE_LOG_RETENTION_CHECK_INTERVAL_MS="200")
    broker.start()
    try:
        configs = {
            "remote.storage.enable": "true",
            "retention.ms": "-1",
            "local.retention.bytes": "1",
            "segment.bytes": "1048576",
        }
        httpx.put(f"{broker.http_url}/v1/topics/tiered", json={"configs": configs}).raise_for_status()
        with Client(broker.binary_url) as client:
            for _ in range(30):
                client.produce_many("tiered", [NewRecord(random.randbytes(1000)) for _ in range(100)])
        listed = broker.data_dir / "tiered-0" / "remote-segments"
        eventually(listed.exists, "a segment has left the disk")
        await_cut(broker, url)
        before = records_of(broker, "tiered")
        assert len(before) == 3000
        lose(broker)
        restore(url, broker.data_dir)
        assert (broker.data_dir / "tiered-0" / "00000000000000000000.log").stat().st_size > 1_000_000
        broker.start()
        assert records_of(broker, "tiered") == before
        # It leaves the disk again.
        eventually(listed.exists, "a segment has left the disk")
        assert records_of(broker, "tiered") == before
    finally:
        broker.kill()


# ── what was given out after the cut ──


def test_an_open_transaction_is_aborted_and_its_producer_is_fenced(broker: BrokerProcess, url: str) -> None:
    with Client(broker.http_url) as client:
        client.create_topic("orders")
    producer = transactional(broker, "open")
    producer.begin_transaction()
    producer.produce("orders", "never committed")
    producer.flush(60)
    await_cut(broker, url)
    lose(broker)
    restore(url, broker.data_dir)
    broker.start()

    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(60)

    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    assert error.fatal()
    assert command(broker, "transactions", "describe", "open")["state"] == "Empty"
    assert records_of(broker, "orders") == []
    successor = transactional(broker, "open")
    successor.begin_transaction()
    successor.produce("orders", "committed")
    successor.commit_transaction(60)
    assert [record[4] for record in records_of(broker, "orders")] == [b"committed"]


def test_a_commit_that_the_cut_lacks_is_not_confirmed(broker: BrokerProcess, url: str) -> None:
    with Client(broker.http_url) as client:
        client.create_topic("orders")
    producer = transactional(broker, "lost")
    producer.begin_transaction()
    producer.produce("orders", "in the cut")
    producer.commit_transaction(60)
    await_cut(broker, url)
    moment_ms = newest_header(url).time_ms
    producer.begin_transaction()
    producer.produce("orders", "not in the cut")
    producer.flush(60)
    lose(broker)
    restore(url, broker.data_dir, "--to", str(moment_ms))
    broker.start()

    with pytest.raises(KafkaException):
        producer.commit_transaction(60)

    assert [record[4] for record in records_of(broker, "orders")] == [b"in the cut"]


def test_producer_ids_are_new_after_each_restore(broker: BrokerProcess, url: str) -> None:
    given: list[int] = []

    def begin(name: str, version: int) -> tuple[int, int]:
        with Client(broker.binary_url) as client:
            begun = client.call(BeginProducerVersion(name=name, version=version))
        return begun.producer_id, begun.producer_epoch

    known = begin("known", 1)
    await_cut(broker, url)
    moment_ms = newest_header(url).time_ms
    epochs = [begin("known", 2)[1]]
    for _ in range(2):
        lose(broker)
        restore(url, broker.data_dir, "--to", str(moment_ms))
        broker.start()
        assert begin("known", 1) == known
        producer_id, epoch = begin("known", 2)
        assert producer_id == known[0]
        epochs.append(epoch)
        given.append(begin(f"fresh {len(given)}", 1)[0])
        # So that the next restore is of the same cut.
        broker.kill()
        broker.start()
        moment_ms = min(moment_ms, newest_header(url).time_ms)
    assert len(set(epochs)) == 3
    assert given[0] > 2**32
    assert given[1] > given[0] + 2**8


def test_an_idempotent_producer_goes_on_without_repeating_a_record(broker: BrokerProcess, url: str) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "enable.idempotence": True})
    with Client(broker.http_url) as client:
        client.create_topic("orders")
    producer.produce("orders", "before")
    assert producer.flush(60) == 0
    await_cut(broker, url)
    lose(broker)
    restore(url, broker.data_dir)
    broker.start()

    producer.produce("orders", "after")

    assert producer.flush(120) == 0
    assert [record[4] for record in records_of(broker, "orders")] == [b"before", b"after"]


# ── the start of a broker ──


def test_a_broker_restores_its_empty_directory(tmp_path: Path, url: str) -> None:
    broker = replicating(tmp_path / "data", url, STELE_RESTORE_IF_EMPTY="true")
    # There is nothing to restore yet.
    broker.start()
    try:
        assert "the broker starts empty" in broker.stderr
        with Client(broker.http_url) as client:
            client.create_topic("orders")
            client.produce("orders", b"kept")
        await_cut(broker, url)
        lose(broker)
        broker.start()
        assert [record[4] for record in records_of(broker, "orders")] == [b"kept"]
        with Client(broker.http_url) as client:
            client.produce("orders", b"after it")
        # With data, it is not restored.
        broker.kill()
        broker.start()
        assert [record[4] for record in records_of(broker, "orders")] == [b"kept", b"after it"]
        assert broker.stderr.count("is restored as of") == 1
    finally:
        broker.kill()


def test_a_broker_does_not_start_empty_if_the_bucket_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_credentials(monkeypatch)
    broker = BrokerProcess(
        tmp_path / "data",
        environment={"STELE_RESTORE_IF_EMPTY": "s3://none/stele?endpoint=http://127.0.0.1:1"},
        start_timeout_s=120,
    )

    with pytest.raises(BrokerStartError, match=r"does not start, because .* is empty: the object store"):
        broker.start()

    assert list((tmp_path / "data").iterdir()) == []


def test_a_broker_does_not_start_over_a_damaged_replica(
    broker: BrokerProcess, url: str, tmp_path: Path
) -> None:
    await_cut(broker, url)
    broker.kill()
    newest = max((tmp_path / "bucket" / "c").iterdir())
    newest.write_bytes(newest.read_bytes()[:-9])
    other = BrokerProcess(tmp_path / "other", environment={"STELE_RESTORE_IF_EMPTY": url})

    with pytest.raises(BrokerStartError, match=rf"c/{newest.name}: the cut is damaged"):
        other.start()


def test_the_options_of_serve(tmp_path: Path, url: str) -> None:
    broker = BrokerProcess(tmp_path / "data", arguments=["--replicate-to", url, "--restore-if-empty"])
    broker.start()
    try:
        await_cut(broker, url)
        assert "the broker starts empty" in broker.stderr
    finally:
        broker.kill()


def test_a_broker_needs_a_bucket_to_restore_from(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", arguments=["--restore-if-empty"])

    with pytest.raises(BrokerStartError, match="restores from the bucket of replicate_to, which is not set"):
        broker.start()


# ── what goes wrong ──


@pytest.fixture
def lost(broker: BrokerProcess, url: str) -> BrokerProcess:
    """A broker that is dead, with some records in its bucket."""
    with Client(broker.http_url) as client:
        client.create_topic("orders", partitions=2, configs=SMALL)
        for start in range(0, 200, 10):
            client.produce_many("orders", [NewRecord(b"%d" % n * 100) for n in range(start, start + 10)])
    await_cut(broker, url)
    broker.kill()
    return broker


def an_object_of(url: str, topic: str) -> tuple[Path, int]:
    """Return an object of a topic, and where in it the records are."""
    state = newest_state(url)
    assert state is not None
    replica = partition_of(state, topic)
    assert replica is not None
    run = next(segment for segment in replica.segments if segment.runs).runs[0]
    return Path(url.removeprefix("file://")) / run.object, run.position + run.length // 2


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_damaged_object_is_named_and_nothing_is_left(lost: BrokerProcess, url: str, tmp_path: Path) -> None:
    path, position = an_object_of(url, "orders")
    flip(path, position)

    done = stele("restore", url, "--data-dir", str(tmp_path / "other"))

    assert done.returncode == 1
    name = str(path.relative_to(tmp_path / "bucket")).encode()
    assert name in done.stderr
    assert b"of orders-0" in done.stderr
    assert b"--to with an earlier time may help" in done.stderr
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("other")] == []


def test_a_missing_object_is_named(lost: BrokerProcess, url: str, tmp_path: Path) -> None:
    path, _ = an_object_of(url, "orders")
    path.unlink()

    done = stele("restore", url, "--data-dir", str(tmp_path / "other"))

    assert (done.returncode, b"the object does not exist" in done.stderr) == (1, True)


def test_verify_lists_what_is_wrong(lost: BrokerProcess, url: str) -> None:
    whole = stele("replica", "verify", url)
    path, position = an_object_of(url, "orders")
    flip(path, position)

    done = stele("replica", "verify", url, "--format", "json")

    assert (whole.returncode, whole.stdout.endswith(b": ok\n")) == (0, True)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert {(problem["object"], problem["of"]) for problem in document["problems"]} == {
        ("/".join(path.parts[-3:]), "orders-0")
    }
    path.write_bytes(path.read_bytes()[:-200])
    short = json.loads(stele("replica", "verify", url, "--format", "json").stdout)
    assert {problem["problem"] for problem in short["problems"]} <= {
        f"the object has only {path.stat().st_size} bytes",
        *(problem["problem"] for problem in document["problems"]),
    }


def test_a_damaged_cut_is_named_and_an_earlier_one_is_restored(
    lost: BrokerProcess, url: str, tmp_path: Path
) -> None:
    newest = max((tmp_path / "bucket" / "c").iterdir())
    flip(newest, newest.stat().st_size // 2)

    done = stele("restore", url, "--data-dir", str(tmp_path / "other"))

    assert done.returncode == 1
    assert f"c/{newest.name}: the cut is damaged".encode() in done.stderr
    restore(url, tmp_path / "other", "--to", str(newest_header(url).time_ms))


def test_a_directory_with_data_is_not_touched(lost: BrokerProcess, url: str) -> None:
    before = sorted(lost.data_dir.rglob("*"))

    done = stele("restore", url, "--data-dir", str(lost.data_dir))

    assert (done.returncode, b"is not empty" in done.stderr) == (1, True)
    assert sorted(lost.data_dir.rglob("*")) == before


def test_a_wrong_url_makes_nothing(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"

    done = stele("restore", f"file://{nowhere}", "--data-dir", str(tmp_path / "data"))

    assert (done.returncode, b"there is no directory" in done.stderr) == (1, True)
    nowhere.mkdir()
    empty = stele("restore", f"file://{nowhere}", "--data-dir", str(tmp_path / "data"))
    assert (empty.returncode, b"there is no replica below this URL" in empty.stderr) == (1, True)
    assert not (tmp_path / "data").exists()


def test_a_disk_that_is_too_small_is_known_before(lost: BrokerProcess, url: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", size_bytes=256 * 1024) as disk:
        done = stele("restore", url, "--data-dir", str(disk.path / "data"))

        assert (done.returncode, b"is too small: the restore needs" in done.stderr) == (1, True)
        assert list(disk.path.iterdir()) == []


def test_a_mounted_directory_is_restored_in_place(lost: BrokerProcess, url: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "volume", size_bytes=64 << 20) as disk:
        # What a restore leaves that was killed.
        (disk.path / RESTORING).mkdir()
        (disk.path / "orders-7").mkdir()
        broker = BrokerProcess(disk.path)
        with pytest.raises(BrokerStartError, match="was interrupted: run stele restore again"):
            broker.start()

        restore(url, disk.path)

        assert not (disk.path / RESTORING).exists()
        assert not (disk.path / "orders-7").exists()
        broker.start()
        try:
            assert len(records_of(broker, "orders")) == 200
        finally:
            broker.kill()


def test_lists_the_moments(lost: BrokerProcess, url: str) -> None:
    document = json.loads(stele("restore", url, "--list", "--format", "json").stdout)
    (generation,) = document["generations"]
    assert generation["generation"] == 1
    assert generation["cuts"] == document["newest_cut"]["sequence"] + 1
    assert generation["first_at"] == document["oldest_restorable_at"] <= generation["last_at"]
    assert (document["topics"], document["partitions"]) == (2, 3)
    lines = stele("restore", url, "--list").stdout.decode().splitlines()
    assert lines[0].split() == ["generation", "first", "moment", "last", "moment", "cuts"]
    status = json.loads(stele("replica", "status", url, "--format", "json").stdout)
    assert status == document


REPORT = {
    "state": "failing",
    "url": "s3://backups/stele",
    "generation": 3,
    "newest_cut": {"sequence": 41207, "at": 1763664052224},
    "lag_seconds": 12.5,
    "oldest_restorable_at": 1763577652101,
    "problem": "writing d/1: 503 Slow Down",
}


@pytest.mark.parametrize("report", [REPORT, {"state": "off", "url": None}], ids=["failing", "off"])
def test_what_a_broker_says_of_its_replica(report: dict[str, Any]) -> None:
    paths: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(report).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        text = stele("replica", "status", "--server", address)
        document = stele("replica", "status", "--server", address, "--format", "json")
        server.shutdown()
        thread.join()
    assert json.loads(document.stdout) == report
    lines = text.stdout.decode().splitlines()
    if report["state"] == "off":
        assert lines == ["state         off", "start the broker with --replicate-to URL to have a replica"]
    else:
        assert lines == [
            "state         failing",
            "bucket        s3://backups/stele",
            "newest cut    2025-11-20T18:40:52.224Z (number 41207, generation 3)",
            "goes back to  2025-11-19T18:40:52.101Z",
            "lag           12.500 s",
            "problem       writing d/1: 503 Slow Down",
        ]
    assert set(paths) == {"/v1/replica"}


def test_a_broker_and_its_bucket_say_the_same(broker: BrokerProcess, url: str) -> None:
    await_cut(broker, url)

    own = json.loads(stele("replica", "status", "--server", broker.http_url, "--format", "json").stdout)

    broker.stop()
    of_bucket = json.loads(stele("replica", "status", url, "--format", "json").stdout)
    assert (own["state"], own["url"], own["generation"]) == ("replicating", url, 1)
    assert own["newest_cut"].keys() == of_bucket["newest_cut"].keys()
    assert own["newest_cut"]["at"] <= of_bucket["newest_cut"]["at"]
    assert own["oldest_restorable_at"] == of_bucket["oldest_restorable_at"]


@pytest.mark.parametrize("arguments", [[], ["file:///x", "--server", "http://127.0.0.1:1"]])
def test_a_status_is_of_a_bucket_or_of_a_broker(arguments: list[str]) -> None:
    done = stele("replica", "status", *arguments)

    assert (done.returncode, b"pass the URL of a replica, or --server" in done.stderr) == (2, True)


# ── stores ──


@pytest.mark.parametrize("kind", ["seaweedfs", *long_but(["versitygw"])])
def test_stores_over_the_network(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials(monkeypatch)
    with {"seaweedfs": seaweedfs, "versitygw": versitygw}[kind]() as bucket:
        broker = replicating(tmp_path / "data", bucket, **RULES)
        broker.start()
        try:
            write_everything(broker)
            await_cut(broker, bucket)
            before = contents(broker)
            lose(broker)
            assert stele("replica", "verify", bucket).returncode == 0
            restore(bucket, broker.data_dir)
            broker.start()
            assert contents(broker) == before
        finally:
            broker.kill()


# ── Kafka's own tool ──


def test_kafkas_tool_reads_the_restored_segments(lost: BrokerProcess, url: str, tmp_path: Path) -> None:
    with kafka_or_skip():
        libs()
    restore(url, tmp_path / "other")
    logs = sorted((tmp_path / "other").glob("orders-*/*.log"))
    assert len(logs) > 4

    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, logs)))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("isvalid: true") == done.stdout.count("baseOffset: ") > 4
