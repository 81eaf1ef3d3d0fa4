"""The Kafka listener's administration: topics, partitions, records, configurations, what is told of the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from stele.wire.kafka.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.groups import DescribeGroupsRequest
from stele.wire.kafka.metadata import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from stele.wire.kafka.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from stele.wire.kafka.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from stele.wire.kafka.transactions import DescribeProducersRequest, DescribeProducersTopic
from stele.wire.schema import NO_UUID

from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    create_topic,
    fetch,
    only_partition,
    produce,
    put,
    records_in,
    request_frame,
)

TOPIC, BROKER = 2, 4


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker for this file; each test has topics of its own."""
    with run_broker(arguments=["--num-partitions", "2"], environment=WITHOUT_RETENTION) as broker:
        yield broker


# ── CreateTopics ──


def topic_of(
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
    )


def creation(
    peer: KafkaPeer, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return peer.call(request, version).topics


def partitions_of(peer: KafkaPeer, topic: str) -> int | None:
    """None if it does not exist."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = peer.call(request, 4).topics
    return len(found.partitions) if found.error_code == ErrorCode.NONE else None


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_as_asked_in_every_version(peer: KafkaPeer, version: int) -> None:
    name = f"created-{version}"
    asked = topic_of(name, partitions=3, replication_factor=1, configs={"retention.ms": "60000"})
    (made,) = creation(peer, asked, version=version)
    assert (made.name, made.error_code, made.error_message) == (name, 0, None)
    assert (made.topic_id != NO_UUID) == (version >= 7)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        configs = {one.name: (one.value, one.config_source) for one in made.configs or ()}
        assert configs["retention.ms"] == ("60000", 1)
        assert configs["max.message.bytes"] == ("1048588", 5)
    assert partitions_of(peer, name) == 3


def test_a_topic_without_numbers_gets_those_of_the_broker(peer: KafkaPeer) -> None:
    (made,) = creation(peer, topic_of("of-defaults"))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)


def test_an_assignment_to_this_broker_is_as_good_as_a_number(peer: KafkaPeer) -> None:
    (made,) = creation(peer, topic_of("assigned", assignments=[(1, [1]), (0, [1]), (2, [1])]))
    assert (made.error_code, made.num_partitions) == (0, 3)


REFUSED_TOPICS = {
    "exists": (topic_of("here"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "no name": (topic_of(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an impossible name": (topic_of("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a long name": (topic_of("x" * 20_000), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (topic_of("r", partitions=0), ErrorCode.INVALID_PARTITIONS),
    "partitions -2": (topic_of("r", partitions=-2), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (topic_of("r", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
    "three replicas": (topic_of("r", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
    "no replicas": (topic_of("r", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "an unknown config": (topic_of("r", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
    "a wrong value": (topic_of("r", configs={"retention.ms": "long"}), ErrorCode.INVALID_CONFIG),
    "assigned to another broker": (
        topic_of("r", assignments=[(0, [2])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assigned to two": (topic_of("r", assignments=[(0, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned with a hole": (
        topic_of("r", assignments=[(0, [1]), (2, [1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assigned twice": (
        topic_of("r", assignments=[(0, [1]), (0, [1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assigned and another number": (
        topic_of("r", partitions=2, assignments=[(0, [1])]),
        ErrorCode.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize(("asked", "code"), REFUSED_TOPICS.values(), ids=REFUSED_TOPICS)
def test_a_topic_that_cannot_be_is_refused_with_a_reason_and_not_made(
    peer: KafkaPeer, asked: CreatableTopic, code: ErrorCode, version: int
) -> None:
    creation(peer, topic_of("here"))
    (refused,) = creation(peer, asked, version=version)
    assert (refused.name, refused.error_code) == (asked.name, code)
    assert refused.error_message
    assert partitions_of(peer, "r") is None


def test_one_request_creates_its_valid_topics_and_never_a_repeated_name(peer: KafkaPeer) -> None:
    made = creation(peer, topic_of("twice"), topic_of("single"), topic_of("twice"), topic_of("a/b"))
    assert {one.name: one.error_code for one in made} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "single": ErrorCode.NONE,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert len(made) == 3
    assert partitions_of(peer, "twice") is None


def test_what_is_only_validated_is_not_made(peer: KafkaPeer) -> None:
    good, bad = creation(peer, topic_of("v", partitions=4), topic_of("v2", partitions=0), validate_only=True)
    assert (good.error_code, good.num_partitions) == (0, 4)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert partitions_of(peer, "v") is None


def test_requests_pipelined_after_a_creation_find_the_topic(peer: KafkaPeer) -> None:
    peer.post_all(
        [
            (CreateTopicsRequest(topics=[topic_of("just-made", partitions=1)]), 5),
            (produce("just-made", batch_of([b"x"])), 9),
            (fetch("just-made", 0), 12),
            (DeleteTopicsRequest(topic_names=["just-made"], timeout_ms=1000), 4),
            (fetch("just-made", 0), 12),
        ]
    )
    created, produced, fetched, deleted, missed = (peer.next_answer()[1] for _ in range(5))
    assert created.topics[0].error_code == 0
    assert only_partition(produced).error_code == 0
    assert records_in(only_partition(fetched).records) == [(0, b"x")]
    assert deleted.responses[0].error_code == 0
    assert only_partition(missed).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ── DeleteTopics ──


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_by_name_in_every_version_and_through_every_protocol(
    broker: BrokerProcess, peer: KafkaPeer, version: int
) -> None:
    name = f"deleted-{version}"
    topic_id = create_topic(peer, name)

    def delete() -> DeletableTopicResult:
        by_name = {"topics": [DeleteTopicState(name=name)]} if version >= 6 else {}
        request = DeleteTopicsRequest(topic_names=() if version >= 6 else [name], timeout_ms=1000, **by_name)
        (done,) = peer.call(request, version).responses
        return done

    first, second = delete(), delete()
    assert (first.name, first.error_code) == (name, 0)
    assert first.topic_id == (topic_id if version >= 6 else NO_UUID)
    assert (second.name, second.error_code) == (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert httpx.get(f"{broker.http_url}/v1/topics/{name}").status_code == 404


def test_topics_are_deleted_by_id_and_an_unknown_id_is_an_error(peer: KafkaPeer) -> None:
    topic_id = create_topic(peer, "deleted-by-id")
    asked = [
        DeleteTopicState(topic_id=topic_id),
        DeleteTopicState(topic_id=NO_UUID),
    ]
    done, none = peer.call(DeleteTopicsRequest(topics=asked, timeout_ms=0), 6).responses
    (again,) = peer.call(DeleteTopicsRequest(topics=asked[:1], timeout_ms=0), 6).responses
    assert (done.name, done.topic_id, done.error_code) == ("deleted-by-id", topic_id, 0)
    assert (again.name, again.topic_id, again.error_code) == (None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    assert none.error_code == ErrorCode.INVALID_REQUEST
    assert partitions_of(peer, "deleted-by-id") is None


# ── CreatePartitions ──


def growth(
    peer: KafkaPeer,
    topic: str,
    count: int,
    *,
    assignments: list[list[int]] | None = None,
    validate_only: bool = False,
    version: int = 3,
) -> CreatePartitionsTopicResult:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=topic,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
            )
        ],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    (result,) = peer.call(request, version).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_its_new_partitions_can_be_written(peer: KafkaPeer, version: int) -> None:
    topic = f"growing-{version}"
    create_topic(peer, topic)
    grown = growth(peer, topic, 3, version=version)
    assert (grown.name, grown.error_code, grown.error_message) == (topic, 0, None)
    assert put(peer, topic, b"x", partition=2) == 0
    assert partitions_of(peer, topic) == 3


@pytest.mark.parametrize(
    ("topic", "count", "assignments", "code"),
    [
        ("grown", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("grown", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("grown", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("grown", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("grown", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
        ("grown", 3, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grown", 3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grown", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("not-there", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_topic_only_grows_and_only_here(
    peer: KafkaPeer, topic: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    creation(peer, topic_of("grown", partitions=2))
    refused = growth(peer, topic, count, assignments=assignments)
    assert refused.error_code == code
    assert refused.error_message
    assert partitions_of(peer, "grown") == 2


def test_growth_that_is_only_validated_does_not_happen(peer: KafkaPeer) -> None:
    create_topic(peer, "not-growing")
    assert growth(peer, "not-growing", 2, assignments=[[1]], validate_only=True).error_code == 0
    assert partitions_of(peer, "not-growing") == 1


# ── DeleteRecords ──


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset_and_minus_one_is_all_of_them(
    peer: KafkaPeer, version: int
) -> None:
    topic = f"emptied-{version}"
    create_topic(peer, topic)
    put(peer, topic, b"a")
    put(peer, topic, b"b")

    def delete(offset: int, partition: int = 0) -> tuple[int, int]:
        asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000
        )
        (found,) = peer.call(request, version).topics[0].partitions
        return found.error_code, found.low_watermark

    assert delete(1) == (0, 1)
    assert only_partition(peer.call(fetch(topic, 0), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    kept = only_partition(peer.call(fetch(topic, 1), 12))
    assert (kept.log_start_offset, records_in(kept.records)) == (1, [(1, b"b")])
    assert delete(0) == (0, 1), "what is gone stays gone"
    assert delete(-1) == (0, 2)
    assert delete(3) == delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert put(peer, topic, b"c") == 2


# ── configurations ──


def described(
    peer: KafkaPeer,
    kind: int,
    name: str,
    *,
    names: list[str] | None = None,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=names)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = peer.call(request, version).results
    return result


def values_of(result: DescribeConfigsResult) -> dict[str, str | None]:
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {one.name: one.value for one in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_configurations_of_a_topic_say_where_they_come_from(peer: KafkaPeer, version: int) -> None:
    topic = f"configured-{version}"
    create_topic(peer, topic, retention_ms="60000")

    found = described(peer, TOPIC, topic, version=version, synonyms=True, documentation=True)

    configs = {one.name: one for one in found.configs}
    mine, default = configs["retention.ms"], configs["max.message.bytes"]
    assert (mine.value, mine.config_source, mine.read_only) == ("60000", 1, False)
    assert [(one.name, one.value, one.source) for one in mine.synonyms] == [("retention.ms", "60000", 1)]
    assert [(one.name, one.value, one.source) for one in default.synonyms] == [
        ("message.max.bytes", "1048588", 5)
    ]
    assert (default.value, default.config_source) == ("1048588", 5)
    if version >= 3:
        assert mine.config_type == 5
        assert mine.documentation
    assert set(values_of(found)) >= {"cleanup.policy", "segment.bytes", "retention.bytes"}


@pytest.mark.parametrize("names", [None, []])
def test_no_names_ask_for_all_configurations_and_unknown_ones_are_left_out(
    peer: KafkaPeer, names: list[str] | None
) -> None:
    creation(peer, topic_of("asked"))
    assert len(values_of(described(peer, TOPIC, "asked", names=names))) > 3
    some = described(peer, TOPIC, "asked", names=["retention.ms", "no.such"])
    assert values_of(some) == {"retention.ms": "604800000"}
    assert values_of(described(peer, TOPIC, "asked", names=["no.such"])) == {}


def test_settings_of_the_broker_are_shown_by_kafkas_names_and_cannot_be_changed(peer: KafkaPeer) -> None:
    found = described(peer, BROKER, "1", synonyms=True)
    configs = {one.name: one for one in found.configs}
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("2", 4, True)
    assert [(one.name, one.value, one.source) for one in partitions.synonyms] == [
        ("num.partitions", "2", 4),
        ("num.partitions", "1", 5),
    ]
    refused = incremental_alteration(peer, BROKER, "1", ("num.partitions", 0, "3"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "STELE_NUM_PARTITIONS" in (refused.error_message or "")
    assert values_of(described(peer, BROKER, "1", synonyms=True)) == values_of(found)


def test_what_kafka_has_no_name_for_is_shown_by_ours_and_a_secret_is_not(peer: KafkaPeer) -> None:
    configs = {one.name: one for one in described(peer, BROKER, "1").configs}
    assert configs["stele.partitioner"].value == "murmur2"
    assert (configs["stele.cdc.dsn"].is_sensitive, configs["stele.cdc.dsn"].value) == (True, None)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x" * 20_000, ErrorCode.INVALID_REQUEST),
        (8, "0", ErrorCode.INVALID_REQUEST),
        (-1, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_without_configurations_is_an_error(
    peer: KafkaPeer, kind: int, name: str, code: ErrorCode
) -> None:
    refused = described(peer, kind, name)
    assert (refused.error_code, refused.resource_type, refused.resource_name) == (code, kind, name)
    assert refused.configs == []
    assert incremental_alteration(peer, kind, name).error_code == code
    assert alteration(peer, kind, name, {}).error_code == code


def alteration(
    peer: KafkaPeer,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    *,
    validate_only: bool = False,
    version: int = 2,
) -> AlterConfigsResourceResponse:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=config, value=value) for config, value in configs.items()],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = peer.call(request, version).responses
    return result


def incremental_alteration(
    peer: KafkaPeer,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> AlterConfigsResourceResponse:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name=config, config_operation=operation, value=value)
                    for config, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = peer.call(request, version).responses
    return result


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_all_configurations(peer: KafkaPeer, version: int) -> None:
    topic = f"altered-{version}"
    create_topic(peer, topic, retention_ms="60000", max_message_bytes="2000")
    assert alteration(peer, TOPIC, topic, {"max.message.bytes": "3000"}, version=version).error_code == 0
    values = values_of(described(peer, TOPIC, topic))
    assert (values["retention.ms"], values["max.message.bytes"]) == ("604800000", "3000")


SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize("version", range(2))
def test_altering_by_steps_leaves_the_rest(peer: KafkaPeer, version: int) -> None:
    topic = f"stepped-{version}"
    create_topic(peer, topic, retention_ms="60000", max_message_bytes="2000")
    steps = [("retention.ms", DELETE, None), ("segment.bytes", SET, "1048576")]
    assert incremental_alteration(peer, TOPIC, topic, *steps, version=version).error_code == 0
    values = values_of(described(peer, TOPIC, topic))
    assert values["retention.ms"] == "604800000"
    assert values["max.message.bytes"] == "2000"
    assert values["segment.bytes"] == "1048576"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "long")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(
    peer: KafkaPeer, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    creation(peer, topic_of("unchanged", configs={"retention.ms": "777"}))
    refused = incremental_alteration(peer, TOPIC, "unchanged", ("segment.bytes", SET, "1048576"), *changes)
    assert refused.error_code == code
    assert refused.error_message
    values = values_of(described(peer, TOPIC, "unchanged"))
    assert (values["retention.ms"], values["segment.bytes"]) == ("777", "1073741824")


def test_what_is_only_validated_is_not_altered(peer: KafkaPeer) -> None:
    creation(peer, topic_of("validated"))
    for result in (
        alteration(peer, TOPIC, "validated", {"retention.ms": "5"}, validate_only=True),
        incremental_alteration(peer, TOPIC, "validated", ("retention.ms", SET, "5"), validate_only=True),
    ):
        assert result.error_code == 0
    refused = alteration(peer, TOPIC, "validated", {"no.such": "5"}, validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert values_of(described(peer, TOPIC, "validated"))["retention.ms"] == "604800000"


def test_lists_are_appended_to_and_subtracted_from(peer: KafkaPeer) -> None:
    creation(peer, topic_of("listed"))
    step = incremental_alteration(peer, TOPIC, "listed", ("cleanup.policy", APPEND, "delete"))
    assert step.error_code == 0
    assert values_of(described(peer, TOPIC, "listed"))["cleanup.policy"] == "delete"


# ── what is told of the broker ──


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(broker: BrokerProcess, peer: KafkaPeer, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    found = peer.call(request, version)
    assert found.error_code == 0
    assert found.cluster_id == peer.call(MetadataRequest(topics=()), 4).cluster_id
    assert [(one.broker_id, one.host, one.port) for one in found.brokers] == [
        (found.controller_id, broker.host, broker.kafka_port)
    ]


def test_the_cluster_has_no_controllers_of_their_own(peer: KafkaPeer) -> None:
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
        assert peer.call(request, 1).error_code == code


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_tell_what_partitions_take(broker: BrokerProcess, peer: KafkaPeer, version: int) -> None:
    topic = f"measured-{version}"
    create_topic(peer, topic, partitions=2)
    put(peer, topic, bytes(10_000))

    def ask(
        topics: list[DescribableLogDirTopic] | None,
    ) -> dict[str, dict[int, int]]:
        (result,) = peer.call(DescribeLogDirsRequest(topics=topics), version).results
        assert (result.error_code, result.log_dir) == (0, str(broker.data_dir))
        assert (result.total_bytes > result.usable_bytes > 0) == (version >= 4)
        return {
            one.name: {p.partition_index: p.partition_size for p in one.partitions} for one in result.topics
        }

    every = ask(None)
    assert every[topic][0] > 10_000
    assert every[topic][1] == 0
    some = ask(
        [
            DescribableLogDirTopic(topic=topic, partitions=[1, 9, -1]),
            DescribableLogDirTopic(topic="missing", partitions=[0]),
        ]
    )
    assert some == {topic: {1: 0}}


def test_producers_that_a_partition_remembers_are_described(peer: KafkaPeer) -> None:
    create_topic(peer, "remembering")
    batch = batch_of([b"a", b"b"], producer_id=99, producer_epoch=0, timestamp_ms=5_000)
    assert only_partition(peer.call(produce("remembering", batch), 9)).error_code == 0
    asked = [
        DescribeProducersTopic(name="remembering", partition_indexes=[0, 1]),
        DescribeProducersTopic(name="missing", partition_indexes=[0]),
    ]

    here, missing = peer.call(DescribeProducersRequest(topics=asked), 0).topics

    (producer,) = here.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (99, 0, 1)
    assert producer.current_txn_start_offset == -1
    for refused in (here.partitions[1], missing.partitions[0]):
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.active_producers == []


def test_topics_are_described_page_by_page() -> None:
    with run_broker(environment=WITHOUT_RETENTION) as broker, KafkaPeer(broker) as peer:
        for name, partitions in (("a", 3), ("b", 1), ("c", 5)):
            create_topic(peer, name, partitions=partitions)
        pages = list(pages_of(peer, [], limit=4))
        assert [[(name, parts) for name, _, parts in page] for page in pages] == [
            [("a", [0, 1, 2]), ("b", [0])],
            [("c", [0, 1, 2, 3])],
            [("c", [4])],
        ]
        named = list(pages_of(peer, ["c", "a", "nix", "a"], limit=100))
        assert named == [
            [
                ("a", 0, [0, 1, 2]),
                ("c", 0, [0, 1, 2, 3, 4]),
                ("nix", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            ]
        ]
        assert [len(page) for page in pages_of(peer, [], limit=0)] == [1] * 9, "a page has one at least"
        strange = Cursor(topic_name="b", partition_index=1_000_000)
        (b, c) = peer.call(page_request([], 5, strange), 0).topics
        assert (b.partitions, len(c.partitions)) == ([], 5)
        negative = Cursor(topic_name="c", partition_index=-3)
        (c,) = peer.call(page_request([], 5, negative), 0).topics
        assert len(c.partitions) == 5


def page_request(names: list[str], limit: int, cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


def pages_of(peer: KafkaPeer, names: list[str], *, limit: int) -> Iterator[list[tuple[str, int, list[int]]]]:
    """From the topic ``a`` on: internal topics come before it."""
    cursor: Any = Cursor(topic_name="a", partition_index=0)
    while True:
        answer = peer.call(page_request(names, limit, cursor), 0)
        yield [
            (one.name, one.error_code, [p.partition_index for p in one.partitions]) for one in answer.topics
        ]
        cursor = answer.next_cursor
        if cursor is None:
            return


def test_a_connection_that_vanishes_in_the_middle_of_a_change_leaves_topics_that_work(
    broker: BrokerProcess,
) -> None:
    for number in range(20):
        peer = KafkaPeer(broker)
        peer.send(
            request_frame(CreateTopicsRequest(topics=[topic_of(f"left-{number}")]), 5),
            request_frame(produce(f"left-too-{number}", batch_of([b"x"]), acks=-1), 9),
        )
        peer.reset()
    with KafkaPeer(broker) as witness:
        for number in range(20):
            put(witness, f"left-{number}", b"x")
            put(witness, f"left-too-{number}", b"x")


# ── short questions with long answers ──


def test_a_repeated_resource_is_described_once(peer: KafkaPeer) -> None:
    create_topic(peer, "echo", partitions=50)
    create_topic(peer, "echo-2")
    times = 2_000
    names = [*["echo"] * times, "echo-2"]

    topics = peer.call(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 4).topics
    assert [topic.name for topic in topics] == ["echo", "echo-2"]

    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    results = peer.call(DescribeConfigsRequest(resources=resources), 4).results
    assert [result.resource_name for result in results] == ["echo", "echo-2"]

    groups = peer.call(DescribeGroupsRequest(groups=names), 5).groups
    assert [group.group_id for group in groups] == ["echo", "echo-2"]

    asked = [DescribeProducersTopic(name="echo", partition_indexes=[0, 1] * times)] * 3
    (topic,) = peer.call(DescribeProducersRequest(topics=asked), 0).topics
    assert [one.partition_index for one in topic.partitions] == [0, 1]

    of_old = OffsetFetchRequest(
        group_id="g",
        topics=[
            OffsetFetchRequestTopic(name="echo", partition_indexes=partitions)
            for partitions in ([0] * times, [1, 0])
        ],
    )
    (topic,) = peer.call(of_old, 7).topics
    assert [one.partition_index for one in topic.partitions] == [0, 1]

    of_now = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(name="echo", partition_indexes=partitions)
            for partitions in ([0] * times, [1, 0])
        ],
    )
    (group,) = peer.call(OffsetFetchRequest(groups=[of_now] * 20), 8).groups
    (topic,) = group.topics
    assert [one.partition_index for one in topic.partitions] == [0, 1]
