"""Deletes what no restore within the retention needs.

A restore to a moment within it starts from the newest cut before that moment, and from its base. So cuts before the base
of the newest one that is older than the retention can go, and so can objects that were unused by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..shared.store.object_store import DELETE_MAX, LIST_MAX
from .bucket import KINDS, Bucket
from .chain import CutChain, Overtaken
from .cut import CutHeader
from .moments import Moments
from .state import ReplicaState


class Retention:
    """Of one chain. A request that fails ends a call with ``ObjectStoreError``: to delete nothing delays no cut.

    ``oldest_ms`` is the earliest moment to which a restore can go back, -1 until it is known.
    """

    def __init__(self, bucket: Bucket, chain: CutChain, retention_ms: int) -> None:
        self._bucket = bucket
        self._chain = chain
        self._retention_ms = retention_ms
        self._sequences: list[int] = []
        self.oldest_ms = -1
        self.deleted_objects = 0

    def begin(self, sequences: Sequence[int]) -> None:
        """Note the cuts that there are."""
        self._sequences = list(sequences)

    def added(self, sequence: int) -> None:
        self._sequences.append(sequence)

    async def enforce(self, state: ReplicaState, now_ms: int) -> list[str]:
        """Delete cuts and objects; return the objects, which the next cut calls deleted.

        A caller passes a clock that is never ahead: what is deleted early is lost.

        Raises:
            Overtaken: another broker has written cuts; one that changes nothing would not notice it otherwise.
        """
        await self.check_newest()
        once = self._bucket.once
        # Another broker that has been overtaken, and does not know it yet, may have deleted old cuts, too.
        moments = Moments(self._chain, self._sequences)
        cut = await once(
            "looking for the oldest cut", lambda: moments.newest_readable_at(now_ms - self._retention_ms)
        )
        if cut is None:
            # Nothing is too old. Cuts may have the same time, so objects may be unused since that of the first.
            cut = await once("reading the oldest cut", moments.oldest_readable)
            self._goes_back_to(cut)
            return []
        self._goes_back_to(cut)
        unused = [key for key, since_ms in state.unused.items() if since_ms <= cut.time_ms]
        await self._delete(unused)
        self.deleted_objects += len(unused)
        old = [sequence for sequence in self._sequences if sequence < cut.base]
        for start in range(0, len(old), DELETE_MAX):
            part = old[start : start + DELETE_MAX]
            await once("deleting old cuts", lambda part=part: self._chain.delete(part))
        self._sequences = self._sequences[len(old) :]
        return unused

    def _goes_back_to(self, cut: CutHeader | None) -> None:
        # Never further than before, if a cut has become unreadable: what was unused is deleted.
        if cut is not None:
            self.oldest_ms = max(self.oldest_ms, cut.time_ms)

    async def check_newest(self) -> None:
        """Raise ``Overtaken`` if another broker has written cuts."""
        newest = self._sequences[-1]
        later = await self._bucket.once("looking for later cuts", lambda: self._chain.sequences(after=newest))
        if later:
            raise Overtaken(f"another broker has written cut {later[0]}")

    async def sweep(self, state: ReplicaState, own_prefixes: Sequence[str]) -> int:
        """Delete objects that no cut names: what was under way when an earlier broker ended. Return how many.

        Raises:
            Overtaken: another broker has begun, and some of them may be those of its first cut.
        """
        count = 0
        for kind in KINDS:
            after = ""
            while True:
                page = await self._bucket.once(
                    "listing objects",
                    lambda kind=kind, after=after: self._bucket.store.list_page(f"{kind}/", after=after),
                )
                strays = [
                    one.key
                    for one in page
                    if not state.is_used(one.key)
                    and one.key not in state.unused
                    and not one.key.startswith(tuple(own_prefixes))
                ]
                if strays:
                    await self.check_newest()
                await self._delete(strays)
                count += len(strays)
                if len(page) < LIST_MAX:
                    break
                after = page[-1].key
        self.deleted_objects += count
        return count

    async def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_MAX):
            part = keys[start : start + DELETE_MAX]
            await self._bucket.once("deleting objects", lambda part=part: self._bucket.store.delete(part))
