"""A coordinator per shard of groups, of which some serve at this broker and others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..cluster.group_shards import SHARDS, shard_of
from .services import Groups


class GroupShards:
    """Implements ``GroupServices``. ``shards`` has one for each shard, by its number."""

    def __init__(self, shards: Sequence[Groups]) -> None:
        assert len(shards) == SHARDS
        self._shards = tuple(shards)

    def of(self, group: str) -> Groups:
        return self._shards[shard_of(group)]

    def all(self) -> Sequence[Groups]:
        return self._shards

    def begin_close(self) -> None:
        for shard in self._shards:
            shard.begin_close()

    async def close(self) -> None:
        await asyncio.gather(*(shard.close() for shard in self._shards))
