"""Responses are sent in the order of their places, and those that wait are counted in bytes."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from app.tcp.response_queue import Buffers, PendingResponse, ResponseQueue, size_of


def test_an_empty_queue_lets_a_response_pass_by() -> None:
    queue = ResponseQueue()
    assert queue.is_direct
    place = queue.reserve()
    assert not queue.is_direct
    assert queue.fill(place, b"a") == [b"a"]
    assert queue.is_direct
    assert len(queue) == 0


def test_known_responses_wait_for_the_first_and_leave_with_it() -> None:
    queue = ResponseQueue()
    first, second = queue.reserve(), queue.reserve()
    queue.append([b"c", b"cc"])
    assert (len(queue), queue.waiting_bytes) == (3, 3)
    assert queue.fill(second, b"b") == []
    assert queue.waiting_bytes == 4
    assert queue.fill(first, b"a") == [b"a", b"b", [b"c", b"cc"]]
    assert (len(queue), queue.waiting_bytes) == (0, 0)


def test_a_response_without_bytes_keeps_its_place_too() -> None:
    queue = ResponseQueue()
    first, second = queue.reserve(), queue.reserve()
    assert queue.fill(second, b"") == []
    assert queue.fill(first, b"a") == [b"a", b""]


def test_a_response_that_comes_after_the_queue_was_cleared_releases_nothing() -> None:
    queue = ResponseQueue()
    place = queue.reserve()
    queue.clear()
    assert queue.fill(place, b"late") == []
    assert queue.is_direct


@given(known=st.lists(st.booleans(), max_size=30), order=st.randoms(use_true_random=False))
def test_any_order_of_completion_gives_the_order_of_the_places(
    known: list[bool], order: random.Random
) -> None:
    queue, places, sent = ResponseQueue(), dict[int, PendingResponse](), list[Buffers]()
    for number, is_known in enumerate(known):
        data = str(number).encode()
        if not is_known:
            places[number] = queue.reserve()
        elif queue.is_direct:
            sent.append(data)
        else:
            queue.append(data)
    numbers = list(places)
    order.shuffle(numbers)
    for number in numbers:
        sent += queue.fill(places[number], str(number).encode())
    assert sent == [str(number).encode() for number in range(len(known))]
    assert queue.is_direct
    assert queue.waiting_bytes == 0


def test_the_size_of_a_response_in_parts_is_their_sum() -> None:
    assert size_of(b"abc") == size_of([b"a", bytearray(b"bc")]) == 3
