"""Where records stand in a batch, against the compiled codec, and on bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb

from app.storage.cleaning.record_bounds import BatchRecords, write_varint
from tests.support.batches import with_new_crc
from tests.support.compaction import Keyed, batch

RECORDS = st.builds(
    Keyed,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=200),
    timestamp_ms=st.integers(0, 2**45),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(
        tuple
    ),
)


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=120))
def test_every_record_is_found(records: list[Keyed]) -> None:
    raw = batch(records)
    header = rb.read_header(raw)
    bounds = [record for part in BatchRecords(raw, header) for record in part]
    assert [record.offset_delta for record in bounds] == list(range(len(records)))
    assert [header.base_timestamp + record.timestamp_delta for record in bounds] == [
        record.timestamp_ms for record in records
    ]
    assert [(record.key, record.has_value) for record in bounds] == [
        (record.key, record.value is not None) for record in records
    ]
    assert bounds[0].start == rb.HEADER_BYTES
    assert bounds[-1].end == len(raw)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
@example(-1)
@example(63)
@example(64)
def test_a_number_is_written_as_the_compiled_codec_reads_it(number: int) -> None:
    body = b"\0" + write_varint(number) + b"\0\1\1\0"
    record = write_varint(len(body)) + body
    fields = (0, rb.HEADER_BYTES - 12 + len(record), 0, rb.MAGIC, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    raw = with_new_crc(rb.HEADER.pack(*fields) + record)
    assert rb.decode_records(raw)[0].timestamp == number
    assert next(iter(BatchRecords(raw, rb.read_header(raw))))[0].timestamp_delta == number


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(1, 2**31 - 1))
def test_other_bytes_raise_and_allocate_nothing(body: bytes, count: int) -> None:
    fields = (0, rb.HEADER_BYTES - 12 + len(body), 0, rb.MAGIC, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    raw = rb.HEADER.pack(*fields) + body
    try:
        found = [record for part in BatchRecords(raw, rb.read_header(raw)) for record in part]
    except rb.CorruptBatchError:
        return
    assert len(found) == count
    assert found[-1].end == len(raw)


@pytest.mark.parametrize("change", ["drop", "repeat", "swap", "append"])
def test_offsets_that_do_not_ascend_and_bytes_left_over_are_refused(change: str) -> None:
    raw = batch([Keyed(b"a"), Keyed(b"b"), Keyed(b"c")])
    first, second, third = (record for part in BatchRecords(raw, rb.read_header(raw)) for record in part)
    pieces = {
        "drop": [first, third],
        "repeat": [first, first, third],
        "swap": [first, third, second],
        "append": [first, second, third, third],
    }[change]
    body = b"".join(raw[record.start : record.end] for record in pieces)
    length = rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES + len(body)
    changed = raw[:8] + length.to_bytes(4, "big") + raw[12 : rb.HEADER_BYTES] + body
    with pytest.raises(rb.CorruptBatchError):
        BatchRecords(changed, rb.read_header(changed))


def test_a_batch_of_more_records_than_are_held_is_read_again() -> None:
    raw = batch([Keyed(None)] * 10_001)
    records = BatchRecords(raw, rb.read_header(raw))
    assert list(records) == list(records)
    assert sum(map(len, records)) == 10_001
