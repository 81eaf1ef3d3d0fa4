"""Connections that speak the Kafka protocol with the schemas of the broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from stele.wire.kafka.api import Api
from stele.wire.kafka.topics import (
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from ..kafka_frames import answer_of, frame_of
from ..subjects import Subject
from .costs import TIMEOUT_S

new_names = (f"growth-{number}" for number in count(1))


@dataclass(slots=True)
class Peer:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(self, api: Api, version: int, request: object, *allowed: int) -> Any:
        """Return the answer to a request; raises ``RuntimeError`` for other errors than ``allowed``."""
        self.writer.write(frame_of(api, version, request))
        answered = await self.reader.readexactly(*struct.unpack(">i", await self.reader.readexactly(4)))
        answer = answer_of(api, version, answered)
        if (code := getattr(answer, "error_code", 0)) and code not in allowed:
            raise RuntimeError(f"{api.name} was answered with error {code}")
        return answer


@asynccontextmanager
async def peers_of(
    subject: Subject, size: int, *, timeout_s: float | None = TIMEOUT_S
) -> AsyncGenerator[list[Peer]]:
    """Give so many connections, for no longer than ``timeout_s``."""
    async with AsyncExitStack() as stack, asyncio.timeout(timeout_s):
        peers: list[Peer] = []
        for _ in range(size):
            reader, writer = await asyncio.open_connection(*subject.address, limit=1 << 24)
            stack.callback(writer.close)
            peers.append(Peer(reader, writer))
        yield peers


@asynccontextmanager
async def temporary_topic(subject: Subject, partitions: int = 1) -> AsyncGenerator[str]:
    topic = CreatableTopic(
        name=next(new_names), num_partitions=partitions, replication_factor=-1, assignments=(), configs=()
    )
    await _ask(
        subject,
        CREATE_TOPICS_API,
        CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False),
    )
    try:
        yield topic.name
    finally:
        await _ask(
            subject, DELETE_TOPICS_API, DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=60_000)
        )


async def _ask(subject: Subject, api: Api, request: object) -> None:
    """Send one request on a connection of its own: a broker closes one that is idle for minutes."""
    async with peers_of(subject, 1) as (peer,):
        await peer.call(api, 5, request)
