"""Frames come out whole however the stream arrives, and no length makes the reader allocate."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.wire.framing import FRAME_BYTES_MIN, FrameError, FrameReader


def encode_frame(kind: int, body: bytes) -> bytes:
    return (5 + len(body)).to_bytes(4, "big") + bytes([kind]) + body


FRAMES = [(3, b""), (4, b"x"), (255, bytes(range(256))), (0, b"a" * 5000)]
STREAM = b"".join(encode_frame(kind, body) for kind, body in FRAMES)


def read_all(pieces: list[bytes], **limits: int) -> list[tuple[int, bytes]]:
    reader = FrameReader(**limits)
    return [frame for piece in pieces for frame in reader.feed(piece)]


def test_a_frame_counts_its_own_length() -> None:
    assert read_all([bytes.fromhex("00000005 05 00000007 03 6162")]) == [(5, b""), (3, b"ab")]


def test_frames_arrive_whole() -> None:
    assert read_all([STREAM]) == FRAMES


def test_frames_arrive_byte_by_byte() -> None:
    assert read_all([STREAM[i : i + 1] for i in range(len(STREAM))]) == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_frames_arrive_in_any_pieces(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read_all([STREAM[start:end] for start, end in pairwise(edges)]) == FRAMES


def test_a_partial_frame_is_kept_for_the_next_piece() -> None:
    reader = FrameReader()
    assert list(reader.feed(STREAM + b"\x00\x00")) == FRAMES
    assert reader.has_partial_frame
    assert list(reader.feed(b"\x00\x05\x01")) == [(1, b"")]
    assert not reader.has_partial_frame


@pytest.mark.parametrize("length", [0, 1, FRAME_BYTES_MIN - 1, 1001, 2**31, 2**32 - 1])
@pytest.mark.parametrize("is_split", [False, True])
def test_an_impossible_length_is_an_error_after_the_frames_before_it(length: int, is_split: bool) -> None:
    stream = encode_frame(7, b"ok") + length.to_bytes(4, "big")
    reader = FrameReader(frame_bytes_max=1000)
    got: list[tuple[int, bytes]] = []
    if is_split:
        got.extend(reader.feed(stream[:-2]))
    with pytest.raises(FrameError, match="between 5 and 1000"):
        got.extend(reader.feed(stream[-2:] if is_split else stream))
    assert got == [(7, b"ok")]


@given(st.lists(st.binary(max_size=64), max_size=10))
def test_any_bytes_give_frames_or_a_frame_error(pieces: list[bytes]) -> None:
    reader = FrameReader(frame_bytes_max=128)
    try:
        for piece in pieces:
            for kind, body in reader.feed(piece):
                assert 0 <= kind <= 255
                assert len(body) <= 128
    except FrameError:
        pass


def test_a_length_allocates_nothing_before_its_bytes_arrive() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        assert list(reader.feed((15 * 1024 * 1024).to_bytes(4, "big") + b"\x03")) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024
