"""Cases for the request cutters of all protocols: the same bytes in any pieces give the same requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from app.tcp.request_cutter import RequestCutter, UnreadableStream

Request = TypeVar("Request")


def pieces_of(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Split ``data`` at ``cuts``, positions in any order."""
    inner = sorted({cut for cut in cuts if 0 < cut < len(data)})
    return [data[start:end] for start, end in zip([0, *inner], [*inner, len(data)], strict=True)]


def cut_eagerly(cutter: RequestCutter[Request], pieces: Sequence[bytes]) -> tuple[list[Request], str | None]:
    """Take all requests after each piece; with the reason if the stream cannot be read on."""
    requests: list[Request] = []
    for piece in pieces:
        cutter.receive(piece)
        try:
            while cutter.has_request():
                request = cutter.next_request()
                assert request is not None, "has_request() promised one"
                requests.append(request)
            assert cutter.next_request() is None
        except UnreadableStream as error:
            assert not cutter.has_request()
            assert not cutter.has_partial_request()
            return requests, str(error)
    return requests, None


def cut_lazily(
    cutter: RequestCutter[Request], pieces: Sequence[bytes], takes: Sequence[int]
) -> tuple[list[Request], str | None]:
    """Take at most ``takes[i]`` requests after piece i, and the rest at the end, as a paused connection does."""
    requests: list[Request] = []
    try:
        for number, piece in enumerate(pieces):
            cutter.receive(piece)
            for _ in range(takes[number % len(takes)] if takes else 0):
                if (request := cutter.next_request()) is None:
                    break
                requests.append(request)
        while (request := cutter.next_request()) is not None:
            requests.append(request)
    except UnreadableStream as error:
        return requests, str(error)
    return requests, None


cuts = st.lists(st.integers(min_value=0, max_value=400), max_size=20)
takes = st.lists(st.integers(min_value=0, max_value=3), max_size=10)
