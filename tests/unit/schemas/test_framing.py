"""A key or value names its schema as Confluent's clients expect it."""

from __future__ import annotations

import contextlib
import io
import uuid

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st
from stele.schemas import framing

GUID = uuid.UUID("89791762-2336-186f-9674-299b90a8e3ec")
paths = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=framing.INDEXES_MAX).map(tuple)


def test_the_prefix_is_a_zero_and_the_id() -> None:
    assert framing.join(0x01020304, b"payload") == b"\0\1\2\3\4payload"
    assert framing.split(b"\0\1\2\3\4payload") == (0x01020304, b"payload")
    assert framing.split(b"\0\0\0\0\7") == (7, b"")


def test_a_header_is_a_one_and_the_guid() -> None:
    header = b"\1" + GUID.bytes
    assert framing.join_header(GUID) == header
    assert framing.split_header(header) == (GUID, b"")
    assert framing.split_header(framing.join_header(GUID, (1, 0))) == (GUID, b"\4\2\0")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b'{"a":1}', b"\1" + GUID.bytes])
def test_other_bytes_have_no_prefix(data: bytes) -> None:
    with pytest.raises(framing.NotFramed):
        framing.split(data)


@pytest.mark.parametrize("header", [b"", b"\1" + GUID.bytes[:-1], b"\0" + GUID.bytes, b"\2" + GUID.bytes])
def test_other_bytes_are_no_header(header: bytes) -> None:
    with pytest.raises(framing.NotFramed):
        framing.split_header(header)


def test_the_first_message_of_a_file_is_one_byte() -> None:
    assert framing.join_indexes((0,), b"payload") == b"\0payload"
    assert framing.split_indexes(b"\0payload") == ((0,), b"payload")
    # The long form of the same is accepted.
    assert framing.split_indexes(b"\2\0payload") == ((0,), b"payload")


def test_indexes_are_zigzag_varints_with_their_count_first() -> None:
    assert framing.join_indexes((1, 0, 64), b"") == b"\6\2\0\x80\1"


@given(paths, st.binary(max_size=8))
def test_indexes_come_back(path: tuple[int, ...], payload: bytes) -> None:
    assert framing.split_indexes(framing.join_indexes(path, payload)) == (path, payload)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\4\2", id="one of two"),
        pytest.param(b"\2\x80", id="half a number"),
        pytest.param(b"\1", id="count -1"),
        pytest.param(b"\2\1", id="index -1"),
        pytest.param(b"\xfe\xff\xff\xff\x0f", id="count 2^31-1"),
        pytest.param(b"\2\xff\xff\xff\xff\xff\1", id="more than 5 bytes"),
    ],
)
def test_indexes_that_are_none_are_refused_before_anything_is_made_of_them(data: bytes) -> None:
    with pytest.raises(framing.NotFramed):
        framing.split_indexes(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    for split in (framing.split, framing.split_header, framing.split_indexes):
        with contextlib.suppress(framing.NotFramed):
            split(data)


@given(st.integers(0, 2**31 - 1), st.none() | paths)
def test_confluents_python_client_reads_and_writes_the_same(
    schema_id: int, path: tuple[int, ...] | None
) -> None:
    kind = "AVRO" if path is None else "PROTOBUF"
    indexes = None if path is None else list(path)
    payload = b"" if path is None else framing.join_indexes(path, b"")
    assert SchemaId(kind, schema_id, None, indexes).id_to_bytes() == framing.join(schema_id, payload)
    assert SchemaId(kind, None, str(GUID), indexes).guid_to_bytes() == framing.join_header(GUID, path)
    read = SchemaId(kind)
    assert read.from_bytes(io.BytesIO(framing.join(schema_id, payload) + b"rest")).read() == b"rest"
    assert (read.id, read.message_indexes) == (schema_id, indexes)
