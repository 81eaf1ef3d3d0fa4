"""The footer of an object says what is in it, and damage is noticed."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.shared.runs.object_format import (
    MAGIC,
    TRAILER_BYTES,
    CorruptObjectError,
    ObjectRun,
    SequenceExtent,
    footer_bytes,
    footer_length,
    read_footer,
)

_SEQUENCES = st.builds(
    SequenceExtent,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
)
_RUNS = st.lists(
    st.builds(
        ObjectRun,
        topic_id=st.uuids(),
        partition=st.integers(0, 2**31 - 1),
        position=st.just(len(MAGIC)),
        length=st.integers(0, 1000),
        offset_count=st.integers(1, 2**31 - 1),
        max_timestamp_ms=st.integers(-1, 2**63 - 1),
        crc=st.integers(0, 2**32 - 1),
        base_offset=st.integers(-1, 2**63 - 1),
        sequences=st.lists(_SEQUENCES, max_size=4).map(tuple),
    ),
    max_size=5,
)


def object_of(runs: list[ObjectRun]) -> bytes:
    return MAGIC + b"x" * 1000 + footer_bytes(runs)


@given(_RUNS)
def test_a_footer_is_read_as_it_was_written(runs: list[ObjectRun]) -> None:
    data = object_of(runs)
    length = footer_length(data[-TRAILER_BYTES:], object_bytes=len(data))
    assert read_footer(data[-TRAILER_BYTES - length :], object_bytes=len(data)) == runs
    assert read_footer(data, object_bytes=len(data)) == runs


RUN = ObjectRun(
    topic_id=UUID(int=7),
    partition=3,
    position=len(MAGIC),
    length=1000,
    offset_count=5,
    max_timestamp_ms=9,
    crc=1,
    sequences=(SequenceExtent(0, 1, 0, 0, 5),),
)


def test_each_flipped_bit_of_a_footer_is_noticed() -> None:
    data = object_of([RUN])
    for position in range(len(MAGIC) + 1000, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptObjectError):
            read_footer(bytes(damaged), object_bytes=len(data))


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_bytes_that_are_no_object_are_refused(data: bytes, object_bytes: int) -> None:
    with pytest.raises(CorruptObjectError):
        read_footer(data, object_bytes=object_bytes)


def test_a_run_outside_of_its_object_is_refused() -> None:
    data = MAGIC + footer_bytes([RUN])
    with pytest.raises(CorruptObjectError, match="outside the object"):
        read_footer(data, object_bytes=len(data))
