"""The responses that clients have not read: a limit together, and who gives way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.broker.reading.unread_responses import FREE_BYTES, UnreadResponses

KIB = 1024
FETCH_BYTES_MAX, BYTES_MAX = 1000 * KIB, 10_000 * KIB


class Holder:
    def __init__(self, room: UnreadResponses) -> None:
        self.unread_bytes = 0
        self.is_broken_off = False
        self._room = room

    def hold(self, size: int) -> None:
        self.unread_bytes = size
        self._room.note(self, size)

    def break_off(self) -> None:
        self.is_broken_off = True


@pytest.fixture
def now_s() -> list[float]:
    return [0.0]


@pytest.fixture
def room(now_s: list[float]) -> UnreadResponses:
    return UnreadResponses(fetch_bytes_max=FETCH_BYTES_MAX, bytes_max=BYTES_MAX, clock_s=lambda: now_s[0])


@pytest.fixture
def holders(room: UnreadResponses) -> Callable[[int], list[Holder]]:
    return lambda count: [Holder(room) for _ in range(count)]


@pytest.mark.parametrize(
    ("wanted", "brought"), [(-1, 0), (0, 0), (100, 100), (2 * FETCH_BYTES_MAX, FETCH_BYTES_MAX)]
)
def test_a_fetch_brings_what_it_wants_up_to_the_setting(
    room: UnreadResponses, wanted: int, brought: int
) -> None:
    assert room.bytes_of_fetch(wanted) == brought


def test_fetches_are_small_while_more_is_unread_than_the_limit(
    room: UnreadResponses, holders: Callable[[int], list[Holder]]
) -> None:
    ten = holders(10)
    for holder in ten:
        holder.hold(1000 * KIB)
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FETCH_BYTES_MAX
    (one_more,) = holders(1)
    one_more.hold(KIB)
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FREE_BYTES
    assert room.bytes_of_fetch(100) == 100
    room.forget(ten[4])
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FETCH_BYTES_MAX
    assert room.held_bytes == BYTES_MAX - 1000 * KIB + KIB


def test_what_clients_have_read_since_counts_no_longer(
    room: UnreadResponses, holders: Callable[[int], list[Holder]]
) -> None:
    eleven = holders(11)
    for holder in eleven:
        holder.hold(1000 * KIB)
        holder.unread_bytes = KIB
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FETCH_BYTES_MAX
    assert room.held_bytes == 11 * KIB


def test_connections_that_were_just_asked_are_not_asked_again(
    room: UnreadResponses, holders: Callable[[int], list[Holder]], now_s: list[float]
) -> None:
    eleven = holders(11)
    for holder in eleven:
        holder.hold(1000 * KIB)
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FREE_BYTES
    for holder in eleven:
        holder.unread_bytes = 0
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FREE_BYTES
    now_s[0] = 1.0
    assert room.bytes_of_fetch(FETCH_BYTES_MAX) == FETCH_BYTES_MAX


def test_those_that_have_held_something_for_the_longest_give_way_at_twice_the_limit(
    room: UnreadResponses, holders: Callable[[int], list[Holder]]
) -> None:
    many = holders(22)
    for holder in many[:20]:
        holder.hold(1000 * KIB)
    # This one has read all it had, and holds something anew.
    room.forget(many[0])
    many[0].hold(1000 * KIB)
    assert not any(holder.is_broken_off for holder in many)
    many[20].hold(1000 * KIB)
    assert [holder.is_broken_off for holder in many] == [False, True] + [False] * 20
    assert room.held_bytes == 20_000 * KIB


def test_nobody_gives_way_for_what_has_been_read(
    room: UnreadResponses, holders: Callable[[int], list[Holder]]
) -> None:
    many = holders(30)
    for holder in many:
        holder.hold(1000 * KIB)
        holder.unread_bytes = 100 * KIB
    assert not any(holder.is_broken_off for holder in many)


def test_one_large_response_alone_is_sent(
    room: UnreadResponses, holders: Callable[[int], list[Holder]]
) -> None:
    (alone,) = holders(1)
    alone.hold(3 * BYTES_MAX)
    assert not alone.is_broken_off
