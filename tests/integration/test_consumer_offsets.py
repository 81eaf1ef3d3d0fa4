"""``__consumer_offsets`` as lag monitors meet it: a plain consumer, its decoder, and Apache Kafka's own tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import DescribeLogDirsRequest
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from stele.wire.kafka.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.groups import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from stele.wire.kafka.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
    TopicRequest,
)
from stele.wire.kafka.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from stele.wire.kafka.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from app.cluster.catalog import TopicRecord
from app.cluster.sqlite.catalog import SqliteCatalog
from app.composition import CATALOG
from app.groups.offsets_topic.records import partition_of
from load.apache_kafka import apache_kafka, libs, run_tool
from tests.integration.test_kafka_groups import stable
from tests.support.apache_kafka import kafka_or_skip
from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    TIMEOUT_S,
    KafkaPeer,
    create_topic,
    fetch,
    only_partition,
    produce,
    records_in,
)
from tests.support.offset_records import GroupKey, OffsetKey
from tests.support.offsets_monitor import EARLIEST, LATEST, OFFSETS, PARTITIONS, Monitor

TRANSACTIONS = "__transaction_state"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker, KafkaPeer(broker) as peer:
        create_topic(peer, "orders", partitions=2)
        yield broker


@pytest.fixture(scope="module")
def tools() -> None:
    with kafka_or_skip():
        libs()


def commit(
    peer: KafkaPeer, group: str, offset: int, *, topic: str = "orders", partition: int = 0, **more: Any
) -> None:
    version = more.pop("version", 9)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=more.pop("generation", -1),
        member_id=more.pop("member_id", ""),
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata="m"
                    )
                ],
            )
        ],
        **more,
    )
    (answered,) = peer.call(request, version).topics
    (answer,) = answered.partitions
    assert answer.error_code == 0, answer


def leave(peer: KafkaPeer, group: str, member: str) -> None:
    members = [MemberIdentity(member_id=member)]
    assert peer.call(LeaveGroupRequest(group_id=group, members=members), 5).error_code == 0


# ── the group of a monitor ──


@pytest.mark.parametrize("version", [8, 9, 10])
def test_all_offsets_of_a_group_that_reads_it_are_fetched(peer: KafkaPeer, version: int) -> None:
    commit(peer, "of a monitor", 3)
    commit(peer, "of a monitor", 4, topic=OFFSETS, partition=7)
    group = OffsetFetchRequestGroup(group_id="of a monitor", topics=None)
    (fetched,) = peer.call(OffsetFetchRequest(groups=[group]), version).groups
    assert fetched.error_code == 0
    offsets = {
        part.partition_index: part.committed_offset for topic in fetched.topics for part in topic.partitions
    }
    assert offsets == {0: 3, 7: 4}
    if version == 10:
        names = {topic.topic_id: topic.name for topic in peer.call(MetadataRequest(topics=None), 12).topics}
        assert {names[topic.topic_id] for topic in fetched.topics} == {"orders", OFFSETS}


def test_all_offsets_of_a_group_that_reads_it_are_reset(broker: BrokerProcess, peer: KafkaPeer) -> None:
    commit(peer, "reset", 3)
    commit(peer, "reset", 4, topic=OFFSETS, partition=partition_of("reset", PARTITIONS))
    with httpx.Client(base_url=broker.http_url) as http:
        reset = http.put("/v1/groups/reset/offsets", json={"to": "latest"})
        assert reset.status_code == 200, reset.text
        described = http.get("/v1/groups/reset").json()
    # The reset is itself a record in it.
    own = [part for part in described["partitions"] if part["topic"] == OFFSETS and part["high_watermark"]]
    assert all(part["log_start_offset"] <= part["committed"] <= part["high_watermark"] for part in own)
    assert {part["topic"] for part in described["partitions"]} == {"orders", OFFSETS}


# ── monitors ──


def test_a_monitor_that_begins_at_the_start_learns_all_groups_and_follows_them(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    joined = stable(peer, "seen")
    commit(peer, "seen", 5, generation=joined.generation_id, member_id=joined.member_id)
    commit(peer, "alone", 7, partition=1)
    with closing(Monitor(broker.kafka_bootstrap, EARLIEST)) as monitor:
        monitor.catch_up()
        (member,) = monitor.groups["seen"].members
        assert (member.member_id, member.assignment, member.client_host) == (
            joined.member_id,
            b"all",
            "/127.0.0.1",
        )
        assert monitor.commits[OffsetKey("seen", "orders", 0)].offset == 5
        assert monitor.commits[OffsetKey("alone", "orders", 1)].offset == 7
        assert "alone" not in monitor.groups, "nobody ever joined it"

        # A fetch waits for each of these, and each ends the wait.
        for offset in range(8, 11):
            commit(peer, "alone", offset, partition=1)
            monitor.read_until(OffsetKey("alone", "orders", 1))
            assert monitor.commits[OffsetKey("alone", "orders", 1)].offset == offset
        leave(peer, "seen", joined.member_id)
        monitor.read_until(GroupKey("seen"))
        assert monitor.groups["seen"].members == []
        assert peer.call(DeleteGroupsRequest(groups_names=["seen"]), 2).results[0].error_code == 0
        monitor.read_until(GroupKey("seen"))
        assert "seen" not in monitor.groups
        assert OffsetKey("seen", "orders", 0) not in monitor.commits


def test_a_monitor_that_begins_at_the_end_sees_what_comes(broker: BrokerProcess, peer: KafkaPeer) -> None:
    commit(peer, "before", 1)
    with closing(Monitor(broker.kafka_bootstrap, LATEST)) as monitor:
        monitor.catch_up()
        commit(peer, "after", 1)
        monitor.read_until(OffsetKey("after", "orders", 0))
        assert not any(key.group == "before" for key in monitor.commits)


def test_a_monitor_continues_after_a_kill_of_the_broker_and_misses_nothing() -> None:
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "orders")
            commit(peer, "g", 1)
        with closing(Monitor(broker.kafka_bootstrap, LATEST)) as monitor:
            monitor.catch_up()
            broker.kill()
            broker.start()
            with KafkaPeer(broker) as peer:
                commit(peer, "g", 2)
            monitor.read_until(OffsetKey("g", "orders", 0))
            while monitor.commits[OffsetKey("g", "orders", 0)].offset != 2:
                monitor.read_until(OffsetKey("g", "orders", 0))


def test_a_group_that_reads_the_topic_has_its_offsets_after_a_restart() -> None:
    def consumer() -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": broker.kafka_bootstrap,
                "group.id": "monitor",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "orders")
            commit(peer, "g", 1)
        with closing(consumer()) as one:
            one.subscribe([OFFSETS])
            while (message := one.poll(TIMEOUT_S)) is None or message.error() is not None:
                pass
            one.commit(message=message, asynchronous=False)
        broker.restart()
        with closing(consumer()) as one:
            part = TopicPartition(OFFSETS, message.partition() or 0)
            (committed,) = one.committed([part], timeout=TIMEOUT_S)
            assert committed.offset == (message.offset() or 0) + 1


def bounds_of(peer: KafkaPeer) -> list[tuple[int, int]]:
    """Return where each partition begins and ends."""
    ends: list[list[int]] = []
    for at in (EARLIEST, LATEST):
        asked = [ListOffsetsPartition(partition_index=n, timestamp=at) for n in range(PARTITIONS)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=OFFSETS, partitions=asked)])
        (topic,) = peer.call(request, 7).topics
        ends.append([one.offset for one in sorted(topic.partitions, key=lambda one: one.partition_index)])
    return list(zip(*ends, strict=True))


def consumed(peer: KafkaPeer, partition: int, begin: int, end: int) -> int:
    """Return the offset of the last record that a reader finds before ``end``; 0 if it finds none."""
    last, at = 0, begin
    while at < end:
        part = only_partition(peer.call(fetch(OFFSETS, at, partition=partition), 12))
        assert part.error_code == ErrorCode.NONE
        records = records_in(bytes(part.records or b""))
        assert records, "the reader waits for ever"
        last = records[-1][0]
        at = last + 1
    return last


def test_every_reader_to_the_end_gets_the_record_before_it(tmp_path: Path) -> None:
    """kminion is ready once it has consumed the record before the end of each partition, or the end is 0."""
    with run_broker(data_dir=tmp_path) as broker:

        def check(groups: list[str]) -> None:
            filled = {partition_of(group, PARTITIONS) for group in groups}
            with KafkaPeer(broker) as peer:
                for partition, (begin, end) in enumerate(bounds_of(peer)):
                    if partition not in filled:
                        assert (begin, end) == (0, 0), partition
                        assert not only_partition(
                            peer.call(fetch(OFFSETS, 0, partition=partition), 12)
                        ).records
                    else:
                        assert begin < end
                    assert max(0, end - 1 - consumed(peer, partition, begin, end)) == 0

        with KafkaPeer(broker) as peer:
            create_topic(peer, "orders", partitions=2)
        check([])
        with KafkaPeer(broker) as peer:
            commit(peer, "one", 1)
            commit(peer, "two", 1)
            commit(peer, "two", 2)
        check(["one", "two"])
        with KafkaPeer(broker) as peer:
            (gone,) = peer.call(DeleteGroupsRequest(groups_names=["one"]), 2).results
            assert gone.error_code == ErrorCode.NONE
        # The tombstones are records, too; the next run of the broker has none.
        check(["one", "two"])
        broker.kill()
        broker.start()
        check(["two"])


# ── what may be done with internal topics ──


def codes(peer: KafkaPeer, topic: str) -> dict[str, int]:
    resource = IncrementalAlterConfigsResource(
        resource_type=2,
        resource_name=topic,
        configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1")],
    )
    creatable = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=())
    growing = CreatePartitionsTopic(name=topic, count=60, assignments=None)
    emptying = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    return {
        "metadata that may create": metadata_of(peer, topic, may_create=True).error_code,
        "produce": only_partition(peer.call(produce(topic, batch_of([b"x"])), 9)).error_code,
        "create": peer.call(CreateTopicsRequest(topics=[creatable]), 7).topics[0].error_code,
        "grow": peer.call(
            CreatePartitionsRequest(topics=[growing], timeout_ms=1000, validate_only=False),
            3,
        )
        .results[0]
        .error_code,
        "delete records": peer.call(DeleteRecordsRequest(topics=[emptying], timeout_ms=1000), 2)
        .topics[0]
        .partitions[0]
        .error_code,
        "configure": peer.call(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            1,
        )
        .responses[0]
        .error_code,
        "delete": peer.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
        .responses[0]
        .error_code,
    }


def metadata_of(peer: KafkaPeer, topic: str, *, may_create: bool = False) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create)
    (found,) = peer.call(request, 12).topics
    return found


def test_internal_topics_cannot_be_created_changed_or_written(peer: KafkaPeer) -> None:
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    expected = dict.fromkeys(codes(peer, OFFSETS), int(refused))
    assert codes(peer, OFFSETS) == {
        **expected,
        "metadata that may create": 0,
        "create": ErrorCode.TOPIC_ALREADY_EXISTS,
    }
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes(peer, TRANSACTIONS) == {**expected, "metadata that may create": unknown, "delete": unknown}
    assert metadata_of(peer, TRANSACTIONS).error_code == unknown, "nothing of that has made it"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_produce_is_refused_in_every_version(peer: KafkaPeer, version: int) -> None:
    topic = metadata_of(peer, OFFSETS).topic_id if version >= 13 else OFFSETS
    answer = only_partition(peer.call(produce(topic, batch_of([b"x"])), version))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_marks_internal_topics(broker: BrokerProcess, peer: KafkaPeer) -> None:
    found = metadata_of(peer, OFFSETS)
    assert (found.is_internal, len(found.partitions)) == (True, PARTITIONS)
    assert metadata_of(peer, TRANSACTIONS).is_internal
    assert not metadata_of(peer, "orders").is_internal
    everything = {
        topic.name: topic.is_internal for topic in peer.call(MetadataRequest(topics=None), 12).topics
    }
    assert [name for name, is_internal in everything.items() if is_internal] == [OFFSETS]
    assert "orders" in everything
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=OFFSETS)],
        response_partition_limit=100,
        cursor=None,
    )
    (described,) = peer.call(request, 0).topics
    assert (described.error_code, described.is_internal, len(described.partitions)) == (0, True, PARTITIONS)
    wanted = DescribeConfigsResource(
        resource_type=2, resource_name=OFFSETS, configuration_keys=["cleanup.policy"]
    )
    (configs,) = peer.call(DescribeConfigsRequest(resources=[wanted]), 4).results
    assert [(one.name, one.value) for one in configs.configs] == [("cleanup.policy", "compact")]
    dirs = peer.call(DescribeLogDirsRequest(topics=None), 4).results[0].topics
    assert {topic.name for topic in dirs} == everything.keys() - {OFFSETS}


def test_the_topic_keeps_its_id_over_a_restart(broker: BrokerProcess) -> None:
    with KafkaPeer(broker) as peer:
        before = metadata_of(peer, OFFSETS).topic_id
    broker.restart()
    with KafkaPeer(broker) as peer:
        assert metadata_of(peer, OFFSETS).topic_id == before != bytes(16)


def test_a_topic_of_that_name_from_an_earlier_release_is_not_served_and_not_deleted(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with run_broker(data_dir):
        pass
    catalog = SqliteCatalog(data_dir / CATALOG)
    catalog.create_topic(TopicRecord(name=OFFSETS, topic_id=uuid4(), partitions=1, configs={}))
    catalog.close()
    (data_dir / f"{OFFSETS}-0").mkdir()
    with run_broker(data_dir) as broker, KafkaPeer(broker) as peer:
        assert len(metadata_of(peer, OFFSETS).partitions) == PARTITIONS
        assert "is not served" in broker.stderr
    assert (data_dir / f"{OFFSETS}-0").exists()


def test_a_fetch_beside_an_ordinary_topic_waits_for_both(broker: BrokerProcess, peer: KafkaPeer) -> None:
    partition = partition_of("beside", PARTITIONS)
    create_topic(peer, "beside")
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=OFFSETS,
                partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)],
            )
        ],
    )
    end = peer.call(request, 7).topics[0].partitions[0].offset
    both = fetch("beside", 0, max_wait_ms=int(TIMEOUT_S * 1000))
    both.topics = [*both.topics, *fetch(OFFSETS, end, partition=partition).topics]
    with KafkaPeer(broker) as other:
        for happens in (
            lambda: commit(other, "beside", 1),
            lambda: other.call(produce("beside", batch_of([b"x"])), 9),
        ):
            peer.post(both, 12)
            happens()
            _, answer = peer.next_answer()
            sizes = [len(topic.partitions[0].records or b"") for topic in answer.responses]
            assert any(sizes), sizes
            both.topics[1].partitions[0].fetch_offset = end + 1


def test_the_other_protocols_show_groups_and_not_the_topic(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url) as http:
        names = [topic["name"] for topic in http.get("/v1/topics").json()["topics"]]
        assert OFFSETS not in names
        for path in (f"/v1/topics/{OFFSETS}", f"/v1/topics/{OFFSETS}/partitions/0/records"):
            refused = http.get(path)
            assert (refused.status_code, refused.json()["kafka_code"]) == (403, 17), path
        written = http.post(f"/v1/topics/{OFFSETS}/records", json={"records": [{"value": 1}]})
        assert written.status_code == 403
        assert http.put(f"/v1/topics/{TRANSACTIONS}", json={}).status_code == 403


# ── Apache Kafka's tools ──


# The console consumer ends when nothing has come for so long; on a busy machine the first may be too short.
SILENCES_MS = (6_000, 60_000)


def formatted(bootstrap: str, formatter: str, *, silence_ms: int) -> list[dict[str, Any]]:
    """What the console consumer shows of the topic, with what only one run can know taken out."""
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", OFFSETS, "--from-beginning"),
        *("--timeout-ms", str(silence_ms)),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    assert done.returncode == 0, done.stderr
    decoder, shown = json.JSONDecoder(), list[dict[str, Any]]()
    # Its log goes to the same place.
    at = done.stdout.find('{"key"')
    while at >= 0:
        record, end = decoder.raw_decode(done.stdout, at)
        if not record["key"]["data"]["group"].startswith("console-consumer"):
            shown.append(record)
        at = done.stdout.find('{"key"', end)
    return shown


def live_a_little(peer: KafkaPeer) -> None:
    """The same in every broker: a group that comes and goes, commits of several kinds, deletions."""
    create_topic(peer, "orders", partitions=2)
    for group in ("life", "simple", "retained"):
        request = FindCoordinatorRequest(key=group)
        while peer.call(request, 3).error_code or not is_loaded(peer, group):
            pass
    joined = stable(peer, "life")
    of_member: dict[str, Any] = {"generation": joined.generation_id, "member_id": joined.member_id}
    commit(peer, "life", 5, **of_member)
    commit(peer, "life", 7, partition=1, **of_member)
    commit(peer, "life", 6, **of_member)
    commit(peer, "simple", 1)
    commit(peer, "retained", 1, version=2, retention_time_ms=86_400_000)
    leave(peer, "life", joined.member_id)
    gone = OffsetDeleteRequestTopic(
        name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=1)]
    )
    assert peer.call(OffsetDeleteRequest(group_id="life", topics=[gone]), 0).error_code == 0
    assert peer.call(DeleteGroupsRequest(groups_names=["simple"]), 2).results[0].error_code == 0


def is_loaded(peer: KafkaPeer, group: str) -> bool:
    """A coordinator that is still loading refuses a heartbeat with 14, 15 or 16, and then with 25."""
    leaving = [MemberIdentity(member_id="nobody")]
    return peer.call(LeaveGroupRequest(group_id=group, members=leaving), 5).error_code not in (
        14,
        15,
        16,
    )


def newest(shown: list[dict[str, Any]]) -> dict[str, Any]:
    """The last value of each key, without times and ids of one run, and without what Kafka 4.3 added."""
    kept: dict[str, Any] = {}
    for record in shown:
        key = json.dumps(record["key"], sort_keys=True)
        kept.pop(key, None)
        if record["value"] is not None:
            value = dict(record["value"]["data"])
            for name in ("commitTimestamp", "expireTimestamp", "currentStateTimestamp", "topicId"):
                if name in value:
                    value[name] = "…"
            value.pop("topicId", None)
            kept[key] = value
    return kept


LIFE: dict[str, dict[str, Any]] = {
    '{"data": {"group": "life", "partition": 0, "topic": "orders"}, "type": 1}': {
        "offset": 6,
        "leaderEpoch": -1,
        "metadata": "m",
        "commitTimestamp": "…",
    },
    '{"data": {"group": "retained", "partition": 0, "topic": "orders"}, "type": 1}': {
        "offset": 1,
        "metadata": "m",
        "commitTimestamp": "…",
        "expireTimestamp": "…",
    },
    '{"data": {"group": "life"}, "type": 2}': {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": "…",
        "members": [],
    },
}


def assert_the_formatters_show(bootstrap: str, expected: dict[str, Any]) -> None:
    shown: dict[str, Any] = {}
    for silence_ms in SILENCES_MS:
        shown = newest(
            formatted(bootstrap, "OffsetsMessageFormatter", silence_ms=silence_ms)
            + formatted(bootstrap, "GroupMetadataMessageFormatter", silence_ms=silence_ms)
        )
        if shown == expected:
            return
    assert shown == expected


@pytest.mark.long
def test_apache_kafkas_formatters_show_groups_and_commits(tools: None) -> None:
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            live_a_little(peer)
        assert_the_formatters_show(broker.kafka_bootstrap, LIFE)


@pytest.mark.long
def test_they_show_the_same_of_apache_kafka(tools: None) -> None:
    with apache_kafka(heap="384m") as kafka:
        with KafkaPeer(
            cast("BrokerProcess", SimpleNamespace(host=kafka.host, kafka_port=kafka.port))
        ) as peer:
            live_a_little(peer)
        assert_the_formatters_show(kafka.bootstrap, LIFE)


@pytest.mark.long
def test_kafka_topics_lists_it_and_hides_it_when_asked(broker: BrokerProcess, tools: None) -> None:
    arguments = ("--bootstrap-server", broker.kafka_bootstrap, "--list")
    tool = "org.apache.kafka.tools.TopicCommand"
    assert OFFSETS in run_tool(tool, *arguments).stdout.split()
    assert OFFSETS not in run_tool(tool, *arguments, "--exclude-internal").stdout.split()


def test_an_administrator_sees_it_as_librdkafka_shows_it(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    assert len(admin.list_topics(OFFSETS, timeout=TIMEOUT_S).topics[OFFSETS].partitions) == PARTITIONS
