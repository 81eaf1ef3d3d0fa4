"""Bytes of the binary protocol become requests and runs of produces, however they arrive."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.wire import messages as m

from app.tcp.binary.request_cutter import BinaryRequestCutter, Frame
from app.tcp.request_cutter import UnreadableStream
from tests.support import request_cutters as cases

FRAME_BYTES_MAX = 64
OVERHEAD_BYTES = 32
PRODUCE = m.MessageType.PRODUCE_REQUEST


def frame(request: Frame) -> bytes:
    return struct.pack(">IB", 5 + len(request[1]), request[0]) + request[1]


def cutter() -> BinaryRequestCutter:
    return BinaryRequestCutter(frame_bytes_max=FRAME_BYTES_MAX)


def produce(topic: str, data: bytes) -> bytes:
    return m.ProduceRequest(topic=topic, data=data).encode()


def topic_bytes(topic: str) -> bytes:
    return struct.pack(">I", len(topic)) + topic.encode()


def take_values(frames: BinaryRequestCutter, topic: str, *, bytes_max: int = 10_000) -> list[bytes]:
    return frames.take_values(topic_bytes(topic), bytes_max=bytes_max, overhead_bytes=OVERHEAD_BYTES)


requests_ = st.lists(
    st.tuples(st.integers(min_value=0, max_value=255), st.binary(max_size=FRAME_BYTES_MAX - 5)),
    max_size=8,
)
endings = st.sampled_from([b"", struct.pack(">I", 4), struct.pack(">I", FRAME_BYTES_MAX + 1), b"\xff" * 20])
values = st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.binary(max_size=20)), max_size=30)


@given(requests=requests_, ending=endings, rest=st.binary(max_size=3), cuts=cases.cuts, takes=cases.takes)
def test_any_split_of_the_bytes_gives_the_same_requests(
    requests: list[Frame], ending: bytes, rest: bytes, cuts: list[int], takes: list[int]
) -> None:
    data = b"".join(map(frame, requests)) + ending + rest
    pieces = cases.pieces_of(data, cuts)
    for received, reason in (
        cases.cut_eagerly(cutter(), [data]),
        cases.cut_eagerly(cutter(), pieces),
        cases.cut_lazily(cutter(), pieces, takes),
        cases.cut_eagerly(cutter(), [data[at : at + 1] for at in range(len(data))]),
    ):
        assert received == requests
        assert (reason is not None) == bool(ending)


@given(values=values, cuts=cases.cuts, bytes_max=st.integers(min_value=0, max_value=200))
def test_any_split_gives_the_same_values_though_in_other_runs(
    values: list[tuple[str, bytes]], cuts: list[int], bytes_max: int
) -> None:
    frames = cutter()
    received: list[tuple[str, bytes]] = []
    for piece in cases.pieces_of(b"".join(produce(*value) for value in values), cuts):
        frames.receive(piece)
        while (request := frames.next_request()) is not None:
            first = m.decode_request(*request)
            assert isinstance(first, m.ProduceRequest)
            following = take_values(frames, first.topic, bytes_max=bytes_max)
            assert sum(len(value) + OVERHEAD_BYTES for value in following) <= bytes_max
            received += [(first.topic, value) for value in [first.data, *following]]
    assert received == values


def test_a_run_ends_before_another_topic_another_message_and_what_is_not_whole() -> None:
    frames = cutter()
    frames.receive(b"".join(produce("a", bytes([number])) for number in range(3)))
    frames.receive(produce("ab", b"x") + m.FlushRequest().encode() + produce("a", b"y")[:-1])
    assert frames.next_request() == (PRODUCE, topic_bytes("a") + b"\x00\x00\x00\x01\x00")
    assert take_values(frames, "a") == [b"\x01", b"\x02"]
    assert frames.next_request() == (PRODUCE, topic_bytes("ab") + b"\x00\x00\x00\x01x")
    assert take_values(frames, "ab") == []
    assert frames.next_request() == (m.MessageType.FLUSH_REQUEST, b"")
    assert take_values(frames, "a") == []
    assert frames.next_request() is None
    assert frames.has_partial_request()


def test_a_produce_whose_inner_length_is_wrong_is_left_to_the_decoder() -> None:
    wrong = bytearray(produce("a", b"xyz"))
    wrong[-4] += 1
    frames = cutter()
    frames.receive(produce("a", b"x") + wrong)
    assert frames.next_request() is not None
    assert take_values(frames, "a") == []
    assert frames.next_request() == (PRODUCE, bytes(wrong[5:]))


@pytest.mark.parametrize("length", [0, 4, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_length_that_no_frame_may_have_is_named(length: int) -> None:
    frames = cutter()
    frames.receive(m.FlushRequest().encode() + struct.pack(">I", length))
    assert frames.next_request() is not None
    assert frames.has_request()
    with pytest.raises(UnreadableStream, match=f"frame length is {length}; .*between 5 and 64 bytes"):
        frames.next_request()
    assert frames.next_request() is None
    assert not frames.has_partial_request()


def test_a_partial_frame_is_distinguished_from_a_whole_one() -> None:
    frames = cutter()
    assert not frames.has_partial_request()
    frames.receive(produce("a", b"x")[:3])
    assert (frames.has_request(), frames.has_partial_request()) == (False, True)
    assert frames.next_request() is None
    frames.receive(produce("a", b"x")[3:] + b"\x00")
    assert (frames.has_request(), frames.has_partial_request()) == (True, False)
    assert frames.next_request() is not None
    assert (frames.has_request(), frames.has_partial_request()) == (False, True)
    frames.discard()
    assert (frames.has_request(), frames.has_partial_request()) == (False, False)
