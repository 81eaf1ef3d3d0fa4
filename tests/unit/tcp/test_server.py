"""Counting connections, and closing a listener gracefully."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.toy_listener import Limits, OpenListener


async def test_one_connection_too_many_is_refused_with_the_reason_and_the_others_continue(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener(connections_max=2)
    first, second = await listener.connect(), await listener.connect()
    await first.send("now a")
    await second.send("now b")
    assert (await first.answer(), await second.answer()) == ("a", "b")
    if listener.authority is None:
        third = await listener.connect()
        assert await third.rest() == b"refused: too many connections; close one, or raise connections_max\n"
    else:
        third = await listener.connect_plaintext()
        assert await third.rest() == b"", "before the handshake that the limit is to save"
    assert listener.server.traffic().connections_refused == 1
    await first.send("now c")
    assert await first.answer() == "c"


async def test_a_place_is_free_again_when_a_connection_is_closed(open_listener: OpenListener) -> None:
    listener = await open_listener(connections_max=1)
    for _ in range(5):
        client = await listener.connect()
        await client.send("now a")
        assert await client.answer() == "a"
        await client.close()
        await listener.works.until(lambda: listener.server.connections == 0)


async def test_stopping_answers_what_was_received_and_closes(open_listener: OpenListener) -> None:
    listener = await open_listener(Limits(pipelined_requests_max=3))
    client, idle = await listener.connect(), await listener.connect()
    await client.send("later a", "alone b", "later c", "later d", "later e", "now f")
    await listener.works.until(lambda: len(listener.works.taken) == 2)
    stopping = asyncio.create_task(listener.server.stop(20_000))
    assert await idle.rest() == b""
    listener.works.finish(*"abcde")
    assert await client.rest() == b"a\nb\nc\nd\ne\nf\n"
    await stopping
    assert listener.server.connections == 0


async def test_no_connection_is_accepted_while_a_listener_stops(open_listener: OpenListener) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later a")
    await listener.works.until(lambda: bool(listener.works.taken))
    stopping = asyncio.create_task(listener.server.stop(20_000))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await listener.connect()
    listener.works.finish("a")
    assert await client.rest() == b"a\n"
    await stopping


async def test_a_peer_that_still_sends_while_the_listener_stops_loses_no_response(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later a", "big 500000", "now b")
    await listener.works.until(lambda: len(listener.works.taken) == 3)
    stopping = asyncio.create_task(listener.server.stop(20_000))
    await asyncio.sleep(0)
    # Unread when the listener closes; a reset would take the answers with it.
    await client.send(*("now late" for _ in range(1000)))
    listener.works.finish("a")
    rest = await client.rest()
    assert (rest[:2], len(rest), rest[-2:]) == (b"a\n", 2 + 500_000 + 2, b"b\n")
    await stopping


async def test_requests_that_do_not_end_in_time_are_cut_off_when_the_listener_stops(
    open_listener: OpenListener,
) -> None:
    listener = await open_listener()
    client = await listener.connect()
    await client.send("later never")
    await listener.works.until(lambda: bool(listener.works.taken))
    await listener.server.stop(1)
    assert await client.rest() == b""
    await listener.works.until(lambda: listener.works.connections[0].is_lost)
