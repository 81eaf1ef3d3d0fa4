"""Measure those that wait for the next record, and large values over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, product

from stele.broker_process import BrokerProcess

from .. import kafka_frames as frames
from ..decoded_reads import MIB, WAYS, Way, ask, exchange, http_request
from ..process_usage import raise_open_files
from ..subjects import Subject
from .costs import Costs, Point, Work
from .crowd import Crowd
from .peers import temporary_topic

WAITERS = (10, 200, 1000)
VALUES = (MIB, 8 * MIB, 60 * MIB)
# Of a broker that accepts the bodies of ``values``.
ENVIRONMENT = {
    "STELE_REQUEST_BODY_BYTES_MAX": str(256 * MIB),
    "STELE_PENDING_REQUEST_BYTES_MAX": str(1024 * MIB),
    "STELE_NDJSON_LINE_BYTES_MAX": str(256 * MIB),
}
# Records that go to all waiters in one measurement.
_RECORDS = 5
_MARK, _WAIT_MS = b"x" * 100, 60_000
# What a tail shows last, and no other answer has.
_LAST = b"the last value"


# ── waiters ──


def _fetch(topic: str, offset: int) -> bytes:
    return frames.fetch_request(topic, offset, max_wait_ms=_WAIT_MS)


def _poll(topic: str, offset: int, *, options: str = f"&wait_ms={_WAIT_MS}", accept: str = "*/*") -> bytes:
    path = f"/v1/topics/{topic}/partitions/0/records?from={offset}{options}"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()


def _tail(topic: str, offset: int) -> bytes:
    """A tail asks once, for the second record."""
    return b"" if offset > 1 else _poll(topic, offset, options="", accept="text/event-stream")


_KINDS = {"Fetch": _fetch, "long polls": _poll, "tails": _tail}


class _Waiters:
    """Connections that wait for records of one topic, which this produces."""

    def __init__(
        self, subject: Subject, topic: str, crowd: Crowd, request: Callable[[str, int], bytes]
    ) -> None:
        self._subject, self._topic, self._crowd, self._request = subject, topic, crowd, request

    async def receive(self) -> int:
        """Produce records, the next when all waiters have the one before; return how many they got together."""
        for _ in range(_RECORDS):
            self._crowd.expect(len(self._crowd))
            offset = await asyncio.to_thread(self._produce)
            await self._crowd.answered()
            self._ask(offset)
        return _RECORDS * len(self._crowd)

    async def begin(self) -> None:
        """Wait for the second record, when a first one shows that the topic is ready."""
        self._ask(await asyncio.to_thread(self._produce))

    def _ask(self, offset: int) -> None:
        self._crowd.send(self._request(self._topic, offset + 1))

    def _produce(self) -> int:
        request = frames.produce_request(self._topic, frames.batch_of(1, len(_MARK)), acks=1)
        with frames.connect(*self._subject.address) as connection:
            while True:
                connection.sendall(request)
                with suppress(frames.ErrorAnswered):
                    # A topic that Apache Kafka has just created may have no leader yet.
                    return frames.check_produce(frames.receive(connection))


async def waiters(costs: Costs, sizes: Sequence[int] = WAITERS) -> list[Point]:
    """Measure records that go to so many waiters: Fetch requests, long polls, and tails as server-sent events.

    A unit is one record for one of them; all but tails ask again.
    """
    raise_open_files()
    points: list[Point] = []
    subject = costs.subject
    for (what, request), size in product(_KINDS.items() if subject.is_stele else [("Fetch", _fetch)], sizes):
        host, port = subject.address if request is _fetch else (costs.broker.host, costs.broker.http_port)
        crowd = Crowd(host, port, _MARK)
        await crowd.open(size)
        async with temporary_topic(subject) as topic:
            waiting = _Waiters(subject, topic, crowd, request)
            await waiting.begin()
            points.append(await costs.of(f"{what} at the end", size, waiting.receive))
            crowd.close()
    return points


# ── values ──


def _works(broker: BrokerProcess, size: int) -> Iterator[tuple[str, Work]]:
    """Yield what is measured with values of a size."""
    numbers = count()

    async def answer(way: Way, topic: str) -> int:
        await asyncio.to_thread(exchange, broker.http_port, way.request(topic, next(numbers)), until=_LAST)
        return size // MIB

    async def send(request: bytes) -> int:
        await asyncio.to_thread(exchange, broker.http_port, request)
        return size // MIB

    text, noise = 'aé b"cd\n' * (size // 9), random.Random(size).randbytes(size)
    items = [{"id": number, "name": f"n{number}", "parts": [1.5, None, True]} for number in range(size // 60)]
    for content, value, record in (
        ("text", text.encode(), json.dumps({"value": text}, ensure_ascii=False).encode()),
        ("bytes", noise, b'{"value_b64":"%s"}' % base64.b64encode(noise)),
        ("object", json.dumps(items).encode(), json.dumps({"value": items}).encode()),
    ):
        topic = f"values-{content}-{size}"
        configs: dict[str, object] = {"max.message.bytes": 64 * MIB, "cleanup.policy": "compact"}
        ask(broker.http_port, "PUT", f"/v1/topics/{topic}", {"partitions": 1, "configs": configs})
        for key, stored in (("k", value), ("last", _LAST)):
            exchange(broker.http_port, _post(topic, "application/octet-stream", stored, key))
        for way in WAYS:
            # The first record is the large one.
            first = replace(way, path=way.path.replace("/records/1", "/records/0"))
            yield f"{way.what}: {content}", partial(answer, first, topic)
        del configs["cleanup.policy"]
        ask(broker.http_port, "PUT", f"/v1/topics/{topic}-sent", {"partitions": 1, "configs": configs})
        for media_type, body in (
            ("application/octet-stream", value),
            ("application/json", b'{"records":[%b]}' % record),
            ("application/x-ndjson", record + b"\n"),
        ):
            yield f"{media_type}: {content}", partial(send, _post(f"{topic}-sent", media_type, body))
        for name in (topic, f"{topic}-sent"):
            ask(broker.http_port, "DELETE", f"/v1/topics/{name}")


def _post(topic: str, media_type: str, body: bytes, key: str = "k") -> bytes:
    path = f"/v1/topics/{topic}/records?acks=1"
    return http_request("POST", path, body, content_type=media_type, record_key=key)


async def values(costs: Costs, sizes: Sequence[int] = VALUES) -> list[Point]:
    """Measure requests and answers with one large value; the broker needs ``ENVIRONMENT``. A unit is 1 MiB."""
    return [await costs.of(what, size, work) for size in sizes for what, work in _works(costs.broker, size)]
