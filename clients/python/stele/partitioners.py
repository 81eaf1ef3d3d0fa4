"""Which partition a record goes to when it does not say so itself.

A partitioner is made for one producer and asked once per record. All of them send
records with the same key to the same partition, for as long as the number of
partitions stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .wire.partitioner import HashName, partition_for_key

# Enough to fill a batch before moving on, so that records without a key do not
# end up as one tiny batch per partition.
STICKY_BYTES = 16 * 1024


class Partitioner(Protocol):
    def __call__(self, key: bytes | None, partitions: int, size: int) -> int:
        """A number in ``range(partitions)``; ``size`` is the record's size in bytes."""
        ...


class RoundRobinPartitioner:
    """By key hash; without a key each record goes to the next partition."""

    def __init__(self, *, hash_name: HashName = "murmur2") -> None:
        self._hash_name: HashName = hash_name
        self._next = 0

    def __call__(self, key: bytes | None, partitions: int, size: int) -> int:
        if key is not None:
            return partition_for_key(key, partitions, hash_name=self._hash_name)
        chosen = self._next % partitions
        self._next = chosen + 1
        return chosen


class StickyPartitioner:
    """By key hash; without a key a partition gets ``STICKY_BYTES`` before the next one has its turn."""

    def __init__(self, *, hash_name: HashName = "murmur2") -> None:
        self._hash_name: HashName = hash_name
        self._current = 0
        self._current_bytes = 0

    def __call__(self, key: bytes | None, partitions: int, size: int) -> int:
        if key is not None:
            return partition_for_key(key, partitions, hash_name=self._hash_name)
        if self._current_bytes >= STICKY_BYTES:
            self._current += 1
            self._current_bytes = 0
        self._current_bytes += size
        self._current %= partitions
        return self._current


PARTITIONERS: dict[str, Callable[[], Partitioner]] = {
    "murmur2": StickyPartitioner,
    "fnv1a": lambda: StickyPartitioner(hash_name="fnv1a"),
    "round_robin": RoundRobinPartitioner,
}


def make_partitioner(choice: str | Partitioner) -> Partitioner:
    """Raises ValueError for a name that is not in ``PARTITIONERS``."""
    if not isinstance(choice, str):
        return choice
    try:
        return PARTITIONERS[choice]()
    except KeyError:
        raise ValueError(
            f"partitioner {choice!r} does not exist; choose of {', '.join(PARTITIONERS)}"
        ) from None
