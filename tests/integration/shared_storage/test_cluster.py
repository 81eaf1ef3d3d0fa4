"""Three brokers on one PostgreSQL: any of them serves everything, and any may die."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from stele import Client
from stele.broker_process import BrokerStartError
from stele.testing import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from app.cluster.group_shards import SHARD_LEASES
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers
from tests.support.kafka_peer import KafkaPeer, fetch, only_partition
from tests.support.warm_processes import run_stele

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cluster.md").read_text()


def test_every_broker_shows_all_of_them(brokers: Brokers) -> None:
    shown = [brokers.cluster(number) for number in (1, 2, 3)]
    assert [one["broker_id"] for one in shown] == [1, 2, 3]
    assert len({one["cluster_id"] for one in shown}) == 1
    while any(len(brokers.cluster(number)["brokers"]) < 3 for number in (1, 2, 3)):
        pass
    for number in (1, 2, 3):
        assert [(b["id"], b["rack"]) for b in brokers.cluster(number)["brokers"]] == [
            (1, "rack-1"),
            (2, "rack-2"),
            (3, "rack-3"),
        ]
        with AdminClientOf(brokers[number].kafka_bootstrap) as admin:
            described = cast("Any", admin.describe_cluster())
            nodes: list[Any] = described.result().nodes
            assert sorted((node.id, f"{node.host}:{node.port}", node.rack) for node in nodes) == [
                (other, brokers[other].kafka_bootstrap, f"rack-{other}") for other in (1, 2, 3)
            ]


def test_the_metrics_tell_of_the_cluster_and_of_the_storage(brokers: Brokers) -> None:
    brokers.coordinator("any")
    with Client(brokers[1].binary_url) as client:
        client.create_topic("measured")
        client.produce("measured", b"x" * 1000)
        client.fetch("measured")
    families = [metrics_of(brokers[number]) for number in (1, 2, 3)]
    assert [one["stele_cluster_brokers"] for one in families] == [3, 3, 3]
    # Leases are between brokers while these join.
    while any(
        sum(
            metrics_of(brokers[number])[f'stele_cluster_lease_held{{lease="{lease}"}}']
            for number in (1, 2, 3)
        )
        != 1
        for lease in SHARD_LEASES
    ):
        pass
    assert families[0]['stele_shared_objects_total{store="inline"}'] >= 1
    assert families[0]['stele_shared_object_bytes_total{store="inline"}'] > 1000
    assert families[0]["stele_shared_objects_in_flight"] == 0
    assert families[0]['stele_shared_cache_blocks_total{outcome="hit"}'] >= 1


def test_every_broker_shows_the_same_survey(brokers: Brokers) -> None:
    with Client(brokers[2].binary_url) as client:
        client.create_topic("surveyed", partitions=3)
        client.produce("surveyed", b"x" * 5000)
    shown = [survey_of(brokers, number, records_bytes=5000) for number in (1, 2, 3)]
    for survey in shown:
        assert [(one["id"], one["status"]) for one in survey["brokers"]] == [(n, "live") for n in (1, 2, 3)]
        for one in survey["brokers"]:
            broker = brokers[one["id"]]
            assert one["process"]["id"] == broker.pid
            assert one["heartbeat_age_ms"] < 5000
            assert f"http://{one['endpoints']['http']['host']}:{one['http_port']}" == broker.http_url
            assert set(one["connections"]) == {"http", "binary", "kafka", "registry"}
        assert sum(one["totals"]["records_in"] for one in survey["brokers"]) >= 1
        (total,) = (one for one in survey["objects"] if one["state"] == "committed")
        assert total["store"] == "inline"
        assert total["bytes"] > 5000
        backlog = survey["merge_backlog"]
        assert backlog["partitions"] >= 1
        assert backlog["bytes"] >= 5000
        assert backlog["oldest_ms"] >= 0
        assert survey["metadata_bytes"] > 100_000
        assert survey["postgres"]["p50_ms"] > 0
    incarnations = [[one["incarnation"] for one in survey["brokers"]] for survey in shown]
    assert incarnations[0] == incarnations[1] == incarnations[2]
    leases = brokers.cluster(1)["leases"]
    assert {lease["incarnation"] for lease in leases.values()} <= set(incarnations[0])
    assert metrics_of(brokers[1])["stele_cluster_merge_backlog_bytes"] >= 5000
    assert metrics_of(brokers[3])['stele_cluster_objects{store="inline"}'] >= 1
    assert metrics_of(brokers[3])["stele_shared_postgres_round_trip_seconds_total"] > 0


def test_top_shows_every_broker_and_their_sum_and_goes_on_without_one(brokers: Brokers) -> None:
    survey_of(brokers, 2, records_bytes=0)
    url = f"http://127.0.0.1:1,{brokers[2].http_url.removeprefix('http://')}"
    shown = ""
    # A broker that was restarted just now has no rates in its first report.
    while not all(re.search(rf"^{number} +live +\d+ +\S+ +\d", shown, re.MULTILINE) for number in (1, 2, 3)):
        done = run_stele("top", "--once", "--url", url)
        assert done.returncode == 0, done.stderr
        shown = done.stdout.decode()
    assert re.search(r"^all +\d+ ", shown, re.MULTILINE), shown
    assert "broker 2:\nstele " in shown


def survey_of(brokers: Brokers, number: int, *, records_bytes: int) -> dict[str, Any]:
    """Wait until a broker knows of records and what every live broker reports; it may have an earlier survey."""
    while True:
        survey = brokers.cluster(number)["survey"]
        reported = all(one["rates"] and one["status"] == "live" for one in survey["brokers"])
        committed = [one["bytes"] for one in survey["objects"] or () if one["state"] == "committed"]
        if (
            reported
            # Objects are counted less often than the rest.
            and sum(committed) >= records_bytes
            and survey["merge_backlog"]["bytes"] >= records_bytes
            # A broker reports what it counts once a second, so the backlog may be ahead of it.
            and sum(one["totals"]["bytes_in"] for one in survey["brokers"]) >= records_bytes
        ):
            return survey


def test_the_metrics_of_the_cluster_are_documented_and_no_others(brokers: Brokers) -> None:
    own = ("stele_cluster_", "stele_shared_")
    existing = {name.partition("{")[0] for name in metrics_of(brokers[1]) if name.startswith(own)}
    assert existing == {name for name in re.findall(r"`(stele_\w+)`", PAGE) if name.startswith(own)}


def metrics_of(broker: BrokerProcess) -> dict[str, float]:
    lines = httpx.get(f"{broker.http_url}/metrics").text.splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


class AdminClientOf:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def __enter__(self) -> AdminClient:
        return self._admin

    def __exit__(self, *_: object) -> None: ...


def test_topics_are_created_altered_and_deleted_at_any_broker(brokers: Brokers) -> None:
    http = [brokers[number].http_url for number in (1, 2, 3)]
    created = httpx.put(f"{http[0]}/v1/topics/admin", json={"partitions": 2})
    assert created.status_code == 201, created.text
    # At once, although the other brokers have not been told.
    assert len(httpx.get(f"{http[1]}/v1/topics/admin").json()["partitions"]) == 2
    with AdminClientOf(brokers[3].kafka_bootstrap) as admin:
        admin.create_partitions([NewPartitions("admin", 5)])["admin"].result()
    altered = httpx.patch(f"{http[1]}/v1/topics/admin", json={"configs": {"retention.ms": "60000"}})
    assert altered.status_code == 200, altered.text
    altered = httpx.patch(f"{http[0]}/v1/topics/admin", json={"configs": {"max.message.bytes": "5000"}})
    assert altered.status_code == 200, altered.text
    document = altered.json()
    assert len(document["partitions"]) == 5
    assert {name: document["configs"][name] for name in ("retention.ms", "max.message.bytes")} == {
        "retention.ms": "60000",
        "max.message.bytes": "5000",
    }
    with Client(brokers[2].binary_url) as client:
        client.delete_topic("admin")
        client.create_topic("admin", partitions=1)
    while len(httpx.get(f"{http[0]}/v1/topics/admin").json().get("partitions", ())) != 1:
        pass


def test_records_written_at_one_broker_are_read_at_the_others(brokers: Brokers) -> None:
    with Client(brokers[1].binary_url) as first, Client(brokers[2].binary_url) as second:
        first.create_topic("mixed")
        assert second.produce("mixed", b"over binary at 2").offset == 0
        assert first.produce("mixed", b"over binary at 1").offset == 1
    answer = httpx.post(
        f"{brokers[3].http_url}/v1/topics/mixed/records", json={"records": [{"value": "over http at 3"}]}
    )
    assert answer.status_code == 200, answer.text
    expected = ["over binary at 2", "over binary at 1", "over http at 3"]
    for number in (1, 2, 3):
        page = httpx.get(
            f"{brokers[number].http_url}/v1/topics/mixed/partitions/0/records", params={"from": 0}
        ).json()
        assert [record["value"] for record in page["records"]] == expected


def fetch_code(peer: KafkaPeer, epoch: int) -> int:
    return only_partition(peer.call(fetch("led", 0, current_leader_epoch=epoch), 12)).error_code


def list_offsets_code(peer: KafkaPeer, epoch: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="led", partitions=[partition])])
    return peer.call(request, 5).topics[0].partitions[0].error_code


def epoch_end_code(peer: KafkaPeer, epoch: int) -> int:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic="led", partitions=[partition])
    return peer.call(OffsetForLeaderEpochRequest(topics=[topic]), 4).topics[0].partitions[0].error_code


@pytest.mark.parametrize("ask", [fetch_code, list_offsets_code, epoch_end_code])
def test_a_leader_epoch_that_one_broker_has_shown_is_known_at_the_others(
    brokers: Brokers, server: PostgresServer, ask: Callable[[KafkaPeer, int], int]
) -> None:
    assert httpx.put(f"{brokers[1].http_url}/v1/topics/led").is_success
    with KafkaPeer(brokers[2]) as peer, psycopg.connect(server.dsn, autocommit=True) as database:
        assert ask(peer, -1) == ErrorCode.NONE
        assert ask(peer, 2**31 - 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        # A broker looks four times a second by itself, which a test that asks once may just meet.
        for _ in range(5):
            raised = database.execute(
                "UPDATE stele.history SET leader_epoch = leader_epoch + 1 RETURNING leader_epoch"
            )
            ((epoch,),) = raised
            assert ask(peer, epoch) == ErrorCode.NONE


@pytest.mark.long
def test_a_second_broker_with_a_taken_id_does_not_start(
    brokers: Brokers, server: PostgresServer, tmp_path: Path
) -> None:
    environment = {
        "STELE_STORAGE": "shared",
        "STELE_POSTGRES_URL": server.dsn,
        "STELE_BROKER_ID": "2",
    }
    with (
        pytest.raises(BrokerStartError, match="give this one another --broker-id"),
        run_broker(tmp_path, environment=environment),
    ):
        pass
    assert brokers[2].is_running


@pytest.mark.long
def test_kafka_clients_go_on_when_the_coordinator_is_killed(brokers: Brokers) -> None:
    with AdminClientOf(brokers.kafka_bootstrap) as admin:
        admin.create_topics([NewTopic("ledger", 6, 3)])["ledger"].result()
    acked: dict[tuple[int, int], bytes] = {}
    failed: list[object] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            value = message.value()
            partition, offset = message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            assert acked.setdefault((partition, offset), value) == value
        else:
            failed.append(error)

    producer = Producer({"bootstrap.servers": brokers.kafka_bootstrap, "enable.idempotence": True})
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.kafka_bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["ledger"])
    read: dict[tuple[int, int], bytes] = {}

    def produce(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce("ledger", str(number).encode(), key=str(number), on_delivery=delivered)
        assert producer.flush(60) == 0

    def consume(count: int) -> None:
        while len(read) < count:
            message = consumer.poll(1)
            if message is None or message.error():
                continue
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            assert (partition, offset) not in read, "each record once, in one life of the consumer"
            read[partition, offset] = value

    produce(0, 200)
    consume(200)
    consumer.commit(asynchronous=False)
    victim = brokers.coordinator("readers")
    brokers[victim].kill()
    produce(200, 400)
    consume(400)
    consumer.commit(asynchronous=False)
    assert not failed
    assert brokers.coordinator("readers") != victim
    brokers[victim].start()
    produce(400, 500)
    consume(500)
    consumer.close()
    assert read == acked
    assert sorted(int(value) for value in read.values()) == list(range(500))


def test_a_stopped_broker_leaves_at_once_and_comes_back(brokers: Brokers) -> None:
    holder = brokers.coordinator("any")
    others = [number for number in (1, 2, 3) if number != holder]
    brokers[holder].stop()
    while [b["id"] for b in brokers.cluster(others[0])["brokers"]] != others:
        pass
    assert brokers.coordinator("any") in others
    brokers[holder].start()
    assert [b["id"] for b in brokers.cluster(holder)["brokers"]] == [1, 2, 3]
