"""The files of stores in the bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import crc32c

from .bucket import CHUNKS, Bucket
from .cut import ChunkSpan, StoreChange
from .state import StoreReplica
from .store_images import CHUNK_BYTES, StoreImages, changed_chunks

_T = TypeVar("_T")


class StoreSource(NamedTuple):
    """A store that is part of the replica.

    ``submit`` runs a call in the thread that writes the store: after what that was given before, and before all later
    work. The thread is given the call before ``submit`` returns.
    """

    images: StoreImages
    submit: Callable[[Callable[[], bool]], asyncio.Future[bool]]


class StoreUploads:
    """Brings the images of one store into the bucket; uses ``thread`` for them."""

    def __init__(
        self, source: StoreSource, bucket: Bucket, thread: ThreadPoolExecutor, *, object_bytes: int
    ) -> None:
        self._source = source
        self._bucket = bucket
        self._thread = thread
        self._chunks_per_object = max(1, object_bytes // CHUNK_BYTES)
        self._image = b""
        # Those of the image, all of which are in the bucket.
        self._chunks: dict[int, ChunkSpan] = {}

    @property
    def name(self) -> str:
        return self._source.images.name

    def begin(self) -> asyncio.Future[bool]:
        """Hold what the store has now; the future is False if the bucket has it."""
        return self._source.submit(self._source.images.begin)

    def abandon(self) -> None:
        """Note that what was held is not in the bucket."""
        self._source.images.forget()

    async def upload(self) -> None:
        """Bring what is held into the bucket.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        image = await self._in_thread(self._source.images.image)
        numbers = await self._in_thread(lambda: list(changed_chunks(self._image, image)))
        for start in range(0, len(numbers), self._chunks_per_object):
            part = numbers[start : start + self._chunks_per_object]
            chunks = [image[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES] for number in part]
            key = await self._bucket.put(CHUNKS, b"".join(chunks))
            position = 0
            for number, chunk in zip(part, chunks, strict=True):
                self._chunks[number] = ChunkSpan(number, key, position, len(chunk), crc32c.crc32c(chunk))
                position += len(chunk)
        self._image = image

    def change(self, known: StoreReplica | None) -> StoreChange | None:
        """Return how the uploaded image differs from what the newest cut has; None if it does not."""
        size, count = len(self._image), -(-len(self._image) // CHUNK_BYTES)
        before = known.chunks if known is not None and known.chunk_bytes == CHUNK_BYTES else []
        chunks = tuple(
            self._chunks[number]
            for number in range(count)
            if number >= len(before) or before[number] != self._chunks[number]
        )
        if not chunks and known is not None and known.size == size:
            return None
        return StoreChange(name=self.name, size=size, chunk_bytes=CHUNK_BYTES, chunks=chunks)

    async def close(self) -> None:
        await self._in_thread(self._source.images.close)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
