"""The status of a mirror: its state, and a bounded size."""

from __future__ import annotations

import json

import pytest
from stele.mirror.partition import PartitionCopy, State
from stele.mirror.source.reads import Leader, SourceTopic
from stele.mirror.status import Delay, Rate, document, state_of
from stele.mirror.topics import MirroredTopic, TopicState
from stele.operations.mirrors import Copy
from stele.records import TopicPartition

ID = bytes(16)


def topic(state: TopicState = "copying", name: str = "t", *, has_copy: bool = True) -> MirroredTopic:
    source = SourceTopic(name=name, topic_id=ID, partitions={}, error=0)
    copy = Copy(topic_id=ID, partitions=1, configs={}) if has_copy else None
    return MirroredTopic(source, copy, state, "" if state == "copying" else f"{state}!")


def partitions(*states: State, name: str = "t") -> dict[TopicPartition, PartitionCopy]:
    made: dict[TopicPartition, PartitionCopy] = {}
    for number, state in enumerate(states):
        one = PartitionCopy(name=TopicPartition(name, number), topic_id=ID, copy_id=ID, leader=Leader(1, 0))
        one.state, one.source_end = state, 10
        one.end = 10 if state == "level" else 4
        one.error = "" if state in ("level", "copying", "starting") else f"{state}!"
        made[one.name] = one
    return made


@pytest.mark.parametrize(
    ("topics", "states", "failure", "state"),
    [
        ([topic()], ["level", "level"], "", "level"),
        ([topic()], ["level", "copying"], "", "copying"),
        ([topic()], ["level", "waiting"], "", "copying"),
        ([topic()], ["level", "diverged"], "", "failed"),
        ([topic()], ["starting"], "", "starting"),
        ([topic()], ["level"], "no source", "failed"),
        ([topic("refused")], [], "", "failed"),
        ([topic(), topic("gone", "u")], ["level"], "", "copying"),
        ([topic(), topic("promoted", "u")], ["level"], "", "level"),
        ([topic(has_copy=False)], [], "", "copying"),
        ([], [], "", "starting"),
        ([topic("promoted")], [], "", "starting"),
    ],
)
def test_the_state_of_the_whole(
    topics: list[MirroredTopic], states: list[State], failure: str, state: str
) -> None:
    found, error = state_of(topics, partitions(*states), failure)
    assert found == state
    assert bool(error) >= (state == "failed")


def shown(
    found: dict[TopicPartition, PartitionCopy], topics: list[MirroredTopic], *not_copied: str
) -> dict[str, object]:
    return document(
        "m",
        topics=topics,
        partitions=found,
        failure="",
        copied_bytes=7,
        bytes_per_s=1.6,
        lag_s=3.14,
        not_copied=not_copied,
    )


def test_a_status_has_what_the_api_shows() -> None:
    assert shown(partitions("level", "diverged"), [topic()], "x") == {
        "name": "m",
        "state": "failed",
        "lag": 6,
        "lag_seconds": 3.1,
        "source_records": 20,
        "stopped": 1,
        "bytes_per_s": 2,
        "copied_bytes": 7,
        "topics": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition": 0,
                        "offset": 10,
                        "source_end": 10,
                        "lag": 0,
                        "state": "level",
                        "error": None,
                    },
                    {
                        "partition": 1,
                        "offset": 4,
                        "source_end": 10,
                        "lag": 6,
                        "state": "diverged",
                        "error": "diverged!",
                    },
                ],
            }
        ],
        "not_copied": ["x"],
        "last_error": "t-1: diverged!",
    }


def test_a_status_of_very_much_is_bounded_and_shows_what_matters() -> None:
    level: list[State] = ["level"] * 20_000
    many = partitions(*level, "copying", "diverged")
    topics = [topic(name="t"), *(topic("refused", "x" * 249) for _ in range(500))]
    status = shown(many, topics, *["y" * 10_000] * 500)
    assert len(json.dumps(status)) < 200_000
    assert status["unlisted"] == {"partitions": 20_002 - 300, "lag": 0}
    listed = json.dumps(status["topics"])
    assert '"diverged"' in listed
    assert '"copying"' in listed


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.of(0, 0.0) == 0
    assert rate.of(100, 1.0) == 100
    for second in range(2, 20):
        rate.of(100, float(second))
    assert rate.of(100, 20.0) == 0


def test_a_gap_of_the_source_is_shown() -> None:
    found = partitions("level")
    found[TopicPartition("t", 0)].gap = (3, 7)
    assert shown(found, [topic()])["not_copied"] == [
        "t-0: the source deleted offsets 3 to 7 before they were copied"
    ]


def test_a_mirror_lags_since_the_source_had_what_a_copy_lacks() -> None:
    delay, found = Delay(), partitions("level", "copying")
    one, other = found.values()
    assert delay.of(found, 5.0) == 0
    # The other one gets on, but has not come to where the source ended at 5.
    other.end, other.source_end = 9, 30
    assert delay.of(found, 7.0) == 2
    other.end = 12
    assert delay.of(found, 8.0) == 0
    # Records that come all the time are no lag, as long as they are copied.
    for second in range(9, 20):
        other.end, other.source_end = other.source_end, other.source_end + 10
        assert delay.of(found, second) == 0
    # The source does not answer: nobody knows where it ends.
    one.state = other.state = "waiting"
    assert delay.of(found, 3619.0) == 3600
    one.state = other.state = "level"
    other.end = other.source_end
    assert delay.of(found, 3620.0) == 0
    other.state = "diverged"
    assert delay.of(found, 3630.0) == 10
    assert delay.of({}, 3640.0) == 0
