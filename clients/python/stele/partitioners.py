"""Partitioners, which choose the partition of a record that names none.

Each producer has its own partitioner and calls it once per record. All partitioners
send records with the same key to the same partition, as long as the number of
partitions does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .wire.partitioner import HashName, partition_for_key

# Fill a batch before moving to the next partition, instead of one tiny batch in each.
STICKY_BYTES = 16 * 1024


class Partitioner(Protocol):
    def __call__(self, key: bytes | None, partitions: int, size: int) -> int:
        """Return a partition in ``range(partitions)``; ``size`` is the record's, in bytes."""
        ...


class RoundRobinPartitioner:
    """Chooses by key hash; each record without a key goes to the next partition."""

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
    """Chooses by key hash; records without a key change partition after ``STICKY_BYTES``."""

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
    """Return a partitioner by name. Raises ValueError if ``PARTITIONERS`` lacks it."""
    if not isinstance(choice, str):
        return choice
    try:
        return PARTITIONERS[choice]()
    except KeyError:
        raise ValueError(
            f"partitioner {choice!r} does not exist; choose one of {', '.join(PARTITIONERS)}"
        ) from None
