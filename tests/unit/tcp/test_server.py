"""Counting connections, and closing a door gracefully."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.toy_door import Limits, OpenDoor


async def test_one_connection_too_many_is_told_so_and_the_others_go_on(open_door: OpenDoor) -> None:
    door = await open_door(connections_max=2)
    first, second = await door.connect(), await door.connect()
    await first.send("now a")
    await second.send("now b")
    assert (await first.answer(), await second.answer()) == ("a", "b")
    third = await door.connect()
    assert await third.rest() == b"refused: too many connections; close one, or raise connections_max\n"
    await first.send("now c")
    assert await first.answer() == "c"


async def test_a_place_is_free_again_when_a_connection_is_closed(open_door: OpenDoor) -> None:
    door = await open_door(connections_max=1)
    for _ in range(5):
        client = await door.connect()
        await client.send("now a")
        assert await client.answer() == "a"
        await client.close()
        await door.works.until(lambda: door.server.connections == 0)


async def test_stopping_answers_what_was_received_and_closes(open_door: OpenDoor) -> None:
    door = await open_door(Limits(pipelined_requests_max=3))
    client, idle = await door.connect(), await door.connect()
    await client.send("later a", "alone b", "later c", "later d", "later e", "now f")
    await door.works.until(lambda: len(door.works.taken) == 2)
    stopping = asyncio.create_task(door.server.stop(20_000))
    assert await idle.rest() == b""
    door.works.finish(*"abcde")
    assert await client.rest() == b"a\nb\nc\nd\ne\nf\n"
    await stopping
    assert door.server.connections == 0


async def test_nobody_is_let_in_while_a_door_is_stopping(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    await client.send("later a")
    await door.works.until(lambda: bool(door.works.taken))
    stopping = asyncio.create_task(door.server.stop(20_000))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await door.connect()
    door.works.finish("a")
    assert await client.rest() == b"a\n"
    await stopping


async def test_a_peer_that_streams_on_while_the_door_stops_loses_no_answer(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    await client.send("later a", "big 500000", "now b")
    await door.works.until(lambda: len(door.works.taken) == 3)
    stopping = asyncio.create_task(door.server.stop(20_000))
    await asyncio.sleep(0)
    # Unread when the door closes; a reset would take the answers with it.
    await client.send(*("now late" for _ in range(1000)))
    door.works.finish("a")
    rest = await client.rest()
    assert (rest[:2], len(rest), rest[-2:]) == (b"a\n", 2 + 500_000 + 2, b"b\n")
    await stopping


async def test_what_does_not_end_in_time_is_cut_off_when_the_door_stops(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    await client.send("later never")
    await door.works.until(lambda: bool(door.works.taken))
    await door.server.stop(1)
    assert await client.rest() == b""
    await door.works.until(lambda: door.works.connections[0].is_lost)
