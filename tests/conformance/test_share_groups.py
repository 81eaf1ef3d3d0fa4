"""Share groups (KIP-932): several members take the records of the same partitions, one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from stele import Client
from stele.broker_process import BrokerProcess

from tests.conformance.driver import Driver, Record
from tests.conformance.support import MakeTopic, StartDriver, numbered
from tests.support.kafka_peer import KafkaPeer
from tests.support.share_groups import configure
from tests.support.waiting import eventually

PARTITIONS = 2
RECORDS = 40
NOTHING_MORE_MS = 1_000

pytestmark = pytest.mark.capability("share groups")

Place = tuple[int, int]


def take(driver: Driver, member: str, *, timeout_ms: int) -> dict[Place, int]:
    """Return how often each record that comes was delivered."""
    taken: list[dict[str, Any]] = driver.call("take", member=member, timeout_ms=timeout_ms)["records"]
    return {(record["partition"], record["offset"]): record["deliveries"] for record in taken}


def settle(driver: Driver, member: str, topic: str, outcomes: dict[Place, str]) -> None:
    named = [[topic, partition, offset, kind] for (partition, offset), kind in outcomes.items()]
    driver.call("settle", member=member, outcomes=named)


def outcome_of(place: Place, deliveries: int) -> str:
    """The first record of each partition fails once, the second for good."""
    if place[1] == 0 and deliveries == 1:
        return "release"
    return "reject" if place[1] == 1 else "accept"


def test_each_record_is_taken_once_and_a_released_one_again(
    start_driver: StartDriver,
    reference: Driver,
    stele: BrokerProcess,
    make_topic: MakeTopic,
    group: str,
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    with KafkaPeer(stele) as peer:
        configure(peer, group, share_auto_offset_reset="earliest")
    records: list[Record] = numbered(RECORDS, partitions=PARTITIONS)
    reference.produce(topic, records)
    members = [(start_driver(), name) for name in ("first", "second")]
    for driver, member in members:
        driver.call("share", member=member, group=group, topics=[topic])
    taken: defaultdict[Place, list[int]] = defaultdict(list)

    def have_all() -> bool:
        for driver, member in members:
            came = take(driver, member, timeout_ms=500)
            for place, deliveries in came.items():
                taken[place].append(deliveries)
            if came:
                outcomes = {place: outcome_of(place, deliveries) for place, deliveries in came.items()}
                settle(driver, member, topic, outcomes)
        return len(taken) == RECORDS and all(taken[partition, 0] == [1, 2] for partition in range(PARTITIONS))

    eventually(have_all, "every record is taken, and the released ones twice")
    per_partition = RECORDS // PARTITIONS
    assert taken == {
        (partition, offset): [1, 2] if offset == 0 else [1]
        for partition in range(PARTITIONS)
        for offset in range(per_partition)
    }
    for driver, member in members:
        assert take(driver, member, timeout_ms=NOTHING_MORE_MS) == {}
        driver.call("unshare", member=member)


def test_what_a_member_held_that_is_killed_comes_again(
    start_driver: StartDriver,
    reference: Driver,
    stele: BrokerProcess,
    make_topic: MakeTopic,
    group: str,
) -> None:
    topic = make_topic(partitions=1)
    with KafkaPeer(stele) as peer:
        configure(peer, group, share_auto_offset_reset="earliest")
    reference.produce(topic, numbered(10))
    first, second = start_driver(), start_driver()
    first.call("share", member="first", group=group, topics=[topic])
    held: dict[Place, int] = {}

    def holds_all() -> bool:
        held.update(take(first, "first", timeout_ms=500))
        return len(held) == 10

    eventually(holds_all, "the first holds all records")
    first.kill()
    second.call("share", member="second", group=group, topics=[topic])
    again: dict[Place, int] = {}

    def has_all() -> bool:
        came = take(second, "second", timeout_ms=500)
        again.update(came)
        settle(second, "second", topic, dict.fromkeys(came, "accept"))
        return len(again) == 10

    eventually(has_all, "the second got all of them")
    assert again == dict.fromkeys(held, 2)
    second.call("unshare", member="second")


def test_a_rejected_record_gets_a_dead_letter(
    start_driver: StartDriver,
    reference: Driver,
    stele: BrokerProcess,
    make_topic: MakeTopic,
    group: str,
) -> None:
    topic = make_topic(partitions=1)
    letters = f"dlq.{topic}"
    with Client(stele.binary_url) as client:
        client.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
        with KafkaPeer(stele) as peer:
            configure(
                peer,
                group,
                share_auto_offset_reset="earliest",
                errors_deadletterqueue_topic_name=letters,
                errors_deadletterqueue_copy_record_enable="true",
            )
        reference.produce(topic, numbered(3))
        driver = start_driver()
        driver.call("share", member="first", group=group, topics=[topic])
        taken: dict[Place, int] = {}

        def has_all() -> bool:
            came = take(driver, "first", timeout_ms=500)
            taken.update(came)
            settle(driver, "first", topic, {place: "reject" if place[1] == 1 else "accept" for place in came})
            return len(taken) == 3

        eventually(has_all, "every record is taken")
        eventually(lambda: client.list_offset(letters, 0, "latest") == 1, "the letter is written")
        (letter,) = client.fetch(letters).records
        assert letter.value == b"value 1"
        assert dict(letter.headers)["__dlq.errors.offset"] == b"1"
        driver.call("unshare", member="first")
