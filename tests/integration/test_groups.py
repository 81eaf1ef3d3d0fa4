"""Groups over HTTP and the binary protocol: membership, ownership, leases; every refusal with its number.

Each test runs over either protocol; what they share with members of the Kafka
listener, and what outlives a kill, comes at the end.
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

from tests.support.group_protocols import BinaryProtocol, GroupProtocol, HttpProtocol, Member, RefusedError
from tests.support.variants import long_but

LISTENERS: dict[str, Callable[[BrokerProcess], GroupProtocol]] = {
    "http": HttpProtocol,
    "binary": BinaryProtocol,
}
SHORT_SESSION_MS = 300
LONG_SESSION_MS = 60_000
ENVIRONMENT = {"STELE_GROUP_MIN_SESSION_TIMEOUT_MS": str(SHORT_SESSION_MS)}
PARTITIONS = 4
# The group went on without the member's knowing.
REBALANCED = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.PARTITION_NOT_ASSIGNED, ErrorCode.REBALANCE_IN_PROGRESS}


@pytest.fixture(params=sorted(LISTENERS))
def listener(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[GroupProtocol]:
    with LISTENERS[request.param](broker) as listener:
        yield listener


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


def owned_by(listener: GroupProtocol, group: str, member: Member) -> Member:
    """``member`` as it is by now, the owner of all it is assigned."""
    member = listener.heartbeat(group, member)
    for topic, partition in member.assigned:
        listener.claim(group, member, topic, partition)
    return member


# ── members ──


def test_members_share_a_topic_evenly_and_a_heartbeat_tells_of_each_new_generation(
    listener: GroupProtocol, topic: str
) -> None:
    first = listener.join(topic, topic)
    assert (first.generation, len(first.assigned)) == (1, 4)
    second = listener.join(topic, topic)
    assert (second.generation, len(second.assigned)) == (2, 2)
    first = listener.heartbeat(topic, first)
    assert first.generation == 2
    assert first.assigned | second.assigned == {(topic, p) for p in range(PARTITIONS)}
    listener.leave(topic, second.member_id)
    first = listener.heartbeat(topic, first)
    assert (first.generation, len(first.assigned)) == (3, 4)
    assert refusal(lambda: listener.heartbeat(topic, second)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: listener.leave(topic, second.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_join_must_bring(listener: GroupProtocol, topic: str) -> None:
    assert refusal(lambda: listener.join(topic, "nothing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: listener.join(topic)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: listener.join(topic, topic, member_id="who")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        refusal(lambda: listener.join(topic, topic, session_timeout_ms=1))
        is ErrorCode.INVALID_SESSION_TIMEOUT
    )
    assert refusal(lambda: listener.join("g" * 1025, topic)) is ErrorCode.INVALID_GROUP_ID


def test_a_silent_member_is_gone_after_its_session_and_its_partitions_move(
    listener: GroupProtocol, topic: str
) -> None:
    silent = listener.join(topic, topic, session_timeout_ms=SHORT_SESSION_MS)
    other = listener.join(topic, topic)
    while len(other.assigned) < PARTITIONS:
        other = listener.heartbeat(topic, other)
    assert refusal(lambda: listener.heartbeat(topic, silent)) is ErrorCode.UNKNOWN_MEMBER_ID


# ── ownership ──


def test_a_partition_is_claimed_before_it_is_read_or_committed(listener: GroupProtocol, topic: str) -> None:
    member = listener.join(topic, topic)
    assert refusal(lambda: listener.read(topic, member, topic, 0, 0)) is ErrorCode.PARTITION_NOT_OWNED
    assert refusal(lambda: listener.commit(topic, member, topic, 0, 3)) is ErrorCode.PARTITION_NOT_OWNED
    assert refusal(lambda: listener.release(topic, member, topic, 0)) is ErrorCode.PARTITION_NOT_OWNED
    listener.claim(topic, member, topic, 0)
    listener.claim(topic, member, topic, 0)
    assert listener.read(topic, member, topic, 0, 17) == [17, 18, 19]
    assert listener.committed(topic, topic, 0) is None
    listener.commit(topic, member, topic, 0, 18)
    assert listener.committed(topic, topic, 0) == 18
    listener.release(topic, member, topic, 0)
    assert refusal(lambda: listener.commit(topic, member, topic, 0, 19)) is ErrorCode.PARTITION_NOT_OWNED
    assert listener.committed(topic, topic, 0) == 18


def test_a_partition_of_another_member_or_a_missing_one_cannot_be_claimed(
    listener: GroupProtocol, topic: str
) -> None:
    first = listener.join(topic, topic)
    second = listener.join(topic, topic)
    theirs = min(partition for _, partition in second.assigned)
    first = listener.heartbeat(topic, first)
    assert refusal(lambda: listener.claim(topic, first, topic, theirs)) is ErrorCode.PARTITION_NOT_ASSIGNED
    assert (
        refusal(lambda: listener.commit(topic, first, topic, theirs, 1)) is ErrorCode.PARTITION_NOT_ASSIGNED
    )
    assert refusal(lambda: listener.read(topic, first, topic, theirs, 0)) is ErrorCode.PARTITION_NOT_ASSIGNED
    assert refusal(lambda: listener.claim(topic, first, topic, 99)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: listener.claim(topic, first, "nothing", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: listener.commit(topic, first, topic, 0, -1)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: listener.commit(topic, first, topic, 0, 21)) is ErrorCode.INVALID_REQUEST


def test_an_owner_keeps_over_a_rebalance_only_what_is_still_assigned_to_it(
    listener: GroupProtocol, topic: str
) -> None:
    stale = owned_by(listener, topic, listener.join(topic, topic))
    other = listener.join(topic, topic)
    # It has not heard of it yet: the owners of the last generation no longer count.
    for partition in range(PARTITIONS):
        for call in (
            lambda p=partition: listener.read(topic, stale, topic, p, 0),
            lambda p=partition: listener.commit(topic, stale, topic, p, 1),
            lambda p=partition: listener.claim(topic, stale, topic, p),
        ):
            assert refusal(call) is ErrorCode.ILLEGAL_GENERATION
    member = listener.heartbeat(topic, stale)
    for _, kept in member.assigned:
        listener.commit(topic, member, topic, kept, 1)
    for _, lost in other.assigned:
        assert refusal(lambda p=lost: listener.commit(topic, member, topic, p, 1)) is (
            ErrorCode.PARTITION_NOT_ASSIGNED
        )
        listener.claim(topic, other, topic, lost)


def test_a_member_that_was_expelled_can_neither_read_nor_commit_when_it_wakes_up(
    listener: GroupProtocol, topic: str
) -> None:
    sleeper = owned_by(listener, topic, listener.join(topic, topic, session_timeout_ms=SHORT_SESSION_MS))
    other = listener.join(topic, topic)
    while len(other.assigned) < PARTITIONS:
        other = listener.heartbeat(topic, other)
    for call in (
        lambda: listener.read(topic, sleeper, topic, 0, 0),
        lambda: listener.commit(topic, sleeper, topic, 0, 1),
        lambda: listener.claim(topic, sleeper, topic, 0),
        lambda: listener.release(topic, sleeper, topic, 0),
    ):
        assert refusal(call) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_read_that_waits_is_refused_when_its_partition_goes_to_another(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    reader = owned_by(listener, topic, listener.join(topic, topic))
    outcome: list[ErrorCode] = []
    begun = threading.Event()

    def read() -> None:
        with HttpProtocol(broker) as mine:
            begun.set()
            for _, partition in sorted(reader.assigned, reverse=True):
                outcome.append(
                    refusal(lambda p=partition: mine.read(topic, reader, topic, p, 20, wait_ms=60_000))
                )

    waiting = threading.Thread(target=read)
    waiting.start()
    assert begun.wait(60)
    listener.join(topic, topic)
    # What ends the wait of a read that began before the rebalance; one that begins later is refused at once.
    make_more(broker, topic)
    waiting.join(60)
    assert outcome == [ErrorCode.ILLEGAL_GENERATION] * PARTITIONS


def make_more(broker: BrokerProcess, topic: str) -> None:
    records = [{"value": "more", "partition": partition} for partition in range(PARTITIONS)]
    httpx.post(f"{broker.http_url}/v1/topics/{topic}/records", json={"records": records}).raise_for_status()


# ── polls and leases ──


def test_a_poll_leases_records_and_an_ack_commits_them(listener: GroupProtocol, topic: str) -> None:
    seen: list[tuple[int, int]] = []
    while True:
        polled = listener.poll(topic, topic, max_records=7)
        if polled.lease is None:
            break
        assert 0 < len(polled.records) <= 7
        assert all(int(value or b"") == offset for _, _, offset, value in polled.records)
        seen += [(partition, offset) for _, partition, offset, _ in polled.records]
        listener.ack(topic, polled.lease)
        listener.ack(topic, polled.lease)
    assert sorted(seen) == [(p, offset) for p in range(PARTITIONS) for offset in range(20)]
    assert [listener.committed(topic, topic, p) for p in range(PARTITIONS)] == [20] * PARTITIONS


def test_leased_records_go_to_no_other_poll_until_they_are_given_back(
    listener: GroupProtocol, topic: str
) -> None:
    first = listener.poll(topic, topic, max_records=1000)
    assert len(first.records) == 20 * PARTITIONS
    assert listener.poll(topic, topic).lease is None
    assert first.lease is not None
    listener.nack(topic, first.lease)
    again = listener.poll(topic, topic, max_records=1000)
    assert sorted(again.records) == sorted(first.records)
    assert set(again.deliveries.values()) == {2}
    assert refusal(lambda: listener.ack(topic, str(first.lease))) is ErrorCode.LEASE_FENCED
    assert again.lease is not None
    listener.ack(topic, again.lease)


def test_a_poll_that_waits_is_woken_by_a_lease_that_is_given_back(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    first = listener.poll(topic, topic, max_records=1000)
    results: list[int] = []

    def wait() -> None:
        with HttpProtocol(broker) as mine:
            results.append(len(mine.poll(topic, topic, max_records=1000, wait_ms=60_000).records))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert first.lease is not None
    listener.nack(topic, first.lease)
    waiting.join(60)
    assert results == [20 * PARTITIONS]


def test_a_poll_that_waits_is_woken_by_an_append(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    first = listener.poll(topic, topic, max_records=1000)
    assert first.lease is not None
    listener.ack(topic, first.lease)
    results: list[int] = []

    def wait() -> None:
        with LISTENERS["binary"](broker) as mine:
            results.append(len(mine.poll(topic, topic, wait_ms=60_000).records))

    waiting = threading.Thread(target=wait)
    waiting.start()
    make_more(broker, topic)
    waiting.join(60)
    assert results[0] >= 1


def test_a_lease_that_runs_out_is_given_to_the_next_poll_and_is_fenced(
    listener: GroupProtocol, topic: str
) -> None:
    slow = listener.poll(topic, topic, max_records=1000, lease_ms=100)
    quick = listener.poll(topic, topic, max_records=1000, wait_ms=30_000)
    assert sorted(quick.records) == sorted(slow.records)
    assert set(quick.deliveries.values()) == {2}
    assert refusal(lambda: listener.ack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED
    assert refusal(lambda: listener.nack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED
    assert refusal(lambda: listener.extend(topic, str(slow.lease), 1000)) is ErrorCode.LEASE_FENCED
    assert quick.lease is not None
    listener.ack(topic, quick.lease)
    assert refusal(lambda: listener.ack(topic, str(slow.lease))) is ErrorCode.LEASE_FENCED


def test_an_expired_lease_is_valid_until_another_client_gets_its_records(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    polled = listener.poll(topic, topic, max_records=1000, lease_ms=100)
    until(lambda: not leases(broker, topic))
    assert polled.lease is not None
    listener.ack(topic, polled.lease)
    assert listener.committed(topic, topic, 0) == 20


def test_a_lease_that_is_extended_holds(broker: BrokerProcess, listener: GroupProtocol, topic: str) -> None:
    polled = listener.poll(topic, topic, max_records=1000, lease_ms=1000)
    assert polled.lease is not None
    (before,) = leases(broker, topic)
    listener.extend(topic, polled.lease, 60_000)
    (after,) = leases(broker, topic)
    assert after - before > 30_000
    assert listener.poll(topic, topic).lease is None


def leases(broker: BrokerProcess, group: str) -> list[int]:
    """When those in force end."""
    answer = httpx.get(f"{broker.http_url}/v1/groups/{group}").raise_for_status().json()
    return [lease["expires_at"] for lease in answer["leases"]]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


def test_a_poll_whose_answer_was_lost_is_asked_again(listener: GroupProtocol, topic: str) -> None:
    first = listener.poll(topic, topic, max_records=5, poll_id="mine")
    assert listener.poll(topic, topic, max_records=5, poll_id="mine") == first
    other = listener.poll(topic, topic, max_records=5, poll_id="yours")
    assert other.lease != first.lease
    assert {(p, o) for _, p, o, _ in other.records}.isdisjoint({(p, o) for _, p, o, _ in first.records})
    assert first.lease is not None
    listener.ack(topic, first.lease)
    assert listener.poll(topic, topic, max_records=5, poll_id="mine").lease != first.lease


@pytest.mark.parametrize("kind", sorted(LISTENERS))
def test_a_poll_asked_again_brings_what_its_lease_holds_however_much_came_meanwhile(kind: str) -> None:
    with (
        run_broker(environment={"STELE_FETCH_BYTES_MAX": "65536"}) as broker,
        LISTENERS[kind](broker) as listener,
    ):
        make_topic(broker, "crowded", records=20 * PARTITIONS)
        with Client(broker.binary_url) as client:
            for partition in range(PARTITIONS):
                client.produce("crowded", b"x" * 8000, partition=partition)
            first = listener.poll("crowded", "crowded", max_bytes=65536, poll_id="mine")
            assert len(first.records) == 21 * PARTITIONS
            for _ in range(70):
                client.produce("crowded", b"x" * 1000, partition=first.records[0][1])
        assert listener.poll("crowded", "crowded", max_bytes=65536, poll_id="mine") == first


@pytest.mark.parametrize("kind", sorted(LISTENERS))
def test_a_poll_gets_at_most_the_bytes_of_a_fetch_however_many_it_asks_for(kind: str) -> None:
    with (
        run_broker(environment={"STELE_FETCH_BYTES_MAX": "16384"}) as broker,
        LISTENERS[kind](broker) as listener,
    ):
        make_topic(broker, "large", records=0, partitions=1)
        with Client(broker.binary_url) as client:
            for _ in range(4):
                client.produce("large", b"x" * 7000, partition=0)
        for options in ({}, {"max_bytes": 2**31 - 1}):
            polled = listener.poll("large", "large", **options)
            assert [offset for _, _, offset, _ in polled.records] == [0, 1]
            assert polled.lease is not None
            listener.nack("large", polled.lease)


def test_a_group_may_begin_at_the_end_and_then_misses_nothing(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    assert listener.poll(topic, topic, **{"from": "latest"}).lease is None
    make_more(broker, topic)
    seen: set[tuple[int, int]] = set()
    while len(seen) < PARTITIONS:
        polled = listener.poll(topic, topic, wait_ms=30_000, **{"from": "latest"})
        seen |= {(partition, offset) for _, partition, offset, _ in polled.records}
        assert polled.lease is not None
        listener.ack(topic, polled.lease)
    assert seen == {(partition, 20) for partition in range(PARTITIONS)}


def test_records_that_were_deleted_before_they_were_read_are_reported(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    polled = listener.poll(topic, topic, max_records=5)
    assert polled.lease is not None
    listener.ack(topic, polled.lease)
    ((_, partition, _, _), *_) = polled.records
    delete_records(broker, topic, partition, 12)
    skipped: list[tuple[str, int, int, int]] = []
    while True:
        polled = listener.poll(topic, topic, max_records=5)
        skipped += polled.skipped
        if polled.lease is None:
            break
        listener.ack(topic, polled.lease)
    assert (topic, partition, 5, 12) in skipped


def delete_records(broker: BrokerProcess, topic: str, partition: int, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    asked = [TopicPartition(topic, partition, before_offset)]
    futures = cast("dict[TopicPartition, Any]", admin.delete_records(asked))
    for future in futures.values():
        future.result()


def test_leases_that_are_none_are_refused(listener: GroupProtocol, topic: str) -> None:
    polled = listener.poll(topic, topic, max_records=5)
    for lease in ("", "nonsense", "é", "W10=", "A" * 600_000):
        assert refusal(lambda one=lease: listener.ack(topic, one)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: listener.ack("another", str(polled.lease))) is ErrorCode.INVALID_REQUEST
    for options in ({"max_records": 0}, {"lease_ms": 1}, {"wait_ms": -1}, {"from": "noon"}, {"max_bytes": 0}):
        assert refusal(lambda o=options: listener.poll(topic, topic, **o)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: listener.poll(topic, "nothing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: listener.poll(topic)) is ErrorCode.INVALID_REQUEST


# ── listeners together ──


def test_polls_and_members_of_other_protocols_share_one_group(
    broker: BrokerProcess, listener: GroupProtocol, topic: str
) -> None:
    held = listener.poll(topic, topic, max_records=1000)
    assert held.lease is not None
    member = listener.join(topic, topic)
    assert len(member.assigned) == PARTITIONS // 2
    # Half of what the lease holds was assigned to the member: nobody may commit it by the lease.
    assert refusal(lambda: listener.ack(topic, str(held.lease))) is ErrorCode.LEASE_FENCED
    polled = listener.poll(topic, topic, max_records=1000)
    assert {(t, p) for t, p, _, _ in polled.records} == {
        (topic, p) for p in range(PARTITIONS)
    } - member.assigned


@pytest.mark.parametrize("kind", long_but(["http", "binary", "all"], "http"))
def test_members_come_and_go_while_records_flow_and_each_is_handled_under_one_owner(
    broker: BrokerProcess, kind: str
) -> None:
    """Two members, then three, then one; and in the end a Kafka consumer goes on where they stopped."""
    topic, per_partition = f"flow-{kind}", 25_000 if kind == "all" else 5_000
    make_topic(broker, topic, records=PARTITIONS * per_partition)
    flow = Flow(broker, topic, per_partition)
    listeners = ["http", "binary"] if kind == "all" else [kind, kind]
    first, second = flow.start(listeners[0]), flow.start(listeners[1])
    flow.reach(0.2)
    third = flow.start(listeners[0])
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
            message = consumer.poll(120)
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

    def start(self, listener: str) -> tuple[threading.Thread, threading.Event, threading.Event]:
        leave, die = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._run, args=(listener, leave, die))
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
            with LISTENERS[kind](self._broker) as listener:
                self._work(listener, leave, die)
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            with self._progress:
                self._failures.append(error)
                self._progress.notify_all()

    def _work(self, listener: GroupProtocol, leave: threading.Event, die: threading.Event) -> None:
        group = self._topic
        member = listener.join(group, self._topic, session_timeout_ms=LONG_SESSION_MS)
        generation, claimed = -1, set[int]()
        while not leave.is_set():
            member = listener.heartbeat(group, member)
            if member.generation != generation:
                generation, claimed = member.generation, set[int]()
            for _, partition in sorted(member.assigned):
                if leave.is_set() or die.is_set():
                    break
                try:
                    if partition not in claimed:
                        listener.claim(group, member, self._topic, partition)
                        claimed.add(partition)
                        with self._lock:
                            self._owners[generation, partition].add(member.member_id)
                    self._handle(listener, member, partition)
                except RefusedError as refused:
                    if refused.code not in REBALANCED:
                        raise
                    break
            if die.is_set():
                # The session of a member that dies is short; those of the others outlast a busy machine.
                listener.join(
                    group, self._topic, member_id=member.member_id, session_timeout_ms=SHORT_SESSION_MS
                )
                return
        listener.leave(group, member.member_id)

    def _handle(self, listener: GroupProtocol, member: Member, partition: int) -> None:
        start = listener.committed(self._topic, self._topic, partition) or 0
        offsets = listener.read(self._topic, member, self._topic, partition, start)[:500]
        if not offsets:
            return
        assert offsets == list(range(start, start + len(offsets)))
        listener.commit(self._topic, member, self._topic, partition, offsets[-1] + 1)
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


@pytest.mark.parametrize("kind", sorted(LISTENERS))
def test_members_owners_offsets_and_leases_outlive_a_kill_of_the_broker(tmp_path: Path, kind: str) -> None:
    with run_broker(tmp_path / "data", environment=ENVIRONMENT) as broker:
        make_topic(broker, "orders", records=20 * PARTITIONS)
        make_topic(broker, "bills", records=20 * PARTITIONS)
        with LISTENERS[kind](broker) as listener:
            member = owned_by(listener, "members", listener.join("members", "orders"))
            listener.commit("members", member, "orders", 1, 7)
            polled = listener.poll("polls", "bills", max_records=30)
            failed = listener.poll("polls", "bills", max_records=1000)
            assert polled.lease is not None
            assert failed.lease is not None
            listener.nack("polls", failed.lease)
        broker.kill()
        broker.restart()
        with LISTENERS[kind](broker) as listener:
            assert listener.heartbeat("members", member) == member
            assert listener.committed("members", "orders", 1) == 7
            listener.commit("members", member, "orders", 1, 8)
            # The lease is of before the kill: nobody was given its records, so it still counts, once.
            listener.ack("polls", polled.lease)
            again = listener.poll("polls", "bills", max_records=1000)
            assert {(p, o) for _, p, o, _ in again.records}.isdisjoint(
                {(p, o) for _, p, o, _ in polled.records}
            )
            assert 2 in again.deliveries.values()
            listener.ack("polls", polled.lease)
