"""Members of share groups with several brokers: records through any of them, each once, whichever is killed."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.testing import BrokerProcess
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

from load.apache_kafka import libs, run_tool
from load.postgres_server import PostgresServer
from tests.conformance.clients import CLIENTS, Missing
from tests.conformance.driver import Driver, Refused
from tests.support.apache_kafka import kafka_or_skip
from tests.support.brokers import Brokers, await_no_quotas, run_brokers
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer, create_topic, put, records_in
from tests.support.postgres import postgres_bin
from tests.support.s3_servers import store_settings
from tests.support.secured_brokers import ADA, ROOT, run_secured_brokers
from tests.support.share_groups import ACCEPT, REJECT, RELEASE, RENEW, Member, configure, joined, offsets_of

pytestmark = pytest.mark.long

PATIENCE_MS = 60_000
# Locks last for twice as long, so within this time no record is free because its lock has ended.
LOCKED_MS = 30_000
_names = count(1)


@pytest.fixture(scope="module", params=["inline", pytest.param("seaweedfs", marks=pytest.mark.long)])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with run_brokers_on(request.param, tmp_path_factory.mktemp("brokers")) as running:
        yield running


@contextmanager
def run_brokers_on(store: str, path: Path) -> Generator[Brokers]:
    """Run three brokers with a PostgreSQL server and a store of their own."""
    with ExitStack() as stack:
        # A database belongs to one store.
        server = stack.enter_context(PostgresServer(postgres_bin(), fsync="off", wal_level="replica"))
        environment = WITHOUT_RETENTION | stack.enter_context(store_settings(store))
        running = stack.enter_context(run_brokers(path, server.dsn, environment=environment))
        running.settle()
        yield running


class Group:
    """A group that begins at the first record of a topic with two partitions, and a connection to each broker.

    ``near`` is the broker that coordinates it, ``far`` and ``third`` are the others.
    """

    def __init__(self, brokers: Brokers, stack: ExitStack) -> None:
        number = next(_names)
        self.name, self.topic = f"share-group-{number}", f"shared-{number}"
        coordinator = brokers.coordinator(self.name)
        others = [one for one in brokers.processes if one != coordinator]
        self.numbers = [coordinator, *others]
        self.brokers = [brokers[one] for one in self.numbers]
        self.near, self.far, self.third = (stack.enter_context(KafkaPeer(one)) for one in self.brokers)
        configure(
            self.far,
            self.name,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=str(2 * LOCKED_MS),
        )
        self.topic_id = create_topic(self.far, self.topic, 2)

    def member(self, peer: KafkaPeer, *partitions: int) -> Member:
        """A member that has joined, with a session through ``peer`` for ``partitions``, by default both."""
        member = joined(self.near, self.name, self.topic)
        # Whatever it is assigned: members may read any partition.
        member.partitions = [(self.topic_id, number) for number in partitions or (0, 1)]
        return through(member, peer)


def through(member: Member, peer: KafkaPeer) -> Member:
    """The same member, with a session over another connection."""
    other = copy(member)
    other.peer, other.session_epoch = peer, 0
    return other


@pytest.fixture
def group(brokers: Brokers) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(brokers, stack)


def post(broker: BrokerProcess, path: str, document: object) -> Any:
    answer = httpx.post(f"{broker.http_url}/v1/groups{path}", json=document, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_member_takes_records_through_any_broker(group: Group) -> None:
    put(group.near, group.topic, b"a", b"b", b"c")
    put(group.near, group.topic, b"d", b"e", partition=1)
    first = group.member(group.far, 0)
    second, both = through(first, group.third), group.member(group.near)
    second.partitions = [(group.topic_id, 1)]
    both.fetch(max_records=0)
    answer = first.peer.call(first.fetch_request(), 2)
    assert answer.acquisition_lock_timeout_ms == 2 * LOCKED_MS
    ((part,),) = [one.partitions for one in answer.responses]
    assert records_in(part.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert first.took(answer) == {0: [(0, 2, 1)]}
    assert second.fetch() == {1: [(0, 1, 1)]}
    assert both.fetch() == {}, "they are locked"
    assert first.acknowledge({0: [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)]}) == {0: E.NONE}
    assert both.acknowledge({0: [(1, 1, ACCEPT)]}) == {0: E.INVALID_RECORD_STATE}
    assert first.fetch() == {0: [(1, 1, 2)]}
    assert first.acknowledge({0: [(1, 1, RENEW)]}, is_renew_ack=True) == {0: E.NONE}
    # The session with one broker ends; the member keeps what it holds through the other.
    assert second.acknowledge({}, share_session_epoch=-1) == {}
    assert both.fetch() == {1: [(0, 1, 2)]}
    # The acknowledgement is in the fetch.
    assert first.fetch({0: [(1, 1, ACCEPT)]}) == {}
    assert both.acknowledge({1: [(0, 1, ACCEPT)]}) == {1: E.NONE}
    assert offsets_of(group.near, group.name) == {0: (3, 0), 1: (2, 0)}


def test_each_request_of_a_session_has_the_next_epoch(group: Group) -> None:
    member = group.member(group.far)
    unknown = group.far.call(member.fetch_request(share_session_epoch=1), 2)
    assert unknown.error_code == E.SHARE_SESSION_NOT_FOUND
    member.fetch()
    wrong = group.far.call(member.fetch_request(share_session_epoch=7), 2)
    assert wrong.error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert through(member, group.third).fetch() == {}, "a session of its own"
    assert member.fetch() == {}


def test_requests_that_a_client_sends_in_a_row_arrive_in_their_order(group: Group) -> None:
    member = group.member(group.far)
    group.far.post_all([(member.fetch_request(share_session_epoch=epoch), 2) for epoch in range(20)])
    assert [group.far.next_answer()[1].error_code for _ in range(20)] == [E.NONE] * 20


def test_an_append_ends_the_wait_at_another_broker(group: Group) -> None:
    member = group.member(group.far)
    member.fetch()
    group.far.post(member.fetch_request(max_wait_ms=PATIENCE_MS), 2)
    put(group.third, group.topic, b"late", partition=1)
    assert member.took(group.far.next_answer()[1]) == {1: [(0, 0, 1)]}


def test_a_connection_that_ends_gives_its_records_back_and_takes_no_more(group: Group) -> None:
    put(group.near, group.topic, b"a", b"b")
    waiting = group.member(group.third)
    waiting.fetch(max_records=0)
    with KafkaPeer(group.brokers[1]) as doomed:
        holder = group.member(doomed)
        assert holder.fetch() == {0: [(0, 1, 1)]}
        doomed.post(holder.fetch_request(max_wait_ms=PATIENCE_MS), 2)
        group.third.post(waiting.fetch_request(max_wait_ms=LOCKED_MS), 2)
        # Reset, because a client that only ends its side may still want the answer.
        doomed.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert waiting.took(group.third.next_answer()[1]) == {0: [(0, 1, 2)]}
    put(group.near, group.topic, b"c")
    # The read that waited has ended with its client: it would have had this record first.
    assert waiting.fetch(max_wait_ms=PATIENCE_MS) == {0: [(2, 2, 1)]}


def test_what_a_member_acknowledges_at_another_broker_counts_also_after_its_leave(group: Group) -> None:
    """Clients that close send the leave to the coordinator and the rest to where they read, at the same time."""
    put(group.near, group.topic, b"a", b"b", b"c")
    member, waiting = group.member(group.far, 0), group.member(group.third)
    assert member.fetch() == {0: [(0, 2, 1)]}
    left = copy(member)
    left.peer = group.near
    assert left.beat(member_epoch=-1).error_code == E.NONE
    waiting.fetch(max_records=0)
    assert waiting.fetch() == {}, "the leave gives nothing back"
    assert member.acknowledge({0: [(0, 1, ACCEPT)]}, share_session_epoch=-1) == {0: E.NONE}
    # The rest is free with the end of the session.
    assert waiting.fetch(max_wait_ms=LOCKED_MS) == {0: [(2, 2, 2)]}


def test_polls_over_http_share_the_records(group: Group) -> None:
    put(group.near, group.topic, *[b"x"] * 6)
    member = group.member(group.far, 0)
    assert member.fetch(max_records=2) == {0: [(0, 1, 1)]}
    body = {"topics": [group.topic], "max_records": 2, "lock": "mine"}
    polled = post(group.brokers[2], f"/{group.name}/share/poll", body)
    assert [one["offset"] for one in polled["records"]] == [2, 3]
    assert member.fetch() == {0: [(4, 5, 1)]}
    assert member.acknowledge({0: [(0, 1, ACCEPT), (4, 5, RELEASE)]}) == {0: E.NONE}
    place = {"topic": group.topic, "partition": 0}
    acked = {"lock": "mine", "records": [place | {"offset": 2}]}
    post(group.brokers[0], f"/{group.name}/share/ack", acked)
    post(group.brokers[2], f"/{group.name}/share/release", {"lock": "mine"})
    assert member.fetch() == {0: [(3, 5, 2)]}
    assert offsets_of(group.near, group.name)[0] == (3, 3)


def test_offsets_are_administered_at_the_coordinator(group: Group) -> None:
    put(group.near, group.topic, b"a", b"b")
    member = group.member(group.far)
    assert member.fetch() == {0: [(0, 1, 1)]}
    assert member.fetch({0: [(0, 1, ACCEPT)]}, share_session_epoch=-1) == {}
    through(member, group.near).beat(member_epoch=-1)
    describing = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group.name, topics=None)]
    )
    altering = AlterShareGroupOffsetsRequest(
        group_id=group.name,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=group.topic,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)],
            )
        ],
    )
    deleting = DeleteShareGroupOffsetsRequest(
        group_id=group.name, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=group.topic)]
    )
    # Kafka's clients look for the coordinator then.
    assert group.far.call(describing, 1).groups[0].error_code == E.NOT_COORDINATOR
    for request in (altering, deleting):
        assert group.far.call(request, 0).error_code == E.NOT_COORDINATOR
    assert offsets_of(group.near, group.name) == {0: (2, 0), 1: (0, 0)}
    altered = group.near.call(altering, 0)
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (E.NONE, E.NONE)
    assert offsets_of(group.near, group.name)[0] == (1, 1)
    assert group.near.call(deleting, 0).responses[0].error_code == E.NONE
    assert offsets_of(group.near, group.name) == {}


def test_a_quota_is_that_of_the_broker_that_the_client_is_connected_to(group: Group) -> None:
    for _ in range(2):
        put(group.near, group.topic, b"x" * 20_000)
    member = group.member(group.far)
    there, entity = f"{group.brokers[1].http_url}/v1/quotas", {"user": None}
    limit = {"entity": entity, "values": {"consumer_byte_rate": 1}}
    assert httpx.patch(there, json=limit).status_code == 200
    try:
        # A read brings at least one batch, which is more than the quota allows.
        answer = group.far.call(member.fetch_request(), 2)
        assert member.took(answer) == {0: [(0, 0, 1)]}
        assert answer.throttle_time_ms > 0
        # Over another connection the client gets no records either.
        with KafkaPeer(group.brokers[1]) as peer:
            more = group.member(peer)
            answer = peer.call(more.fetch_request(max_wait_ms=PATIENCE_MS), 2)
        assert more.took(answer) == {}
        assert answer.throttle_time_ms > 0
        # The delay of the connection ends with the quota.
        group.far.post(member.fetch_request({0: [(0, 0, ACCEPT)]}), 2)
        own = through(member, group.near)
        own.partitions = []
        while (direct := group.near.call(own.fetch_request(), 2)).error_code:
            own.session_epoch = 0
        assert direct.throttle_time_ms == 0, "the coordinator has charged nothing"
    finally:
        removed = {"entity": entity, "values": {"consumer_byte_rate": None}}
        assert httpx.patch(there, json=removed).status_code == 200
        await_no_quotas(group.brokers)
    ((_, ((first, _, deliveries), *_)),) = member.took(group.far.next_answer()[1]).items()
    assert (first, deliveries) == (1, 1)


def taken_again(member: Member, group: Group, peer: KafkaPeer) -> dict[int, list[tuple[int, int, int]]]:
    """Begin a session, and repeat that until a coordinator answers."""
    again = through(member, peer)
    while (answer := peer.call(again.fetch_request(max_wait_ms=PATIENCE_MS), 2)).error_code:
        assert answer.error_code == E.SHARE_SESSION_NOT_FOUND, answer
    return again.took(answer)


def test_nothing_is_lost_or_comes_again_when_the_coordinator_is_killed(
    brokers: Brokers, group: Group
) -> None:
    put(group.far, group.topic, *[b"x"] * 6)
    member = group.member(group.far)
    assert member.fetch() == {0: [(0, 5, 1)]}
    assert member.acknowledge({0: [(0, 1, ACCEPT), (3, 3, ACCEPT), (4, 4, RELEASE)]}) == {0: E.NONE}
    brokers[group.numbers[0]].kill()
    # A request in the session of a coordinator that is gone ends it.
    answer = group.far.call(member.fetch_request({0: [(2, 2, ACCEPT)]}, max_wait_ms=PATIENCE_MS), 2)
    assert answer.error_code == E.SHARE_SESSION_NOT_FOUND
    # A stored delivery counts, and locks end with their coordinator.
    assert taken_again(member, group, group.far) == {0: [(2, 2, 1), (4, 4, 2), (5, 5, 1)]}
    coordinator = brokers[brokers.coordinator(group.name)]
    with KafkaPeer(coordinator) as peer:
        unknown = through(member, peer).beat(subscribed_topic_names=None)
        assert unknown.error_code == E.UNKNOWN_MEMBER_ID
        assert offsets_of(peer, group.name)[0] == (2, 3)
    brokers[group.numbers[0]].start()
    brokers.settle()


@pytest.mark.long
def test_nothing_is_lost_or_comes_again_when_the_broker_that_was_read_from_is_killed(
    brokers: Brokers, group: Group
) -> None:
    put(group.near, group.topic, *[b"x"] * 4)
    waiting = group.member(group.third)
    waiting.fetch(max_records=0)
    member = group.member(group.far)
    assert member.fetch() == {0: [(0, 3, 1)]}
    assert member.acknowledge({0: [(0, 1, ACCEPT)]}) == {0: E.NONE}
    brokers[group.numbers[1]].kill()
    # The records are free as soon as the broker counts as dead, long before their locks end.
    group.third.post(waiting.fetch_request(max_wait_ms=LOCKED_MS), 2)
    assert waiting.took(group.third.next_answer()[1]) == {0: [(2, 3, 2)]}
    brokers[group.numbers[1]].start()
    brokers.settle()


Place = tuple[int, int]


class Consumers:
    """Two of Java's share consumers, and what they were told."""

    def __init__(self, bootstrap: str, group: str, topic: str, stack: ExitStack) -> None:
        java = next(client for client in CLIENTS if client.name == "java")
        try:
            java.install()
        except Missing as missing:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
        self.topic = topic
        self.drivers = [Driver(java.command, bootstrap) for _ in range(2)]
        for driver in self.drivers:
            stack.callback(driver.close)
            driver.call("share", member="m", group=group, topics=[topic])
        self.taken: set[Place] = set()
        self.acknowledged: set[Place] = set()

    def take(self, driver: Driver) -> list[Place]:
        records = driver.call("take", member="m", timeout_ms=500)["records"]
        places = [(record["partition"], record["offset"]) for record in records]
        assert self.acknowledged.isdisjoint(places), "what was acknowledged came again"
        self.taken.update(places)
        return places

    def accept(self, driver: Driver, places: list[Place]) -> None:
        outcomes = [[self.topic, partition, offset, "accept"] for partition, offset in places]
        try:
            driver.call("settle", member="m", outcomes=outcomes)
        except Refused:
            # Perhaps it took effect: only what is told to have taken effect must not come again.
            return
        self.acknowledged.update(places)

    def take_and_accept(self) -> None:
        for driver in self.drivers:
            self.accept(driver, self.take(driver))


@pytest.mark.long
@pytest.mark.parametrize("store", ["inline", "seaweedfs"])
def test_javas_consumers_get_every_record_whichever_broker_is_killed(tmp_path: Path, store: str) -> None:
    partitions, per_partition = 6, 20
    with ExitStack() as stack:
        brokers = stack.enter_context(run_brokers_on(store, tmp_path))
        with KafkaPeer(brokers[1]) as peer:
            create_topic(peer, "orders", partitions)
            configure(peer, "packers", share_auto_offset_reset="earliest")
        consumers = Consumers(brokers.kafka_bootstrap, "packers", "orders", stack)
        written = 0
        for kills_coordinator in (True, False, True):
            coordinator = brokers.coordinator("packers")
            with KafkaPeer(brokers[coordinator]) as peer:
                for partition in range(partitions):
                    put(peer, "orders", *[b"x"] * per_partition, partition=partition)
            written += per_partition
            first = consumers.drivers[0]
            while not (held := consumers.take(first)):
                pass
            others = [number for number in brokers.processes if number != coordinator]
            victim = coordinator if kills_coordinator else others[0]
            brokers[victim].kill()
            consumers.accept(first, held)
            everything = {(p, offset) for p in range(partitions) for offset in range(written)}
            while consumers.taken != everything or lag_of(brokers, "packers"):
                consumers.take_and_accept()
            brokers[victim].start()
            brokers.settle()
        assert len(consumers.acknowledged) > len(consumers.taken) / 2
        for driver in consumers.drivers:
            assert driver.call("take", member="m", timeout_ms=500)["records"] == []
            driver.call("unshare", member="m")


@pytest.mark.long
def test_kafkas_tool_shows_resets_and_deletes_a_group_of_any_broker(group: Group) -> None:
    with kafka_or_skip():
        libs()
    put(group.near, group.topic, b"a", b"b", b"c")
    member = group.member(group.far, 0)
    assert member.fetch() == {0: [(0, 2, 1)]}
    assert member.fetch({0: [(0, 2, ACCEPT)]}, share_session_epoch=-1) == {}
    assert not through(member, group.near).beat(member_epoch=-1).error_code

    def tool(*arguments: str) -> str:
        # It is told of one broker, which does not coordinate the group.
        at = ("--bootstrap-server", group.brokers[1].kafka_bootstrap, "--group", group.name)
        done = run_tool("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *at, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    shown = [line.split() for line in tool("--describe").splitlines()]
    assert [group.name, group.topic, "0", "3", "0"] in shown
    tool("--reset-offsets", "--topic", group.topic, "--to-earliest", "--execute")
    assert offsets_of(group.near, group.name)[0] == (0, 3)
    tool("--delete-offsets", "--topic", group.topic)
    assert offsets_of(group.near, group.name) == {}
    tool("--delete")
    assert "GroupIdNotFoundException" in tool("--describe")


def lag_of(brokers: Brokers, group: str) -> int:
    """Return how many records are not finished; more than none while no broker can tell."""
    for broker in brokers.running().values():
        with KafkaPeer(broker) as peer:
            described = peer.call(
                DescribeShareGroupOffsetsRequest(
                    groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
                ),
                1,
            ).groups[0]
        if not described.error_code:
            return sum(one.lag for topic in described.topics for one in topic.partitions)
    return 1


def test_the_rights_of_the_client_count(tmp_path: Path, own_server: PostgresServer) -> None:
    with run_secured_brokers(tmp_path, own_server) as brokers:
        coordinator = brokers.coordinator("g")
        near, far = brokers.peer(coordinator, ROOT), brokers.peer(3 - coordinator, ADA)
        create_topic(near, "secret")
        configure(near, "g", share_auto_offset_reset="earliest")
        put(near, "secret", b"x")
        member = through(joined(near, "g", "secret"), far)
        refused = far.call(member.fetch_request(), 2)
        assert (refused.error_code, refused.responses) == (E.GROUP_AUTHORIZATION_FAILED, [])
        brokers.allow(coordinator, "READ", "GROUP", "g")
        (topic,) = far.call(member.fetch_request(), 2).responses
        assert topic.partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
        brokers.allow(coordinator, "READ", "TOPIC", "secret")
        member.session_epoch = 0
        assert member.fetch() == {0: [(0, 0, 1)]}
        assert member.acknowledge({0: [(0, 0, ACCEPT)]}) == {0: E.NONE}
