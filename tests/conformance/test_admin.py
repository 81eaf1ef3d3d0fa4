"""What an administrator does through a client: topics, their configuration, groups.

A change is looked at through the reference client until it is there: in Apache
Kafka it is in force a moment after it was answered.
"""

from __future__ import annotations

import pytest

from tests.conformance.driver import Driver, Record, Refused
from tests.conformance.support import MakeTopic, a_name, contents, numbered, offsets, places_of
from tests.support.waiting import eventually

HOUR_MS, DAY_MS = "3600000", "86400000"


@pytest.mark.capability("create")
def test_a_topic_is_made_with_its_partitions_and_configuration(driver: Driver, reference: Driver) -> None:
    topic = a_name("made")

    driver.create_topic(topic, partitions=3, configs={"retention.ms": HOUR_MS, "retention.bytes": "1000000"})

    eventually(lambda: topic in reference.list_topics(), "the topic is there")
    found = reference.describe_topic(topic)
    assert found.partitions == 3
    assert found.configs["retention.ms"] == HOUR_MS
    assert found.configs["retention.bytes"] == "1000000"


@pytest.mark.capability("create")
def test_a_topic_is_made_once(driver: Driver, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        driver.create_topic(topic)
    assert refused.value.error == "TOPIC_ALREADY_EXISTS"


@pytest.mark.capability("create")
@pytest.mark.parametrize(
    ("partitions", "configs", "error"),
    [
        (1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        (1, {"no.such.setting": "1"}, "INVALID_CONFIG"),
        (0, {}, "INVALID_PARTITIONS"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    driver: Driver, partitions: int, configs: dict[str, str], error: str
) -> None:
    topic = a_name("never")
    with pytest.raises(Refused) as refused:
        driver.create_topic(topic, partitions=partitions, configs=configs)
    assert refused.value.error == error
    assert topic not in driver.list_topics()


@pytest.mark.capability("describe")
def test_a_topic_is_described_with_what_was_set_and_with_the_defaults(
    driver: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2, configs={"retention.ms": HOUR_MS})

    found = driver.describe_topic(topic)

    assert found.partitions == 2
    assert found.configs["retention.ms"] == HOUR_MS
    assert found.configs["cleanup.policy"] == "delete"
    assert int(found.configs["max.message.bytes"]) > 0


@pytest.mark.capability("alter")
def test_a_configuration_is_changed(driver: Driver, reference: Driver, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"retention.ms": HOUR_MS})

    driver.alter_topic(topic, {"retention.ms": DAY_MS})

    def retention_ms() -> str:
        return reference.describe_topic(topic).configs["retention.ms"]

    eventually(lambda: retention_ms() == DAY_MS, "the change is in force")
    with pytest.raises(Refused):
        driver.alter_topic(topic, {"retention.ms": "soon"})
    assert retention_ms() == DAY_MS


@pytest.mark.capability("add partitions")
@pytest.mark.one_broker("another broker hears of new partitions a moment later")
def test_partitions_are_added_and_can_be_written_at_once(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    driver.produce(topic, numbered(4, partitions=2))

    driver.add_partitions(topic, 5)

    eventually(lambda: reference.describe_topic(topic).partitions == 5, "there are five partitions")
    driver.produce(topic, [Record(value=b"new place", partition=4)])
    assert contents(driver.fetch(topic, partition=4, count=1)) == [(None, b"new place", ())]
    assert len(driver.fetch(topic, partition=0, count=2)) == 2


@pytest.mark.capability("add partitions")
def test_partitions_are_never_taken_away(driver: Driver, reference: Driver, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with pytest.raises(Refused) as refused:
        driver.add_partitions(topic, 2)
    assert refused.value.error == "INVALID_PARTITIONS"
    assert reference.describe_topic(topic).partitions == 3


@pytest.mark.capability("delete")
def test_a_deleted_topic_is_gone_and_its_name_is_free(driver: Driver, reference: Driver, topic: str) -> None:
    reference.produce(topic, numbered(5))

    driver.delete_topic(topic)

    eventually(lambda: topic not in driver.list_topics(), "the topic is gone")

    def is_made_again() -> bool:
        # Apache Kafka may still be at clearing away the old one.
        try:
            reference.create_topic(topic)
        except Refused as refused:
            if refused.error != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    eventually(is_made_again, "the topic is made again")

    def is_written() -> bool:
        # Another broker may still show the client the id of the old one.
        try:
            driver.produce(topic, [Record(value=b"first of the new one")])
        except Refused as refused:
            if refused.error != "UNKNOWN_TOPIC_ID":
                raise
            return False
        return True

    eventually(is_written, "the new topic is written to")

    def is_read() -> bool:
        # A client that knows no ids of topics may be answered by a broker that still has the old one.
        return [(r.offset, r.value) for r in driver.fetch(topic, count=1)] == [(0, b"first of the new one")]

    eventually(is_read, "the new topic is read")


@pytest.mark.capability("delete")
def test_a_topic_that_is_not_there_cannot_be_deleted(driver: Driver) -> None:
    with pytest.raises(Refused) as refused:
        driver.delete_topic(a_name("never"))
    assert refused.value.error == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.capability("list")
def test_all_topics_are_listed(driver: Driver, make_topic: MakeTopic) -> None:
    made = {make_topic() for _ in range(3)}
    assert made <= set(driver.list_topics())


@pytest.mark.capability("delete records")
def test_the_beginning_of_a_partition_is_deleted(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    reference.produce(topic, numbered(20, partitions=2))

    assert driver.delete_records(topic, before_offset=4) == 4

    assert reference.offset_at(topic, "earliest") == 4
    assert reference.offset_at(topic, "latest") == 10
    assert reference.offset_at(topic, "earliest", partition=1) == 0
    assert offsets(driver.fetch(topic, count=6)) == [4, 5, 6, 7, 8, 9]
    # Offsets are never given twice.
    assert reference.produce(topic, [Record(value=b"next")]) == [10]


@pytest.mark.capability("delete records")
def test_what_is_not_written_yet_cannot_be_deleted(driver: Driver, reference: Driver, topic: str) -> None:
    reference.produce(topic, numbered(3))
    with pytest.raises(Refused) as refused:
        driver.delete_records(topic, before_offset=4)
    assert refused.value.error == "OFFSET_OUT_OF_RANGE"
    assert reference.offset_at(topic, "earliest") == 0


@pytest.mark.capability("groups admin")
def test_groups_are_listed_and_described(driver: Driver, topic: str, group: str) -> None:
    assert group not in driver.list_groups()
    driver.join("member", group, [topic])
    eventually(lambda: driver.assignment("member") == places_of(topic, 1), "the member has its partition")

    assert group in driver.list_groups()
    eventually(lambda: driver.describe_group(group).state == "Stable", "the group is stable")
    assert driver.describe_group(group).members == 1

    driver.commit("member", {(topic, 0): 0})
    driver.leave("member")
    eventually(lambda: driver.describe_group(group).state == "Empty", "the group is empty")
    assert driver.describe_group(group).members == 0
    assert group in driver.list_groups()


@pytest.mark.capability("groups admin")
def test_a_group_is_deleted_only_without_members(driver: Driver, topic: str, group: str) -> None:
    if not driver.offers("delete_group"):
        pytest.skip(f"{driver.client} does not offer: delete_group")
    driver.join("member", group, [topic])
    eventually(lambda: driver.assignment("member") == places_of(topic, 1), "the member has its partition")
    driver.commit("member", {(topic, 0): 7})

    with pytest.raises(Refused) as refused:
        driver.delete_group(group)
    assert refused.value.error == "NON_EMPTY_GROUP"

    driver.leave("member")
    eventually(lambda: driver.describe_group(group).state == "Empty", "the group is empty")
    assert driver.committed(group, topic).offset == 7
    driver.delete_group(group)
    assert group not in driver.list_groups()
    assert driver.committed(group, topic).offset == -1


@pytest.mark.capability("groups admin")
def test_a_group_that_is_not_there_cannot_be_deleted(driver: Driver, group: str) -> None:
    if not driver.offers("delete_group"):
        pytest.skip(f"{driver.client} does not offer: delete_group")
    with pytest.raises(Refused) as refused:
        driver.delete_group(group)
    assert refused.value.error == "GROUP_ID_NOT_FOUND"
