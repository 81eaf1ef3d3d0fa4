"""What remains of a batch: the same bytes, some records, an empty header, nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.storage.cleaning.batch_filter import DELETE_HORIZON, BatchFilter, Remains, Treatment
from app.storage.cleaning.key_map import KeyMap
from app.storage.cleaning.record_bounds import write_varint
from tests.support.batches import with_new_crc
from tests.support.compaction import DAY_MS, NOW_MS, Keyed, Stored, batch, records_of

CODECS = pytest.mark.parametrize("codec", list(Compression))
END = 1_000


@pytest.fixture
def keys() -> Iterator[KeyMap]:
    with closing(KeyMap(10_000)) as key_map:
        yield key_map


def remains(
    keys: KeyMap,
    raw: bytes,
    *,
    mapped_end: int = END,
    now_ms: int = NOW_MS,
    discard: bool = False,
    keep_place: bool = False,
    start_horizon: bool = False,
) -> Remains:
    rules = BatchFilter(keys, mapped_end=mapped_end, now_ms=now_ms, delete_retention_ms=DAY_MS)
    treatment = Treatment(discard=discard, keep_place=keep_place, start_horizon=start_horizon)
    found = rules.remains(raw, rb.check_batch(raw), treatment)
    if found.data:
        rb.check_batch(found.data)
    assert found.is_same == (found.data == raw)
    return found


def marker(*, base_offset: int = 10, attributes: int = 0x30, base_timestamp: int = NOW_MS) -> bytes:
    """A commit marker of producer 7."""
    body = bytes.fromhex("20 00 00 00 08 00 00 00 01 0c 00 00 00 00 00 00 00")
    fields = (base_offset, 49 + len(body), 0, 2, 0, attributes, 0, base_timestamp, NOW_MS, 7, 0, -1, 1)
    return with_new_crc(rb.HEADER.pack(*fields) + body)


@CODECS
def test_a_batch_of_which_all_stays_is_the_very_same_bytes(keys: KeyMap, codec: Compression) -> None:
    raw = batch([Keyed(b"a"), Keyed(b"b")], 10, compression=codec)
    keys.put_all([b"a"], [10], [])
    assert remains(keys, raw) == Remains(data=raw, record_count=2, is_same=True)


@CODECS
def test_a_rebuilt_batch_keeps_what_others_rely_on(keys: KeyMap, codec: Compression) -> None:
    headers = (("h", b"1"), ("é", None))
    raw = batch(
        [Keyed(b"a"), Keyed(b"b", b"2", NOW_MS - 5, headers), Keyed(b"c", b"3", NOW_MS + 9), Keyed(b"d")],
        10,
        compression=codec,
        producer_id=7,
        producer_epoch=3,
        base_sequence=100,
        leader_epoch=5,
    )
    for key, last in ((b"a", 20), (b"b", 11), (b"c", 12), (b"d", 20)):
        keys.put_all([key], [last], [])
    found = remains(keys, raw)
    old, new = rb.read_header(raw), rb.read_header(found.data)
    assert found.record_count == new.record_count == 2
    assert records_of(found.data) == [
        Stored(11, b"b", b"2", NOW_MS - 5, headers),
        Stored(12, b"c", b"3", NOW_MS + 9, ()),
    ]
    for name in (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "partition_leader_epoch",
        "attributes",
    ):
        assert getattr(old, name) == getattr(new, name), name
    assert (new.base_timestamp, new.max_timestamp) == (NOW_MS - 5, NOW_MS + 9)


def test_records_after_the_mapped_range_stay(keys: KeyMap) -> None:
    keys.put_all([b"a"], [11], [])
    raw = batch([Keyed(b"a"), Keyed(b"a"), Keyed(b"a"), Keyed(None)], 10)
    assert [record.offset for record in records_of(remains(keys, raw, mapped_end=12).data)] == [11, 12, 13]


def test_a_key_that_is_not_in_the_map_stays(keys: KeyMap) -> None:
    raw = batch([Keyed(b"of the clean part")])
    assert remains(keys, raw).is_same


def test_records_without_a_key_go(keys: KeyMap) -> None:
    assert remains(keys, batch([Keyed(None)])).data == b""


def test_an_empty_key_is_a_key(keys: KeyMap) -> None:
    assert remains(keys, batch([Keyed(b"")])).is_same


class TestPlaceWithoutRecords:
    @CODECS
    def test_the_header_alone_stays(self, keys: KeyMap, codec: Compression) -> None:
        raw = batch(
            [Keyed(None), Keyed(None, timestamp_ms=NOW_MS + 4)],
            10,
            compression=codec,
            producer_id=7,
            producer_epoch=3,
            base_sequence=100,
            leader_epoch=5,
        )
        found = remains(keys, raw, keep_place=True)
        assert len(found.data) == rb.HEADER_BYTES
        empty = rb.check_batch(found.data)
        assert (empty.record_count, empty.compression, empty.base_timestamp) == (0, 0, -1)
        assert (empty.base_offset, empty.last_offset, empty.max_timestamp) == (10, 11, NOW_MS + 4)
        assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 3, 100)
        assert empty.partition_leader_epoch == 5

    def test_it_stays_the_same_in_later_passes_until_its_place_is_not_needed(self, keys: KeyMap) -> None:
        empty = remains(keys, batch([Keyed(None)]), keep_place=True).data
        assert remains(keys, empty, keep_place=True).is_same
        assert remains(keys, empty).data == b""

    def test_a_batch_with_records_is_not_touched_by_it(self, keys: KeyMap) -> None:
        assert remains(keys, batch([Keyed(b"a")]), keep_place=True).is_same

    def test_aborted_data_goes_whatever_its_keys(self, keys: KeyMap) -> None:
        raw = batch([Keyed(b"a")], END + 5)
        assert remains(keys, raw, discard=True).data == b""
        assert len(remains(keys, raw, discard=True, keep_place=True).data) == rb.HEADER_BYTES


class TestTombstones:
    RAW = batch([Keyed(b"a", b"1", NOW_MS - 7), Keyed(b"b", None, NOW_MS + 3)], 10)

    @CODECS
    def test_the_first_pass_that_keeps_one_dates_its_end(self, keys: KeyMap, codec: Compression) -> None:
        raw = batch([Keyed(b"a", b"1", NOW_MS - 7), Keyed(b"b", None, NOW_MS + 3)], 10, compression=codec)
        found = remains(keys, raw)
        header = rb.read_header(found.data)
        assert header.attributes == DELETE_HORIZON | codec
        assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + DAY_MS, NOW_MS + 3)
        assert records_of(found.data) == records_of(raw)

    def test_it_stays_until_then_byte_for_byte(self, keys: KeyMap) -> None:
        dated = remains(keys, self.RAW).data
        assert remains(keys, dated, now_ms=NOW_MS + DAY_MS - 1).is_same

    def test_it_goes_then_and_the_horizon_stays_with_the_others(self, keys: KeyMap) -> None:
        dated = remains(keys, self.RAW).data
        found = remains(keys, dated, now_ms=NOW_MS + DAY_MS)
        assert records_of(found.data) == [Stored(10, b"a", b"1", NOW_MS - 7, ())]
        header = rb.read_header(found.data)
        assert (header.attributes, header.base_timestamp) == (DELETE_HORIZON, NOW_MS + DAY_MS)
        assert remains(keys, found.data, now_ms=NOW_MS + 9 * DAY_MS).is_same

    def test_one_that_a_later_record_overwrites_goes_at_once(self, keys: KeyMap) -> None:
        keys.put_all([b"b"], [20], [])
        found = remains(keys, self.RAW)
        assert records_of(found.data) == [Stored(10, b"a", b"1", NOW_MS - 7, ())]
        assert not rb.read_header(found.data).attributes & DELETE_HORIZON

    def test_times_that_the_broker_stamped_stay(self, keys: KeyMap) -> None:
        raw = bytearray(self.RAW)
        rb.set_log_append_time(raw, rb.read_header(raw), NOW_MS + 50)
        found = remains(keys, bytes(raw))
        header = rb.read_header(found.data)
        assert header.is_log_append_time
        assert header.max_timestamp == NOW_MS + 50
        assert header.base_timestamp == NOW_MS + DAY_MS
        assert [record.timestamp_ms for record in records_of(found.data)] == [NOW_MS + 50] * 2


class TestMarkers:
    def test_one_stays_as_it_is(self, keys: KeyMap) -> None:
        assert remains(keys, marker()).is_same

    def test_without_data_of_its_transaction_its_end_is_dated(self, keys: KeyMap) -> None:
        found = remains(keys, marker(), start_horizon=True)
        header = rb.read_header(found.data)
        assert header.attributes == 0x30 | DELETE_HORIZON
        assert header.base_timestamp == NOW_MS + DAY_MS
        assert rb.decode_records(found.data)[0].key == bytes.fromhex("00000001")
        assert rb.decode_records(found.data)[0].timestamp == NOW_MS
        assert remains(keys, found.data, start_horizon=True).is_same

    @pytest.mark.parametrize(("marker_ms_min", "stays_ms"), [(2 * DAY_MS, 2 * DAY_MS), (5, DAY_MS)])
    def test_it_stays_for_a_minimum(self, keys: KeyMap, marker_ms_min: int, stays_ms: int) -> None:
        rules = BatchFilter(
            keys, mapped_end=END, now_ms=NOW_MS, delete_retention_ms=DAY_MS, marker_ms_min=marker_ms_min
        )
        raw = marker()
        found = rules.remains(raw, rb.check_batch(raw), Treatment(start_horizon=True))
        assert rb.read_header(found.data).base_timestamp == NOW_MS + stays_ms

    def test_it_goes_when_the_pass_says_so(self, keys: KeyMap) -> None:
        assert remains(keys, marker(), discard=True).data == b""

    def test_it_is_never_an_empty_batch(self, keys: KeyMap) -> None:
        assert remains(keys, marker(), discard=True, keep_place=True).is_same


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_body_that_does_not_decompress_is_refused(keys: KeyMap, codec: Compression) -> None:
    raw = bytearray(batch([Keyed(b"a")] * 3, compression=codec))
    raw[rb.HEADER_BYTES :] = b"\xff" * (len(raw) - rb.HEADER_BYTES)
    with pytest.raises(rb.CorruptBatchError):
        remains(keys, with_new_crc(bytes(raw)))


@settings(deadline=None)
@given(
    base_ms=st.integers(-(2**63), 2**63 - 1),
    deltas=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=4),
    has_tombstone=st.booleans(),
)
def test_absurd_times_are_kept_as_readers_read_them(
    base_ms: int, deltas: list[int], has_tombstone: bool
) -> None:
    body = b""
    for number, delta in enumerate(deltas):
        value = b"\1" if has_tombstone else b"\2x"
        record = b"\0" + write_varint(delta) + write_varint(number) + b"\2" + b"%d" % number + value + b"\0"
        body += write_varint(len(record)) + record
    count = len(deltas)
    fields = (0, 49 + len(body), 0, 2, 0, 0, count - 1, base_ms, 0, -1, -1, -1, count)
    raw = with_new_crc(rb.HEADER.pack(*fields) + body)
    with closing(KeyMap(10_000)) as key_map:
        key_map.put_all([b"0"], [500], [])
        found = remains(key_map, raw)
    assert records_of(found.data) == records_of(raw)[1:]
