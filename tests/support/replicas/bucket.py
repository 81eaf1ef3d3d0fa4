"""A bucket whose requests are late, fail, get lost, or take effect after they failed.

What was sent takes effect whether or not the broker still waits for it, or lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from app.storage.shared.store.object_store import (
    DELETE_MAX,
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectNotFound,
    ObjectStoreError,
    StoredObject,
)

_T = TypeVar("_T")

_DELAYS_S = (0.0, 0.001, 0.01, 0.05, 0.3)
# How late the effect of a request may be that its sender has given up.
LATE_S = (2.0, 4.0, 8.0)


@dataclass(slots=True)
class Weather:
    """How requests fare: ``delays_s`` are those of one way; others but the last field are probabilities."""

    delays_s: Sequence[float] = _DELAYS_S
    refused: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    never: float = 0.0
    is_down: bool = False


class BucketEvents:
    """What a test looks at; called when a request takes effect."""

    def created(self, key: str, data: bytes) -> None: ...

    def deleting(self, keys: Sequence[str]) -> None: ...

    def failed(self, error: Exception) -> None:
        """A request has an effect that it must not have."""


class SimulatedBucket:
    """All objects, by key. ``is_conditional`` False: a PUT that may only create replaces."""

    def __init__(self, random: Random, events: BucketEvents) -> None:
        self.objects: dict[str, bytes] = {}
        self.weather = Weather()
        self.is_conditional = True
        # Requests that will take effect long after they were sent.
        self.late = 0
        self.requests = 0
        self._random = random
        self._events = events

    def door(self) -> BucketDoor:
        """Return how one broker reaches the bucket."""
        return BucketDoor(self)

    async def request(self, door: BucketDoor, effect: Callable[[], _T]) -> _T:
        random, weather = self._random, self.weather
        self.requests += 1
        fate = random.random()
        if door.is_closed:
            await asyncio.get_running_loop().create_future()
        if weather.is_down:
            if fate < 0.3:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(random.choice(weather.delays_s))
            raise ObjectStoreError("503 Service Unavailable")
        if fate < weather.refused:
            await asyncio.sleep(random.choice(weather.delays_s))
            raise ObjectStoreError("429 Too Many Requests")
        fate -= weather.refused
        if fate < weather.never:
            await asyncio.get_running_loop().create_future()
        fate -= weather.never
        is_late = fate < weather.late
        answer = self._send(random.choice(LATE_S if is_late else weather.delays_s), effect, is_late=is_late)
        if is_late:
            await asyncio.get_running_loop().create_future()
        fate -= weather.late
        result = await asyncio.shield(answer)
        await asyncio.sleep(random.choice(weather.delays_s))
        if fate < weather.lost_answer:
            raise ObjectStoreError("the connection broke")
        return result

    def _send(self, after_s: float, effect: Callable[[], _T], *, is_late: bool) -> asyncio.Future[_T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()
        self.late += is_late

        def arrive() -> None:
            self.late -= is_late
            try:
                result = effect()
            except ObjectStoreError as error:
                answer.set_exception(error)
                # Nobody may wait for it any longer.
                answer.exception()
            except Exception as error:
                self._events.failed(error)
                raise
            else:
                answer.set_result(result)

        loop.call_later(after_s, arrive)
        return answer

    def put(self, key: str, data: bytes) -> None:
        known = self.objects.get(key)
        assert known is None or known == data, f"{key} is put again with other bytes"
        self.objects[key] = data

    def create(self, key: str, data: bytes) -> bool:
        if key in self.objects and self.is_conditional:
            return False
        self.objects[key] = data
        self._events.created(key, data)
        return True

    def get(self, key: str) -> bytes:
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFound(key)
        return data

    def list_page(self, prefix: str, after: str) -> list[StoredObject]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return [StoredObject(key, len(self.objects[key])) for key in keys[:LIST_MAX]]

    def delete(self, keys: Sequence[str]) -> None:
        self._events.deleting(keys)
        for key in keys:
            self.objects.pop(key, None)


class BucketDoor:
    """Implements ``ConditionalStore``; after ``close_for_good`` nothing more is sent."""

    def __init__(self, bucket: SimulatedBucket) -> None:
        self._bucket = bucket
        self.is_closed = False

    @property
    def is_durable(self) -> bool:
        return True

    async def put(self, key: str, data: Buffer) -> None:
        copy = bytes(data)
        await self._bucket.request(self, lambda: self._bucket.put(key, copy))

    async def create(self, key: str, data: Buffer) -> bool:
        copy = bytes(data)
        return await self._bucket.request(self, lambda: self._bucket.create(key, copy))

    async def get(self, key: str) -> bytes:
        return await self._bucket.request(self, lambda: self._bucket.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        data = await self.get(key)
        return [data[start:end] for start, end in ranges]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        return await self._bucket.request(self, lambda: self._bucket.list_page(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        assert len(keys) <= DELETE_MAX
        await self._bucket.request(self, lambda: self._bucket.delete(list(keys)))

    async def close(self) -> None:
        """Do nothing: brokers share the bucket."""
