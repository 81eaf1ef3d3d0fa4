"""Topics and configurations, as Apache Kafka decides about them: the same tables for Stele and for Kafka itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from stele.wire.kafka.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

from load.apache_kafka import apache_kafka, libs
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer
from tests.support.kafka_topic_configs import DIFFERENCES, SPELLINGS, TOPIC_CONFIGS

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE = 1
OK = ErrorCode.NONE
Change = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def stele_peer() -> Iterator[KafkaPeer]:
    with run_broker(environment=WITHOUT_RETENTION) as broker, KafkaPeer(broker) as peer:
        yield peer


@pytest.fixture(scope="module")
def kafka_peer() -> Iterator[KafkaPeer]:
    with kafka_or_skip():
        libs()
    with apache_kafka(heap="512m") as kafka:
        address = SimpleNamespace(host=kafka.host, kafka_port=kafka.port)
        with KafkaPeer(cast("BrokerProcess", address)) as peer:
            yield peer


@pytest.fixture(params=["stele", pytest.param("kafka", marks=pytest.mark.long)])
def peer(request: pytest.FixtureRequest) -> KafkaPeer:
    """Stele, and what decides: Apache Kafka."""
    return request.getfixturevalue(f"{request.param}_peer")


@pytest.fixture
def is_kafka(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["peer"] == "kafka"


def topic_of(
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs],
    )


def create(
    peer: KafkaPeer, *topics: CreatableTopic, validate_only: bool = False
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
    return {result.name: result for result in peer.call(request, 7).topics}


def alter(
    peer: KafkaPeer, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[int, str | None]:
    (result,) = alter_all(peer, (kind, name, changes), validate_only=validate_only)
    return result


def alter_all(
    peer: KafkaPeer, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False
) -> list[tuple[int, str | None]]:
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
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )
    return [(result.error_code, result.error_message) for result in peer.call(request, 1).responses]


def describe(peer: KafkaPeer, kind: int, name: str) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = peer.call(request, 4).results
    return result


# KIP-1191; the Apache Kafka that is asked here does not have it yet.
_OF_KAFKA_4_4 = "errors.deadletterqueue."


def configs_of(peer: KafkaPeer, kind: int, name: str) -> dict[str, Any]:
    result = describe(peer, kind, name)
    for _ in range(1000):
        # Kafka answers a creation before its broker knows the topic.
        if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            break
        result = describe(peer, kind, name)
    assert result.error_code == OK, result.error_message
    return {config.name: config for config in result.configs}


def source_and_synonyms(
    peer: KafkaPeer, topic: str, name: str
) -> tuple[str, int, list[tuple[str, str, int]]]:
    config = configs_of(peer, TOPIC, topic)[name]
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
    return config.value, config.config_source, synonyms


def await_config(peer: KafkaPeer, kind: int, name: str, config: str, value: str | None) -> None:
    """Kafka answers a change before all of its broker knows."""
    for _ in range(1000):
        found = configs_of(peer, kind, name).get(config)
        if (None if found is None else found.value) == value:
            return
    raise AssertionError(f"{config} of {name!r} did not become {value}")


# ── the order of checks of CreateTopics ──


class Creation(NamedTuple):
    """One combination; every field names a row of its table below."""

    name: str
    partitions: str
    replication_factor: str
    assignment: str
    config: str


NAMES = {"exists": "exists", "fresh": "fresh", "invalid": "bad name", "collides": "exists_dotted.too"}
PARTITIONS = {"one": 1, "default": -1, "zero": 0, "negative": -2}
REPLICATION_FACTORS = {"one": 1, "default": -1, "three": 3, "zero": 0, "negative": -2}
ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "none": [],
    "here": [(0, [NODE])],
    "elsewhere": [(0, [99])],
}
CONFIGS: dict[str, list[tuple[str, str | None]]] = {
    "none": [],
    "valid": [("retention.ms", "5")],
    "invalid": [("retention.ms", "x")],
    "unknown": [("no.such", "1")],
    "null": [("retention.ms", None)],
}


def code_of(creation: Creation) -> ErrorCode:
    """The first rule that is broken decides; whether it is only validated makes no difference."""
    if creation.name in ("invalid", "collides"):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if creation.name == "exists":
        return ErrorCode.TOPIC_ALREADY_EXISTS
    if creation.config in ("invalid", "unknown", "null"):
        return ErrorCode.INVALID_CONFIG
    if creation.assignment != "none":
        if creation.replication_factor != "default" or creation.partitions != "default":
            return ErrorCode.INVALID_REQUEST
        return OK if creation.assignment == "here" else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if creation.replication_factor in ("zero", "negative"):
        return ErrorCode.INVALID_REPLICATION_FACTOR
    if creation.partitions in ("zero", "negative"):
        return ErrorCode.INVALID_PARTITIONS
    return ErrorCode.INVALID_REPLICATION_FACTOR if creation.replication_factor == "three" else OK


def test_every_combination_of_what_can_be_wrong_with_a_new_topic(peer: KafkaPeer) -> None:
    create(peer, topic_of("exists"), topic_of("exists.dotted.too"))
    wrong: list[tuple[Creation, int, ErrorCode]] = []
    for row in itertools.product(NAMES, PARTITIONS, REPLICATION_FACTORS, ASSIGNMENTS, CONFIGS):
        creation = Creation(*row)
        asked = topic_of(
            NAMES[creation.name],
            partitions=PARTITIONS[creation.partitions],
            replication_factor=REPLICATION_FACTORS[creation.replication_factor],
            assignments=ASSIGNMENTS[creation.assignment],
            configs=CONFIGS[creation.config],
        )
        (result,) = create(peer, asked, validate_only=True).values()
        if result.error_code != code_of(creation):
            wrong.append((creation, result.error_code, code_of(creation)))
    assert not wrong


@pytest.mark.parametrize(
    "row",
    [
        ("exists", "zero", "three", "elsewhere", "unknown"),
        ("exists", "one", "three", "none", "none"),
        ("exists", "one", "one", "none", "invalid"),
        ("invalid", "zero", "zero", "elsewhere", "null"),
        ("fresh", "zero", "three", "none", "unknown"),
        ("fresh", "zero", "zero", "none", "none"),
        ("fresh", "zero", "three", "none", "none"),
    ],
)
def test_a_creation_that_is_meant_breaks_on_the_same_rule_as_one_that_is_validated(
    peer: KafkaPeer, row: tuple[str, str, str, str, str]
) -> None:
    create(peer, topic_of("exists"))
    creation = Creation(*row)
    asked = topic_of(
        NAMES[creation.name],
        partitions=PARTITIONS[creation.partitions],
        replication_factor=REPLICATION_FACTORS[creation.replication_factor],
        assignments=ASSIGNMENTS[creation.assignment],
        configs=CONFIGS[creation.config],
    )
    (result,) = create(peer, asked).values()
    assert result.error_code == code_of(creation)
    assert result.error_message


def test_a_name_twice_in_a_request_is_refused_and_the_others_are_created(peer: KafkaPeer) -> None:
    made = create(peer, topic_of("twice"), topic_of("twice"), topic_of("beside-twice"))
    assert (made["twice"].error_code, made["twice"].error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Duplicate topic name.",
    )
    assert made["beside-twice"].error_code == OK


def test_one_bad_configuration_refuses_its_topic_alone(peer: KafkaPeer) -> None:
    made = create(peer, topic_of("good"), topic_of("bad", configs=[("no.such", "1")]))
    assert made["good"].error_code == OK
    assert (made["bad"].error_code, made["bad"].error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such",
    )


@pytest.mark.parametrize(
    ("first", "second"), [("a.b", "a_b"), ("c_d", "c.d"), ("e.f.g", "e_f.g"), ("h_i.j", "h.i_j")]
)
def test_names_that_differ_in_dots_and_underscores_alone_collide(
    peer: KafkaPeer, first: str, second: str
) -> None:
    assert create(peer, topic_of(first))[first].error_code == OK
    refused = create(peer, topic_of(second))[second]
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (refused.error_message or "").startswith(f"Topic '{second}' collides with existing topic: {first}")
    assert create(peer, topic_of(first))[first].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    request = DeleteTopicsRequest(topic_names=[first], timeout_ms=10_000)
    assert peer.call(request, 5).responses[0].error_code == OK
    assert create(peer, topic_of(second))[second].error_code == OK


# ── CreatePartitions, DeleteTopics ──


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("grows", 3, None, OK),
        ("grows", 3, [[NODE]], OK),
        ("grows", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("grows", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("grows", -1, [[99]], ErrorCode.INVALID_PARTITIONS),
        ("grows", 3, list[list[int]](), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grows", 3, [[NODE], [NODE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grows", 3, [[99]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grows", 3, [list[int]()], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grows", 3, [[NODE, NODE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("missing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_more_partitions(
    peer: KafkaPeer, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    create(peer, topic_of("grows", partitions=2))
    assert grow(peer, (name, count, assignments), validate_only=True) == [(name, code)]


def grow(
    peer: KafkaPeer, *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False
) -> list[tuple[str, int]]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    return [(result.name, result.error_code) for result in peer.call(request, 3).results]


def test_a_topic_named_twice_does_not_grow(peer: KafkaPeer) -> None:
    create(peer, topic_of("grown-twice", partitions=1), topic_of("grown-once", partitions=1))
    grown = grow(peer, ("grown-twice", 2, None), ("grown-once", 2, None), ("grown-twice", 3, None))
    assert dict(grown) == {"grown-twice": ErrorCode.INVALID_REQUEST, "grown-once": OK}
    assert len(grown) == 2
    assert grow(peer, ("grown-twice", 2, None)) == [("grown-twice", OK)], "it had one partition still"


def test_a_topic_named_twice_is_not_deleted(peer: KafkaPeer) -> None:
    create(peer, topic_of("deleted-twice"))
    request = DeleteTopicsRequest(topic_names=["deleted-twice"] * 2, timeout_ms=10_000)
    (result,) = peer.call(request, 5).responses
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert create(peer, topic_of("deleted-twice"))["deleted-twice"].error_code == (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        ("gone", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, bytes(range(16)), ErrorCode.UNKNOWN_TOPIC_ID),
        (None, bytes(16), ErrorCode.INVALID_REQUEST),
        ("gone", bytes(range(16)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_deletion_that_cannot_be(
    peer: KafkaPeer, name: str | None, topic_id: bytes, code: ErrorCode
) -> None:
    state = DeleteTopicState(name=name, topic_id=topic_id)
    (result,) = peer.call(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
    assert result.error_code == code


# ── configurations of topics ──


def test_a_topic_describes_every_kafka_configuration_with_default_and_documentation(
    peer: KafkaPeer, is_kafka: bool
) -> None:
    create(peer, topic_of("described"))
    configs = configs_of(peer, TOPIC, "described")
    own = {name for name in configs if name.startswith(("stele.", _OF_KAFKA_4_4))}
    assert configs.keys() - own == TOPIC_CONFIGS.keys()
    assert len(TOPIC_CONFIGS) == 33
    for name, expected in TOPIC_CONFIGS.items():
        config = configs[name]
        assert (name, config.value, config.config_type) == (name, expected.default, expected.type)
        assert config.documentation
        assert not config.read_only
        synonyms = [synonym.name for synonym in config.synonyms]
        assert synonyms[:1] == ([] if expected.synonym is None else [expected.synonym]), name
        # Kafka sets min.insync.replicas for the cluster itself, when it is formatted.
        assert is_kafka or config.config_source == 5


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_values_of_a_configuration_are_taken_or_refused_as_kafka_does(
    peer: KafkaPeer, is_kafka: bool, name: str
) -> None:
    create(peer, topic_of("altered"))
    config = TOPIC_CONFIGS[name]
    expected = {**dict.fromkeys(config.takes, OK), **dict.fromkeys(config.refuses, ErrorCode.INVALID_CONFIG)}
    for value, code in expected.items():
        found, message = alter(peer, TOPIC, "altered", (name, SET, value), validate_only=True)
        if (name, value) in DIFFERENCES and not is_kafka:
            assert found != code, f"{name}={value!r} is no difference any more"
            continue
        assert found == code, (name, value, message)
        assert code == OK or (message and name in message) or name == "remote.storage.enable"


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_value_may_be_written_as_kafka_reads_it(peer: KafkaPeer, name: str) -> None:
    create(peer, topic_of("altered"))
    taken, refused = SPELLINGS[name]
    expected = {**dict.fromkeys(taken, OK), **dict.fromkeys(refused, ErrorCode.INVALID_CONFIG)}
    answers = {
        value: alter(peer, TOPIC, "altered", (name, SET, value), validate_only=True)[0] for value in expected
    }
    assert answers == expected


# Of groups and client metrics subscriptions.
VALUES_OF_OTHERS: list[tuple[int, str, str, ErrorCode]] = [
    *(
        (GROUP, "share.auto.offset.reset", f"by_duration:{text}", OK)
        for text in ("PT1H", "pt1h", "+PT1H", "P1DT2H", "PT0.5S", "PT2H-30M", "P99999999999D", "PT0S")
    ),
    *(
        (GROUP, "share.auto.offset.reset", f"by_duration:{text}", ErrorCode.INVALID_CONFIG)
        for text in ("", "P", "PT", "PT-1H", "-PT1H", "P1W", "P1Y", " PT1H", "P9999999999999999999D")
    ),
    (GROUP, "share.delivery.count.limit", "0_5", ErrorCode.INVALID_CONFIG),
    (GROUP, "share.isolation.level", " read_committed ", OK),
    (GROUP, "share.isolation.level", "READ_COMMITTED", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "interval.ms", "1_000", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "interval.ms", "x", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "interval.ms", "99", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "match", "client_id=a.*,client_software_name = b", OK),
    (CLIENT_METRICS, "match", "client_id=[", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "match", "client_id=a,", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "match", "client_id", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "metrics", "a,,b", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "metrics", "", OK),
]


def test_values_of_groups_and_subscriptions_are_taken_or_refused_as_kafka_does(peer: KafkaPeer) -> None:
    answers = [
        (kind, name, value, alter(peer, kind, "one", (name, SET, value), validate_only=True)[0])
        for kind, name, value, _ in VALUES_OF_OTHERS
    ]
    assert answers == VALUES_OF_OTHERS


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_a_topic_is_made_with_kafkas_own_default(peer: KafkaPeer, name: str) -> None:
    asked = topic_of("copied", configs=[(name, TOPIC_CONFIGS[name].default)])
    assert create(peer, asked, validate_only=True)["copied"].error_code == OK


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", DELETE, None)], OK),
        ([("retention.ms", DELETE, "ignored")], OK),
        ([("no.such", DELETE, None)], OK),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, "delete")], OK),
        ([("cleanup.policy", APPEND, "x")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SUBTRACT, "x")], OK),
        ([("cleanup.policy", SUBTRACT, "delete")], OK),
        ([("min.insync.replicas", SET, "2")], OK),
        ([("retention.ms", SET, "x"), ("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (
            [("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
        ),
        ([], OK),
    ],
)
def test_changes_of_a_topic(peer: KafkaPeer, changes: list[Change], code: ErrorCode) -> None:
    create(peer, topic_of("changed"))
    assert alter(peer, TOPIC, "changed", *changes, validate_only=True)[0] == code


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("not-there", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("not-there", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        ("bad name", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_of_no_topic(peer: KafkaPeer, name: str, change: Change, code: ErrorCode) -> None:
    assert alter(peer, TOPIC, name, change)[0] == code


def test_a_list_grows_and_shrinks_and_goes_back_to_its_default(peer: KafkaPeer) -> None:
    name = "leader.replication.throttled.replicas"
    create(peer, topic_of("throttled"))
    for operation, value, becomes in (
        (APPEND, "0:1", "0:1"),
        (APPEND, "1:1,0:1", "0:1,1:1"),
        (SUBTRACT, "0:1", "1:1"),
        (SUBTRACT, "1:1", ""),
        (SET, "*", "*"),
        (DELETE, None, ""),
    ):
        assert alter(peer, TOPIC, "throttled", (name, operation, value))[0] == OK
        await_config(peer, TOPIC, "throttled", name, becomes)


def test_a_refused_change_of_one_topic_leaves_the_other_changed(peer: KafkaPeer) -> None:
    create(peer, topic_of("left"), topic_of("right"))
    left, right = alter_all(
        peer, (TOPIC, "left", [("no.such", SET, "1")]), (TOPIC, "right", [("retention.ms", SET, "7")])
    )
    assert (left[0], right[0]) == (ErrorCode.INVALID_CONFIG, OK)
    await_config(peer, TOPIC, "right", "retention.ms", "7")


def test_a_resource_twice_in_a_request_is_refused(peer: KafkaPeer) -> None:
    create(peer, topic_of("once"))
    change = (TOPIC, "once", [("retention.ms", SET, "7")])
    assert [code for code, _ in alter_all(peer, change, change)] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("retention.ms", "7")], OK),
        ([("retention.ms", "x")], ErrorCode.INVALID_CONFIG),
        ([("no.such", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
        ([], OK),
    ],
)
def test_all_configurations_of_a_topic_replaced(
    peer: KafkaPeer, configs: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    create(peer, topic_of("replaced"))
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="replaced",
                configs=[AlterableConfig(name=name, value=value) for name, value in configs],
            )
        ],
        validate_only=True,
    )
    (result,) = peer.call(request, 2).responses
    assert result.error_code == code


# ── configurations of the broker ──

# What tools ask for: sizers, monitors, Connect, Streams, registries.
BROKER_NAMES = [
    "advertised.listeners",
    "auto.create.topics.enable",
    "broker.id",
    "compression.type",
    "connections.max.idle.ms",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.cleanup.policy",
    "log.dirs",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "process.roles",
    "request.timeout.ms",
    "socket.request.max.bytes",
    "unclean.leader.election.enable",
]
# Kafka changes these while it runs, Stele does not.
FIXED_HERE = {"listener.security.protocol.map", "listeners", "num.io.threads", "num.network.threads"}


def test_the_broker_answers_by_kafkas_names_types_and_units(peer: KafkaPeer, is_kafka: bool) -> None:
    configs = configs_of(peer, BROKER, str(NODE))
    assert set(BROKER_NAMES) <= configs.keys()
    for name in BROKER_NAMES:
        assert configs[name].documentation, name
        assert configs[name].is_sensitive is False
    assert {name: configs[name].config_type for name in BROKER_NAMES} == BROKER_TYPES
    fixed = {name for name in BROKER_NAMES if configs[name].read_only}
    assert fixed == READ_ONLY | (set() if is_kafka else FIXED_HERE)
    assert (configs["node.id"].value, configs["log.retention.ms"].value) == (str(NODE), None)
    assert (configs["log.retention.hours"].value, configs["message.max.bytes"].value) == ("168", "1048588")
    assert configs["advertised.listeners"].value.startswith("PLAINTEXT://127.0.0.1:")


BROKER_TYPES = {
    **dict.fromkeys(BROKER_NAMES, 3),
    **dict.fromkeys(
        ("auto.create.topics.enable", "delete.topic.enable", "unclean.leader.election.enable"), 1
    ),
    **dict.fromkeys(("compression.type", "listener.security.protocol.map", "log.message.timestamp.type"), 2),
    "offsets.topic.replication.factor": 4,
    **dict.fromkeys(
        (
            "connections.max.idle.ms",
            "log.flush.interval.messages",
            "log.flush.interval.ms",
            "log.retention.bytes",
            "log.retention.check.interval.ms",
            "log.retention.ms",
            "log.roll.ms",
        ),
        5,
    ),
    **dict.fromkeys(
        ("advertised.listeners", "listeners", "log.cleanup.policy", "log.dirs", "process.roles"), 7
    ),
}
READ_ONLY = set(BROKER_NAMES) - {
    "compression.type",
    "listener.security.protocol.map",
    "listeners",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "unclean.leader.election.enable",
}


@pytest.mark.parametrize("entity", ["", str(NODE)])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("log.retention.ms", SET, "1000"), OK),
        (("log.retention.ms", SET, "-1"), OK),
        (("log.retention.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        (("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST),
        (("log.retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("log.retention.ms", DELETE, None), OK),
        (("log.retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("log.roll.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        (("log.segment.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("log.segment.bytes", SET, "1048576"), OK),
        (("message.max.bytes", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (("message.max.bytes", SET, "2000000"), OK),
        (("compression.type", SET, "zstd"), OK),
        (("compression.type", SET, "bad"), ErrorCode.INVALID_REQUEST),
        (("log.cleanup.policy", APPEND, "delete"), OK),
        (("log.message.timestamp.type", SET, "LogAppendTime"), OK),
        (("leader.replication.throttled.rate", SET, "100"), OK),
        (("num.partitions", SET, "3"), ErrorCode.INVALID_REQUEST),
        (("num.partitions", DELETE, None), OK),
        (("node.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (("log.retention.hours", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("advertised.listeners", SET, "PLAINTEXT://x:9"), ErrorCode.INVALID_REQUEST),
        (("auto.create.topics.enable", SET, "false"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_of_the_broker(peer: KafkaPeer, entity: str, change: Change, code: ErrorCode) -> None:
    assert alter(peer, BROKER, entity, change, validate_only=True)[0] == code


@pytest.mark.parametrize("entity", ["", str(NODE)])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("log.local.retention.ms", "6"), ("log.retention.ms", "5")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.ms", "5"), ("log.retention.ms", "5")], OK),
        ([("log.local.retention.ms", "-1")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.ms", "604800001")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.ms", "604800000")], OK),
        ([("log.local.retention.ms", "-1"), ("log.retention.ms", "-1")], OK),
        ([("log.local.retention.ms", "-2"), ("log.retention.ms", "5")], OK),
        ([("log.local.retention.bytes", "6"), ("log.retention.bytes", "5")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.bytes", "-1"), ("log.retention.bytes", "5")], ErrorCode.INVALID_REQUEST),
        ([("log.local.retention.bytes", "6"), ("log.retention.bytes", "-1")], OK),
        ([("log.local.retention.bytes", "6")], OK),
    ],
)
def test_defaults_of_topics_that_contradict_each_other_are_refused(
    peer: KafkaPeer, entity: str, changes: list[tuple[str, str]], code: ErrorCode
) -> None:
    both = [(name, SET, value) for name, value in changes]
    assert alter(peer, BROKER, entity, *both, validate_only=True)[0] == code


def test_a_default_is_refused_if_it_contradicts_one_that_was_set_before(stele_peer: KafkaPeer) -> None:
    """Kafka takes these two; its controller does not know them when it creates a topic."""
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    assert alter(stele_peer, BROKER, "", (least, SET, "6"))[0] == OK
    for entity in ("", str(NODE)):
        code, message = alter(stele_peer, BROKER, entity, (most, SET, "5"))
        assert (code, message) == (
            ErrorCode.INVALID_REQUEST,
            f"Invalid value 6 for configuration {least}: it must not be above {most}, which is 5; "
            "change one of the two",
        )
        assert create(stele_peer, topic_of("still-made"), validate_only=True)["still-made"].error_code == OK
    # The broker's own value is in effect, and does not excuse what is set for all.
    assert alter(stele_peer, BROKER, str(NODE), (least, SET, "1"))[0] == OK
    assert alter(stele_peer, BROKER, "", (most, SET, "5"))[0] == ErrorCode.INVALID_REQUEST
    assert alter(stele_peer, BROKER, "", (least, SET, "2"), (most, SET, "5"))[0] == OK
    assert alter(stele_peer, BROKER, str(NODE), (least, SET, "6"))[0] == ErrorCode.INVALID_REQUEST
    for entity in (str(NODE), ""):
        assert alter(stele_peer, BROKER, entity, (least, DELETE, None), (most, DELETE, None))[0] == OK


def test_a_default_of_the_broker_is_what_topics_without_their_own_follow(peer: KafkaPeer) -> None:
    create(peer, topic_of("follows"), topic_of("own", configs=[("retention.ms", "99")]))
    hours = ("log.retention.hours", "168", 5)
    for entity, value in (("", "100000"), (str(NODE), "200000")):
        assert alter(peer, BROKER, entity, ("log.retention.ms", SET, value))[0] == OK
        await_config(peer, TOPIC, "follows", "retention.ms", value)
    cluster, node = ("log.retention.ms", "100000", 3), ("log.retention.ms", "200000", 2)
    assert source_and_synonyms(peer, "follows", "retention.ms") == ("200000", 2, [node, cluster, hours])
    assert source_and_synonyms(peer, "own", "retention.ms") == (
        "99",
        1,
        [("retention.ms", "99", 1), node, cluster, hours],
    )
    # Kafka sets min.insync.replicas for the cluster itself.
    set_for_all = {name for name in configs_of(peer, BROKER, "") if name != "min.insync.replicas"}
    assert set_for_all == {"log.retention.ms"}
    for entity, left in ((str(NODE), "100000"), ("", "604800000")):
        assert alter(peer, BROKER, entity, ("log.retention.ms", DELETE, None))[0] == OK
        await_config(peer, TOPIC, "follows", "retention.ms", left)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (1, "x", ErrorCode.INVALID_REQUEST),
        (64, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_configurations(peer: KafkaPeer, kind: int, name: str, code: ErrorCode) -> None:
    assert describe(peer, kind, name).error_code == code
    if name or kind != TOPIC:
        assert alter(peer, kind, name, ("retention.ms", SET, "1"), validate_only=True)[0] == code


# ── groups, client metrics, loggers ──


def test_a_group_has_the_configurations_of_the_newer_protocols(peer: KafkaPeer, is_kafka: bool) -> None:
    configs = {
        name: (config.value, config.config_source) for name, config in configs_of(peer, GROUP, "g").items()
    }
    if not is_kafka:
        assert configs.pop("errors.deadletterqueue.topic.name") == ("", 5)
        assert configs.pop("errors.deadletterqueue.copy.record.enable") == ("false", 5)
    assert configs == {
        "consumer.assignment.interval.ms": ("1000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.session.timeout.ms": ("45000", 5),
        "share.assignment.interval.ms": ("1000", 5),
        "share.auto.offset.reset": ("latest", 5),
        "share.delivery.count.limit": ("5", 5),
        "share.heartbeat.interval.ms": ("5000", 5),
        "share.isolation.level": ("read_uncommitted", 5),
        "share.partition.max.record.locks": ("2000", 5),
        "share.record.lock.duration.ms": ("30000", 5),
        "share.renew.acknowledge.enable": ("true", 5),
        "share.session.timeout.ms": ("45000", 5),
        "streams.assignment.interval.ms": ("1000", 5),
        "streams.heartbeat.interval.ms": ("5000", 5),
        "streams.initial.rebalance.delay.ms": ("3000", 5),
        "streams.num.standby.replicas": ("0", 5),
        "streams.session.timeout.ms": ("45000", 5),
    }


@pytest.mark.parametrize(
    ("kind", "change", "code"),
    [
        (GROUP, ("consumer.session.timeout.ms", SET, "50000"), OK),
        (GROUP, ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, ("consumer.session.timeout.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (GROUP, ("consumer.session.timeout.ms", DELETE, None), OK),
        (GROUP, ("share.auto.offset.reset", SET, "earliest"), OK),
        (GROUP, ("share.auto.offset.reset", SET, "by_duration:PT1H"), OK),
        (GROUP, ("share.auto.offset.reset", SET, "none"), ErrorCode.INVALID_CONFIG),
        (GROUP, ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, ("no.such", DELETE, None), OK),
        (CLIENT_METRICS, ("interval.ms", SET, "1000"), OK),
        (CLIENT_METRICS, ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, ("match", SET, "client_id=x"), OK),
        (CLIENT_METRICS, ("match", SET, "bad"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, ("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (LOGGER, ("root", SET, "INFO"), OK),
        (LOGGER, ("root", SET, "info"), ErrorCode.INVALID_CONFIG),
        (LOGGER, ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (LOGGER, ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (LOGGER, ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_changes_of_a_group_of_client_metrics_and_of_loggers(
    peer: KafkaPeer, kind: int, change: Change, code: ErrorCode
) -> None:
    name = str(NODE) if kind == LOGGER else "some"
    assert alter(peer, kind, name, change, validate_only=True)[0] == code


@pytest.mark.parametrize(
    ("kind", "config", "value", "default", "source"),
    [
        (GROUP, "consumer.session.timeout.ms", "50000", "45000", 8),
        (CLIENT_METRICS, "interval.ms", "1000", "300000", 7),
    ],
)
def test_a_group_and_client_metrics_keep_what_is_set(
    peer: KafkaPeer, kind: int, config: str, value: str, default: str, source: int
) -> None:
    assert alter(peer, kind, "kept", (config, SET, value))[0] == OK
    await_config(peer, kind, "kept", config, value)
    assert configs_of(peer, kind, "kept")[config].config_source == source
    assert alter(peer, kind, "kept", (config, DELETE, None))[0] == OK
    await_config(peer, kind, "kept", config, default)


def listed(peer: KafkaPeer, version: int, *kinds: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=kinds)
    answer = peer.call(request, version)
    assert answer.error_code == OK
    return [(found.resource_type, found.resource_name) for found in answer.config_resources]


@pytest.mark.parametrize(
    ("kind", "config", "value", "version"),
    [
        (GROUP, "consumer.session.timeout.ms", "50000", 1),
        (CLIENT_METRICS, "interval.ms", "1000", 1),
        (CLIENT_METRICS, "interval.ms", "1000", 0),
    ],
)
def test_what_has_configurations_of_its_own_is_listed(
    peer: KafkaPeer, kind: int, config: str, value: str, version: int
) -> None:
    kinds = (kind,) if version else ()
    assert alter(peer, kind, "listed", (config, SET, value))[0] == OK
    await_config(peer, kind, "listed", config, value)
    assert (kind, "listed") in listed(peer, version, *kinds)
    assert alter(peer, kind, "listed", (config, DELETE, None))[0] == OK
    await_config(peer, kind, "listed", config, "45000" if kind == GROUP else "300000")
    # Kafka knows of the deletion of a configuration before it knows that none is left.
    assert any((kind, "listed") not in listed(peer, version, *kinds) for _ in range(1000))


def test_groups_that_need_not_exist_are_described_in_bounds(stele_peer: KafkaPeer) -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=GROUP if number % 2 else CLIENT_METRICS,
                resource_name=f"no-such-{number}",
                configuration_keys=["interval.ms"],
            )
            for number in range(10_001)
        ]
    )
    *described, refused = stele_peer.call(request, 4).results
    assert {result.error_code for result in described} == {OK}
    assert (refused.error_code, refused.resource_name) == (ErrorCode.INVALID_REQUEST, "no-such-10000")
    assert "send several requests" in refused.error_message


def test_the_level_of_a_logger_is_changed_while_the_broker_runs(peer: KafkaPeer) -> None:
    before = configs_of(peer, LOGGER, str(NODE))["root"]
    assert (before.config_source, before.read_only) == (6, False)
    assert alter(peer, LOGGER, str(NODE), ("root", SET, "ERROR"))[0] == OK
    await_config(peer, LOGGER, str(NODE), "root", "ERROR")
    assert alter(peer, LOGGER, str(NODE), ("root", SET, before.value))[0] == OK
