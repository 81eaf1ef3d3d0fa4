"""``.timeindex`` files: entries as Apache Kafka writes them, and lookups by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.segments.time_index import ENTRY_BYTES, TimeIndex

entries_of_any_order = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 2**31 - 1)), max_size=50)


def index_of(entries: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, relative_offset in entries:
        index.maybe_append(timestamp_ms, relative_offset)
    return index


def test_an_entry_has_the_bytes_of_the_documented_example() -> None:
    assert index_of([(1763664052225, 42)]).to_bytes() == bytes.fromhex("00 00 01 9a a2 91 c0 01 00 00 00 2a")


@given(entries_of_any_order)
def test_only_newer_timestamps_are_kept(entries: list[tuple[int, int]]) -> None:
    kept = index_of(entries).entries()
    times = [timestamp for timestamp, _ in kept]
    assert times == sorted(set(times))
    assert set(kept) <= set(entries)
    assert max([0, *times]) == max([0, *(timestamp for timestamp, _ in entries)])


@given(entries_of_any_order)
def test_what_is_written_is_read(entries: list[tuple[int, int]]) -> None:
    index = index_of(entries)
    data = index.to_bytes()
    assert len(data) == ENTRY_BYTES * len(index)
    read = TimeIndex.from_bytes(data)
    assert read is not None
    assert read.entries() == index.entries()
    assert TimeIndex.last_of(data) == read.last() == index.last()


@given(entries_of_any_order, st.integers(-5, 1005))
def test_a_search_gives_the_last_entry_at_or_below_in_memory_and_in_the_file(
    entries: list[tuple[int, int]], wanted: int
) -> None:
    index = index_of(entries)
    expected = max((entry for entry in index.entries() if entry[0] <= wanted), default=None)
    assert index.entry_for(wanted) == expected
    assert TimeIndex.search(index.to_bytes(), wanted) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 11,
        index_of([(5, 1)]).to_bytes() + index_of([(5, 2)]).to_bytes(),
        index_of([(5, 1)]).to_bytes() + index_of([(4, 2)]).to_bytes(),
        bytes(8) + b"\xff\xff\xff\xff",
    ],
    ids=["not whole entries", "the same time twice", "descending", "a negative offset"],
)
def test_what_cannot_be_a_time_index_is_refused(data: bytes) -> None:
    assert TimeIndex.from_bytes(data) is None


def test_an_empty_index_knows_nothing() -> None:
    assert TimeIndex.last_of(b"") is None
    assert TimeIndex.search(b"", 5) is None
    assert TimeIndex().entry_for(5) is None
    assert TimeIndex().last() is None
