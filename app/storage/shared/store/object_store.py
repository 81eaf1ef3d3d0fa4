"""The interface of the store that keeps objects: bytes under a key that never change.

Its methods are coroutines of the event loop. The engine writes an object once and never replaces it:
a ``put`` that failed, timed out or was cancelled may still take effect later, so it may be repeated
only with the same bytes. Shared storage relies on no conditional writes of a store; a replica does (``ConditionalStore``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

# As many as one request of S3 deletes.
DELETE_MAX = 1000
LIST_MAX = 1000


class ObjectStoreError(Exception):
    """The store failed a request, or did not answer in time; a ``put`` may still take effect."""


class ObjectNotFound(ObjectStoreError):
    """No object has this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key!r} does not exist")
        self.key = key


class ByteRange(NamedTuple):
    """The bytes from ``start`` up to ``end``, exclusive."""

    start: int
    end: int


class StoredObject(NamedTuple):
    key: str
    size: int


class ObjectStore(Protocol):
    """Raises ``ObjectStoreError`` wherever the store fails.

    Keys are ASCII without leading slash.
    """

    @property
    def is_durable(self) -> bool:
        """False if a loss of power can take objects that were stored."""
        ...

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object; it lasts, as far as the store keeps its promises, when this returns.

        ``data`` must not change until then, not even if the call is cancelled.
        """
        ...

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of each range.

        Raises:
            ObjectNotFound: there is no such object.
            ObjectStoreError: a range goes beyond the end of the object.
        """
        ...

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        """Return the objects with ``prefix``, sorted by key, at most ``LIST_MAX``.

        Continue with ``after`` set to the last key; an empty page ends the listing. ``prefix`` ends with a slash.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete up to ``DELETE_MAX`` objects; those that do not exist are no error."""
        ...

    async def close(self) -> None: ...


class ConditionalStore(ObjectStore, Protocol):
    """A store that also creates objects only if they do not exist, and returns whole ones."""

    async def create(self, key: str, data: Buffer) -> bool:
        """Store an object as ``put`` does; return False if there is one with this key, which stays.

        A call that failed may have stored it, so False may be about the same bytes.
        """
        ...

    async def get(self, key: str) -> bytes:
        """Return all bytes of an object.

        Raises:
            ObjectNotFound: there is no such object.
        """
        ...
