"""A connection of the Kafka listener without a socket, in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

from app.settings import Settings
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from tests.support.before_login import Registry, Wire


class KafkaWire:
    """Sends frames to a listener, and cuts what it answers."""

    def __init__(self, listener: KafkaListener, settings: Settings) -> None:
        self._wire = Wire("10.0.0.1")
        self._connection = KafkaConnection(listener=listener, settings=settings, registry=Registry())
        self._connection.connection_made(self._wire)

    async def ask(self, frame: bytes, *, many: int = 1) -> list[bytes]:
        """Send requests, and return so many responses; fewer if the connection ends."""
        self._wire.written.clear()
        self._connection.data_received(frame)
        async with asyncio.timeout(60):
            while True:
                frames = list(_cut(self._wire.written))
                if len(frames) >= many or self._wire.is_over:
                    return frames
                await asyncio.sleep(0)


def _cut(data: bytearray) -> Iterator[bytes]:
    position = 0
    while position + 4 <= len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4])
        if end > len(data):
            return
        yield bytes(data[position + 4 : end])
        position = end


def codes_of(message: Any) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(message, list | tuple):
        return {code for item in cast("Sequence[Any]", message) for code in codes_of(item)}
    if not hasattr(message, "__dataclass_fields__"):
        return set()
    found: set[int] = set()
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        found |= {value} if name.endswith("error_code") else codes_of(value)
    return found
