"""Which broker clients are sent to: evenly, alike at every broker, and with few moves when one goes."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from app.cluster.leaders import Leaders, ranked
from app.cluster.membership import Member

TOPICS = [UUID(int=number).bytes for number in range(20)]
PARTITIONS = range(30)


def members(*broker_ids: int) -> list[Member]:
    return [
        Member(broker_id=broker_id, incarnation=UUID(int=broker_id), rack=f"r{broker_id % 2}", endpoints={})
        for broker_id in broker_ids
    ]


def leaders_of(shown: Leaders) -> dict[tuple[bytes, int], int]:
    return {
        (topic_id, partition): shown.replicas(topic_id, partition)[0]
        for topic_id in TOPICS
        for partition in PARTITIONS
    }


def test_partitions_are_spread_over_the_brokers() -> None:
    counts = Counter(leaders_of(Leaders(members(1, 2, 3, 4))).values())
    assert set(counts) == {1, 2, 3, 4}
    # 150 each, give or take five standard deviations.
    assert all(90 <= count <= 210 for count in counts.values())


def test_the_order_of_the_brokers_and_their_incarnations_do_not_matter() -> None:
    restarted = [
        Member(broker_id=member.broker_id, incarnation=UUID(int=99), rack=None, endpoints={})
        for member in members(3, 1, 2)
    ]
    assert leaders_of(Leaders(restarted)) == leaders_of(Leaders(members(1, 2, 3)))


def test_only_the_partitions_of_a_broker_that_goes_move() -> None:
    before, after = leaders_of(Leaders(members(1, 2, 3))), leaders_of(Leaders(members(1, 3)))
    for partition, leader in before.items():
        if leader != 2:
            assert after[partition] == leader
    second = Leaders(members(1, 2, 3))
    assert all(after[key] == second.replicas(*key)[1] for key, leader in before.items() if leader == 2)


def test_at_most_three_replicas_are_shown_each_once() -> None:
    for count in range(6):
        replicas = Leaders(members(*range(count))).replicas(TOPICS[0], 0)
        assert len(replicas) == len(set(replicas)) == min(count, 3)


def test_the_broker_that_clients_of_a_rack_are_sent_to_is_shown_as_a_replica() -> None:
    racks = ("a", "b", "c", "d", "a", "a", "b", None)
    brokers = [
        Member(broker_id=number, incarnation=UUID(int=number), rack=rack, endpoints={})
        for number, rack in enumerate(racks)
    ]
    shown = Leaders(brokers)
    for topic_id in TOPICS:
        replicas = shown.replicas(topic_id, 0)
        assert len(replicas) in (4, 5)
        assert {shown.near(topic_id, 0, rack) for rack in "abcd"} <= set(replicas)
        assert replicas[0] == ranked(topic_id + bytes(4), brokers)[0].broker_id


def test_a_client_can_be_sent_to_a_broker_of_its_rack() -> None:
    shown = Leaders(members(1, 2, 3, 4))
    near = {shown.near(topic_id, partition, "r0") for topic_id in TOPICS for partition in PARTITIONS}
    assert near == {2, 4}
    assert shown.near(TOPICS[0], 0, "elsewhere") is None
    assert shown.has_rack("r1")
    assert not shown.has_rack("elsewhere")
