"""One read of the file gives what the search for batches finds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb

from app.storage.disk.files import RealFile, RealFiles
from app.storage.segments import reader
from app.storage.segments.reader import Extent, extent_from
from app.storage.segments.segment import Segment
from app.storage.segments.single_read import read_at_once
from tests.support.batches import batch_of

BASE_OFFSET = 1000


@dataclass(frozen=True, slots=True)
class Query:
    """Parts of what the log has: an offset, and where the read ends."""

    offset: float
    max_bytes: int
    end: float | None


def segment_of(directory: Path, batches: Sequence[tuple[int, int]], index_interval_bytes: int) -> Segment:
    """Return a segment with batches of so many records of so many bytes."""
    segment = Segment(
        RealFiles(), directory, BASE_OFFSET, index_interval_bytes=index_interval_bytes, created_ms=0
    )
    segment.create()
    for count, size in batches:
        batch = batch_of([b"v" * size] * count)
        rb.assign_offsets(batch, 0, segment.next_offset, 3)
        segment.append(batch, [rb.read_header(batch)], now_ms=0)
    return segment


def searched(segment: Segment, offset: int, max_bytes: int, end_offset: int) -> Extent | None:
    """Return what the search finds without the single read."""
    with mock.patch.object(reader, "read_at_once", return_value=None):
        return extent_from(segment, offset, max_bytes, at_least_one=True, end_offset=end_offset, nowait=False)


queries = st.builds(
    Query,
    offset=st.floats(0, 0.999),
    max_bytes=st.one_of(st.integers(0, 2000), st.integers(0, 100_000)),
    end=st.none() | st.floats(0, 1),
)


@settings(max_examples=60)
@given(
    batches=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([1, 1, 50, 50, 300, 1000, 5000])),
        min_size=1,
        max_size=40,
    ),
    index_interval_bytes=st.sampled_from([0, 200, 1000, 4096, 100_000]),
    questions=st.lists(queries, min_size=1, max_size=20),
)
def test_it_finds_the_batches_that_the_search_finds(
    batches: list[tuple[int, int]], index_interval_bytes: int, questions: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        segment = segment_of(Path(directory), batches, index_interval_bytes)
        length = segment.next_offset - BASE_OFFSET
        for query in questions:
            offset = BASE_OFFSET + int(query.offset * length)
            end_offset = segment.next_offset
            if query.end is not None:
                # A batch begins at the end.
                within = BASE_OFFSET + int(query.end * length)
                starts = [header.base_offset for header in reader.headers(segment)]
                end_offset = max((start for start in starts if start <= within), default=BASE_OFFSET)
            found = read_at_once(segment, offset, query.max_bytes, end_offset=end_offset)
            if found is not None:
                expected = searched(segment, offset, query.max_bytes, end_offset)
                assert expected is not None
                assert found == (expected.position, expected.read())
        segment.release()


@pytest.mark.parametrize("size", [20, 100, 1000, 5000, 16_000])
def test_a_consumer_that_reads_on_needs_one_read_for_each_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    segment = segment_of(tmp_path, [(1, size)] * 200, 4096)
    reads: list[int] = []
    read_at_nowait = RealFile.read_at_nowait

    def counted(file: RealFile, position: int, count: int) -> bytes | bytearray | None:
        reads.append(position)
        return read_at_nowait(file, position, count)

    monkeypatch.setattr(RealFile, "read_at_nowait", counted)
    offset, fetches = BASE_OFFSET, 0
    while offset < segment.next_offset:
        extent = extent_from(segment, offset, 20_000, at_least_one=True, nowait=True)
        assert extent is not None
        data = extent.read_nowait()
        assert data is not None
        assert len(data) == extent.size
        assert rb.read_header(data).base_offset == offset
        position = 0
        while position < len(data):
            header = rb.check_batch(data, position)
            offset, position = header.next_offset, position + header.size
        fetches += 1
    # The second batch has the first entry of the index, so it may be looked for at the wrong place.
    assert fetches <= len(reads) <= fetches + 2
    segment.release()


def test_a_segment_with_holes_is_left_to_the_search(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [(1, 100)] * 3, 4096)
    assert read_at_once(segment, BASE_OFFSET, 1000, end_offset=segment.next_offset) is not None
    segment.may_have_holes = True
    assert read_at_once(segment, BASE_OFFSET, 1000, end_offset=segment.next_offset) is None
    segment.release()
