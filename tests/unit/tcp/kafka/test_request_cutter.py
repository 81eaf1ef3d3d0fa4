"""Bytes of the Kafka protocol become requests, however they arrive."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tcp.kafka.request_cutter import KafkaRequestCutter
from app.tcp.request_cutter import UnreadableStream
from tests.support import request_cutters as cases

FRAME_BYTES_MAX = 64


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def cutter() -> KafkaRequestCutter:
    return KafkaRequestCutter(frame_bytes_max=FRAME_BYTES_MAX)


bodies = st.lists(st.binary(min_size=8, max_size=FRAME_BYTES_MAX), max_size=8)
# A size that no request may have, and what comes after it.
endings = st.sampled_from([b"", frame(b"x" * 7), struct.pack(">i", FRAME_BYTES_MAX + 1), b"\xff" * 20])


@given(bodies=bodies, ending=endings, rest=st.binary(max_size=3), cuts=cases.cuts, takes=cases.takes)
def test_any_split_of_the_bytes_gives_the_same_requests(
    bodies: list[bytes], ending: bytes, rest: bytes, cuts: list[int], takes: list[int]
) -> None:
    data = b"".join(map(frame, bodies)) + ending + rest
    pieces = cases.pieces_of(data, cuts)
    for requests, reason in (
        cases.cut_eagerly(cutter(), [data]),
        cases.cut_eagerly(cutter(), pieces),
        cases.cut_lazily(cutter(), pieces, takes),
        cases.cut_eagerly(cutter(), [data[at : at + 1] for at in range(len(data))]),
    ):
        assert [bytes(request) for request in requests] == bodies
        assert (reason is not None) == bool(ending)


def test_requests_are_slices_of_what_was_received_and_can_be_written_to() -> None:
    requests = cutter()
    requests.receive(frame(b"a" * 8) + frame(b"b" * 8) + b"\x00")
    first, second = requests.next_request(), requests.next_request()
    assert first is not None
    assert second is not None
    assert first.obj is second.obj
    first[0] = ord("A")
    # What is received later does not move them.
    requests.receive(b"\x00" * 50)
    assert (bytes(first), bytes(second)) == (b"Aaaaaaaa", b"bbbbbbbb")


def test_a_partial_request_is_distinguished_from_a_whole_one() -> None:
    requests = cutter()
    assert not requests.has_partial_request()
    requests.receive(frame(b"a" * 8) + b"\x00")
    assert (requests.has_request(), requests.has_partial_request()) == (True, False)
    assert requests.next_request() is not None
    assert (requests.has_request(), requests.has_partial_request()) == (False, True)
    requests.discard()
    assert (requests.has_request(), requests.has_partial_request()) == (False, False)


@pytest.mark.parametrize("size", [-1, 0, 7, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_request_may_have_is_named(size: int) -> None:
    requests = cutter()
    requests.receive(frame(b"a" * 8) + struct.pack(">i", size) + b"more")
    assert requests.next_request() is not None
    assert requests.has_request()
    with pytest.raises(UnreadableStream, match=rf"a request of {size} bytes; it must have 8 to 64 .*TLS\?"):
        requests.next_request()
    assert requests.next_request() is None
    assert not requests.has_partial_request()
