"""The contract of every implementation of object stores."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from app.storage.shared.store.object_store import (
    LIST_MAX,
    ByteRange,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
)

# More than the part size of any client's multipart upload.
_LARGE_BYTES = 6 << 20


class ObjectStoreContract:
    """A class of tests that has the fixture ``store``; the store may have objects of other tests."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"w/{uuid4()}/"

    async def test_ranges_of_an_object_are_its_bytes(self, store: ObjectStore, prefix: str) -> None:
        data = bytes(range(256)) * 64
        await store.put(prefix + "1", bytearray(data))
        ranges = [ByteRange(0, 1), ByteRange(10_000, 10_100), ByteRange(5, 300), ByteRange(0, len(data))]
        assert await store.get_ranges(prefix + "1", ranges) == [data[start:end] for start, end in ranges]

    async def test_a_large_object_is_whole(self, store: ObjectStore, prefix: str) -> None:
        data = b"0123456789abcdef" * (_LARGE_BYTES // 16)
        await store.put(prefix + "large", memoryview(data))
        assert await store.get_ranges(prefix + "large", [ByteRange(0, len(data))]) == [data]

    async def test_the_same_bytes_may_be_put_again(self, store: ObjectStore, prefix: str) -> None:
        await asyncio.gather(*(store.put(prefix + "1", b"again") for _ in range(3)))
        assert await store.get_ranges(prefix + "1", [ByteRange(0, 5)]) == [b"again"]

    async def test_an_object_that_does_not_exist_is_named_in_the_error(
        self, store: ObjectStore, prefix: str
    ) -> None:
        with pytest.raises(ObjectNotFound, match=prefix + "none"):
            await store.get_ranges(prefix + "none", [ByteRange(0, 1)])

    @pytest.mark.parametrize("asked", [ByteRange(3, 6), ByteRange(5, 6), ByteRange(100, 200)])
    async def test_a_range_beyond_the_end_is_an_error(
        self, store: ObjectStore, prefix: str, asked: ByteRange
    ) -> None:
        await store.put(prefix + "1", b"12345")
        with pytest.raises(ObjectStoreError):
            await store.get_ranges(prefix + "1", [asked])

    async def test_a_listing_has_the_objects_of_its_prefix_in_order(
        self, store: ObjectStore, prefix: str
    ) -> None:
        for number in (10, 9, 1):
            await store.put(f"{prefix}{number}", b"x" * number)
        await store.put(prefix[:-1] + "0/1", b"of another prefix")
        assert await store.list_page(prefix) == [(prefix + "1", 1), (prefix + "10", 10), (prefix + "9", 9)]
        assert await store.list_page(prefix, after=prefix + "10") == [(prefix + "9", 9)]
        assert await store.list_page(prefix, after=prefix + "9") == []

    async def test_deletion_takes_many_and_does_not_mind_what_is_gone(
        self, store: ObjectStore, prefix: str
    ) -> None:
        for number in range(4):
            await store.put(f"{prefix}{number}", b"x")
        await store.delete([prefix + "0", prefix + "none", prefix + "2"])
        await store.delete([prefix + "0"])
        await store.delete([])
        assert [entry.key for entry in await store.list_page(prefix)] == [prefix + "1", prefix + "3"]


class LongListingContract:
    """A listing of more than a page. It takes a thousand requests, which are many for a server of a test."""

    async def test_a_listing_has_pages(self, store: ObjectStore) -> None:
        prefix = f"w/{uuid4()}/"
        keys = [f"{prefix}{number:05}" for number in range(LIST_MAX + 20)]
        # Few at a time: a server of a test has few threads.
        for start in range(0, len(keys), 20):
            await asyncio.gather(*(store.put(key, b"x") for key in keys[start : start + 20]))
        page = await store.list_page(prefix)
        assert len(page) == LIST_MAX
        rest = await store.list_page(prefix, after=page[-1].key)
        assert [entry.key for entry in [*page, *rest]] == keys
        await store.delete([entry.key for entry in page])
        assert await store.list_page(prefix) == rest
