"""Which timestamps a topic accepts, and when a header is enough to know."""

from __future__ import annotations

import pytest
from stele.wire import record_batch as rb
from stele.wire.record_batch import NO_TIMESTAMP

from app.broker.producing.timestamps import TimestampCheck, is_suspicious, timestamp_bounds
from app.errors import RECORD_ERRORS_MAX, InvalidTimestamp
from app.storage.topic_config import TopicConfig
from tests.support.batches import batch_of_times

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
BOUNDED = TopicConfig(message_timestamp_before_max_ms=HOUR_MS)
STAMPING = TopicConfig(message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize(
    ("timestamp_ms", "accepted", "accepted_when_bounded"),
    [
        (NOW_MS, True, True),
        (NOW_MS + HOUR_MS, True, True),
        (NOW_MS + HOUR_MS + 1, False, False),
        (NOW_MS - HOUR_MS, True, True),
        (NOW_MS - HOUR_MS - 1, True, False),
        (0, True, False),
        (NO_TIMESTAMP, True, True),
        (-2, True, False),
        (2**63 - 1, False, False),
        (-(2**63), True, False),
    ],
)
def test_an_hour_ahead_is_accepted_and_as_far_back_as_the_topic_says(
    timestamp_ms: int, accepted: bool, accepted_when_bounded: bool
) -> None:
    for config, wanted in ((TopicConfig(), accepted), (BOUNDED, accepted_when_bounded)):
        bounds = timestamp_bounds(config, NOW_MS)
        assert bounds is not None
        assert bounds.accepts(timestamp_ms) is wanted


def test_a_topic_that_stamps_records_has_no_bounds() -> None:
    assert timestamp_bounds(STAMPING, NOW_MS) is None


def header_of_times(*timestamps_ms: int) -> rb.BatchHeader:
    return rb.read_header(batch_of_times(timestamps_ms))


def test_the_header_is_enough_unless_it_claims_a_future_or_the_past_is_bounded() -> None:
    fine, late = header_of_times(NOW_MS, NOW_MS - 5), header_of_times(NOW_MS, NOW_MS + 2 * HOUR_MS)
    assert not is_suspicious(fine, TopicConfig(), NOW_MS)
    assert is_suspicious(late, TopicConfig(), NOW_MS)
    assert is_suspicious(fine, BOUNDED, NOW_MS)
    assert not is_suspicious(late, STAMPING, NOW_MS)
    # Its newest is not stated truly: the first record is later.
    lying = header_of_times(NOW_MS + 2 * HOUR_MS)
    lying.max_timestamp = NOW_MS
    assert is_suspicious(lying, TopicConfig(), NOW_MS)
    fine.attributes |= 0x08
    assert is_suspicious(fine, STAMPING, NOW_MS), "it claims to be stamped"
    assert not is_suspicious(fine, TopicConfig(), NOW_MS)


def refusal(batch: bytearray, config: TopicConfig) -> InvalidTimestamp | None:
    check = TimestampCheck(rb.read_header(batch), timestamp_bounds(config, NOW_MS))
    check.look_at(rb.decode_records(batch), 0)
    try:
        check.conclude()
    except InvalidTimestamp as error:
        return error
    return None


def test_every_record_at_fault_is_named_by_its_index() -> None:
    batch = batch_of_times([NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS, NOW_MS - 2 * HOUR_MS])
    error = refusal(batch, BOUNDED)
    assert error is not None
    assert [one.index for one in error.record_errors] == [1, 3]
    assert "later than" in error.record_errors[0].reason
    assert "earlier than" in error.record_errors[1].reason
    assert error.refused == 2
    assert refusal(batch_of_times([NOW_MS, NOW_MS - 2 * HOUR_MS]), TopicConfig()) is None


def test_only_so_many_are_named_and_all_are_counted() -> None:
    error = refusal(batch_of_times([NOW_MS * 1000] * (RECORD_ERRORS_MAX + 5)), TopicConfig())
    assert error is not None
    assert (len(error.record_errors), error.refused) == (RECORD_ERRORS_MAX, RECORD_ERRORS_MAX + 5)


def test_a_producer_that_claims_log_append_time_is_refused_by_a_topic_that_stamps() -> None:
    batch = batch_of_times([NOW_MS, NOW_MS])
    rb.set_log_append_time(batch, rb.read_header(batch), NOW_MS)
    error = refusal(batch, STAMPING)
    assert error is not None
    assert [one.index for one in error.record_errors] == [0, 1]
