"""Which topics are copies, and which of their configurations are copied."""

from __future__ import annotations

import pytest
from stele.mirror.source.reads import Leader, SourceConfigValue, SourceTopic
from stele.mirror.topics import MirroredTopic, config_changes, id_text, planned
from stele.operations.mirrors import Copy
from stele.wire.schema import NO_UUID

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def source(partitions: int = 2, topic_id: bytes = ID) -> SourceTopic:
    leaders = {number: Leader(1, 0) for number in range(partitions)}
    return SourceTopic(name="t", topic_id=topic_id, partitions=leaders, error=0)


def copy(partitions: int = 2, mirror: str = "m", topic_id: bytes | None = ID) -> Copy:
    configs = {
        "stele.mirror": mirror,
        "stele.mirror.source.id": "" if topic_id is None else id_text(topic_id),
    }
    return Copy(topic_id=OTHER_ID, partitions=partitions, configs=configs)


@pytest.mark.parametrize(
    ("source", "copy", "state"),
    [
        (source(), copy(), "copying"),
        (source(3), copy(2), "copying"),
        (source(1), copy(2), "shrunk"),
        (source(topic_id=OTHER_ID), copy(), "recreated"),
        (source(topic_id=NO_UUID), copy(), "copying"),
        (source(), copy(topic_id=NO_UUID), "copying"),
        (source(), copy(topic_id=None), "copying"),
        (source(), copy(mirror="other"), "refused"),
        (source(), copy(mirror="", topic_id=None), "refused"),
        (source(), copy(mirror=""), "promoted"),
    ],
)
def test_what_a_topic_is(source: SourceTopic, copy: Copy, state: str) -> None:
    found, error = planned(source, copy, "m")
    assert found == state
    assert bool(error) == (state != "copying")
    topic = MirroredTopic(source, copy, found, error)
    states = [one.state for one in topic.partitions()]
    assert set(states) <= ({"starting"} if state == "copying" else {state})
    assert bool(states) == (state != "promoted")


def test_partitions_without_a_copy_yet_wait_for_it() -> None:
    assert len(MirroredTopic(source(5), copy(2)).partitions()) == 2
    assert MirroredTopic(source()).partitions() == []


def of_topic(value: str) -> SourceConfigValue:
    return SourceConfigValue(value, is_of_topic=True, is_default=False)


def test_what_differs_from_the_default_is_copied_if_the_copy_differs() -> None:
    changes, missing = config_changes(
        {
            "retention.ms": of_topic("5"),
            "cleanup.policy": of_topic("compact"),
            "segment.bytes": SourceConfigValue("7", is_of_topic=False, is_default=False),
            "flush.ms": SourceConfigValue("9", is_of_topic=False, is_default=True),
            "leader.tiering": of_topic("x"),
            "of.the.cluster": SourceConfigValue("x", is_of_topic=False, is_default=False),
            "stele.mirror": of_topic("another"),
        },
        {"retention.ms": "6", "cleanup.policy": "compact", "segment.bytes": "8", "flush.ms": "1"},
        (),
    )
    assert changes == {"retention.ms": "5", "segment.bytes": "7"}
    assert list(missing) == ["leader.tiering"]


def test_what_goes_back_to_the_default_is_reset() -> None:
    default = SourceConfigValue("1", is_of_topic=False, is_default=True)
    assert config_changes({"retention.ms": default}, {"retention.ms": "5"}, {"retention.ms", "gone"}) == (
        {"retention.ms": None, "gone": None},
        {},
    )
