"""Object stores over obstore.

Objects are written in one PUT, never in parts: a part left over by a crash costs money and is
invisible. Requests are retried twice at most, quickly; how long to go on is for the engine to say,
because it knows how long a client still waits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from .object_store import LIST_MAX, Buffer, ByteRange, ObjectNotFound, ObjectStoreError, StoredObject

# Ranges that are so close to each other are read by one request.
_JOINED_BYTES = 128 * 1024


class ObstoreStore:
    """Implements ``ConditionalStore``. ``is_sorted``: the store lists by key."""

    def __init__(
        self, store: S3Store | GCSStore | AzureStore | LocalStore, *, is_durable: bool, is_sorted: bool = True
    ) -> None:
        self._store = store
        self._is_durable = is_durable
        self._is_sorted = is_sorted

    @property
    def is_durable(self) -> bool:
        return self._is_durable

    async def put(self, key: str, data: Buffer) -> None:
        async with _errors(key):
            await obstore.put_async(self._store, key, data, use_multipart=False)

    async def create(self, key: str, data: Buffer) -> bool:
        async with _errors(key):
            try:
                await obstore.put_async(self._store, key, data, use_multipart=False, mode="create")
            except AlreadyExistsError:
                return False
        return True

    async def get(self, key: str, *, bytes_max: int | None = None) -> bytes:
        async with _errors(key):
            result = await obstore.get_async(self._store, key)
            if bytes_max is not None and result.meta["size"] > bytes_max:
                raise ObjectStoreError(f"object {key!r} has more than {bytes_max} bytes")
            return (await result.bytes_async()).to_bytes()

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        async with _errors(key):
            parts = await obstore.get_ranges_async(
                self._store,
                key,
                starts=[part.start for part in ranges],
                ends=[part.end for part in ranges],
                coalesce=_JOINED_BYTES,
            )
        for part, wanted in zip(parts, ranges, strict=True):
            if len(part) != wanted.end - wanted.start:
                raise ObjectStoreError(f"object {key!r} ends before byte {wanted.end}")
        return [part.to_bytes() for part in parts]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        page: list[StoredObject] = []
        async with _errors(prefix):
            stream = obstore.list(self._store, prefix, offset=after or None, chunk_size=LIST_MAX)
            async for chunk in stream:
                page += [StoredObject(entry["path"], entry["size"]) for entry in chunk]
                if self._is_sorted:
                    break
        page.sort()
        return page[:LIST_MAX]

    async def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        async with _errors(keys[0]):
            try:
                await obstore.delete_async(self._store, list(keys))
            except FileNotFoundError:
                # Only directories object to what is gone already, and then stop.
                await self._delete_each(keys)

    async def _delete_each(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                continue

    async def close(self) -> None:
        """Do nothing: connections end with the process."""


@asynccontextmanager
async def _errors(key: str) -> AsyncGenerator[None]:
    """Translate the errors of obstore."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectNotFound(key) from None
    except (BaseError, OSError, ValueError) as error:
        raise ObjectStoreError(f"object {key!r}: {error}") from error
