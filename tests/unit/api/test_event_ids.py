"""Event ids of live tails can be decoded again, and fit into a header."""

from __future__ import annotations

import base64
import random
import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.records.event_ids import event_id, parse_event_id
from app.broker.topics import Topic
from app.errors import InvalidRequest, TopicRecreated
from app.storage.topic_config import TopicConfig

OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_ID = UUID("b4f0c1de-7d3c-4c53-9d0e-5a6f2f3d9b51")


def topic_of(partitions: int, topic_id: UUID = TOPIC_ID) -> Topic:
    shown = TopicConfig()
    return Topic(
        name="orders", topic_id=topic_id, partitions=partitions, configs={}, shown=shown, config=shown
    )


@given(st.dictionaries(st.integers(0, 200), OFFSETS, min_size=1))
def test_an_event_id_has_the_last_offset_of_each_partition(seen: dict[int, int]) -> None:
    assert parse_event_id(event_id(seen, TOPIC_ID).decode(), topic_of(201)) == seen


def test_an_id_of_few_partitions_can_be_read() -> None:
    assert event_id({0: 41, 1: 7}, TOPIC_ID) == b"0:41,1:7@b4f0c1de"


def test_an_id_of_very_many_partitions_fits_into_a_header() -> None:
    numbers = random.Random(7)
    seen = {partition: numbers.randrange(50_000_000) for partition in range(10_000)}
    text = event_id(seen, TOPIC_ID)
    assert len(text) < 50_000
    assert parse_event_id(text.decode(), topic_of(10_000)) == seen


def packed(data: bytes) -> str:
    return "z" + base64.urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "0",
        "0:",
        ":1",
        "0:x",
        "²:1",
        "0:²",
        "0:-1",
        "0:1,",
        "z",
        "z!",
        "zAAAA",
        packed(b""),
        packed(bytes(7)),
        # More than a topic of 100 partitions has; it is not even unpacked.
        packed(bytes(8 * 101)),
        packed(bytes(10_000_000)),
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_event_id(text, topic_of(100))


def test_an_id_of_a_topic_that_was_created_again_is_refused() -> None:
    again = topic_of(100, UUID(int=7))
    for seen in ({0: 41}, dict.fromkeys(range(100), 41)):
        text = event_id(seen, TOPIC_ID).decode()
        with pytest.raises(TopicRecreated):
            parse_event_id(text, again)
        # An earlier release left out which topic it was.
        assert parse_event_id(text.partition("@")[0], again) == seen
