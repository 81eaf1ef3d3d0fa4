"""The state of one partition of a mirror."""

from __future__ import annotations

import pytest
from stele.mirror.partition import Job, PartitionCopy, State, pause_s
from stele.mirror.positions import CopyState, Piece, SourceState
from stele.mirror.source.reads import Leader
from stele.records import TopicPartition

ID = bytes(16)


def new() -> PartitionCopy:
    return PartitionCopy(name=TopicPartition("t", 0), topic_id=ID, copy_id=ID, leader=Leader(1, 5))


def begun() -> PartitionCopy:
    one = new()
    one.began(4, CopyState(start=0, end=4, epoch=2), SourceState(start=0, end=9, epoch_end=(2, 9)))
    return one


def job(next_offset: int, *, size: int = 10, log_start: int = 0) -> Job:
    return Job(bytes(size), [Piece(0, size, next_offset, 3)], log_start)


def test_it_begins_then_copies_then_is_level() -> None:
    one = new()
    assert one.must_begin(0.0)
    assert not one.may_fetch
    assert one.state == "starting"
    one.began(4, CopyState(start=0, end=4, epoch=2), SourceState(start=0, end=9))
    assert not one.must_begin(0.0)
    assert one.may_fetch
    assert (one.state, one.lag) == ("copying", 5)
    one.fetched(job(9), high_watermark=9)
    assert (one.position, one.epoch, one.end) == (9, 3, 4)
    one.appended(CopyState(start=0, end=9, epoch=3))
    assert (one.state, one.lag) == ("level", 0)


def test_one_fetch_is_read_ahead_and_no_more() -> None:
    one = begun()
    one.fetched(job(5), high_watermark=9)
    assert one.may_fetch
    one.fetched(job(6), high_watermark=9)
    assert not one.may_fetch


def test_an_epoch_that_the_source_need_not_know_is_not_sent() -> None:
    one = new()
    one.began(4, CopyState(start=0, end=4, epoch=2), SourceState(start=4, end=9))
    assert one.epoch == -1


def test_a_fetch_without_batches_is_a_job_only_if_the_log_start_moved() -> None:
    one = begun()
    one.fetched(Job(b"", [], 0), high_watermark=9)
    assert not one.jobs
    one.fetched(Job(b"", [], 2), high_watermark=9)
    assert len(one.jobs) == 1


def test_the_end_of_a_copy_moves_only_if_the_source_has_nothing() -> None:
    """The source may begin inside a batch, which is copied whole."""
    one = new()
    one.began(8, CopyState(start=0, end=4, epoch=2), SourceState(start=8, end=9))
    assert one.floor == 4
    one.fetched(Job(b"", [], 8), high_watermark=9)
    assert not one.jobs
    one.fetched(Job(b"", [], 8), high_watermark=8)
    assert len(one.jobs) == 1


def test_after_an_error_it_waits_and_begins_again() -> None:
    one = begun()
    one.fetched(job(5, size=77), high_watermark=9)
    assert one.wait("why", 100.0) == 77
    assert (one.state, one.error, one.position) == ("waiting", "why", None)
    assert not one.must_begin(100.0)
    assert one.must_begin(120.0)
    one.is_appending = True
    assert not one.must_begin(120.0)


def test_what_was_under_way_before_is_of_another_run() -> None:
    one = begun()
    run = one.run
    one.begin_again()
    assert one.run != run


def test_another_leader_is_compared_first() -> None:
    one = begun()
    assert one.led_by(Leader(1, 5)) == 0
    assert one.may_fetch
    one.led_by(Leader(1, 6))
    assert one.must_begin(0.0)


@pytest.mark.parametrize("state", ["diverged", "recreated", "shrunk", "refused"])
def test_what_has_stopped_stays_so(state: State) -> None:
    one = begun()
    one.stop(state, "why")
    one.stop("refused", "another reason")
    one.wait("an error", 0.0)
    one.led_by(Leader(2, 9))
    assert (one.state, one.error) == (state, "why")
    assert not one.must_begin(1e9)
    assert not one.may_fetch


def test_pauses_double_up_to_a_bound() -> None:
    assert 0.1 <= pause_s(1) <= 0.2
    assert all(5.0 <= pause_s(failures) <= 10.0 for failures in (7, 20, 10**9))


def test_an_error_is_shown_in_a_bounded_length() -> None:
    one = begun()
    one.wait("x" * 100_000, 0.0)
    assert len(one.error) == 500
