"""Keys of objects: who wrote an object, its number, and its size.

A key is ``w/<incarnation>/<number>.<size>``, ``m/…`` for a merged object, ``t/…`` for the markers of transactions. The incarnation is chosen
by each start of a broker, so no two brokers write the same key. With the size in the key, a reader
asks for whole blocks of an object without asking for its size first.
"""

from __future__ import annotations

from uuid import UUID

WRITTEN = "w"
MERGED = "m"
# Always inline.
MARKERS = "t"


class ObjectKeys:
    """The keys that one incarnation of a broker uses, of one kind."""

    def __init__(self, kind: str, incarnation: UUID) -> None:
        self._prefix = prefix_of(kind, incarnation)
        self._next = 0

    def next(self, size: int) -> str:
        """Return a key that was never returned before, for an object of ``size`` bytes."""
        number, self._next = self._next, self._next + 1
        return f"{self._prefix}{number:012d}.{size}"


def prefix_of(kind: str, incarnation: UUID) -> str:
    """Return what all keys of an incarnation begin with."""
    return f"{kind}/{incarnation}/"


def uploader_of(key: str) -> UUID | None:
    """Return the incarnation whose object has this key; None if it is no key of the shared engine."""
    try:
        return UUID(key.split("/")[1])
    except (IndexError, ValueError):
        return None


def size_of(key: str) -> int:
    """Return the size of the object with this key.

    Raises:
        ValueError: it is no key of the shared engine.
    """
    _, dot, size = key.rpartition(".")
    if not dot or not size.isascii() or not size.isdigit() or len(size) > 18:
        raise ValueError(f"{key!r} is no key of an object of shared storage: it does not end with a size")
    return int(size)
