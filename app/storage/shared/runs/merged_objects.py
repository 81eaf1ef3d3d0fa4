"""Objects that replace runs of one log: merging and compaction store them in the same way.

The runs of a plan are loaded, an object is stored, and one transaction puts it in their place if they are all
still there. If not, the object is fenced, and its bytes go with the garbage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ..meta import MergedObject, MergePlan, Meta, MetaUnavailable, ObjectRef, RunRead
from ..store.object_keys import MERGED, ObjectKeys
from ..store.object_store import ObjectStore, ObjectStoreError
from .builder import BuiltRun, keys_span, object_of
from .object_format import header_bytes

# Requests to the store at a time while runs are loaded.
_LOADS = 4
# PostgreSQL takes no larger objects in reasonable time.
_INLINE_BYTES_MAX = 8 << 20


class MergedObjects:
    """The merged objects of one broker.

    ``store`` is None without an object store. ``load`` reads a part of any object. ``abandon`` gets the keys of those
    that were perhaps stored in vain.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        store: ObjectStore | None,
        load: Callable[[ObjectRef, int, int], Awaitable[bytes]],
        incarnation: UUID,
        bytes_max: int,
        abandon: Callable[[str], None],
    ) -> None:
        self._meta = meta
        self._load = load
        self._incarnation = incarnation
        self._abandon = abandon
        self._keys = ObjectKeys(MERGED, incarnation)
        self._store = store
        self.bytes_max = bytes_max if self._store is not None else min(bytes_max, _INLINE_BYTES_MAX)

    async def load(self, runs: Sequence[RunRead]) -> list[bytes]:
        """Load runs past the block cache, which is for readers.

        Raises ``ObjectStoreError``.
        """
        slots = asyncio.Semaphore(_LOADS)

        async def load(run: RunRead) -> bytes:
            async with slots:
                return await self._load(run.object, run.position, run.position + run.length)

        return await asyncio.gather(*map(load, runs))

    async def replace(
        self,
        plan: MergePlan,
        built: BuiltRun,
        *,
        cleaned_until: int = 0,
        gone_markers: Sequence[int] = (),
        keeps_claim: bool = False,
    ) -> int | None:
        """Store a run and put it in the place of those of the plan.

        ``cleaned_until``, ``gone_markers`` and ``keeps_claim``: see ``MergedObject``.
        Returns the size of the object; None if the runs of the plan no longer exist.

        Raises:
            ObjectStoreError, MetaUnavailable: it is not in place, or perhaps is.
        """
        base_offset, next_offset = plan.runs[0].base_offset, plan.runs[-1].last_offset + 1
        data = object_of(built, plan.log.partition_id, base_offset, next_offset)
        key = self._keys.next(len(data))
        merged = MergedObject(
            key=key,
            uploader=self._incarnation,
            size=len(data),
            position=len(header_bytes()),
            length=len(built.batches),
            max_timestamp=built.max_timestamp,
            sparse_index=built.sparse_index,
            inline=data if self._store is None else None,
            cleaned_until=cleaned_until,
            keys=keys_span(built),
            gone_markers=gone_markers,
            keeps_claim=keeps_claim,
        )
        try:
            if self._store is not None:
                await self._store.put(key, data)
            if await self._meta.commit_merge(plan, merged):
                return len(data)
        except (ObjectStoreError, MetaUnavailable):
            # If it was committed all the same, it cannot be fenced, and stays.
            self._abandon(key)
            raise
        if self._store is not None:
            # Another broker may have fenced it, and its bytes may have been stored once more after their deletion.
            self._abandon(key)
        return None
