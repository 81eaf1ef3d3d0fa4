"""Groups whose partitions the broker assigns (KIP-848), by the clients that can have it so.

The broker tells the members to send a heartbeat every 5 s, so that is how long a change may take.
"""

from __future__ import annotations

import pytest

from tests.conformance.driver import Driver
from tests.conformance.support import MakeTopic, StartDriver
from tests.conformance.test_groups import (
    PARTITIONS,
    assert_each_record_is_read_once,
    join_alone,
    join_second,
    take_over,
)

PROTOCOL = "consumer"

pytestmark = pytest.mark.capability("broker-side assignment")


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(partitions=PARTITIONS)


def test_members_share_the_partitions_and_one_that_leaves_hands_its_share_over(
    start_driver: StartDriver, reference: Driver, topic: str, group: str
) -> None:
    first, second = start_driver(), start_driver()
    join_alone(first, "first", group, topic, protocol=PROTOCOL)
    join_second(first, second, group, topic, protocol=PROTOCOL)
    assert_each_record_is_read_once(reference, [(first, "first"), (second, "second")], topic)

    second.leave("second")
    take_over(first, topic)
    first.leave("first")


def test_another_member_goes_on_at_the_committed_offset(
    start_driver: StartDriver, topic: str, group: str
) -> None:
    first = start_driver()
    join_alone(first, "first", group, topic, protocol=PROTOCOL)
    committed = {(topic, partition): 10 + partition for partition in range(PARTITIONS)}
    first.commit("first", committed)
    first.leave("first")
    for (_, partition), offset in committed.items():
        assert first.committed(group, topic, partition=partition).offset == offset
    join_alone(first, "next", group, topic, protocol=PROTOCOL)
    first.leave("next")
