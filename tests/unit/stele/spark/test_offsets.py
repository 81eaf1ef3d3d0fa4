"""Arithmetic on offsets: nothing is left out, nothing is taken twice, and limits hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.records import TopicPartition
from stele.spark.offsets import OffsetRange, OffsetsError, from_json, limited, ranges, split, to_json

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A2, A10 = TopicPartition("a", 2), TopicPartition("a", 10)

names = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20))
offsets = st.dictionaries(names, st.integers(0, 2**40), max_size=8)
sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)


def test_offsets_in_json_are_in_one_order_whatever_the_order_they_came_in() -> None:
    document = to_json({B0: 5, A10: 1, A2: 2})
    assert document == {"a": {"2": 2, "10": 1}, "b": {"0": 5}}
    assert list(document["a"]) == ["2", "10"]


@given(offsets)
def test_offsets_survive_json(found: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(found)) == found


@pytest.mark.parametrize("document", [{"a": 5}, {"a": {"x": 1}}, {"a": {"0": None}}])
def test_offsets_of_another_source_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(OffsetsError, match="is the checkpoint that of another source"):
        from_json(document)


def test_ranges_lie_between_and_empty_ones_are_left_out() -> None:
    assert ranges({A0: 5, A1: 7, B0: 9}, {A0: 8, A1: 7, B0: 3}) == [
        OffsetRange(topic="a", partition=0, start=5, end=8)
    ]


@given(sizes, st.integers(1, 20_000))
def test_a_limit_is_reached_exactly_and_every_partition_stays_within_what_it_has(
    found: list[int], records_max: int
) -> None:
    start = {TopicPartition("t", i): 100 for i in range(len(found))}
    end = {TopicPartition("t", i): 100 + size for i, size in enumerate(found)}
    drawn = limited(start, end, records_max)
    assert sum(drawn[n] - start[n] for n in drawn) == min(records_max, sum(found))
    assert all(start[n] <= drawn[n] <= end[n] for n in drawn)


def test_a_limit_is_shared_in_proportion() -> None:
    drawn = limited({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100)
    assert drawn == {A0: 90, A1: 10}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 30))
def test_every_partition_that_waits_is_served_in_turn_however_small_it_is(
    waiting: list[int], most: int
) -> None:
    names = [TopicPartition("a", number) for number in range(len(waiting))]
    start = dict.fromkeys(names, 3)
    # What is read is filled up again at once, in the first partition by far the most.
    fill = {
        name: size + 10_000 * (name.partition == 0 and size > 0)
        for name, size in zip(names, waiting, strict=True)
    }
    served: set[TopicPartition] = set()

    for _ in range(len(names)):
        end = limited(start, {name: start[name] + fill[name] for name in names}, most)
        served |= {name for name in names if end[name] > start[name]}
        start = end

    assert served == {name for name in names if fill[name]}


@given(sizes, st.one_of(st.none(), st.integers(1, 50)), st.one_of(st.none(), st.integers(1, 5_000)))
def test_a_split_covers_everything_once_and_is_always_the_same(
    found: list[int], least: int | None, most: int | None
) -> None:
    whole = [OffsetRange(topic="t", partition=i, start=7, end=7 + size) for i, size in enumerate(found)]
    parts = split(whole, min_partitions=least, max_records_per_partition=most)
    assert parts == split(whole, min_partitions=least, max_records_per_partition=most)
    for one in whole:
        mine = [part for part in parts if part.partition == one.partition]
        assert [o for part in mine for o in (part.start, part.end)] == sorted(
            o for part in mine for o in (part.start, part.end)
        )
        assert sum(part.size for part in mine) == one.size
        assert all(part.size > 0 for part in mine)
    if most is not None:
        assert all(part.size <= most for part in parts)


def test_a_split_makes_about_as_many_parts_as_are_asked_for() -> None:
    whole = [
        OffsetRange(topic="t", partition=0, start=0, end=900),
        OffsetRange(topic="t", partition=1, start=0, end=100),
    ]
    parts = split(whole, min_partitions=10, max_records_per_partition=None)
    assert [part.partition for part in parts] == [0] * 9 + [1]
