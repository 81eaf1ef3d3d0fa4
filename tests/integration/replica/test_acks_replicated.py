"""``stele.acks=replicated``: acks=all waits until the bucket has the records, over every protocol."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaError, Message, Producer
from stele import Client
from stele.testing import BrokerProcess, BrokerStartError, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.messages import Durability

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, only_partition, produce
from tests.support.waiting import eventually

REPLICATED = {"configs": {"stele.acks": "replicated"}}


def environment(bucket: Path) -> dict[str, str]:
    return {"STELE_REPLICATE_TO": bucket.as_uri(), "STELE_REPLICA_INTERVAL_MS": "100"}


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def broker(tmp_path: Path, bucket: Path) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path / "data", environment=environment(bucket)) as running:
        assert httpx.put(f"{running.http_url}/v1/topics/safe", json=REPLICATED).is_success
        yield running


def cuts(bucket: Path) -> int:
    return len(list((bucket / "c").iterdir()))


def test_the_receipt_says_replicated_over_every_protocol(broker: BrokerProcess, bucket: Path) -> None:
    before = cuts(bucket)
    answer = httpx.post(f"{broker.http_url}/v1/topics/safe/records", json={"records": [{"value": "http"}]})
    assert answer.json()["durability"] == "replicated"
    assert cuts(bucket) > before
    with Client(broker.binary_url) as client:
        assert client.produce("safe", b"binary").durability == Durability.REPLICATED
    told: list[tuple[KafkaError | None, int | None]] = []
    producer = Producer(
        {"bootstrap.servers": broker.kafka_bootstrap, "acks": "all", "enable.idempotence": True}
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        told.append((error, message.offset()))

    producer.produce("safe", b"kafka", on_delivery=delivered)
    producer.flush()
    assert told == [(None, 2)]


def test_who_asks_for_less_does_not_wait_for_the_bucket(broker: BrokerProcess, bucket: Path) -> None:
    with Client(broker.binary_url) as client:
        assert client.produce("safe", b"1", acks="1").durability == Durability.APPENDED
        client.create_topic("other")
        assert client.produce("other", b"1").durability == Durability.SYNCED


def test_a_repeated_batch_waits_too_and_is_answered_while_nothing_changes(broker: BrokerProcess) -> None:
    with KafkaPeer(broker) as peer:
        batch = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0)
        for _ in range(2):
            answer = only_partition(peer.call(produce("safe", batch, acks=-1), 9))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


def test_records_wait_for_a_bucket_that_is_away_and_are_not_lost(tmp_path: Path, bucket: Path) -> None:
    settings = {**environment(bucket), "STELE_REQUEST_TIMEOUT_MS": "1000"}
    with run_broker(tmp_path / "data", environment=settings) as broker:
        assert httpx.put(f"{broker.http_url}/v1/topics/safe", json=REPLICATED).is_success
        url = f"{broker.http_url}/v1/topics/safe/records"
        hidden = bucket.rename(bucket.with_name("hidden"))
        # A file in its place: a directory would be made again.
        bucket.write_text("")
        late = httpx.post(url, json={"records": [{"value": "late"}]})
        assert late.status_code == 504, late.text
        # Other topics go on.
        with Client(broker.binary_url) as client:
            client.create_topic("other")
            assert client.produce("other", b"1").durability == Durability.SYNCED
        bucket.unlink()
        hidden.rename(bucket)
        eventually(lambda: httpx.post(url, json={"records": [{"value": "again"}]}).is_success, "it is back")
        page = httpx.get(f"{broker.http_url}/v1/topics/safe/partitions/0/records?from=0").json()
        assert [record["value"] for record in page["records"]][:2] == ["late", "again"]


def test_a_broker_that_is_overtaken_says_so_and_serves_on(
    broker: BrokerProcess, bucket: Path, tmp_path: Path
) -> None:
    with Client(broker.binary_url) as client:
        client.produce("safe", b"1")
    shutil.copytree(broker.data_dir, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    with run_broker(tmp_path / "copy", environment=environment(bucket)) as other:
        with Client(other.binary_url) as client:
            assert client.produce("safe", b"of the other").durability == Durability.REPLICATED
        eventually(lambda: overtaken(broker), "the broker is refused what only a replica can promise")
        assert "is written by another broker now" in broker.stderr
        with Client(broker.binary_url) as client:
            assert client.produce("safe", b"x", acks="1").durability == Durability.APPENDED
            assert [record.value for record in client.fetch("safe").records][:1] == [b"1"]
        assert other.is_running
        with Client(other.binary_url) as client:
            assert client.produce("safe", b"of the other").durability == Durability.REPLICATED


def overtaken(broker: BrokerProcess) -> bool:
    with KafkaPeer(broker) as peer:
        answer = only_partition(peer.call(produce("safe", batch_of([b"x"]), acks=-1), 9))
    return answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_bucket_with_the_replica_of_another_directory_is_refused(
    broker: BrokerProcess, bucket: Path, tmp_path: Path
) -> None:
    eventually(lambda: cuts(bucket) > 0, "there is a replica")
    with (
        pytest.raises(BrokerStartError, match=r"has the replica of another data directory .*stele restore"),
        run_broker(tmp_path / "empty", environment=environment(bucket)),
    ):
        pass
    assert broker.is_running


@pytest.mark.parametrize("name", ["stele.acks", "remote.storage.enable"])
def test_without_a_replica_the_configuration_is_refused(tmp_path: Path, name: str) -> None:
    with run_broker(tmp_path / "plain") as plain:
        value = {"stele.acks": "replicated"}.get(name, "true")
        answer = httpx.put(f"{plain.http_url}/v1/topics/t", json={"configs": {name: value}})
        assert answer.status_code == 400
        assert "this broker has no replica: start it with --replicate-to URL" in answer.text


def test_a_topic_that_wants_a_replica_takes_no_such_records_without_one(tmp_path: Path, bucket: Path) -> None:
    with run_broker(tmp_path / "data", environment=environment(bucket)) as replicating:
        assert httpx.put(f"{replicating.http_url}/v1/topics/safe", json=REPLICATED).is_success
    with run_broker(tmp_path / "data") as plain:
        answer = httpx.post(f"{plain.http_url}/v1/topics/safe/records", json={"records": [{"value": "1"}]})
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (503, "not-replicated")
        with Client(plain.binary_url) as client:
            appended = client.produce("safe", b"1", acks="1")
        assert (appended.durability, appended.offset) == (Durability.APPENDED, 0), "refused is not appended"
