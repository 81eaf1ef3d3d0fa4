"""An object store as a dictionary, without delays and failures."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.shared.store.object_store import (
    DELETE_MAX,
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectNotFound,
    ObjectStoreError,
    StoredObject,
)


class ModelStore:
    """Implements ``ConditionalStore``. Tests may read and change ``objects``, the bytes by key."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects
        # As many as ever were put, also those that were deleted.
        self.put_count = 0

    @property
    def is_durable(self) -> bool:
        return True

    async def put(self, key: str, data: Buffer) -> None:
        known = self.objects.get(key)
        assert known is None or known == bytes(data), f"{key} is put again with other bytes"
        self.objects[key] = bytes(data)
        self.put_count += 1

    async def create(self, key: str, data: Buffer) -> bool:
        if key in self.objects:
            return False
        await self.put(key, data)
        return True

    async def get(self, key: str) -> bytes:
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFound(key)
        return data

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFound(key)
        for start, end in ranges:
            if not 0 <= start < end <= len(data):
                raise ObjectStoreError(
                    f"object {key!r} has {len(data)} bytes; {start} to {end} were asked for"
                )
        return [data[start:end] for start, end in ranges]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        assert prefix.endswith("/")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return [StoredObject(key, len(self.objects[key])) for key in keys[:LIST_MAX]]

    async def delete(self, keys: Sequence[str]) -> None:
        assert len(keys) <= DELETE_MAX
        for key in keys:
            self.objects.pop(key, None)

    async def close(self) -> None:
        """Do nothing: brokers share it."""
