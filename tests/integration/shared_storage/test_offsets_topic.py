"""``__consumer_offsets`` with several brokers, as lag monitors read it: any broker may die, and the view stays true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from stele import Client
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from stele.wire.kafka.groups import DeleteGroupsRequest
from stele.wire.kafka.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
    TopicRequest,
)
from stele.wire.kafka.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from app.cluster.group_shards import SHARDS, lease_of_shard, shard_of
from app.groups.offsets_topic.view import EPOCH_BITS
from load.apache_kafka import libs, run_tool
from load.postgres_server import PostgresServer
from tests.integration.test_consumer_offsets import SILENCES_MS, codes, commit, formatted, leave
from tests.integration.test_kafka_groups import stable
from tests.support.apache_kafka import kafka_or_skip
from tests.support.brokers import Brokers, run_brokers
from tests.support.kafka_peer import TIMEOUT_S, WITHOUT_RETENTION, KafkaPeer, create_topic, only_partition
from tests.support.offset_records import GroupKey, OffsetKey
from tests.support.offsets_monitor import EARLIEST, LATEST, OFFSETS, Monitor, read_one
from tests.support.secured_brokers import ADA, ROOT, run_secured_brokers
from tests.support.variants import long_but

pytestmark = pytest.mark.long

_names = count(1)


@pytest.fixture(scope="module")
def brokers(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    path = tmp_path_factory.mktemp("brokers")
    # Waits end because of what happens, or a test fails.
    environment = WITHOUT_RETENTION | {"STELE_FETCH_WAIT_MS_MAX": "3600000"}
    with run_brokers(path, server.dsn, environment=environment) as running:
        running.settle()
        with KafkaPeer(running[1]) as peer:
            create_topic(peer, "orders", partitions=4)
        # A commit does not look for topics of other brokers; a request for metadata does.
        for broker in running.processes.values():
            with KafkaPeer(broker) as peer:
                assert metadata_of(peer, "orders").error_code == E.NONE
        yield running


def monitor_of(brokers: Brokers, at: int, **settings: Any) -> Monitor:
    return Monitor(brokers.kafka_bootstrap, at, partitions=SHARDS, expected_partition=shard_of, **settings)


def new_group(brokers: Brokers, *, of: int | None = None) -> str:
    """The name of a group that no other test has; it is coordinated by ``of``, if that is given."""
    while True:
        name = f"group-{next(_names)}"
        if of is None or brokers.coordinator(name) == of:
            return name


def at_coordinator(brokers: Brokers, group: str) -> KafkaPeer:
    return KafkaPeer(brokers[brokers.coordinator(group)])


def committed(brokers: Brokers, group: str) -> dict[OffsetKey, int]:
    """What the group has committed, as its coordinator tells any client."""
    number = next(iter(brokers.running()))
    described = httpx.get(f"{brokers[number].http_url}/v1/groups/{group}", timeout=60)
    if described.status_code == 404:
        return {}
    assert described.status_code == 200, described.text
    return {
        OffsetKey(group, part["topic"], part["partition"]): part["committed"]
        for part in described.json()["partitions"]
        if part["committed"] is not None
    }


def known(monitor: Monitor, groups: list[str]) -> dict[OffsetKey, int]:
    return {key: value.offset for key, value in monitor.commits.items() if key.group in groups}


def read_until_true(monitor: Monitor, brokers: Brokers, groups: list[str]) -> None:
    truth: dict[OffsetKey, int] = {}
    for group in groups:
        truth |= committed(brokers, group)
    while known(monitor, groups) != truth:
        monitor.read()


def metadata_of(peer: KafkaPeer, topic: str = OFFSETS) -> MetadataResponseTopic:
    (shown,) = peer.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    return shown


# ── monitors ──


def test_a_monitor_sees_the_commits_of_every_protocol(brokers: Brokers) -> None:
    kafka, http, binary = (new_group(brokers, of=number) for number in (1, 2, 3))
    with Client(brokers[1].binary_url) as client:
        for partition in range(4):
            client.produce("orders", b"x", partition=partition)
    with closing(monitor_of(brokers, LATEST)) as follower:
        follower.catch_up()
        read_one(brokers[3], kafka)
        polled = httpx.post(
            f"{brokers[1].http_url}/v1/groups/{http}/poll",
            json={"topics": ["orders"], "max_records": 1},
            timeout=60,
        ).json()
        lease = {"lease": polled["lease"]}
        acked = httpx.post(f"{brokers[3].http_url}/v1/groups/{http}/ack", json=lease, timeout=60)
        assert acked.status_code < 300, acked.text
        with (
            Client(brokers[2].binary_url) as client,
            client.group(binary, "orders") as group,
            next(iter(group)),
        ):
            pass
        groups = [kafka, http, binary]
        assert all(committed(brokers, group) for group in groups)
        read_until_true(follower, brokers, groups)
        with closing(monitor_of(brokers, EARLIEST)) as other:
            other.catch_up()
            read_until_true(other, brokers, groups)
            for monitor in (other, follower):
                while kafka not in monitor.groups or monitor.groups[kafka].members:
                    monitor.read()
                assert monitor.groups[kafka].protocol_type == "consumer"


@pytest.mark.parametrize(
    "at",
    long_but([pytest.param(EARLIEST, id="earliest"), pytest.param(LATEST, id="latest")], "earliest"),
)
def test_a_monitor_ends_with_the_truth_after_a_coordinator_was_killed(brokers: Brokers, at: int) -> None:
    victim, *others = (2, 1, 3)
    moving = [new_group(brokers, of=victim) for _ in range(4)]
    staying = [new_group(brokers, of=number) for number in others]
    groups = [*moving, *staying]
    with closing(monitor_of(brokers, at)) as monitor:
        monitor.catch_up()
        for group in groups:
            with at_coordinator(brokers, group) as peer:
                commit(peer, group, 1)
        read_until_true(monitor, brokers, groups)
        before = dict(monitor.positions)
        # The last commit may or may not have reached the monitor.
        with at_coordinator(brokers, moving[0]) as peer:
            commit(peer, moving[0], 2)
            brokers[victim].kill()
        for group in groups:
            with at_coordinator(brokers, group) as peer:
                commit(peer, group, 3, partition=1)
        # Perhaps before the monitor has found the new leader, whose log begins without this group.
        with at_coordinator(brokers, moving[1]) as peer:
            deleted = peer.call(DeleteGroupsRequest(groups_names=[moving[1]]), 2).results
            assert deleted[0].error_code == E.NONE
        read_until_true(monitor, brokers, groups)
        assert known(monitor, groups)[OffsetKey(moving[0], "orders", 0)] == 2
        # A planned move: the broker gets its shards back.
        brokers[victim].start()
        brokers.settle()
        for group in groups:
            with at_coordinator(brokers, group) as peer:
                commit(peer, group, 4, partition=2)
        read_until_true(monitor, brokers, groups)
        assert {key.group for key in known(monitor, groups)} == set(groups)
        # Also where there is nothing to read, the monitor is in the log of the present leader.
        epochs = [part.leader_epoch for part in leaders_of(brokers)]
        while any(
            monitor.positions[shard] and monitor.positions[shard] >> EPOCH_BITS != epoch
            for shard, epoch in enumerate(epochs)
        ):
            monitor.read()
        assert all(monitor.positions[shard] >= then for shard, then in before.items())


def leaders_of(brokers: Brokers) -> list[Any]:
    """The partitions as any broker shows them, after leases have settled."""
    brokers.settle()
    with KafkaPeer(brokers[next(iter(brokers.running()))]) as peer:
        return list(metadata_of(peer).partitions)


def test_a_monitor_reads_from_the_leader_whatever_its_rack_is(brokers: Brokers) -> None:
    group = new_group(brokers, of=1)
    with closing(monitor_of(brokers, EARLIEST, **{"client.rack": "rack-2"})) as monitor:
        monitor.catch_up()
        with at_coordinator(brokers, group) as peer:
            commit(peer, group, 9)
        read_until_true(monitor, brokers, [group])


def test_a_group_that_comes_and_goes_is_seen(brokers: Brokers) -> None:
    group = new_group(brokers)
    with closing(monitor_of(brokers, LATEST)) as monitor:
        monitor.catch_up()
        with at_coordinator(brokers, group) as peer:
            joined = stable(peer, group)
            monitor.read_until(GroupKey(group))
            assert [member.member_id for member in monitor.groups[group].members] == [joined.member_id]
            leave(peer, group, joined.member_id)
            commit(peer, group, 5)
            monitor.read_until(OffsetKey(group, "orders", 0))
            assert peer.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == E.NONE
            while group in monitor.groups or known(monitor, [group]):
                monitor.read()


# ── requests ──


def test_every_broker_shows_the_holder_of_a_lease_as_the_leader(brokers: Brokers) -> None:
    brokers.settle()
    ids: set[bytes] = set()
    for broker in brokers.processes.values():
        leases = httpx.get(f"{broker.http_url}/v1/cluster", timeout=60).json()["leases"]
        expected = [leases[lease_of_shard(shard)] for shard in range(SHARDS)]
        with KafkaPeer(broker) as peer:
            topic = metadata_of(peer)
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=OFFSETS)], response_partition_limit=100, cursor=None
            )
            (described,) = peer.call(request, 0).topics
        ids |= {topic.topic_id, described.topic_id}
        for shown in (topic, described):
            assert (shown.error_code, shown.is_internal) == (E.NONE, True)
            assert [part.leader_id for part in shown.partitions] == [one["broker_id"] for one in expected]
            assert [part.leader_epoch for part in shown.partitions] == [one["epoch"] for one in expected]
            assert {part.error_code for part in shown.partitions} == {E.NONE}
            assert all(list(part.replica_nodes) == [part.leader_id] for part in shown.partitions)
            assert all(list(part.isr_nodes) == [part.leader_id] for part in shown.partitions)
    assert len(ids) == 1
    assert ids != {bytes(16)}


def list_offset(peer: KafkaPeer, partition: int, at: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=at)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=OFFSETS, partitions=[asked])])
    return peer.call(request, 7).topics[0].partitions[0]


def epoch_end(peer: KafkaPeer, partition: int, epoch: int) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=OFFSETS, partitions=[asked])])
    return peer.call(request, 3).topics[0].partitions[0]


def fetched(
    peer: KafkaPeer, partition: int, offset: int, *, rack: str = "", epoch: int = -1
) -> PartitionData:
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=OFFSETS, partitions=[asked])],
        rack_id=rack,
    )
    return only_partition(peer.call(request, 12))


def test_only_the_leader_answers(brokers: Brokers) -> None:
    group = new_group(brokers, of=1)
    shard = shard_of(group)
    with KafkaPeer(brokers[1]) as leader, KafkaPeer(brokers[2]) as other:
        commit(leader, group, 1)
        epoch = metadata_of(other).partitions[shard].leader_epoch
        start = list_offset(leader, shard, EARLIEST)
        assert (start.error_code, start.offset, start.leader_epoch) == (E.NONE, epoch << EPOCH_BITS, epoch)
        end = list_offset(leader, shard, LATEST).offset
        assert end > start.offset
        answer = epoch_end(leader, shard, epoch)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (E.NONE, epoch, end)
        earlier = epoch_end(leader, shard, epoch - 1)
        assert (earlier.error_code, earlier.end_offset) == (E.NONE, start.offset)
        # Whichever rack the client is in.
        for rack in ("", "rack-2"):
            read = fetched(leader, shard, start.offset, rack=rack)
            assert (read.error_code, read.high_watermark, read.preferred_read_replica) == (E.NONE, end, -1)
            assert rb.check_batch(read.records or b"").base_offset == start.offset
        assert fetched(leader, shard, end, epoch=epoch - 1).error_code == E.FENCED_LEADER_EPOCH
        for answered in (
            list_offset(other, shard, EARLIEST),
            list_offset(other, shard, LATEST),
            epoch_end(other, shard, epoch),
            fetched(other, shard, start.offset),
            fetched(other, shard, start.offset, epoch=epoch),
        ):
            assert answered.error_code == E.NOT_LEADER_OR_FOLLOWER
        assert list_offset(other, SHARDS, EARLIEST).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_waits_ends_with_a_commit(brokers: Brokers) -> None:
    group = new_group(brokers, of=3)
    with KafkaPeer(brokers[3]) as peer, KafkaPeer(brokers[3]) as other:
        end = wait_at_end(peer, shard_of(group))
        commit(other, group, 1)
        read = only_partition(peer.next_answer()[1])
        assert rb.check_batch(read.records or b"").base_offset >= end


def test_a_fetch_that_waits_ends_when_another_broker_leads(brokers: Brokers) -> None:
    group = new_group(brokers, of=3)
    brokers[3].kill()
    with at_coordinator(brokers, group) as peer:
        wait_at_end(peer, shard_of(group))
        # It gets its shards back.
        brokers[3].start()
        read = only_partition(peer.next_answer()[1])
        assert (read.error_code, read.records or b"") == (E.NOT_LEADER_OR_FOLLOWER, b"")
    brokers.settle()


def wait_at_end(peer: KafkaPeer, shard: int) -> int:
    """Send a fetch that waits for the next record of a partition, and return the offset of that record."""
    end = list_offset(peer, shard, LATEST).offset
    asked = FetchPartition(partition=shard, fetch_offset=end, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=OFFSETS, partitions=[asked])],
    )
    peer.post(request, 12)
    return end


def test_a_partition_without_a_holder_has_no_leader(brokers: Brokers, server: PostgresServer) -> None:
    shards = [shard for shard, part in enumerate(leaders_of(brokers)) if part.leader_id == 3]
    with KafkaPeer(brokers[1]) as peer, closing(server.connect()) as holding:
        # While their rows are locked, no broker takes the leases.
        holding.cursor().execute(
            "SELECT FROM stele.leases WHERE name = ANY(%s) FOR UPDATE",
            ([lease_of_shard(shard) for shard in shards],),
        )
        brokers[3].kill()
        while True:
            shown = [metadata_of(peer).partitions[shard] for shard in shards]
            if all(part.leader_id == -1 for part in shown):
                break
        for part in shown:
            assert (part.error_code, part.leader_epoch) == (E.LEADER_NOT_AVAILABLE, -1)
            assert list(part.replica_nodes) == list(part.isr_nodes) == []
        answered = list_offset(peer, shards[0], LATEST)
        assert answered.error_code == E.NOT_LEADER_OR_FOLLOWER
    brokers[3].start()
    brokers.settle()


def test_every_broker_reports_who_may_read_it(tmp_path: Path, own_server: PostgresServer) -> None:
    with run_secured_brokers(tmp_path, own_server) as secured:
        leader = secured.coordinator("g")
        shard = shard_of("g")
        root, near, far = (
            secured.peer(leader, ROOT),
            secured.peer(leader, ADA),
            secured.peer(3 - leader, ADA),
        )
        create_topic(root, "orders")
        commit(root, "g", 1)
        start = list_offset(root, shard, EARLIEST).offset

        def answers(peer: KafkaPeer) -> list[int]:
            shown, listed = metadata_of(peer), list_offset(peer, shard, LATEST)
            read, ended = fetched(peer, shard, start), epoch_end(peer, shard, start >> EPOCH_BITS)
            return [shown.error_code, listed.error_code, read.error_code, ended.error_code]

        # Also a broker that does not lead a partition says nothing of it.
        assert answers(near) == answers(far) == [E.TOPIC_AUTHORIZATION_FAILED] * 4
        secured.allow(leader, "DESCRIBE", "TOPIC", OFFSETS)
        assert answers(near) == [E.NONE, E.NONE, E.TOPIC_AUTHORIZATION_FAILED, E.NONE]
        secured.allow(leader, "READ", "TOPIC", OFFSETS)
        assert answers(near) == [E.NONE] * 4
        while answers(far) != [E.NONE, *[E.NOT_LEADER_OR_FOLLOWER] * 3]:
            # It learns of a right in a moment.
            assert set(answers(far)) <= {
                E.NONE,
                E.NOT_LEADER_OR_FOLLOWER,
                E.TOPIC_AUTHORIZATION_FAILED,
            }


def test_no_broker_lets_clients_change_it(brokers: Brokers) -> None:
    for broker in brokers.processes.values():
        with KafkaPeer(broker) as peer:
            refused = codes(peer, OFFSETS)
        assert refused.pop("metadata that may create") == E.NONE
        assert refused.pop("create") == E.TOPIC_ALREADY_EXISTS
        assert set(refused.values()) == {E.INVALID_TOPIC_EXCEPTION}, refused


def test_the_other_protocols_show_groups_and_not_the_topic(brokers: Brokers) -> None:
    for broker in brokers.processes.values():
        with httpx.Client(base_url=broker.http_url) as http:
            assert OFFSETS not in [topic["name"] for topic in http.get("/v1/topics").json()["topics"]]
            for path in (f"/v1/topics/{OFFSETS}", f"/v1/topics/{OFFSETS}/partitions/0/records"):
                refused = http.get(path)
                assert (refused.status_code, refused.json()["kafka_code"]) == (403, 17), path


def test_a_group_that_reads_the_topic_commits_and_has_a_description(brokers: Brokers) -> None:
    name = new_group(brokers, of=2)
    settings = {
        "bootstrap.servers": brokers.kafka_bootstrap,
        "group.id": name,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([OFFSETS])
        while (message := consumer.poll(TIMEOUT_S)) is None or message.error() is not None:
            pass
        consumer.commit(message=message, asynchronous=False)
    key = OffsetKey(name, OFFSETS, message.partition() or 0)
    with closing(monitor_of(brokers, EARLIEST)) as monitor:
        while key not in monitor.commits:
            monitor.read()
        assert monitor.commits[key].offset == (message.offset() or 0) + 1
    # The coordinator knows the ends of the partitions that it serves.
    for broker in brokers.processes.values():
        assert httpx.get(f"{broker.http_url}/v1/groups/{name}", timeout=60).status_code == 200


def test_an_administrator_sees_it(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[2].kafka_bootstrap})
    listed = admin.list_topics(OFFSETS, timeout=TIMEOUT_S).topics[OFFSETS]
    assert {part.leader for part in listed.partitions.values()} == {1, 2, 3}
    assert len(listed.partitions) == SHARDS


@pytest.mark.long
def test_kafkas_tools_show_the_topic_and_its_records(brokers: Brokers) -> None:
    with kafka_or_skip():
        libs()
    group = new_group(brokers, of=2)
    with at_coordinator(brokers, group) as peer:
        commit(peer, group, 5)
    bootstrap = brokers[1].kafka_bootstrap
    described = run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--topic", OFFSETS),
    ).stdout
    assert f"PartitionCount: {SHARDS}" in described
    for shard, part in enumerate(leaders_of(brokers)):
        assert f"Partition: {shard}\tLeader: {part.leader_id}\tReplicas: {part.leader_id}\t" in described
    offsets = run_tool(
        "org.apache.kafka.tools.GetOffsetShell",
        *("--bootstrap-server", bootstrap, "--topic", OFFSETS, "--time", "latest"),
    ).stdout
    assert len(offsets.split()) == SHARDS
    wanted = {"group": group, "topic": "orders", "partition": 0}
    for silence_ms in SILENCES_MS:
        shown = formatted(bootstrap, "OffsetsMessageFormatter", silence_ms=silence_ms)
        if any(record["key"]["data"] == wanted for record in shown):
            return
    pytest.fail(f"{wanted} was not shown")
