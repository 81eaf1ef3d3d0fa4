"""Order, back-pressure, timeouts and the end of a connection, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from app.broker.reading.unread_responses import UnreadResponses
from app.tcp import connection as tcp
from app.tcp.flow_control import READING_BYTES_MAX
from app.tcp.server import BEGINNINGS_PER_TURN, TURNS_PER_LOOP
from tests.support.toy_listener import Limits, Listener, OpenListener, SteeredClock

# ── order ──


async def test_responses_are_sent_in_the_order_of_the_requests(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later a", "later b", "now c", "later d", "now e")
    await listener.works.until(lambda: len(listener.works.taken) == 5)
    listener.works.finish("d")
    await listener.works.until(lambda: listener.works.ended == ["d"])
    listener.works.finish("b")
    await listener.works.until(lambda: listener.works.ended == ["d", "b"])
    listener.works.finish("a")
    assert await client.answers(5) == ["a", "b", "c", "d", "e"]
    assert listener.works.ended == ["d", "b", "a"]


async def test_no_request_begins_after_a_barrier_until_it_has_ended(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("now a", "alone b", "now c", "alone d", "now e")
    assert await client.answer() == "a"
    assert listener.works.taken == ["now a", "alone b"]
    listener.works.finish("b")
    assert await client.answers(2) == ["b", "c"]
    assert listener.works.taken[2:] == ["now c", "alone d"]
    listener.works.finish("d")
    assert await client.answers(2) == ["d", "e"]


async def test_a_read_has_begun_before_the_next_request_is_taken(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    begun_when_taken: list[bool] = []
    take = listener.works.taken.append

    class Watched(list[str]):
        def append(self, item: str, /) -> None:
            begun_when_taken.append(bool(listener.works.begun))
            take(item)

    listener.works.taken = Watched()
    await client.send("read a 10", "now b")
    listener.works.finish("a")
    assert await client.answers(2) == ["a", "b"]
    assert begun_when_taken == [False, True]


async def test_a_request_that_fails_costs_its_own_connection_and_no_other(
    open_listener: OpenListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await open_listener()
    witness, first, second = [await listener.connect() for _ in range(3)]
    with caplog.at_level(logging.CRITICAL, logger=tcp.__name__):
        await first.send("fail", "now a")
        await second.send("crash", "now a")
        assert await first.rest() in (b"", b"a\n")
        assert await second.rest() == b""
    await witness.send("now w")
    assert await witness.answer() == "w"


async def test_no_request_begins_after_bytes_that_cannot_be_read(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later a", "unreadable", "now b")
    await listener.works.until(lambda: listener.works.taken == ["later a"])
    listener.works.finish("a")
    assert await client.rest() == b"a\nrefused: this line cannot be read\n"
    assert listener.works.taken == ["later a"]


async def test_requests_that_wait_for_one_future_are_answered_in_order(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("shared a", "now b", "shared c", "shared d")
    await listener.works.until(lambda: len(listener.works.taken) == 4)
    listener.works.shared.set_result(None)
    assert await client.answers(4) == ["a ended", "b", "c ended", "d ended"]


async def test_a_deferred_response_is_due_after_its_timeout_and_leaves_the_future_alone(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    listener.works.shared_timeout_ms = 1
    client = await listener.connect()
    await client.send("shared a", "now b")
    assert await client.answers(2) == ["a timed-out", "b"]
    assert not listener.works.shared.done()


async def test_a_deferred_response_that_cannot_be_made_costs_its_own_connection(
    open_listener: OpenListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await open_listener()
    witness, client = await listener.connect(), await listener.connect()
    await client.send("shared crash", "now b")
    await witness.send("shared w")
    await listener.works.until(lambda: len(listener.works.taken) == 3)
    with caplog.at_level(logging.CRITICAL, logger=tcp.__name__):
        listener.works.shared.set_result(None)
        assert await client.rest() == b""
    assert await witness.answer() == "w ended"


async def test_many_requests_that_arrive_together_leave_turns_to_other_connections(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=10_000))
    first, second = await listener.connect(), await listener.connect()
    for client in (first, second):
        # The handshake of TLS ends with the first answer.
        await client.send("now ready")
        assert await client.answer() == "ready"
    listener.works.taken.clear()
    # Enough turns that the bytes of the other connection arrive between them.
    names = [str(number) for number in range(30 * tcp.REQUESTS_PER_TURN)]
    await first.send("later x", *(f"now {name}" for name in names))
    await second.send("now z")
    await listener.works.until(lambda: len(listener.works.taken) == len(names) + 2)
    assert listener.works.taken.index("now z") < len(names) + 1, "not after all of the other"
    listener.works.finish("x")
    assert await first.answers(len(names) + 1) == ["x", *names]
    assert await second.answer() == "z"


async def test_connections_with_large_responses_go_on_a_few_at_a_time(open_listener: OpenListener) -> None:
    listener = await open_listener()
    clients = [await listener.connect() for _ in range(20)]
    taken = listener.works.taken
    # Large enough that the next request of the connection waits for a turn.
    await asyncio.gather(*(client.send("big 100000", "big 100001") for client in clients))
    while (before := taken.count("big 100001")) < len(clients):
        await asyncio.sleep(0)
        assert taken.count("big 100001") - before <= TURNS_PER_LOOP
    for client in clients:
        assert [len(answer) + 1 for answer in await client.answers(2)] == [100000, 100001]


async def test_of_many_connections_with_requests_some_begin_them_in_a_later_turn() -> None:
    listener = Listener(limits=Limits(), connections_max=4 * BEGINNINGS_PER_TURN)
    await listener.start()
    clients = [await listener.connect() for _ in range(4 * BEGINNINGS_PER_TURN)]
    for client in clients:
        await client.send("now ready")
        assert await client.answer() == "ready"
    taken = listener.works.taken
    taken.clear()
    # All are in the sockets before the loop looks at these.
    for client in clients:
        client.send_soon("now z")
    while (before := len(taken)) < len(clients):
        await asyncio.sleep(0)
        assert len(taken) - before <= 2 * BEGINNINGS_PER_TURN
    for client in clients:
        assert await client.answer() == "z"
    await listener.close()


# ── back-pressure ──


async def test_a_peer_is_paused_at_pipelined_requests_max_until_responses_are_sent(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=5))
    client = await listener.connect()
    names = [str(number) for number in range(20)]
    await client.send(*(f"later {name}" for name in names))
    await listener.works.until(lambda: len(listener.works.taken) == 5)
    (connection,) = listener.works.connections
    assert not connection.is_reading
    listener.works.finish(*names[1:])
    await listener.works.until(lambda: len(listener.works.ended) == 4)
    assert len(listener.works.taken) == 5
    listener.works.finish(names[0])
    assert await client.answers(20) == names
    assert connection.is_reading


async def test_responses_known_at_once_count_too_while_they_wait_for_an_earlier_one(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=5))
    client = await listener.connect()
    await client.send("later a", *(f"now {number}" for number in range(20)))
    await listener.works.until(lambda: len(listener.works.taken) == 5)
    (connection,) = listener.works.connections
    assert not connection.is_reading
    listener.works.finish("a")
    assert await client.answers(21) == ["a", *map(str, range(20))]


async def test_a_peer_that_does_not_read_is_paused_and_takes_little_memory(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(Limits(output_bytes_max=64 * 1024))
    client = await listener.connect()
    client.read_nothing()
    client.send_soon(*(f"big {10_000 + number}" for number in range(2000)))
    await listener.works.until(
        lambda: bool(listener.works.connections) and not listener.works.connections[0].is_reading
    )
    (connection,) = listener.works.connections
    assert connection.unsent_bytes <= 64 * 1024 + 12_000
    assert len(listener.works.taken) < 2000
    client.read_again()
    for number in range(2000):
        assert len(await client.answer()) == 10_000 + number - 1
    assert connection.is_reading


async def test_a_peer_that_does_not_read_does_not_slow_another(open_listener: OpenListener) -> None:
    listener = await open_listener(Limits(output_bytes_max=64 * 1024))
    stalled, witness = await listener.connect(), await listener.connect()
    stalled.read_nothing()
    stalled.send_soon(*("big 10000" for _ in range(2000)))
    await listener.works.until(lambda: not all(c.is_reading for c in listener.works.connections))
    await witness.send(*(f"now {number}" for number in range(100)))
    assert await witness.answers(100) == [str(number) for number in range(100)]


async def test_responses_that_wait_for_a_slow_one_are_bounded_in_bytes(open_listener: OpenListener) -> None:
    listener = await open_listener(Limits(output_bytes_max=64 * 1024))
    client = await listener.connect()
    await client.send("later a", *("big 10000" for _ in range(100)))
    await listener.works.until(lambda: len(listener.works.taken) == 1 + 7)
    await listener.works.until(lambda: not listener.works.connections[0].is_reading)
    assert len(listener.works.taken) == 1 + 7
    listener.works.finish("a")
    assert await client.answer() == "a"
    assert [len(answer) for answer in await client.answers(100)] == [9999] * 100


async def test_unread_responses_are_counted_until_they_are_read(open_listener: OpenListener) -> None:
    unread = UnreadResponses(fetch_bytes_max=1_000_000, bytes_max=10_000_000)
    listener = await open_listener(unread=unread)
    client = await listener.connect()
    client.read_nothing()
    await client.send("big 8000000", "now a")
    await listener.works.until(lambda: unread.held_bytes > 0)
    (connection,) = listener.works.connections
    assert unread.held_bytes == connection.unread_bytes > 1_000_000
    assert listener.works.taken == ["big 8000000"]
    client.read_again()
    assert len(await client.answer()) == 8_000_000 - 1
    assert await client.answer() == "a"
    assert unread.held_bytes == 0


async def test_responses_that_wait_for_an_earlier_one_are_counted(open_listener: OpenListener) -> None:
    unread = UnreadResponses(fetch_bytes_max=1_000_000, bytes_max=10_000_000)
    listener = await open_listener(unread=unread)
    client = await listener.connect()
    await client.send("later a", "big 500000", "later b")
    await listener.works.until(lambda: len(listener.works.taken) == 3)
    assert unread.held_bytes == 500_000
    listener.works.finish("a")
    assert await client.answer() == "a"
    assert len(await client.answer()) == 500_000 - 1
    listener.works.finish("b")
    assert await client.answer() == "b"
    assert unread.held_bytes == 0


async def test_the_oldest_of_too_many_unread_responses_is_broken_off_and_the_others_are_not(
    open_listener: OpenListener, caplog: pytest.LogCaptureFixture
) -> None:
    unread = UnreadResponses(
        fetch_bytes_max=1_000_000, bytes_max=40_000_000, clock_s=itertools.count().__next__
    )
    listener = await open_listener(unread=unread)
    witness = await listener.connect()

    async def ask_and_read_nothing(number: int) -> None:
        client = await listener.connect()
        client.read_nothing()
        # The system takes a few megabytes of it.
        await client.send("big 40000000")
        await listener.works.until(lambda: len(listener.works.taken) == number)

    for number in (1, 2, 3):
        await ask_and_read_nothing(number)
    assert unread.held_bytes > 40_000_000
    (_, first, *others) = listener.works.connections
    await listener.works.until(lambda: unread.held_bytes <= 80_000_000 and first.is_lost)
    assert "unread for the longest" in caplog.text
    assert not any(connection.is_lost for connection in others)
    await witness.send("now a")
    assert await witness.answer() == "a"


async def test_a_connection_that_is_lost_holds_no_response(open_listener: OpenListener) -> None:
    unread = UnreadResponses(fetch_bytes_max=1_000_000, bytes_max=10_000_000)
    listener = await open_listener(unread=unread)
    client = await listener.connect()
    client.read_nothing()
    await client.send("change a", "big 500000", "big 8000000")
    await listener.works.until(lambda: unread.held_bytes == 500_000)
    (connection,) = listener.works.connections
    connection.abort()
    await listener.works.until(lambda: connection.is_lost)
    assert unread.held_bytes == 0
    # A change goes on, and what it answers is for nobody.
    listener.works.finish("a")
    await listener.works.until(lambda: listener.works.ended == ["a"])
    assert unread.held_bytes == 0


async def test_reads_in_progress_are_bounded_by_what_they_may_return(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    size = READING_BYTES_MAX // 4
    await client.send(*(f"read {number} {size}" for number in range(10)), "now z")
    await listener.works.until(lambda: len(listener.works.taken) == 4)
    (connection,) = listener.works.connections
    await listener.works.until(lambda: not connection.is_reading)
    assert len(listener.works.taken) == 4
    listener.works.finish(*map(str, range(10)))
    assert await client.answers(11) == [*map(str, range(10)), "z"]


async def test_one_read_is_allowed_whatever_it_may_return(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send(f"read a {READING_BYTES_MAX * 2}", f"read b {READING_BYTES_MAX * 2}")
    listener.works.finish("a", "b")
    assert await client.answers(2) == ["a", "b"]


async def test_a_read_that_waits_for_news_lets_later_requests_begin_and_keeps_their_order(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("poll a 10", "read b 10", "now c")
    await listener.works.until(lambda: "now c" in listener.works.taken)
    listener.works.finish("a", "b")
    await listener.works.until(lambda: listener.works.ended == ["b"])
    listener.works.wakeups["a"].end()
    assert await client.answers(3) == ["a", "b", "c"]


@pytest.mark.parametrize("waits_again", [False, True])
async def test_a_read_that_waits_for_news_counts_among_the_reads_in_progress(
    open_listener: OpenListener, waits_again: bool
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    if not waits_again:
        listener.works.finish("a")
    await client.send(f"poll a {READING_BYTES_MAX}", "now b")
    await listener.works.until(lambda: "a" in listener.works.wakeups)
    assert "now b" not in listener.works.taken
    listener.works.wakeups["a"].end()
    await listener.works.until(lambda: listener.works.begun == ["a"])
    if waits_again:
        assert "now b" not in listener.works.taken
        listener.works.finish("a")
    assert await client.answers(2) == ["a", "b"]


@pytest.mark.parametrize("is_woken", [False, True])
async def test_a_read_that_waits_ends_with_its_connection(
    open_listener: OpenListener, is_woken: bool
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("poll a 10")
    await listener.works.until(lambda: "a" in listener.works.wakeups)
    if is_woken:
        listener.works.wakeups["a"].end()
        await listener.works.until(lambda: listener.works.begun == ["a"])
    listener.works.connections[0].abort()
    await listener.works.until(lambda: listener.works.cancelled == ["a"])


async def test_a_read_that_fails_after_its_wait_ends_the_connection(
    open_listener: OpenListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("now a", "poll crash 10")
    await listener.works.until(lambda: "crash" in listener.works.wakeups)
    assert await client.answer() == "a"
    with caplog.at_level(logging.CRITICAL, logger=tcp.__name__):
        listener.works.wakeups["crash"].end()
        assert await client.rest() == b""


# ── time ──


async def test_a_frame_that_is_not_completed_in_time_is_refused_and_the_connection_closed(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000))
    client = await listener.connect()
    await client.send_bytes(b"now a\nnow b")
    assert await client.answer() == "a"
    clock.advance(30.1)
    assert await client.rest() == b"refused: a frame was begun and not finished in time\n"


async def test_a_frame_sent_byte_by_byte_gets_no_more_time_than_another(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000))
    client = await listener.connect()
    for number in range(4):
        await client.send_bytes(b"n")
        await listener.works.until(lambda expected=number + 1: listener.works.bytes_received == expected)
        clock.advance(9)
    assert await client.rest() == b"refused: a frame was begun and not finished in time\n"


async def test_a_stream_whose_pieces_always_end_inside_a_frame_is_never_timed_out(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000))
    client = await listener.connect()
    await client.send_bytes(b"now ")
    for number in range(10):
        await client.send_bytes(f"{number}\nnow ".encode())
        assert await client.answer() == str(number)
        clock.advance(20)


async def test_time_spent_paused_does_not_count_against_a_frame(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=1, frame_timeout_ms=30_000))
    client = await listener.connect()
    await client.send_bytes(b"later a\nnow ")
    await listener.works.until(lambda: bool(listener.works.taken))
    clock.advance(100)
    await asyncio.sleep(0)
    listener.works.finish("a")
    assert await client.answer() == "a"
    await client.send_bytes(b"b\n")
    assert await client.answer() == "b"


async def test_a_frame_after_a_barrier_has_its_time_limit_too(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000))
    client = await listener.connect()
    await client.send_bytes(b"alone a\nnow b\nnow ")
    listener.works.finish("a")
    assert await client.answers(2) == ["a", "b"]
    clock.advance(30.1)
    assert await client.rest() == b"refused: a frame was begun and not finished in time\n"


async def test_an_idle_peer_gets_the_reason_and_is_closed(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(idle_timeout_ms=600_000))
    client = await listener.connect()
    await client.send("now a")
    assert await client.answer() == "a"
    clock.advance(600.1)
    assert await client.rest() == b"refused: no request arrived within the idle timeout\n"


async def test_a_peer_that_waits_for_a_response_is_not_idle(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(idle_timeout_ms=600_000))
    client = await listener.connect()
    await client.send("later a")
    await listener.works.until(lambda: bool(listener.works.taken))
    clock.advance(601)
    # The look at the clock has passed when another peer, later, has been closed.
    other = await listener.connect()
    clock.advance(601)
    assert b"idle timeout" in await other.rest()
    listener.works.finish("a")
    assert await client.answer() == "a"


async def test_a_peer_that_reads_nothing_for_the_idle_timeout_is_cut_off(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(output_bytes_max=64 * 1024))
    client = await listener.connect()
    client.read_nothing()
    client.send_soon(*("big 10000" for _ in range(2000)))
    await listener.works.until(
        lambda: bool(listener.works.connections) and not listener.works.connections[0].is_reading
    )
    # The kernel may still take output, which counts as activity: the time passes more than once.
    (connection,) = listener.works.connections
    await clock.advance_until(lambda: connection.is_lost, step_s=600.1)
    assert listener.server.connections == 0


async def test_an_idle_peer_that_left_its_responses_unread_is_cut_off(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(output_bytes_max=16_000_000))
    client = await listener.connect()
    client.read_nothing()
    # More than the sockets hold, less than output_bytes_max: it is never paused.
    await client.send("big 8000000")
    await listener.works.until(lambda: len(listener.works.taken) == 1)
    (connection,) = listener.works.connections
    await clock.advance_until(lambda: connection.is_lost, step_s=600.1)
    assert listener.server.connections == 0


# ── the end ──


async def test_a_half_open_peer_gets_all_its_responses_and_then_the_end(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("now a", "later b", "now c")
    client.end()
    assert await client.answer() == "a"
    await listener.works.until(lambda: len(listener.works.taken) == 3)
    listener.works.finish("b")
    assert await client.rest() == b"b\nc\n"


async def test_a_half_open_peer_gets_the_responses_to_requests_after_a_barrier(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("alone a", "now b", "alone c", "now d")
    client.end()
    listener.works.finish("a", "c")
    assert await client.rest() == b"a\nb\nc\nd\n"


async def test_a_half_open_peer_gets_the_responses_to_requests_that_limits_delayed(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=2))
    client = await listener.connect()
    names = [str(number) for number in range(50)]
    await client.send(*(f"later {name}" for name in names))
    client.end()
    listener.works.finish(*names)
    assert await client.rest() == "".join(f"{name}\n" for name in names).encode()


async def test_a_half_open_peer_that_never_reads_is_cut_off(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000, output_bytes_max=16_000_000))
    client = await listener.connect()
    client.read_nothing()
    await client.send("big 8000000")
    client.end()
    await listener.works.until(lambda: listener.works.peers_ended == 1)
    (connection,) = listener.works.connections
    await clock.advance_until(lambda: connection.is_lost, step_s=30.1)


async def test_a_peer_that_still_sends_when_it_is_refused_can_read_the_reason(
    open_listener: OpenListener, clock: SteeredClock
) -> None:
    listener = await open_listener(Limits(frame_timeout_ms=30_000))
    client = await listener.connect()
    await client.send_bytes(b"x" * 100)
    await listener.works.until(lambda: listener.works.bytes_received == 100)
    clock.advance(30.1)
    # Closing on these unread bytes would reset the connection under the refusal.
    await client.send_bytes(b"x" * 5_000_000)
    assert await client.rest() == b"refused: a frame was begun and not finished in time\n"


async def test_work_for_a_peer_that_has_disconnected_ends_but_a_change_continues(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later a", "read b 10", "change c")
    await listener.works.until(lambda: len(listener.works.taken) == 3)
    client.reset()
    await listener.works.until(lambda: sorted(listener.works.cancelled) == ["a", "b"])
    listener.works.finish("a", "b", "c")
    await listener.works.until(lambda: listener.works.ended == ["c"])


async def test_work_that_had_just_begun_when_the_peer_disconnected_leaves_nothing_behind(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    for _ in range(20):
        client = await listener.connect()
        client.send_soon("later a", "read b 10", "alone c", "now d")
        client.reset()
    listener.works.finish("c")
    await listener.works.until(lambda: all(connection.is_lost for connection in listener.works.connections))
    assert listener.server.connections == 0
    witness = await listener.connect()
    await witness.send("now w")
    assert await witness.answer() == "w"
