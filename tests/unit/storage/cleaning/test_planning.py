"""Which partition is cleaned next, up to where, in which groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.storage.cleaning.planning import (
    CleaningRange,
    CleaningRules,
    SegmentFacts,
    cleaning_range,
    dirtiest,
    groups,
)
from app.storage.recovery.checkpoint import CLEANER_OFFSETS, read_offsets, write_offsets
from tests.support.compaction import RULES
from tests.support.simulated_files import SimulatedFiles

NOW_MS = 1_000_000
END = 500


def segment(number: int, *, size: int = 400, newest_ms: int = 0, first_ms: int = -1) -> SegmentFacts:
    """The ``number``-th of segments with a hundred offsets each."""
    return SegmentFacts(
        base_offset=100 * number,
        next_offset=100 * number + 100,
        size=size,
        newest_ms=newest_ms,
        first_ms=first_ms,
    )


FIVE = [segment(number) for number in range(5)]


def range_of(
    segments: list[SegmentFacts] = FIVE,
    rules: CleaningRules = RULES,
    *,
    checkpoint: int | None = 200,
    log_start: int = 0,
    stable: int = END,
) -> CleaningRange:
    return cleaning_range(
        segments,
        rules,
        checkpoint=checkpoint,
        log_start_offset=log_start,
        stable_offset=stable,
        now_ms=NOW_MS,
    )


class TestRange:
    def test_what_was_cleaned_is_clean_and_the_active_segment_is_left_out(self) -> None:
        found = range_of()
        assert (found.first_dirty, found.first_uncleanable) == (200, 400)
        assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (800, 800, 0.5)

    def test_a_first_dirty_offset_inside_a_segment_makes_all_of_it_cleanable(self) -> None:
        found = range_of(checkpoint=150)
        assert (found.first_dirty, found.clean_bytes, found.cleanable_bytes) == (150, 400, 1_200)

    @pytest.mark.parametrize("checkpoint", [None, 50, 501])
    def test_a_checkpoint_that_is_lost_or_out_of_range_begins_at_the_log_start(
        self, checkpoint: int | None
    ) -> None:
        assert range_of(checkpoint=checkpoint, log_start=100).first_dirty == 100

    @pytest.mark.parametrize(("stable", "uncleanable"), [(500, 400), (400, 400), (399, 300), (300, 300)])
    def test_nothing_past_the_stable_offset_is_cleaned(self, stable: int, uncleanable: int) -> None:
        assert range_of(stable=stable).first_uncleanable == uncleanable

    def test_a_stable_offset_before_the_first_dirty_one_leaves_nothing(self) -> None:
        found = range_of(stable=120)
        assert (found.first_dirty, found.first_uncleanable, found.cleanable_bytes) == (200, 200, 0)
        assert not found.is_due(replace(RULES, min_cleanable_dirty_ratio=0, max_compaction_lag_ms=1))

    def test_a_segment_with_a_record_younger_than_the_lag_ends_the_range(self) -> None:
        segments = [*FIVE[:3], segment(3, newest_ms=NOW_MS - 99), FIVE[4]]
        lag = replace(RULES, min_compaction_lag_ms=100)
        assert range_of(segments, lag).first_uncleanable == 300
        assert range_of(segments, replace(RULES, min_compaction_lag_ms=99)).first_uncleanable == 400
        assert range_of(segments).first_uncleanable == 400

    def test_a_young_record_in_the_clean_part_changes_nothing(self) -> None:
        segments = [segment(0, newest_ms=NOW_MS), *FIVE[1:]]
        assert range_of(segments, replace(RULES, min_compaction_lag_ms=100)).first_uncleanable == 400

    def test_an_active_segment_alone_has_nothing_to_clean(self) -> None:
        found = range_of(FIVE[:1], checkpoint=0)
        assert (found.first_uncleanable, found.cleanable_bytes, found.dirty_ratio) == (0, 0, 0.0)


class TestDue:
    def test_the_ratio_must_be_above_the_least(self) -> None:
        found = range_of()
        assert not found.is_due(RULES)
        assert found.is_due(replace(RULES, min_cleanable_dirty_ratio=0.49))

    def test_dirty_records_past_the_largest_lag_make_a_pass_due_whatever_the_ratio(self) -> None:
        segments = [*FIVE[:2], segment(2, first_ms=NOW_MS - 101), *FIVE[3:]]
        never = replace(RULES, min_cleanable_dirty_ratio=1)
        assert range_of(segments, replace(never, max_compaction_lag_ms=100)).is_overdue
        assert not range_of(segments, replace(never, max_compaction_lag_ms=101)).is_overdue
        assert range_of(segments, replace(never, max_compaction_lag_ms=100)).is_due(never)

    def test_the_age_of_clean_records_does_not_count(self) -> None:
        segments = [segment(0, first_ms=1), *FIVE[1:]]
        assert not range_of(segments, replace(RULES, max_compaction_lag_ms=100)).is_overdue

    def test_the_dirtiest_partition_comes_first(self) -> None:
        eager = replace(RULES, min_cleanable_dirty_ratio=0.1)
        ranges = {
            "half": (range_of(), eager),
            "all": (range_of(checkpoint=0), eager),
            "not due": (range_of(checkpoint=0), replace(RULES, min_cleanable_dirty_ratio=1)),
        }
        assert dirtiest(ranges) == "all"
        del ranges["all"]
        assert dirtiest(ranges) == "half"
        del ranges["half"]
        assert dirtiest(ranges) is None


def bases(grouped: list[list[SegmentFacts]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in grouped]


class TestGroups:
    def test_neighbours_share_a_segment_while_they_fit(self) -> None:
        assert bases(groups(FIVE, RULES, mapped_end=400)) == [[0, 100], [200, 300]]

    def test_segments_after_the_mapped_range_are_left_out_and_the_last_one_is_whole(self) -> None:
        assert bases(groups(FIVE, RULES, mapped_end=201)) == [[0, 100], [200]]
        assert bases(groups(FIVE, RULES, mapped_end=200)) == [[0, 100]]
        assert groups(FIVE, RULES, mapped_end=0) == []

    def test_one_that_is_too_large_is_a_group_of_its_own(self) -> None:
        segments = [segment(0), segment(1, size=5_000), segment(2)]
        assert bases(groups(segments, RULES, mapped_end=300)) == [[0], [100], [200]]

    @pytest.mark.parametrize("name", ["index_bytes", "time_index_bytes"])
    def test_indexes_must_fit_too(self, name: str) -> None:
        segments = [replace(each, **{name: 60}) for each in FIVE]
        assert bases(groups(segments, replace(RULES, index_bytes_max=119), mapped_end=300)) == [
            [0],
            [100],
            [200],
        ]

    def test_offsets_must_fit_into_an_index(self) -> None:
        far = SegmentFacts(base_offset=100, next_offset=2**31, size=1, newest_ms=0, first_ms=0)
        assert bases(groups([segment(0), far], RULES, mapped_end=500)) == [[0, 100]]
        farther = replace(far, next_offset=2**31 + 1)
        assert bases(groups([segment(0), farther], RULES, mapped_end=500)) == [[0], [100]]


def test_the_checkpoint_has_the_layout_of_apache_kafka() -> None:
    files, path = SimulatedFiles(), Path("/") / CLEANER_OFFSETS
    write_offsets(files, path, {("orders", 0): 400, ("orders", 1): 0}.items())
    assert bytes(files.content(path)) == b"0\n2\norders 0 400\norders 1 0\n"
    assert read_offsets(files, path) == {("orders", 0): 400, ("orders", 1): 0}
