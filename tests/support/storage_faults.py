"""Faults around the models of shared storage: delays, failures before or after the effect, dead and paused brokers.

The metadata fails as a database does: a call may fail without effect, or have its effect and fail, and the
answer to a commit may be lost while the transaction has happened, has not, or still happens later and
holds its locks until then. A store may report a success as a failure, or store an object long after it
reported one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from app.storage.shared.meta import CommitAnswer, CommitUnknown, Meta, MetaUnavailable, ObjectWrite
from app.storage.shared.store.object_store import (
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    StoredObject,
)

from .model_meta import ModelMeta

# Reads see a snapshot: they wait for no lock.
_READS = frozenset(
    (
        "log_rows",
        "moved_logs",
        "expiring",
        "runs",
        "run_at_time",
        "newest_run",
        "producers",
        "dead_objects",
        "silent_uploaders",
    )
)


@dataclass(slots=True)
class Faults:
    """How likely a call fails, and how long it may take; ``is_down`` lets every call fail."""

    random: Random
    rate: float = 0.0
    delays_s: Sequence[float] = (0.0,)
    is_down: bool = False

    def delay_s(self) -> float:
        """Return how long the next call takes."""
        # ``choice`` takes five times as long, and is called for every call.
        return (
            self.delays_s[int(self.random.random() * len(self.delays_s))] if len(self.delays_s) > 1 else 0.0
        )

    async def delay(self) -> None:
        if delay_s := self.delay_s():
            await asyncio.sleep(delay_s)

    def strikes(self) -> bool:
        return self.is_down or (self.rate > 0 and self.random.random() < self.rate)


class Gate:
    """Holds the calls of one broker while it is paused, and for ever once it is dead."""

    def __init__(self) -> None:
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.is_dead = False
        self._at_commit_s = 0.0

    def pause(self, seconds: float) -> None:
        self._is_open.clear()
        asyncio.get_running_loop().call_later(seconds, self.resume)

    def pause_at_commit(self, seconds: float) -> None:
        """Pause when the next commit begins."""
        self._at_commit_s = seconds

    def commits(self) -> None:
        """Note that a commit begins."""
        if self._at_commit_s:
            self.pause(self._at_commit_s)
            self._at_commit_s = 0

    def resume(self) -> None:
        if not self.is_dead:
            self._is_open.set()

    def kill(self) -> None:
        self.is_dead = True
        self._is_open.clear()

    @property
    def is_open(self) -> bool:
        return self._is_open.is_set()

    async def passed(self) -> None:
        await self._is_open.wait()


class Locks:
    """Transactions that still run after their client has lost them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def hold(self, seconds: float, step: Callable[[], Awaitable[object]]) -> None:
        """Run ``step`` after ``seconds``; until then nothing else is written."""

        async def run() -> None:
            await asyncio.sleep(seconds)
            await step()

        task = asyncio.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    @property
    def are_held(self) -> bool:
        return bool(self._running)

    def drop(self) -> None:
        """End these transactions without effect."""
        for task in self._running:
            task.cancel()

    async def free(self) -> None:
        while self._running:
            await asyncio.wait(set(self._running))


class FaultyMeta:
    """The metadata as one broker reaches it; ``meta`` does each call in one step."""

    def __init__(self, meta: ModelMeta, faults: Faults, locks: Locks, gate: Gate) -> None:
        self._meta = meta
        self._faults = faults
        self._locks = locks
        self._gate = gate

    @classmethod
    def around(cls, meta: ModelMeta, faults: Faults, locks: Locks, gate: Gate) -> Meta:
        return cast("Meta", cls(meta, faults, locks, gate))

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._meta, name)

        is_write = name not in _READS

        async def faulty(*args: Any, **kwargs: Any) -> Any:
            await self._begin(is_write=is_write)
            result = await call(*args, **kwargs)
            await self._faults.delay()
            if not self._gate.is_open:
                await self._gate.passed()
            if self._faults.strikes():
                raise MetaUnavailable("the connection was lost after the transaction")
            return result

        # Found without this method from now on.
        setattr(self, name, faulty)
        return faulty

    async def _begin(self, *, is_write: bool) -> None:
        if not self._gate.is_open:
            await self._gate.passed()
        if delay_s := self._faults.delay_s():
            await asyncio.sleep(delay_s)
            await self._gate.passed()
        if self._faults.strikes():
            raise MetaUnavailable("the connection was lost before the transaction")
        if is_write and self._locks.are_held:
            await self._locks.free()

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        self._gate.commits()
        await self._begin(is_write=True)
        is_committed = any(written.key in self._meta.objects for written in objects)
        if not is_committed and self._faults.strikes():
            answer = self._meta.decide(objects).answer
            if self._faults.random.random() < 0.5:
                seconds = self._faults.random.choice((0.001, 0.5, 3))
                self._locks.hold(seconds, lambda: self._meta.commit_objects(objects, computed=computed))
            raise CommitUnknown(answer)
        answer = await self._meta.commit_objects(objects, computed=computed)
        await self._faults.delay()
        await self._gate.passed()
        if self._faults.strikes():
            raise CommitUnknown(answer)
        return answer


class ModelStore:
    """Implements ``ObjectStore`` over a dict, without faults."""

    is_durable = True

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = {} if objects is None else objects

    async def put(self, key: str, data: Buffer) -> None:
        assert self.objects.get(key, data) == data, "an object never changes"
        self.objects[key] = bytes(data)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFound(key)
        if any(end > len(data) for _, end in ranges):
            raise ObjectStoreError("a range goes beyond the end of the object")
        return [data[start:end] for start, end in ranges]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return [StoredObject(key, len(self.objects[key])) for key in keys[:LIST_MAX]]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    async def close(self) -> None:
        """Do nothing: brokers share it."""


class FaultyStore:
    """A store as one broker reaches it."""

    is_durable = True

    def __init__(self, store: ObjectStore, faults: Faults, gate: Gate) -> None:
        self._store = store
        self._faults = faults
        self._gate = gate
        self._late: set[asyncio.Task[None]] = set()

    async def _begin(self) -> None:
        if not self._gate.is_open:
            await self._gate.passed()
        if delay_s := self._faults.delay_s():
            await asyncio.sleep(delay_s)
            await self._gate.passed()

    async def put(self, key: str, data: Buffer) -> None:
        await self._begin()
        if self._faults.strikes():
            if self._faults.random.random() < 0.6:
                seconds = self._faults.random.choice((0, 1, 40))
                self._late.add(task := asyncio.create_task(self._put_late(seconds, key, data)))
                task.add_done_callback(self._late.discard)
            raise ObjectStoreError("the store did not answer")
        await self._store.put(key, data)
        await self._begin()

    async def _put_late(self, seconds: float, key: str, data: Buffer) -> None:
        await asyncio.sleep(seconds)
        await self._store.put(key, data)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        await self._begin()
        if self._faults.strikes():
            raise ObjectStoreError("the store did not answer")
        return await self._store.get_ranges(key, ranges)

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        await self._begin()
        if self._faults.strikes():
            raise ObjectStoreError("the store did not answer")
        return await self._store.list_page(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._begin()
        if self._faults.strikes():
            raise ObjectStoreError("the store did not answer")
        await self._store.delete(keys)

    async def close(self) -> None:
        """Do nothing: brokers share it."""
