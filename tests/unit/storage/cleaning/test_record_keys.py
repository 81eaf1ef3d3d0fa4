"""Keys by the compiled codec are those that the slow reader finds, and batches that it refuses are refused."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.storage.cleaning.record_bounds import BatchRecords
from app.storage.cleaning.record_keys import KeySlice, read_keys
from tests.support.batches import with_new_crc
from tests.support.compaction import Keyed, batch

RECORDS = st.builds(Keyed, key=st.none() | st.binary(max_size=80), value=st.none() | st.binary(max_size=80))
Row = tuple[int, bytes | None, bool]


def rows_of(slices: list[KeySlice]) -> list[Row]:
    return [row for part in slices for row in zip(part.offsets, part.keys, part.has_value, strict=True)]


def slow_rows(plain: bytes) -> list[Row] | None:
    """None if the batch is refused."""
    header = rb.read_header(plain)
    try:
        records = [record for part in BatchRecords(plain, header) for record in part]
    except rb.CorruptBatchError:
        return None
    # The codec reads more than one byte of such attributes.
    assume(all(plain[record.attributes] < 0x80 for record in records))
    return [(header.base_offset + record.offset_delta, record.key, record.has_value) for record in records]


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=1200), st.sampled_from(list(Compression)))
def test_both_readers_find_the_same(records: list[Keyed], codec: Compression) -> None:
    raw = batch(records, 77, compression=codec)
    header = rb.read_header(raw)
    plain = rb.plain_batch(raw, header)
    found = rows_of(list(read_keys(plain)))
    assert found == slow_rows(plain)
    assert [(key, has_value) for _, key, has_value in found] == [
        (r.key, r.value is not None) for r in records
    ]


@settings(deadline=None, max_examples=300)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_a_damaged_batch_is_refused_by_both_or_by_none(records: list[Keyed], data: st.DataObject) -> None:
    raw = bytearray(batch(records, 5))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(rb.HEADER_BYTES, len(raw) - 1))] = data.draw(st.integers(0, 255))
    plain = with_new_crc(bytes(raw))
    slow = slow_rows(plain)
    if slow is None:
        with pytest.raises(rb.CorruptBatchError):
            list(read_keys(plain))
    else:
        assert rows_of(list(read_keys(plain))) == slow


def test_a_header_name_that_is_no_text_does_not_hide_the_key() -> None:
    raw = batch([Keyed(b"a", headers=(("name", b"1"),))]).replace(b"name", b"\xff\xff\xff\xff")
    assert rows_of(list(read_keys(with_new_crc(raw)))) == [(0, b"a", True)]


def test_a_slice_is_cut_by_offsets() -> None:
    part = KeySlice([3, 5, 9], [b"a", None, b"b"], [True, True, False])
    assert part.between(4, 9) == KeySlice([5], [None], [True])
    assert part.between(0, 10) == part
    assert part.between(10, 20) == KeySlice([], [], [])
