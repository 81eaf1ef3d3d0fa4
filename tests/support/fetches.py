"""Fetches of the Kafka protocol against a listener in this process, whose reads wait or do not."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from stele.wire import record_batch as rb
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

from app.broker.producing.produce import Acks
from app.tcp.kafka.context import KafkaListener
from tests.support.kafka_application import served, slow
from tests.support.kafka_peer import read_response, request_frame

NOW_MS = 1_790_000_000_000

Session = Literal["none", "begin", "next", "stale", "unknown", "end"]
Send = Callable[[bytes], Coroutine[Any, Any, bytes]]


@dataclass(frozen=True, slots=True)
class Append:
    """One batch."""

    topic: str
    partition: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request, for one partition or for all of its topic, and for ``others``: topic, partition and offset."""

    version: int
    topic: str
    partition: int
    offset: int
    session: Session = "none"
    all_partitions: bool = False
    forgets: bool = False
    partition_bytes: int = 1 << 20
    bytes_max: int = 1 << 20
    bytes_min: int = 1
    wait_ms: int = 0
    isolation: int = 0
    epoch_ahead: int | None = None
    client_id: str | None = "a"
    rack_id: str = ""
    trailing: bytes = b""
    others: tuple[tuple[str, int, int], ...] = ()


@dataclass(slots=True)
class FetchClient:
    """Builds the frames of a client, with what it knows of its session."""

    session_id: int = 0
    epoch: int = 0
    correlation: int = field(default=0)

    def frame(self, listener: KafkaListener, fetch: Fetch) -> bytes:
        broker = listener.broker
        named = [(fetch.topic, fetch.partition, fetch.offset)]
        if fetch.all_partitions and broker.has_topic(fetch.topic):
            count = broker.topic(fetch.topic).partitions
            named = [(fetch.topic, partition, fetch.offset) for partition in range(count)]
        topics: list[FetchTopic] = []
        for name, partitions in groupby((*named, *fetch.others), key=itemgetter(0)):
            has_topic = broker.has_topic(name)
            epoch = -1
            if fetch.epoch_ahead is not None and has_topic:
                epoch = broker.leader_epoch(name, 0) + fetch.epoch_ahead
            topics.append(
                FetchTopic(
                    topic=name,
                    topic_id=broker.topic(name).topic_id.bytes if has_topic else b"\0" * 16,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            current_leader_epoch=epoch,
                            fetch_offset=offset,
                            partition_max_bytes=fetch.partition_bytes,
                        )
                        for _, partition, offset in partitions
                    ],
                )
            )
        session_id, session_epoch = {
            "none": (0, -1),
            "begin": (self.session_id, 0),
            "next": (self.session_id, self.epoch),
            "stale": (self.session_id, self.epoch + 5),
            "unknown": (4711, 3),
            "end": (self.session_id, -1),
        }[fetch.session]
        request = FetchRequest(
            max_wait_ms=fetch.wait_ms,
            min_bytes=fetch.bytes_min,
            max_bytes=fetch.bytes_max,
            isolation_level=fetch.isolation,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=(
                [ForgottenTopic(topic=fetch.topic, topic_id=topics[0].topic_id, partitions=[1])]
                if fetch.forgets
                else []
            ),
            rack_id=fetch.rack_id,
        )
        self.correlation += 1
        frame = request_frame(request, fetch.version, correlation=self.correlation, client_id=fetch.client_id)
        return struct.pack(">i", len(frame) - 4 + len(fetch.trailing)) + frame[4:] + fetch.trailing

    def note(self, fetch: Fetch, response: bytes) -> None:
        if fetch.version < 7 or response == b"closed":
            return
        _, answer = read_response(response, FETCH_API, fetch.version)
        if fetch.session == "begin" and not answer.error_code:
            self.session_id, self.epoch = answer.session_id, 1
        elif fetch.session == "next" and not answer.error_code:
            self.epoch += 1


@asynccontextmanager
async def connected(listener: KafkaListener, *, is_slow: bool = False) -> AsyncGenerator[Send]:
    """Yield a function that sends a frame and returns the response, ``closed`` if there is none.

    With ``is_slow`` every read waits, so that no fetch is answered at once.
    """
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(frame: bytes) -> bytes:
        if not streams:
            streams.append(await asyncio.open_connection(*address))
        reader, writer = streams[-1]
        writer.write(frame)
        try:
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            streams.clear()
            return b"closed"

    async with served(slow(listener) if is_slow else listener) as address:
        yield send
        for _, writer in streams:
            writer.close()


def append_to(listener: KafkaListener, append: Append) -> None:
    rows: list[rb.Row] = [(NOW_MS, b"k", b"v" * append.size, [])] * append.count
    listener.broker.produce(append.topic, append.partition, bytearray(rb.build_rows(rows)), acks=Acks.LEADER)
