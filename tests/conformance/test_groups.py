"""Consumer groups: who owns what, where reading goes on, and what happens when members come and go.

Members of one group live in drivers of their own, for a driver does one command
after the other and a rebalance needs all members at once.
"""

from __future__ import annotations

import time

import pytest

from tests.conformance.driver import Driver, Place, Record, places_told
from tests.conformance.support import MakeTopic, StartDriver, a_name, contents, numbered, places_of
from tests.support.waiting import eventually

PARTITIONS = 4
# Longer than what a test waits for a rebalance (CONDITION_TIMEOUT_S) or a join (OP_TIMEOUT_MS): a test in which
# a session has to end fails. Shorter than the five minutes that clients allow between two polls.
LONG_SESSION_MS = 290_000
# The shortest that Apache Kafka allows.
SHORT_SESSION_MS = 6_000
NOTHING_MORE_MS = 1_000


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(partitions=PARTITIONS)


def await_assignment(driver: Driver, member: str, expected: set[Place]) -> None:
    eventually(lambda: driver.assignment(member) == expected, f"{member} has {len(expected)} partitions")


def join_alone(driver: Driver, member: str, group: str, topic: str, **arguments: object) -> None:
    """Returns when the member has all partitions; the first assignment of a group may be smaller."""
    if driver.join(member, group, [topic], **arguments) != places_of(topic, PARTITIONS):
        await_assignment(driver, member, places_of(topic, PARTITIONS))


def await_shares(members: list[tuple[Driver, str]], topic: str) -> list[set[Place]]:
    """The shares of the members when each has some, none has another's, and nothing is left over."""
    shares: list[set[Place]] = []

    def are_settled() -> bool:
        # All at once: a member whose poll ends within a rebalance may join again with its next one, and if they
        # polled in turn, the others would never take part in the rebalance while it waits for them.
        asked = [driver.begin_assignment(member) for driver, member in members]
        shares[:] = [places_told(pending.result()) for pending in asked]
        return (
            all(shares)
            and sum(map(len, shares)) == PARTITIONS
            and set().union(*shares) == places_of(topic, PARTITIONS)
        )

    try:
        eventually(are_settled, "every partition has exactly one owner, and every member a partition")
    except pytest.fail.Exception as failure:
        pytest.fail(f"{failure}; the members have {shares}")
    return shares


def join_second(
    first: Driver, second: Driver, group: str, topic: str, **arguments: object
) -> list[set[Place]]:
    """``first`` is a member alone; ``second`` joins. Their shares when all is settled."""
    joining = second.begin("join", member="second", group=group, topics=[topic], **arguments)

    def has_joined() -> bool:
        # The first must go on polling meanwhile: it takes part in the rebalance only then. What it has by now
        # does not matter: it may wait in the next rebalance for the second, which polls no more once it has joined.
        first.assignment("first")
        return joining.is_answered()

    eventually(has_joined, "the second has joined")
    joining.result()
    return await_shares([(first, "first"), (second, "second")], topic)


def take_over(driver: Driver, topic: str) -> None:
    await_assignment(driver, "first", places_of(topic, PARTITIONS))


def assert_each_record_is_read_once(
    reference: Driver, members: list[tuple[Driver, str]], topic: str, count: int = 40
) -> None:
    records = numbered(count, partitions=PARTITIONS)
    reference.produce(topic, records)
    read: list[Record] = []

    def have_all() -> bool:
        for driver, member in members:
            # More than there can be: what is read twice must show.
            read.extend(driver.poll(member, 10 * count, timeout_ms=300))
        return len(read) >= count

    eventually(have_all, f"{count} records are read")
    assert sorted(contents(read), key=str) == sorted(contents(records), key=str)


# ── reading on ──


@pytest.mark.capability("group")
def test_a_member_of_many_partitions_gets_what_comes_to_any_of_them(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    """Most of them are idle in each request, others in the next one."""
    partitions, rounds, turn = 60, 12, 7
    topic = make_topic(partitions=partitions)
    group = a_name("group")
    if driver.join("m", group, [topic], session_ms=LONG_SESSION_MS) != places_of(topic, partitions):
        await_assignment(driver, "m", places_of(topic, partitions))
    expected: dict[int, list[Record]] = {}
    got: dict[int, list[Record]] = {}
    for number in range(rounds):
        records = [
            Record(value=b"%d in %d" % (number, partition), partition=partition)
            for partition in {turn * number % partitions, (turn * number + 1) % partitions, 59}
        ]
        reference.produce(topic, records)
        for record in records:
            expected.setdefault(record.partition or 0, []).append(record)
        for record in driver.poll("m", len(records)):
            got.setdefault(record.partition or 0, []).append(record)
    assert {number: contents(records) for number, records in got.items()} == {
        number: contents(records) for number, records in expected.items()
    }
    assert not driver.poll("m", 1, timeout_ms=NOTHING_MORE_MS)
    driver.leave("m")


@pytest.mark.capability("group")
def test_a_group_continues_at_its_committed_offset(
    driver: Driver, reference: Driver, topic: str, group: str
) -> None:
    reference.produce(topic, numbered(100, partitions=PARTITIONS))
    join_alone(driver, "first", group, topic)
    read = driver.poll("first", 100)
    assert {record.topic for record in read} == {topic}
    assert sorted((r.partition, r.offset) for r in read) == [
        (p, n) for p in range(PARTITIONS) for n in range(25)
    ]

    # To another place in each partition, so that no two can be mixed up.
    committed = {(topic, partition): 10 + partition for partition in range(PARTITIONS)}
    driver.commit("first", committed)
    driver.leave("first")
    for (_, partition), offset in committed.items():
        assert driver.committed(group, topic, partition=partition).offset == offset

    join_alone(driver, "next", group, topic)
    left = [(p, n) for p in range(PARTITIONS) for n in range(10 + p, 25)]
    assert sorted((r.partition, r.offset) for r in driver.poll("next", len(left))) == left
    assert driver.poll("next", 1, timeout_ms=NOTHING_MORE_MS) == []
    driver.leave("next")


@pytest.mark.capability("group")
def test_two_groups_read_the_same_records_and_know_nothing_of_each_other(
    driver: Driver, reference: Driver, topic: str, group: str
) -> None:
    reference.produce(topic, numbered(20, partitions=PARTITIONS))
    other = a_name("other-group")
    for member, its_group in (("first", group), ("second", other)):
        join_alone(driver, member, its_group, topic)
        assert len(driver.poll(member, 20)) == 20
    driver.commit("first", {(topic, 0): 3})

    assert driver.committed(group, topic).offset == 3
    assert driver.committed(other, topic).offset == -1
    driver.leave("first")
    driver.leave("second")


@pytest.mark.capability("group")
def test_a_group_that_starts_at_the_latest_offset_sees_only_what_comes(
    driver: Driver, reference: Driver, topic: str, group: str
) -> None:
    reference.produce(topic, [Record(value=b"old", partition=p) for p in range(PARTITIONS)])
    join_alone(driver, "first", group, topic, start="latest")
    read: list[Record] = []

    def has_met_something() -> bool:
        reference.produce(topic, [Record(value=b"new", partition=p) for p in range(PARTITIONS)])
        read.extend(driver.poll("first", 1, timeout_ms=500))
        return bool(read)

    eventually(has_met_something, "the member has a record")
    assert {record.value for record in read} == {b"new"}
    driver.leave("first")


@pytest.mark.capability("group")
def test_one_member_reads_several_topics(
    driver: Driver, reference: Driver, make_topic: MakeTopic, group: str
) -> None:
    topics = [make_topic(partitions=2), make_topic(partitions=1)]
    expected = places_of(topics[0], 2) | places_of(topics[1], 1)
    for topic in topics:
        reference.produce(topic, [Record(value=topic.encode())])
    driver.join("first", group, topics)
    await_assignment(driver, "first", expected)

    read = driver.poll("first", 2)

    assert {(record.topic, record.value) for record in read} == {(t, t.encode()) for t in topics}
    driver.leave("first")


@pytest.mark.capability("commit metadata")
def test_the_metadata_of_a_commit_comes_back_with_it(
    driver: Driver, reference: Driver, topic: str, group: str
) -> None:
    reference.produce(topic, numbered(20, partitions=PARTITIONS))
    join_alone(driver, "first", group, topic)

    driver.commit("first", {(topic, 0): 3, (topic, 1): 5}, "so weit, so gut ✓")
    driver.commit("first", {(topic, 1): 4}, "")

    first, second, third = (driver.committed(group, topic, partition=n) for n in range(3))
    assert (first.offset, first.metadata) == (3, "so weit, so gut ✓")
    assert (second.offset, second.metadata) == (4, "")
    assert third.offset == -1
    driver.leave("first")


# ── members come and go ──


@pytest.mark.capability("rebalance on join")
def test_a_new_member_gets_a_share_and_no_partition_has_two_owners(
    start_driver: StartDriver, reference: Driver, topic: str, group: str
) -> None:
    first, second = start_driver(), start_driver()
    join_alone(first, "first", group, topic)

    join_second(first, second, group, topic)

    assert_each_record_is_read_once(reference, [(first, "first"), (second, "second")], topic)
    second.leave("second")
    first.leave("first")


@pytest.mark.capability("rebalance on leave")
def test_a_leaving_member_hands_its_share_over_at_once(
    start_driver: StartDriver, reference: Driver, topic: str, group: str
) -> None:
    first, second = start_driver(), start_driver()
    join_alone(first, "first", group, topic, session_timeout_ms=LONG_SESSION_MS)
    join_second(first, second, group, topic, session_timeout_ms=LONG_SESSION_MS)

    second.leave("second")
    take_over(first, topic)

    assert_each_record_is_read_once(reference, [(first, "first")], topic)
    first.leave("first")


@pytest.mark.capability("rebalance on death")
def test_a_killed_member_loses_its_share_when_its_session_ends(
    start_driver: StartDriver, reference: Driver, topic: str, group: str
) -> None:
    first, second = start_driver(), start_driver()
    join_alone(first, "first", group, topic, session_timeout_ms=SHORT_SESSION_MS)
    join_second(first, second, group, topic, session_timeout_ms=SHORT_SESSION_MS)

    second.kill()
    died_s = time.monotonic()
    take_over(first, topic)

    # Its last heartbeat was at most one interval of them old when it died.
    assert time.monotonic() - died_s >= SHORT_SESSION_MS / 1000 / 2
    assert_each_record_is_read_once(reference, [(first, "first")], topic)
    first.leave("first")


@pytest.mark.capability("static membership")
def test_a_static_member_that_returns_in_time_keeps_its_partitions_without_a_rebalance(
    start_driver: StartDriver, reference: Driver, topic: str, group: str
) -> None:
    first, second = start_driver(), start_driver()
    session = {"session_timeout_ms": LONG_SESSION_MS}
    join_alone(first, "first", group, topic, instance_id="one", **session)
    before = join_second(first, second, group, topic, instance_id="two", **session)

    second.kill()
    again = start_driver()
    # The first is not asked to poll meanwhile. Were there a rebalance, this join would wait for it in vain.
    back = again.join("second", group, [topic], instance_id="two", **session)
    assert back == before[1]
    assert first.assignment("first") == before[0]

    assert_each_record_is_read_once(reference, [(first, "first"), (again, "second")], topic)
    again.leave("second")
    first.leave("first")
