"""``.index`` files: entries as Apache Kafka writes them, and lookups by offset."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.segments.offset_index import ENTRY_BYTES, OffsetIndex

steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), max_size=50)


def index_of(entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex()
    for relative_offset, position in entries:
        index.append(relative_offset, position)
    return index


def ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(
        zip(accumulate(offset for offset, _ in pairs), accumulate(at for _, at in pairs), strict=True)
    )


def test_an_entry_has_the_bytes_of_the_documented_example() -> None:
    assert index_of([(41, 4102)]).to_bytes() == bytes.fromhex("00 00 00 29 00 00 10 06")


@given(steps)
def test_what_is_written_is_read(pairs: list[tuple[int, int]]) -> None:
    entries = ascending(pairs)
    data = index_of(entries).to_bytes()
    assert len(data) == ENTRY_BYTES * len(entries)
    read = OffsetIndex.from_bytes(data, log_bytes=(entries[-1][1] if entries else 0) + 1)
    assert read is not None
    assert read.entries() == entries
    assert len(read) == len(entries)
    assert read.last_position() == (entries[-1][1] if entries else 0)


@given(steps, st.integers(0, 60_000))
def test_a_search_gives_the_last_entry_at_or_below(pairs: list[tuple[int, int]], wanted: int) -> None:
    entries = ascending(pairs)
    index = index_of(entries)
    assert index.position_for(wanted) == max([0, *(at for offset, at in entries if offset <= wanted)])
    assert index.position_before(wanted) == max([0, *(at for _, at in entries if at <= wanted)])


@pytest.mark.parametrize(
    "entries",
    [[(5, 10), (5, 10)], [(5, 10), (4, 20)], [(5, 10), (5, 9)]],
    ids=["twice", "offset", "position"],
)
def test_entries_ascend(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError):
        index_of(entries)


def test_what_cannot_be_the_index_of_the_log_is_refused() -> None:
    data = index_of([(5, 10), (9, 40)]).to_bytes()
    assert OffsetIndex.from_bytes(data, log_bytes=41) is not None
    assert OffsetIndex.from_bytes(data, log_bytes=40) is None
    assert OffsetIndex.from_bytes(data[:-1], log_bytes=100) is None
    assert OffsetIndex.from_bytes(data[8:] + data[:8], log_bytes=100) is None


def test_the_largest_values_fit() -> None:
    index = index_of([(2**31 - 1, 2**32 - 1)])
    assert index.entries() == [(2**31 - 1, 2**32 - 1)]
    assert index.position_for(2**31 - 2) == 0
    assert index.position_for(2**31 - 1) == 2**32 - 1
