"""Chooses a partition for records whose producer names none."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache, partial
from itertools import count

from stele.wire.partitioner import HashName, partition_for_key

from ..topics import Topic

_KEYS_REMEMBERED = 16_384


class Partitioner:
    """Hashes keys with ``hash_name``; sends records without a key round-robin."""

    def __init__(self, hash_name: HashName) -> None:
        self._turns: defaultdict[str, count[int]] = defaultdict(count)
        # Keys repeat: remembering the last ones costs a tenth of hashing them again.
        self._partition_for_key = lru_cache(maxsize=_KEYS_REMEMBERED)(
            partial(partition_for_key, hash_name=hash_name)
        )

    def choose(self, topic: Topic, key: bytes | None) -> int:
        """Return the partition for a record with ``key``; None stands for no key."""
        if topic.partitions == 1:
            return 0
        if key is not None:
            return self._partition_for_key(key, topic.partitions)
        return next(self._turns[topic.name]) % topic.partitions

    def forget(self, topic: str) -> None:
        """Drop the turn of a topic that was deleted."""
        self._turns.pop(topic, None)
