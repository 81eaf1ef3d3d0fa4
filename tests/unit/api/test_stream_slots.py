"""Streams are limited in number, and a client that reads nothing loses its slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from app.api.records.stream_slots import SlottedStream, StreamSlots

SCOPE = {"type": "http", "path": "/stream", "asgi": {"spec_version": "2.3"}}


class Client:
    """A client that reads the head of an answer at once, and its body once ``takes`` is set."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.takes = asyncio.Event()
        self.is_sent = asyncio.Event()

    async def receive(self) -> Message:
        return await asyncio.get_running_loop().create_future()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.is_sent.set()
            await self.takes.wait()
        self.got.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)

    @property
    def is_whole(self) -> bool:
        return bool(self.got) and not self.got[-1].get("more_body", True)


class Streams:
    def __init__(self, slots: StreamSlots) -> None:
        self._slots = slots
        self.ended = 0

    async def _content(self) -> AsyncGenerator[bytes]:
        try:
            for _ in range(3):
                yield b"x"
        finally:
            self.ended += 1

    async def begin(self) -> tuple[Client, asyncio.Task[None]]:
        client = Client()
        stream = SlottedStream(self._content(), self._slots, media_type="text/plain")
        task = asyncio.create_task(stream(dict(SCOPE), client.receive, client.send))
        await client.is_sent.wait()
        return client, task


async def test_a_slot_is_free_again_when_its_answer_has_ended() -> None:
    slots = StreamSlots("searches", 1)
    streams = Streams(slots)
    client, task = await streams.begin()
    assert slots.taken == 1
    client.takes.set()
    await task
    assert (client.body, client.is_whole, slots.taken, streams.ended) == (b"xxx", True, 0, 1)


async def test_a_stream_beyond_the_limit_gets_429_while_the_others_are_being_read() -> None:
    streams = Streams(StreamSlots("searches", 2, patience_s=1e9))
    begun = [await streams.begin() for _ in range(2)]
    late, task = Client(), None
    late.takes.set()
    stream = SlottedStream(streams._content(), streams._slots, media_type="text/plain")
    await stream(dict(SCOPE), late.receive, late.send)
    assert late.got[0]["status"] == 429
    assert b"2 searches are running" in late.body
    for client, task in begun:
        client.takes.set()
        await task
        assert client.is_whole


async def test_a_client_that_reads_nothing_loses_its_slot_to_a_new_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = Streams(StreamSlots("searches", 2, patience_s=0))
    (first, first_task), (second, second_task) = [await streams.begin() for _ in range(2)]
    third, third_task = await streams.begin()
    await first_task
    # Aborted: the end of the answer was not sent.
    assert (first.is_whole, streams.ended) == (False, 1)
    assert "/stream was aborted" in caplog.text
    for client, task in ((second, second_task), (third, third_task)):
        client.takes.set()
        await task
        assert (client.body, client.is_whole) == (b"xxx", True)
    assert streams.ended == 3
