"""Reads pieces of objects, many at a time, and checks each against its CRC-32C.

A large piece is read in blocks, one after the other; small ones of the same object are read together. So the memory
for what is under way is bounded, whatever a cut names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import crc32c

from ..setup_problems import store_problem
from ..shared.store.backoff import Backoff
from ..shared.store.object_store import (
    Buffer,
    ByteRange,
    ConditionalStore,
    ObjectNotFound,
    ObjectStoreError,
    StoredObject,
)
from .restore_plan import Piece

_T = TypeVar("_T")

# Requests at a time, and bytes of each.
_REQUESTS = 8
_BLOCK_BYTES = 8 << 20
# Small pieces of one request.
_JOINED_MAX = 1024
# A request that fails is repeated for about half a minute.
_TRIES = 8
_RETRY_MS = 250
_REQUEST_TIMEOUT_S = 60.0


class DamagedPiece(NamedTuple):
    """A piece that the bucket does not have as the cut says."""

    piece: Piece
    problem: str

    def __str__(self) -> str:
        return f"{self.piece.object}, of {self.piece.file.owner}: {self.problem}"


class Damaged(Exception):
    """A piece is damaged, and is needed."""

    def __init__(self, damaged: DamagedPiece) -> None:
        super().__init__(str(damaged))


class Sink(Protocol):
    """Takes the bytes of a piece from ``start`` on; called in threads."""

    def __call__(self, piece: Piece, start: int, data: bytes, /) -> None: ...


class PatientStore:
    """Implements ``ConditionalStore``: reads are repeated for a while, unless the set-up is wrong."""

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store

    @property
    def is_durable(self) -> bool:
        return self._store.is_durable

    async def get(self, key: str) -> bytes:
        return await self._persist(lambda: self._store.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self._persist(lambda: self._store.get_ranges(key, ranges))

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        return await self._persist(lambda: self._store.list_page(prefix, after=after))

    async def put(self, key: str, data: Buffer) -> None:
        await self._store.put(key, data)

    async def create(self, key: str, data: Buffer) -> bool:
        return await self._store.create(key, data)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()

    async def _persist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        backoff = Backoff(_RETRY_MS)
        for left in range(_TRIES - 1, -1, -1):
            try:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    return await call()
            except ObjectNotFound:
                raise
            except TimeoutError:
                if not left:
                    raise ObjectStoreError("no answer in time") from None
            except ObjectStoreError as error:
                if not left or store_problem("", str(error)).is_mistake:
                    raise
            await backoff.wait()
        raise AssertionError


class Downloads:
    """Reads from ``store``; ``sink`` gets the bytes, and ``verified`` is called in threads for pieces that are whole."""

    def __init__(
        self, store: ConditionalStore, *, sink: Sink | None, verified: Callable[[Piece], object]
    ) -> None:
        self._store = store
        self._sink = sink
        self._verified = verified

    async def run(self, pieces: Iterable[Piece], damaged: Callable[[DamagedPiece], object]) -> None:
        """Read all pieces; ``damaged`` is called for each that is, and may raise.

        When this returns, or raises, the sink is not called any more.

        Raises:
            ObjectStoreError: the store does not answer.
            OSError: the sink failed.
        """
        jobs = _jobs(pieces)

        async def work() -> None:
            for job in jobs:
                await self._read(job, damaged)

        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="stele-downloads") as self._threads:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(_REQUESTS):
                        tasks.create_task(work())
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def _in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _read(self, pieces: Sequence[Piece], damaged: Callable[[DamagedPiece], object]) -> None:
        try:
            bad = await self._read_once(pieces)
            if bad:
                # What was damaged on its way is whole the next time.
                bad = await self._read_once(bad)
        except ObjectNotFound:
            for piece in pieces:
                damaged(DamagedPiece(piece, "the object does not exist"))
            return
        except ObjectStoreError as error:
            size = await self._size_of(pieces[0].object, error)
            for piece in pieces:
                if piece.position + piece.length > size:
                    damaged(DamagedPiece(piece, f"the object has only {size} bytes"))
            bad = [piece for piece in pieces if piece.position + piece.length <= size]
            if bad and len(bad) < len(pieces):
                await self._read(bad, damaged)
                return
            if bad:
                raise
        for piece in bad:
            damaged(
                DamagedPiece(piece, f"bytes {piece.position} to {piece.position + piece.length} are damaged")
            )

    async def _size_of(self, key: str, error: ObjectStoreError) -> int:
        """Return the size of an object of which a range could not be read. Raises ``error`` if that fails, too."""
        try:
            return len(await self._store.get(key))
        except ObjectStoreError:
            raise error from None

    async def _read_once(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Read pieces of one object; return those whose CRC is another."""
        if len(pieces) == 1 and pieces[0].length > _BLOCK_BYTES:
            return [] if await self._read_blocks(pieces[0]) else [pieces[0]]
        parts = await self._store.get_ranges(
            pieces[0].object, [ByteRange(one.position, one.position + one.length) for one in pieces]
        )
        return await self._in_thread(self._check, pieces, parts)

    async def _read_blocks(self, piece: Piece) -> bool:
        crc = 0
        for start in range(0, piece.length, _BLOCK_BYTES):
            end = min(start + _BLOCK_BYTES, piece.length)
            (data,) = await self._store.get_ranges(
                piece.object, [ByteRange(piece.position + start, piece.position + end)]
            )
            crc = await self._in_thread(self._take, piece, start, data, crc)
        if crc != piece.crc:
            return False
        await self._in_thread(self._verified, piece)
        return True

    def _take(self, piece: Piece, start: int, data: bytes, crc: int) -> int:
        if self._sink is not None:
            self._sink(piece, start, data)
        return crc32c.crc32c(data, crc)

    def _check(self, pieces: Sequence[Piece], parts: Sequence[bytes]) -> list[Piece]:
        bad: list[Piece] = []
        for piece, data in zip(pieces, parts, strict=True):
            if crc32c.crc32c(data) != piece.crc:
                bad.append(piece)
                continue
            if self._sink is not None:
                self._sink(piece, 0, data)
            self._verified(piece)
        return bad


def _jobs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield what one worker reads at a time: pieces of one object."""
    by_object: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_object.setdefault(piece.object, []).append(piece)
    for found in by_object.values():
        found.sort(key=lambda piece: piece.position)
        job: list[Piece] = []
        size = 0
        for piece in found:
            if job and (size + piece.length > _BLOCK_BYTES or len(job) == _JOINED_MAX):
                yield job
                job, size = [], 0
            job.append(piece)
            size += piece.length
        if job:
            yield job
