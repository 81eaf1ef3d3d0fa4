"""Groups over HTTP and the binary protocol: membership, ownership, leases; every refusal with its number.

Each test runs through either door; what they share with members of the Kafka
door, and what outlives a kill, comes at the end.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode

from tests.support.group_doors import BinaryDoor, GroupDoor, HttpDoor, Member, RefusedError

DOORS: dict[str, Callable[[BrokerProcess], GroupDoor]] = {"http": HttpDoor, "binary": BinaryDoor}
SHORT_SESSION_MS = 300
LONG_SESSION_MS = 60_000
ENVIRONMENT = {"STELE_GROUP_MIN_SESSION_TIMEOUT_MS": str(SHORT_SESSION_MS)}
PARTITIONS = 4
# The group went on without the member's knowing.
REBALANCED = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.PARTITION_NOT_ASSIGNED, ErrorCode.REBALANCE_IN_PROGRESS}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment=ENVIRONMENT) as broker:
        yield broker


@pytest.fixture(params=sorted(DOORS))
def door(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[GroupDoor]:
    with DOORS[request.param](broker) as door:
        yield door


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = "t" + str(abs(hash(request.node.nodeid)))
    make_topic(broker, name, records=20 * PARTITIONS)
    return name


def make_topic(broker: BrokerProcess, name: str, *, records: int, partitions: int = PARTITIONS) -> None:
    """``records`` of them, as many in each partition; the value of each is its offset."""
    with httpx.Client(base_url=broker.http_url, timeout=60) as client:
        client.put(f"/v1/topics/{name}", json={"partitions": partitions}).raise_for_status()
        lines = "".join(
            f'{{"value":"{offset}","partition":{partition}}}\n'
            for partition in range(partitions)
            for offset in range(records // partitions)
        )
        answer = client.post(
            f"/v1/topics/{name}/records", content=lines, headers={"Content-Type": "application/x-ndjson"}
        )
        assert answer.text.count('"offset"') == records


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def owned_by(door: GroupDoor, group: str, member: Member) -> Member:
    """``member`` as it is by now, the owner of all it is assigned."""
    member = door.heartbeat(group, member)
    for topic, partition in member.assigned:
        door.claim(group, member, topic, partition)
    return member


# ── members ──


def test_members_share_a_topic_evenly_and_a_heartbeat_tells_of_each_new_generation(
    door: GroupDoor, topic: str
) -> None:
    first = door.join(topic, topic)
    assert (first.generation, len(first.assigned)) == (1, 4)
    second = door.join(topic, topic)
    assert (second.generation, len(second.assigned)) == (2, 2)
    first = door.heartbeat(topic, first)
    assert first.generation == 2
    assert first.assigned | second.assigned == {(topic, p) for p in range(PARTITIONS)}
    door.leave(topic, second.member_id)
    first = door.heartbeat(topic, first)
    assert (first.generation, len(first.assigned)) == (3, 4)
    assert refusal(lambda: door.heartbeat(topic, second)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: door.leave(topic, second.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_join_must_bring(door: GroupDoor, topic: str) -> None:
    assert refusal(lambda: door.join(topic, "nothing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: door.join(topic)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: door.join(topic, topic, member_id="who")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: door.join(topic, topic, session_timeout_ms=1)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert refusal(lambda: door.join("g" * 1025, topic)) is ErrorCode.INVALID_GROUP_ID


def test_a_silent_member_is_gone_after_its_session_and_its_partitions_move(
    door: GroupDoor, topic: str
) -> None:
    silent = door.join(topic, topic, session_timeout_ms=SHORT_SESSION_MS)
    other = door.join(topic, topic)
    while len(other.assigned) < PARTITIONS:
        other = door.heartbeat(topic, other)
    assert refusal(lambda: door.heartbeat(topic, silent)) is ErrorCode.UNKNOWN_MEMBER_ID


# ── ownership ──


def test_a_partition_is_claimed_before_it_is_read_or_committed(door: GroupDoor, topic: str) -> None:
    member = door.join(topic, topic)
    assert refusal(lambda: door.read(topic, member, topic, 0, 0)) is ErrorCode.PARTITION_NOT_OWNED
    assert refusal(lambda: door.commit(topic, member, topic, 0, 3)) is ErrorCode.PARTITION_NOT_OWNED
    assert refusal(lambda: door.release(topic, member, topic, 0)) is ErrorCode.PARTITION_NOT_OWNED
    door.claim(topic, member, topic, 0)
    door.claim(topic, member, topic, 0)
    assert door.read(topic, member, topic, 0, 17) == [17, 18, 19]
    assert door.committed(topic, topic, 0) is None
    door.commit(topic, member, topic, 0, 18)
    assert door.committed(topic, topic, 0) == 18
    door.release(topic, member, topic, 0)
    assert refusal(lambda: door.commit(topic, member, topic, 0, 19)) is ErrorCode.PARTITION_NOT_OWNED
    assert door.committed(topic, topic, 0) == 18


def test_nobody_owns_what_is_assigned_to_another_or_does_not_exist(door: GroupDoor, topic: str) -> None:
    first = door.join(topic, topic)
    second = door.join(topic, topic)
    theirs = min(partition for _, partition in second.assigned)
    first = door.heartbeat(topic, first)
    assert refusal(lambda: door.claim(topic, first, topic, theirs)) is ErrorCode.PARTITION_NOT_ASSIGNED
    assert refusal(lambda: door.commit(topic, first, topic, theirs, 1)) is ErrorCode.PARTITION_NOT_ASSIGNED
    assert refusal(lambda: door.read(topic, first, topic, theirs, 0)) is ErrorCode.PARTITION_NOT_ASSIGNED
    assert refusal(lambda: door.claim(topic, first, topic, 99)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: door.claim(topic, first, "nothing", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: door.commit(topic, first, topic, 0, -1)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: door.commit(topic, first, topic, 0, 21)) is ErrorCode.INVALID_REQUEST


def test_an_owner_keeps_over_a_rebalance_only_what_is_still_assigned_to_it(
    door: GroupDoor, topic: str
) -> None:
    stale = owned_by(door, topic, door.join(topic, topic))
    other = door.join(topic, topic)
    # It has not heard of it yet: whoever it was in the last generation counts no more.
    for partition in range(PARTITIONS):
        for call in (
            lambda p=partition: door.read(topic, stale, topic, p, 0),
            lambda p=partition: door.commit(topic, stale, topic, p, 1),
            lambda p=partition: door.claim(topic, stale, topic, p),
        ):
            assert refusal(call) is ErrorCode.ILLEGAL_GENERATION
    member = door.heartbeat(topic, stale)
    for _, kept in member.assigned:
        door.commit(topic, member, topic, kept, 1)
    for _, lost in other.assigned:
        assert refusal(lambda p=lost: door.commit(topic, member, topic, p, 1)) is (
            ErrorCode.PARTITION_NOT_ASSIGNED
        )
        door.claim(topic, other, topic, lost)


def test_a_member_that_was_expelled_can_neither_read_nor_commit_when_it_wakes_up(
    door: GroupDoor, topic: str
) -> None:
    sleeper = owned_by(door, topic, door.join(topic, topic, session_timeout_ms=SHORT_SESSION_MS))
    other = door.join(topic, topic)
    while len(other.assigned) < PARTITIONS:
        other = door.heartbeat(topic, other)
    for call in (
        lambda: door.read(topic, sleeper, topic, 0, 0),
        lambda: door.commit(topic, sleeper, topic, 0, 1),
        lambda: door.claim(topic, sleeper, topic, 0),
        lambda: door.release(topic, sleeper, topic, 0),
    ):
        assert refusal(call) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_read_that_waits_is_refused_when_its_partition_goes_to_another(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    reader = owned_by(door, topic, door.join(topic, topic))
    outcome: list[ErrorCode] = []
    begun = threading.Event()

    def read() -> None:
        with HttpDoor(broker) as mine:
            begun.set()
            for _, partition in sorted(reader.assigned, reverse=True):
                outcome.append(
                    refusal(lambda p=partition: mine.read(topic, reader, topic, p, 20, wait_ms=60_000))
                )

    waiting = threading.Thread(target=read)
    waiting.start()
    assert begun.wait(60)
    door.join(topic, topic)
    # What ends the wait of a read that began before the rebalance; one that begins later is refused at once.
    make_more(broker, topic)
    waiting.join(60)
    assert outcome == [ErrorCode.ILLEGAL_GENERATION] * PARTITIONS


def make_more(broker: BrokerProcess, topic: str) -> None:
    records = [{"value": "more", "partition": partition} for partition in range(PARTITIONS)]
    httpx.post(f"{broker.http_url}/v1/topics/{topic}/records", json={"records": records}).raise_for_status()


# ── polls and leases ──


def test_a_poll_leases_records_and_an_ack_commits_them(door: GroupDoor, topic: str) -> None:
    seen: list[tuple[int, int]] = []
    while True:
        polled = door.poll(topic, topic, max_records=7)
        if polled.lease is None:
            break
        assert 0 < len(polled.records) <= 7
        assert all(int(value or b"") == offset for _, _, offset, value in polled.records)
        seen += [(partition, offset) for _, partition, offset, _ in polled.records]
        door.ack(topic, polled.lease)
        door.ack(topic, polled.lease)
    assert sorted(seen) == [(p, offset) for p in range(PARTITIONS) for offset in range(20)]
    assert [door.committed(topic, topic, p) for p in range(PARTITIONS)] == [20] * PARTITIONS


def test_what_is_leased_is_given_to_nobody_else_until_it_is_given_back(door: GroupDoor, topic: str) -> None:
    first = door.poll(topic, topic, max_records=1000)
    assert len(first.records) == 20 * PARTITIONS
    assert door.poll(topic, topic).lease is None
    assert first.lease is not None
    door.nack(topic, first.lease)
    again = door.poll(topic, topic, max_records=1000)
    assert sorted(again.records) == sorted(first.records)
    assert set(again.deliveries.values()) == {2}
    assert refusal(lambda: door.ack(topic, str(first.lease))) is ErrorCode.LEASE_FENCED
    assert again.lease is not None
    door.ack(topic, again.lease)


def test_a_poll_that_waits_is_woken_by_a_lease_that_is_given_back(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    first = door.poll(topic, topic, max_records=1000)
    results: list[int] = []

    def wait() -> None:
        with HttpDoor(broker) as mine:
            results.append(len(mine.poll(topic, topic, max_records=1000, wait_ms=60_000).records))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert first.lease is not None
    door.nack(topic, first.lease)
    waiting.join(60)
    assert results == [20 * PARTITIONS]


def test_a_poll_that_waits_is_woken_by_an_append(broker: BrokerProcess, door: GroupDoor, topic: str) -> None:
    first = door.poll(topic, topic, max_records=1000)
    assert first.lease is not None
    door.ack(topic, first.lease)
    results: list[int] = []

    def wait() -> None:
        with DOORS["binary"](broker) as mine:
            results.append(len(mine.poll(topic, topic, wait_ms=60_000).records))

    waiting = threading.Thread(target=wait)
    waiting.start()
    make_more(broker, topic)
    waiting.join(60)
    assert results[0] >= 1


def test_a_lease_that_runs_out_is_given_to_the_next_poll_and_is_fenced(door: GroupDoor, topic: str) -> None:
    slow = door.poll(topic, topic, max_records=1000, lease_ms=100)
    quick = door.poll(topic, topic, max_records=1000, wait_ms=30_000)
    assert sorted(quick.records) == sorted(slow.records)
    assert set(quick.deliveries.values()) == {2}
    assert refusal(lambda: door.ack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED
    assert refusal(lambda: door.nack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED
    assert refusal(lambda: door.extend(topic, str(slow.lease), 1000)) is ErrorCode.LEASE_FENCED
    assert quick.lease is not None
    door.ack(topic, quick.lease)
    assert refusal(lambda: door.ack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED


def test_a_lease_that_ran_out_is_good_as_long_as_nobody_was_given_its_records(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    polled = door.poll(topic, topic, max_records=1000, lease_ms=100)
    until(lambda: not leases(broker, topic))
    assert polled.lease is not None
    door.ack(topic, polled.lease)
    assert door.committed(topic, topic, 0) == 20


def test_a_lease_that_is_extended_holds(broker: BrokerProcess, door: GroupDoor, topic: str) -> None:
    polled = door.poll(topic, topic, max_records=1000, lease_ms=1000)
    assert polled.lease is not None
    (before,) = leases(broker, topic)
    door.extend(topic, polled.lease, 60_000)
    (after,) = leases(broker, topic)
    assert after - before > 30_000
    assert door.poll(topic, topic).lease is None


def leases(broker: BrokerProcess, group: str) -> list[int]:
    """When those in force end."""
    answer = httpx.get(f"{broker.http_url}/v1/groups/{group}").raise_for_status().json()
    return [lease["expires_at"] for lease in answer["leases"]]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


def test_a_poll_whose_answer_was_lost_is_asked_again(door: GroupDoor, topic: str) -> None:
    first = door.poll(topic, topic, max_records=5, poll_id="mine")
    assert door.poll(topic, topic, max_records=5, poll_id="mine") == first
    other = door.poll(topic, topic, max_records=5, poll_id="yours")
    assert other.lease != first.lease
    assert {(p, o) for _, p, o, _ in other.records}.isdisjoint({(p, o) for _, p, o, _ in first.records})
    assert first.lease is not None
    door.ack(topic, first.lease)
    assert door.poll(topic, topic, max_records=5, poll_id="mine").lease != first.lease


@pytest.mark.parametrize("kind", sorted(DOORS))
def test_a_poll_asked_again_brings_what_its_lease_holds_however_much_came_meanwhile(kind: str) -> None:
    with run_broker(environment={"STELE_FETCH_BYTES_MAX": "65536"}) as broker, DOORS[kind](broker) as door:
        make_topic(broker, "crowded", records=20 * PARTITIONS)
        with Client(broker.binary_url) as client:
            for partition in range(PARTITIONS):
                client.produce("crowded", b"x" * 8000, partition=partition)
            first = door.poll("crowded", "crowded", max_bytes=65536, poll_id="mine")
            assert len(first.records) == 21 * PARTITIONS
            for _ in range(70):
                client.produce("crowded", b"x" * 1000, partition=first.records[0][1])
        assert door.poll("crowded", "crowded", max_bytes=65536, poll_id="mine") == first


def test_a_group_may_begin_at_the_end_and_then_misses_nothing(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    assert door.poll(topic, topic, **{"from": "latest"}).lease is None
    make_more(broker, topic)
    seen: set[tuple[int, int]] = set()
    while len(seen) < PARTITIONS:
        polled = door.poll(topic, topic, wait_ms=30_000, **{"from": "latest"})
        seen |= {(partition, offset) for _, partition, offset, _ in polled.records}
        assert polled.lease is not None
        door.ack(topic, polled.lease)
    assert seen == {(partition, 20) for partition in range(PARTITIONS)}


def test_records_that_were_deleted_before_they_were_read_are_reported(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    polled = door.poll(topic, topic, max_records=5)
    assert polled.lease is not None
    door.ack(topic, polled.lease)
    ((_, partition, _, _), *_) = polled.records
    delete_records(broker, topic, partition, 12)
    skipped: list[tuple[str, int, int, int]] = []
    while True:
        polled = door.poll(topic, topic, max_records=5)
        skipped += polled.skipped
        if polled.lease is None:
            break
        door.ack(topic, polled.lease)
    assert (topic, partition, 5, 12) in skipped


def delete_records(broker: BrokerProcess, topic: str, partition: int, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    asked = [TopicPartition(topic, partition, before_offset)]
    futures = cast("dict[TopicPartition, Any]", admin.delete_records(asked))
    for future in futures.values():
        future.result()


def test_leases_that_are_none_are_refused(door: GroupDoor, topic: str) -> None:
    polled = door.poll(topic, topic, max_records=5)
    for lease in ("", "nonsense", "é", "W10=", "A" * 600_000):
        assert refusal(lambda one=lease: door.ack(topic, one)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: door.ack("another", str(polled.lease))) is ErrorCode.INVALID_REQUEST
    for options in ({"max_records": 0}, {"lease_ms": 1}, {"wait_ms": -1}, {"from": "noon"}, {"max_bytes": 0}):
        assert refusal(lambda o=options: door.poll(topic, topic, **o)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: door.poll(topic, "nothing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: door.poll(topic)) is ErrorCode.INVALID_REQUEST


# ── doors together ──


def test_polls_and_members_of_other_doors_share_one_group(
    broker: BrokerProcess, door: GroupDoor, topic: str
) -> None:
    held = door.poll(topic, topic, max_records=1000)
    assert held.lease is not None
    member = door.join(topic, topic)
    assert len(member.assigned) == PARTITIONS // 2
    # Half of what the lease holds was assigned to the member: nobody may commit it by the lease.
    assert refusal(lambda: door.ack(topic, str(held.lease))) is ErrorCode.LEASE_FENCED
    polled = door.poll(topic, topic, max_records=1000)
    assert {(t, p) for t, p, _, _ in polled.records} == {
        (topic, p) for p in range(PARTITIONS)
    } - member.assigned


@pytest.mark.parametrize("kind", ["http", "binary", "all"])
def test_members_come_and_go_while_records_flow_and_each_is_handled_under_one_owner(
    broker: BrokerProcess, kind: str
) -> None:
    """Two members, then three, then one; and in the end a Kafka consumer goes on where they stopped."""
    topic, per_partition = f"flow-{kind}", 25_000 if kind == "all" else 5_000
    make_topic(broker, topic, records=PARTITIONS * per_partition)
    flow = Flow(broker, topic, per_partition)
    doors = ["http", "binary"] if kind == "all" else [kind, kind]
    first, second = flow.start(doors[0]), flow.start(doors[1])
    flow.reach(0.2)
    third = flow.start(doors[0])
    flow.reach(0.5)
    flow.stop(first)
    # It does not leave: its partitions move when its session ends.
    flow.kill(second)
    flow.reach(1.0)
    flow.stop(third)
    flow.check()
    assert read_with_kafka(broker, topic, group=topic, more=lambda: make_more(broker, topic)) == {
        (partition, per_partition) for partition in range(PARTITIONS)
    }


def read_with_kafka(
    broker: BrokerProcess, topic: str, *, group: str, more: Callable[[], None]
) -> set[tuple[int, int]]:
    """What a Kafka consumer of the group is given of ``more``: one record of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
        }
    )
    try:
        consumer.subscribe([topic])
        more()
        seen: set[tuple[int, int]] = set()
        while len(seen) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            seen.add((partition, offset))
        return seen
    finally:
        consumer.close()


class Flow:
    """Members in threads that read as owners and commit, with a ledger of what each committed."""

    def __init__(self, broker: BrokerProcess, topic: str, per_partition: int) -> None:
        self._broker = broker
        self._topic = topic
        self._per_partition = per_partition
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._owners: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        self._committed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._failures: list[BaseException] = []

    def start(self, door: str) -> tuple[threading.Thread, threading.Event, threading.Event]:
        leave, die = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._run, args=(door, leave, die))
        thread.start()
        return thread, leave, die

    def stop(self, member: tuple[threading.Thread, threading.Event, threading.Event]) -> None:
        member[1].set()
        member[0].join(60)

    def kill(self, member: tuple[threading.Thread, threading.Event, threading.Event]) -> None:
        member[2].set()
        member[0].join(60)

    def reach(self, share: float) -> None:
        wanted = int(share * PARTITIONS * self._per_partition)
        with self._progress:
            assert self._progress.wait_for(lambda: self._failures or self._done() >= wanted, 120)
            assert not self._failures, self._failures

    def _done(self) -> int:
        return sum(end - start for ranges in self._committed.values() for start, end in ranges)

    def _run(self, kind: str, leave: threading.Event, die: threading.Event) -> None:
        try:
            with DOORS[kind](self._broker) as door:
                self._work(door, leave, die)
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            with self._progress:
                self._failures.append(error)
                self._progress.notify_all()

    def _work(self, door: GroupDoor, leave: threading.Event, die: threading.Event) -> None:
        group = self._topic
        member = door.join(group, self._topic, session_timeout_ms=LONG_SESSION_MS)
        generation, claimed = -1, set[int]()
        while not leave.is_set():
            member = door.heartbeat(group, member)
            if member.generation != generation:
                generation, claimed = member.generation, set[int]()
            for _, partition in sorted(member.assigned):
                if leave.is_set() or die.is_set():
                    break
                try:
                    if partition not in claimed:
                        door.claim(group, member, self._topic, partition)
                        claimed.add(partition)
                        with self._lock:
                            self._owners[generation, partition].add(member.member_id)
                    self._handle(door, member, partition)
                except RefusedError as refused:
                    if refused.code not in REBALANCED:
                        raise
                    break
            if die.is_set():
                # The session of a member that dies is short; those of the others outlast a busy machine.
                door.join(group, self._topic, member_id=member.member_id, session_timeout_ms=SHORT_SESSION_MS)
                return
        door.leave(group, member.member_id)

    def _handle(self, door: GroupDoor, member: Member, partition: int) -> None:
        start = door.committed(self._topic, self._topic, partition) or 0
        offsets = door.read(self._topic, member, self._topic, partition, start)[:500]
        if not offsets:
            return
        assert offsets == list(range(start, start + len(offsets)))
        door.commit(self._topic, member, self._topic, partition, offsets[-1] + 1)
        with self._progress:
            self._committed[partition].append((start, offsets[-1] + 1))
            self._progress.notify_all()

    def check(self) -> None:
        assert not self._failures, self._failures
        assert all(len(members) == 1 for members in self._owners.values())
        for partition in range(PARTITIONS):
            ranges = sorted(self._committed[partition])
            assert ranges[0][0] == 0
            assert ranges[-1][1] == self._per_partition
            # Nothing that was committed was handled again, and nothing left out.
            assert all(before[1] == after[0] for before, after in pairwise(ranges))


# ── what outlives a kill ──


@pytest.mark.parametrize("kind", sorted(DOORS))
def test_members_owners_offsets_and_leases_outlive_a_kill_of_the_broker(tmp_path: Path, kind: str) -> None:
    with run_broker(tmp_path / "data", environment=ENVIRONMENT) as broker:
        make_topic(broker, "orders", records=20 * PARTITIONS)
        make_topic(broker, "bills", records=20 * PARTITIONS)
        with DOORS[kind](broker) as door:
            member = owned_by(door, "members", door.join("members", "orders"))
            door.commit("members", member, "orders", 1, 7)
            polled = door.poll("polls", "bills", max_records=30)
            failed = door.poll("polls", "bills", max_records=1000)
            assert polled.lease is not None
            assert failed.lease is not None
            door.nack("polls", failed.lease)
        broker.kill()
        broker.restart()
        with DOORS[kind](broker) as door:
            assert door.heartbeat("members", member) == member
            assert door.committed("members", "orders", 1) == 7
            door.commit("members", member, "orders", 1, 8)
            # The lease is of before the kill: nobody was given its records, so it still counts, once.
            door.ack("polls", polled.lease)
            again = door.poll("polls", "bills", max_records=1000)
            assert {(p, o) for _, p, o, _ in again.records}.isdisjoint(
                {(p, o) for _, p, o, _ in polled.records}
            )
            assert 2 in again.deliveries.values()
            door.ack("polls", polled.lease)
