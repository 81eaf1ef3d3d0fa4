"""What groups and consumers decide without I/O: leases, dead letters, and how long an outage is tolerated."""

from __future__ import annotations

import logging
from typing import Unpack

import pytest
from stele.consuming.core import ConsumerCore, ConsumerOptions
from stele.errors import (
    BrokerUnavailableError,
    DeserializationError,
    GroupError,
    InvalidRequestError,
    LeaseLostError,
    OffsetOutOfRangeError,
    SteleClientError,
    UnsupportedOperationError,
)
from stele.grouping.core import BatchCore, GroupCore, GroupOptions, GroupSettings, LeaseTimes
from stele.operations.fetch import FetchOutcome
from stele.records import FetchedRecords, LeasedPartition, Polled, Record, SkippedRecords
from stele.serializers import bytes_deserializer, json_deserializer

AWAY = BrokerUnavailableError("away")


# ── leases ──


def times() -> LeaseTimes:
    return LeaseTimes(GroupOptions(lease_s=30, handling_s_max=100), 1000.0)


@pytest.mark.parametrize(
    ("error", "now_s", "is_lost"),
    [
        (AWAY, 1030.0, False),
        (AWAY, 1030.1, True),
        (InvalidRequestError("never"), 1001.0, True),
        (GroupError("fenced"), 1001.0, True),
    ],
)
def test_a_lease_is_lost_by_an_error_that_stays_or_by_its_end(
    error: SteleClientError, now_s: float, is_lost: bool
) -> None:
    lost = times().not_extended(error, now_s)
    assert (lost is not None) == is_lost
    if lost is not None:
        assert str(lost) == f"the lease is lost: {error}"


def test_an_extended_lease_ends_later() -> None:
    lease = times()
    lease.extended(1020.0)
    assert lease.not_extended(AWAY, 1050.0) is None
    assert lease.not_extended(AWAY, 1050.1) is not None


def test_a_batch_that_is_handled_for_too_long_is_not_extended_again() -> None:
    lease = times()
    lease.extended(1099.0)
    assert lease.overdue(1100.0) is None
    assert "not handled within 100 s" in str(lease.overdue(1100.1))


# ── groups ──


def record(offset: int) -> Record[bytes]:
    return Record("orders", 0, offset, 5, b"k", b"v")


def polled(deliveries: int = 1, skipped: list[SkippedRecords] | None = None) -> Polled:
    leased = LeasedPartition(topic="orders", partition=0, offset=0, next_offset=2, deliveries=deliveries)
    records = [record(0), record(1)]
    return Polled(lease="l", expires_at_ms=0, records=records, partitions=[leased], skipped=skipped or [])


def group(**options: Unpack[GroupSettings]) -> GroupCore:
    return GroupCore("billing", ["orders"], options)


def test_a_group_reads_at_least_one_topic() -> None:
    with pytest.raises(ValueError, match="name at least one topic"):
        GroupCore("billing", [], {})


def test_a_lost_batch_stops_the_loop_over_its_records() -> None:
    batch = BatchCore(polled())
    records = iter(batch)
    assert next(records).offset == 0
    batch._lost = LeaseLostError("gone")
    with pytest.raises(LeaseLostError, match="gone"):
        next(records)


@pytest.mark.parametrize(
    ("error", "options", "deliveries", "goes"),
    [
        (KeyError("k"), GroupSettings(on_error="redeliver", dead_letter_topic="dead"), 8, True),
        (KeyError("k"), GroupSettings(on_error="redeliver", dead_letter_topic="dead"), 7, False),
        (KeyError("k"), GroupSettings(on_error="redeliver"), 8, False),
        (KeyError("k"), GroupSettings(), 8, False),
        (KeyboardInterrupt(), GroupSettings(on_error="redeliver", dead_letter_topic="dead"), 8, False),
    ],
)
def test_records_become_dead_letters_after_the_last_delivery(
    error: BaseException, options: GroupSettings, deliveries: int, goes: bool
) -> None:
    letters = group(**options).dead_letters(BatchCore(polled(deliveries)), error)
    assert (letters is not None) == goes
    if letters is not None:
        topic, records = letters
        assert topic == "dead"
        assert [letter.value for letter in records] == [b"v", b"v"]


@pytest.mark.parametrize(
    ("error", "options", "stops_here"),
    [
        (KeyError("k"), GroupSettings(on_error="redeliver"), True),
        (KeyError("k"), GroupSettings(), False),
        (KeyboardInterrupt(), GroupSettings(on_error="redeliver"), False),
    ],
)
def test_only_exceptions_of_a_redelivering_group_stop_at_its_batch(
    error: BaseException, options: GroupSettings, stops_here: bool
) -> None:
    assert group(**options).absorbs(BatchCore(polled()), error) is stops_here


def test_records_that_retention_took_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    skipped = SkippedRecords(topic="orders", partition=3, offset=5, next_offset=9)
    with caplog.at_level(logging.WARNING, logger="stele.grouping"):
        group().report_skipped(polled(skipped=[skipped]))
    assert caplog.messages == [
        "group 'billing': offsets 5 to 8 of orders-3 were deleted before they were read"
    ]


# ── records that a deserializer rejects ──


def json_consumer(*values: bytes) -> ConsumerCore[object]:
    core = ConsumerCore("orders", json_deserializer, ConsumerOptions(), fetches_many=True)
    core.assign(0, 0, None)
    records = [Record("orders", 0, offset, 5, None, value) for offset, value in enumerate(values)]
    core.accept(
        core.fetch([0], wait_ms=0),
        [
            FetchedRecords(
                topic="orders",
                partition=0,
                records=records,
                next_offset=len(values),
                high_watermark=len(values),
                log_start_offset=0,
            )
        ],
    )
    return core


def test_records_before_a_rejected_one_are_returned_and_the_next_call_raises() -> None:
    core = json_consumer(b"1", b"2", b"{", b"4")
    assert [record.value for record in core.next_records(10)] == [1, 2]
    assert core.position(0) == 2
    with pytest.raises(DeserializationError) as caught:
        core.next_records(10)
    assert caught.value.record.offset == 2
    assert core.position(0) == 3
    assert [record.value for record in core.next_records(10)] == [4]
    assert not core.has_records


def test_a_position_sought_before_the_error_is_raised_skips_the_rejected_record() -> None:
    core = json_consumer(b"1", b"{")
    assert [record.value for record in core.next_records(10)] == [1]
    core.seek(0, 2)
    assert core.next_records(10) == []
    assert core.position(0) == 2


# ── outages of a consumer ──


def consumer(outage_timeout_s: float | None = 60.0) -> ConsumerCore[bytes]:
    options = ConsumerOptions(outage_timeout_s=outage_timeout_s)
    core = ConsumerCore("orders", bytes_deserializer, options, fetches_many=True)
    core.assign(0, 0, None)
    return core


def fetched(core: ConsumerCore[bytes], outcome: FetchOutcome) -> None:
    core.accept(core.fetch([0], wait_ms=0), [outcome])


def test_an_outage_is_tolerated_up_to_its_limit_and_then_again() -> None:
    core = consumer()
    for now_s in (1000.0, 1059.9):
        assert 0 < core.pause_s_after(AWAY, now_s) <= 1.0
    with pytest.raises(BrokerUnavailableError):
        core.pause_s_after(AWAY, 1060.0)
    # The application iterates on: another outage begins.
    assert core.pause_s_after(AWAY, 1061.0) > 0


def test_a_fetch_that_brings_something_ends_the_outage() -> None:
    core = consumer()
    core.pause_s_after(AWAY, 1000.0)
    empty = FetchedRecords(
        topic="orders", partition=0, records=[], next_offset=0, high_watermark=0, log_start_offset=0
    )
    fetched(core, empty)
    assert core.pause_s_after(AWAY, 1060.0) > 0


def test_a_fetch_that_brings_an_error_does_not() -> None:
    core = consumer()
    core.pause_s_after(AWAY, 1000.0)
    fetched(core, OffsetOutOfRangeError("gone"))
    with pytest.raises(BrokerUnavailableError):
        core.pause_s_after(AWAY, 1060.0)


def test_an_error_that_stays_is_raised_at_once_and_without_a_limit_an_outage_never_is() -> None:
    with pytest.raises(InvalidRequestError):
        consumer().pause_s_after(InvalidRequestError("never"), 1000.0)
    patient = consumer(outage_timeout_s=None)
    patient.pause_s_after(AWAY, 1000.0)
    assert patient.pause_s_after(AWAY, 1e9) > 0


def test_a_broker_that_is_older_than_fetches_by_id_is_asked_by_name() -> None:
    core = consumer()
    core.topic_id = "b4f0c1de-7d3c-4c53-9d0e-5a6f2f3d9b51"
    assert core.fetch([0], wait_ms=0).topic_id == core.topic_id
    older = UnsupportedOperationError("upgrade the broker")
    assert core.pause_s_after(older, 1000.0) == 0
    assert core.fetch([0], wait_ms=0).topic_id is None
    with pytest.raises(UnsupportedOperationError):
        core.pause_s_after(older, 1000.0)
