"""Timestamps: a producer's own, none, and the broker's; found by time, and what retention makes of them."""

from __future__ import annotations

import pytest

from tests.conformance.driver import Driver, Record, Refused
from tests.conformance.support import MakeTopic, now_ms
from tests.support.waiting import eventually

NONE_MS = -1
SECOND_MS = 1000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
FOREVER = {"retention.ms": "-1"}


def timestamps(records: list[Record]) -> list[int | None]:
    return [record.timestamp for record in records]


def needs(driver: Driver, what: str) -> None:
    if not driver.offers(what):
        pytest.skip(f"{driver.client} writes no such timestamp: {what}")


@pytest.mark.capability("timestamps")
def test_a_time_in_the_past_or_somewhat_in_the_future_is_kept_and_found(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(configs=FOREVER)
    now = now_ms()
    times = [now - 30 * YEAR_MS, now - DAY_MS, now, now + HOUR_MS // 2]
    writer = driver if driver.offers("setting timestamps") else reference
    for n, time in enumerate(times):
        writer.produce(topic, [Record(value=b"%d" % n, timestamp=time)])

    assert timestamps(driver.fetch(topic, count=len(times))) == times
    for n, time in enumerate(times):
        assert driver.offset_at(topic, time) == n
    assert driver.offset_at(topic, 1) == 0
    assert driver.offset_at(topic, times[-1] + 1) == -1


@pytest.mark.capability("timestamps")
def test_times_that_run_backwards_are_kept_and_the_first_at_or_after_one_is_found(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(configs=FOREVER)
    now = now_ms()
    times = [now, now - DAY_MS, now - YEAR_MS]
    writer = driver if driver.offers("setting timestamps") else reference
    writer.produce(topic, [Record(value=b"%d" % n, timestamp=time) for n, time in enumerate(times)])

    assert timestamps(driver.fetch(topic, count=len(times))) == times
    assert [driver.offset_at(topic, time) for time in (now - 2 * YEAR_MS, now - DAY_MS, now, now + 1)] == [
        0,
        0,
        0,
        -1,
    ]


@pytest.mark.capability("timestamps")
def test_a_time_too_far_in_the_future_is_refused_and_nothing_is_written(driver: Driver, topic: str) -> None:
    needs(driver, "setting timestamps")
    # Kafka's message.timestamp.after.max.ms is an hour.
    with pytest.raises(Refused):
        driver.produce(topic, [Record(value=b"too early", timestamp=now_ms() + DAY_MS)])

    assert driver.offset_at(topic, "latest") == 0


@pytest.mark.capability("timestamps")
def test_a_topic_with_the_brokers_time_ignores_that_of_the_producer(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    writer = driver if driver.offers("setting timestamps") else reference
    before_ms = now_ms()
    writer.produce(topic, [Record(value=b"past", timestamp=before_ms - YEAR_MS)])
    writer.produce(topic, [Record(value=b"future", timestamp=before_ms + YEAR_MS)])
    after_ms = now_ms()

    times = timestamps(driver.fetch(topic, count=2))

    assert all(time is not None and before_ms <= time <= after_ms for time in times)
    assert driver.offset_at(topic, before_ms) == 0
    assert driver.offset_at(topic, after_ms + 1) == -1


@pytest.mark.capability("timestamps")
def test_a_record_without_a_time_is_read_without_one(driver: Driver, reference: Driver, topic: str) -> None:
    # Mirrors write it: librdkafka with the timestamp -1, other clients where they can.
    writer = driver if driver.offers("no timestamp") else reference
    writer.produce(topic, [Record(value=b"no time", timestamp=NONE_MS)])
    now = now_ms()
    reference.produce(topic, [Record(value=b"with a time", timestamp=now)])

    assert timestamps(driver.fetch(topic, count=2)) == [NONE_MS, now]


@pytest.mark.capability("timestamps")
def test_a_record_without_a_time_is_not_found_by_one(driver: Driver, reference: Driver, topic: str) -> None:
    writer = driver if driver.offers("no timestamp") else reference
    writer.produce(topic, [Record(value=b"no time", timestamp=NONE_MS)])
    assert driver.offset_at(topic, now_ms() - DAY_MS) == -1
    now = now_ms()

    # Two batches: aiokafka takes -1 for "not known yet" in a batch whose later records have a time.
    writer.produce(topic, [Record(value=b"none", timestamp=NONE_MS)])
    reference.produce(topic, [Record(value=b"now", timestamp=now)])

    assert driver.offset_at(topic, now - DAY_MS) == 2
    assert driver.offset_at(topic, now) == 2
    assert driver.offset_at(topic, now + 1) == -1


@pytest.mark.capability("timestamps")
@pytest.mark.one_broker("it is about segments, which shared storage does not have")
def test_retention_keeps_a_new_record_that_has_no_time(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    needs(driver, "no timestamp")
    # Every append of another millisecond begins a segment: retention looks at a segment that is sealed at once.
    topic = make_topic(partitions=2, configs={"retention.ms": str(HOUR_MS), "segment.ms": "1"})
    driver.produce(topic, [Record(value=b"no time", timestamp=NONE_MS, partition=0)])
    reference.produce(topic, [Record(value=b"begins the next segment", partition=0)])

    old = Record(value=b"old", timestamp=now_ms() - DAY_MS, partition=1)
    reference.produce(topic, [old])
    # Twice, so that one whole pass of retention has seen the record.
    for end in (1, 2):
        reference.produce(topic, [old])
        eventually(
            lambda end=end: reference.offset_at(topic, "earliest", partition=1) == end,
            "retention has deleted the old record of the other partition",
        )

    assert driver.offset_at(topic, "earliest") == 0
    assert [record.value for record in driver.fetch(topic, count=1)] == [b"no time"]
