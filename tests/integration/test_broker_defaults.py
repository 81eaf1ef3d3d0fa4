"""What is set on the broker while it runs: it takes effect on topics at once, and a crash does not lose it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from stele.wire.kafka.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stele.wire.messages import EARLIEST_TIMESTAMP

from app.cluster.catalog import TopicRecord
from app.cluster.sqlite.catalog import SqliteCatalog
from app.composition import CATALOG
from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    create_topic,
    delete_topic,
    only_partition,
    produce,
    put,
)
from tests.support.kafka_topic_configs import TOPIC_CONFIGS
from tests.support.warm_processes import run_stele

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
CLUSTER, NODE = "", "1"
SET, DELETE = 0, 1


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    """One for each test: what is set holds for every topic."""
    with run_broker(environment=WITHOUT_RETENTION) as broker:
        yield broker


def change(peer: KafkaPeer, kind: int, name: str, config: str, value: str | None) -> None:
    """Set it; None unsets it."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(
                        name=config, config_operation=DELETE if value is None else SET, value=value
                    )
                ],
            )
        ],
        validate_only=False,
    )
    (result,) = peer.call(request, 1).responses
    assert result.error_code == ErrorCode.NONE, result.error_message


def described(peer: KafkaPeer, kind: int, name: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)]
    )
    (result,) = peer.call(request, 4).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {config.name: config.value for config in result.configs}


def code_of_produce(peer: KafkaPeer, topic: str, value: bytes) -> int:
    return only_partition(peer.call(produce(topic, batch_of([value])), 9)).error_code


def test_the_largest_batch_is_that_of_the_broker_unless_the_topic_has_its_own(peer: KafkaPeer) -> None:
    create_topic(peer, "follows")
    create_topic(peer, "own", max_message_bytes="100000")
    large = b"x" * 3000
    assert code_of_produce(peer, "follows", large) == ErrorCode.NONE

    change(peer, BROKER, CLUSTER, "message.max.bytes", "2000")
    assert code_of_produce(peer, "follows", large) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of_produce(peer, "own", large) == ErrorCode.NONE
    create_topic(peer, "made-later")
    assert code_of_produce(peer, "made-later", large) == ErrorCode.MESSAGE_TOO_LARGE

    change(peer, BROKER, NODE, "message.max.bytes", "4000")
    assert code_of_produce(peer, "follows", large) == ErrorCode.NONE
    change(peer, BROKER, NODE, "message.max.bytes", None)
    assert code_of_produce(peer, "follows", large) == ErrorCode.MESSAGE_TOO_LARGE
    change(peer, BROKER, CLUSTER, "message.max.bytes", None)
    assert code_of_produce(peer, "follows", large) == ErrorCode.NONE


def test_whose_clock_stamps_records_changes_with_the_broker(peer: KafkaPeer) -> None:
    create_topic(peer, "stamped")
    append_time = {
        "before": only_partition(peer.call(produce("stamped", batch_of([b"x"])), 9)).log_append_time_ms
    }
    change(peer, BROKER, CLUSTER, "log.message.timestamp.type", "LogAppendTime")
    append_time["after"] = only_partition(
        peer.call(produce("stamped", batch_of([b"x"])), 9)
    ).log_append_time_ms
    assert append_time["before"] == -1
    assert append_time["after"] > 0


def test_retention_follows_the_broker_and_an_empty_cleanup_policy_has_none() -> None:
    with (
        run_broker(environment={"STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "10"}) as broker,
        KafkaPeer(broker) as peer,
    ):
        create_topic(peer, "kept", segment_bytes="1024", retention_ms="-1", cleanup_policy="")
        create_topic(peer, "follows", segment_bytes="1024", retention_ms="-1")
        for topic in ("kept", "follows"):
            for _ in range(5):
                put(peer, topic, b"x" * 900)
        change(peer, BROKER, CLUSTER, "log.retention.bytes", "0")
        while log_start(peer, "follows") == 0:
            pass
        # A look of retention later: it has been through all topics.
        before = log_start(peer, "follows")
        put(peer, "follows", b"x" * 900)
        while log_start(peer, "follows") == before:
            pass
        assert log_start(peer, "kept") == 0


@pytest.mark.parametrize("entity", [CLUSTER, NODE])
def test_the_cleaner_looks_as_often_as_is_set_at_once(entity: str) -> None:
    rarely = {**WITHOUT_RETENTION, "STELE_LOG_CLEANER_BACKOFF_MS": "86400000"}
    with (
        run_broker(environment=rarely) as broker,
        KafkaPeer(broker) as peer,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": "1024",
            "min.cleanable.dirty.ratio": 0.01,
        }
        http.put("/v1/topics/compacted", json={"configs": configs})
        records = [{"key": "k", "value": "x" * 900} for _ in range(2)]
        for _ in range(3):
            http.post("/v1/topics/compacted/records", json={"records": records})
        dirty = http.get("/v1/topics/compacted").json()["partitions"][0]["dirty_ratio"]
        assert dirty > 0
        change(peer, BROKER, entity, "log.cleaner.backoff.ms", "10")
        assert described(peer, BROKER, NODE)["log.cleaner.backoff.ms"] == "10"
        while http.get("/v1/topics/compacted").json()["partitions"][0]["dirty_ratio"] >= dirty:
            pass
        change(peer, BROKER, entity, "log.cleaner.backoff.ms", None)
        assert described(peer, BROKER, NODE)["log.cleaner.backoff.ms"] == "86400000"


def log_start(peer: KafkaPeer, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    (found,) = peer.call(request, 7).topics
    (partition,) = found.partitions
    offset: int = partition.offset
    return offset


def test_what_is_set_survives_a_kill(tmp_path: Path) -> None:
    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "follows")
            change(peer, BROKER, CLUSTER, "log.retention.ms", "100000")
            change(peer, BROKER, CLUSTER, "log.segment.bytes", "2000000")
            change(peer, BROKER, NODE, "message.max.bytes", "2000")
            change(peer, GROUP, "g", "consumer.session.timeout.ms", "50000")
            change(peer, CLIENT_METRICS, "m", "interval.ms", "1000")
            change(peer, BROKER, CLUSTER, "log.segment.bytes", None)
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert described(peer, BROKER, CLUSTER) == {"log.retention.ms": "100000"}
            configs = described(peer, TOPIC, "follows")
            assert (configs["retention.ms"], configs["max.message.bytes"]) == ("100000", "2000")
            assert configs["segment.bytes"] == "1073741824"
            assert code_of_produce(peer, "follows", b"x" * 3000) == ErrorCode.MESSAGE_TOO_LARGE
            assert described(peer, GROUP, "g")["consumer.session.timeout.ms"] == "50000"
            assert described(peer, CLIENT_METRICS, "m")["interval.ms"] == "1000"


def test_everything_that_is_set_for_all_brokers_is_replaced_at_once(peer: KafkaPeer) -> None:
    change(peer, BROKER, CLUSTER, "log.retention.ms", "100000")
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=BROKER,
                resource_name=CLUSTER,
                configs=[AlterableConfig(name="message.max.bytes", value="2000")],
            )
        ],
        validate_only=False,
    )
    (result,) = peer.call(request, 2).responses
    assert result.error_code == ErrorCode.NONE, result.error_message
    assert described(peer, BROKER, CLUSTER) == {"message.max.bytes": "2000"}


def test_a_topic_in_memory_stays_there_when_its_configurations_are_replaced(peer: KafkaPeer) -> None:
    create_topic(peer, "ring", stele_storage="memory", retention_ms="5000")
    request = AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=TOPIC, resource_name="ring", configs=[])],
        validate_only=False,
    )
    (result,) = peer.call(request, 2).responses
    assert result.error_code == ErrorCode.NONE, result.error_message
    configs = described(peer, TOPIC, "ring")
    assert (configs["stele.storage"], configs["retention.ms"]) == ("memory", "604800000")


def test_a_default_that_contradicts_a_topic_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "contradicted", min_compaction_lag_ms="1000")
            change(peer, BROKER, CLUSTER, "log.cleaner.max.compaction.lag.ms", "10")
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert described(peer, TOPIC, "contradicted")["max.compaction.lag.ms"] == "10"


# ── the broker's id ──


def test_the_id_of_the_broker_is_a_setting_and_what_is_set_belongs_to_it(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker, KafkaPeer(broker) as peer:
        create_topic(peer, "t")
        change(peer, BROKER, NODE, "log.retention.ms", "100000")
        assert [node.node_id for node in metadata_of(peer, "t").brokers] == [1]
    with run_broker(tmp_path, arguments=["--set", "broker_id=7"]) as broker, KafkaPeer(broker) as peer:
        answer = metadata_of(peer, "t")
        assert [node.node_id for node in answer.brokers] == [answer.controller_id] == [7]
        assert answer.topics[0].partitions[0].leader_id == 7
        assert described(peer, BROKER, "7")["node.id"] == "7"
        assert described(peer, TOPIC, "t")["retention.ms"] == "604800000"


def metadata_of(peer: KafkaPeer, topic: str, *, may_create: bool = False) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create)
    return peer.call(request, 9)


# ── names and configurations through other protocols ──


def test_metadata_that_creates_a_deleted_topic_again_first_answers_unknown_topic(peer: KafkaPeer) -> None:
    def found() -> tuple[int, int]:
        (topic,) = metadata_of(peer, "again", may_create=True).topics
        return topic.error_code, len(topic.partitions)

    assert found() == (ErrorCode.NONE, 1), "a name that nobody deleted is made and told at once"
    for _ in range(2):
        delete_topic(peer, "again")
        assert found() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert found() == (ErrorCode.NONE, 1)


def test_names_that_collide_are_refused_by_every_protocol_that_makes_topics(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "a.b")
    refused = httpx.put(f"{broker.http_url}/v1/topics/a_b", json={})
    assert refused.status_code == 400
    assert refused.json()["type"].endswith("invalid-topic-name")
    produced = httpx.post(f"{broker.http_url}/v1/topics/a_b/records", json={"records": [{"value": 1}]})
    assert produced.status_code == 400
    assert metadata_of(peer, "a_b", may_create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_of_earlier_releases_whose_names_collide_are_served(tmp_path: Path) -> None:
    with run_broker(tmp_path):
        pass
    catalog = SqliteCatalog(tmp_path / CATALOG)
    for name in ("a.b", "a_b"):
        record = TopicRecord(name=name, topic_id=uuid.uuid4(), partitions=1, configs={"flush.ms": "-1"})
        assert catalog.create_topic(record)
    catalog.close()
    with run_broker(tmp_path) as broker, KafkaPeer(broker) as peer:
        for name in ("a.b", "a_b"):
            put(peer, name, b"x")
        delete_topic(peer, "a.b")
        put(peer, "a_b", b"y")


def test_a_topic_is_put_with_every_configuration_that_kafka_has(broker: BrokerProcess) -> None:
    configs = {name: config.default for name, config in TOPIC_CONFIGS.items()}
    made = httpx.put(f"{broker.http_url}/v1/topics/copied", json={"configs": configs})
    assert made.status_code == 201, made.text
    assert httpx.put(f"{broker.http_url}/v1/topics/copied", json={"configs": configs}).status_code == 200
    effective = made.json()["effective_configs"]
    assert {name: effective[name] for name in configs} == configs

    command = ["topics", "create", "by-cli"]
    for name, value in configs.items():
        command += ["--config", f"{name}={value}"]
    done = run_stele(*command, env={"STELE_URL": broker.http_url})
    assert done.returncode == 0, done.stderr
    topic = httpx.get(f"{broker.http_url}/v1/topics/by-cli").json()
    assert topic["configs"] == configs


def test_a_change_through_http_reads_as_kafkas_errors_do(broker: BrokerProcess) -> None:
    httpx.put(f"{broker.http_url}/v1/topics/t", json={})
    refused = httpx.patch(f"{broker.http_url}/v1/topics/t", json={"configs": {"retention.ms": "-2"}})
    assert refused.status_code == 400
    assert refused.json()["detail"] == (
        "Invalid value -2 for configuration retention.ms: Value must be at least -1"
    )
