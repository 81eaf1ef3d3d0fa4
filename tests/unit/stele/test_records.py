"""What goes in becomes bytes, exactly; what would be ambiguous is refused."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.calls import group, parse_acks, parse_at, prepare
from stele.operations.json_records import encode_ndjson, record_as_json
from stele.records import NewRecord, OutgoingRecord, Record, outgoing, to_bytes, to_timestamp_ms
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.partitioner import partition_for_key
from stele.wire.record_batch import HEADER_BYTES, BatchBuilder

optional_bytes = st.none() | st.binary(max_size=50)
records = st.builds(
    OutgoingRecord,
    st.integers(0, 2**42),
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3),
)


def bytes_of(document: dict[str, Any], name: str) -> bytes | None:
    """As the HTTP listener reads it: text as UTF-8, ``_b64`` as base64."""
    assert not (name in document and f"{name}_b64" in document)
    if f"{name}_b64" in document:
        return base64.b64decode(document[f"{name}_b64"])
    value = document.get(name)
    return None if value is None else value.encode()


@given(st.lists(records, max_size=5))
def test_json_loses_nothing(given_records: list[OutgoingRecord]) -> None:
    lines = encode_ndjson(given_records).splitlines()
    assert len(lines) == len(given_records)
    for line, record in zip(lines, given_records, strict=True):
        document = msgspec.json.decode(line)
        assert document["timestamp"] == record.timestamp
        assert bytes_of(document, "key") == record.key
        assert bytes_of(document, "value") == record.value
        pairs = [(header["key"], bytes_of(header, "value")) for header in document.get("headers", [])]
        assert pairs == record.headers


def test_control_characters_do_not_grow_sixfold() -> None:
    record = OutgoingRecord(0, None, bytes(30_000), [])
    assert len(encode_ndjson([record])) < 41_000


def test_a_stored_record_as_json() -> None:
    record = Record("t", 1, 2, 3, b"k", b"\xff", (("h", None), ("g", b"x")))
    assert msgspec.json.decode(msgspec.json.encode(record_as_json(record))) == {
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key": "k",
        "value_b64": "/w==",
        "headers": [{"key": "h", "value": None}, {"key": "g", "value": "x"}],
    }


@given(records)
def test_the_size_of_a_record_is_never_less_than_what_it_takes(record: OutgoingRecord) -> None:
    builder = BatchBuilder()
    builder.append(timestamp_ms=record.timestamp, key=record.key, value=record.value, headers=record.headers)
    assert len(builder.build()) - HEADER_BYTES <= record.size


def test_records_are_given_as_bytes_text_or_with_everything() -> None:
    assert outgoing(b"x", 5) == OutgoingRecord(5, None, b"x", [])
    assert outgoing("é", 5) == OutgoingRecord(5, None, "é".encode(), [])
    full = NewRecord("v", key="k", headers={"h": "1"}, timestamp=datetime.fromtimestamp(2, UTC))
    assert outgoing(full, 5) == OutgoingRecord(2000, b"k", b"v", [("h", b"1")])
    assert to_bytes(cast("bytes", memoryview(b"x"))) == b"x"


def test_what_is_no_text_and_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="use a serializer"):
        outgoing(NewRecord(cast("bytes", 5)), 0)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        to_timestamp_ms(datetime(2026, 1, 1))


def test_places_in_a_log() -> None:
    assert (parse_at("earliest"), parse_at("latest"), parse_at(7)) == (
        EARLIEST_TIMESTAMP,
        LATEST_TIMESTAMP,
        7,
    )
    for bad in ("newest", -1):
        with pytest.raises(ValueError):
            parse_at(cast("int", bad))


@pytest.mark.parametrize(("acks", "number"), [("all", -1), (-1, -1), ("1", 1), (1, 1), (0, 0), ("0", 0)])
def test_acks(acks: Any, number: int) -> None:
    assert parse_acks(acks) == number


@pytest.mark.parametrize("acks", [2, "none", -2])
def test_acks_that_do_not_exist(acks: Any) -> None:
    with pytest.raises(ValueError, match="'all', 1 or 0"):
        parse_acks(acks)


def test_records_of_a_call_are_grouped_by_partition() -> None:
    sent, asked = prepare(
        [NewRecord("a", key="k"), NewRecord("b", partition=9), "c", NewRecord("d", key="k")]
    )
    groups = group(sent, asked, 4)
    assert [(g.partition, g.indexes) for g in groups] == [
        (partition_for_key(b"k", 4), [0, 3]),
        (9, [1]),
        (None, [2]),
    ]


def test_groups_are_no_larger_than_a_batch_may_be() -> None:
    sent, asked = prepare([bytes(400_000)] * 5)
    assert [len(g.records) for g in group(sent, asked, None)] == [2, 2, 1]
