"""Indexes groups by the producers of their pending offsets.

The end of a transaction looks them up.
"""

from __future__ import annotations

from typing import Protocol

from ...cluster.group_store import OffsetRecord
from ...work_budget import WorkBudget
from .pending_offsets import PendingOffsets


class PendingGroup(Protocol):
    """The offsets of a group; ``GroupOffsets`` implements it."""

    @property
    def group(self) -> str: ...
    @property
    def pending(self) -> PendingOffsets: ...
    def end_transaction(self, producer_id: int, *, is_committed: bool) -> list[OffsetRecord]:
        """End the transaction of a producer, as the store has; returns the offsets that it commits."""
        ...


class PendingProducers:
    """The groups by producer id; belongs to the event loop."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[PendingGroup, None]] = {}
        self._producers: dict[PendingGroup, set[int]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._groups

    def note(self, producer_id: int, offsets: PendingGroup) -> None:
        """Note that the producer has pending offsets in a group."""
        self._groups.setdefault(producer_id, {})[offsets] = None
        self._producers.setdefault(offsets, set()).add(producer_id)

    def forget(self, offsets: PendingGroup) -> None:
        """Forget a group, which was deleted."""
        for producer_id in self._producers.pop(offsets, ()):
            del self._groups[producer_id][offsets]
            if not self._groups[producer_id]:
                del self._groups[producer_id]

    def end(self, producer_id: int, *, is_committed: bool) -> dict[str, list[OffsetRecord]]:
        """End the transaction of a producer in all groups; returns the offsets that it commits by group."""
        groups = self._groups.pop(producer_id, {})
        for offsets in groups:
            self._producers[offsets].discard(producer_id)
            if not self._producers[offsets]:
                del self._producers[offsets]
        return {
            offsets.group: offsets.end_transaction(producer_id, is_committed=is_committed)
            for offsets in groups
        }

    def groups(self) -> dict[int, list[PendingGroup]]:
        """Return the groups of each producer.

        Pending offsets that were overtaken may have left some without any.
        """
        return {producer_id: list(groups) for producer_id, groups in self._groups.items()}

    async def identities(self) -> list[tuple[int, int]]:
        """Return the producers with the newest epoch of their pending offsets, with pauses.

        It is -1 if all were overtaken.
        """
        budget = WorkBudget()
        identities: list[tuple[int, int]] = []
        for producer_id in list(self._groups):
            groups = self._groups.get(producer_id)
            if groups is not None:
                identities.append((producer_id, max(_epoch(group, producer_id) for group in groups)))
            await budget.visit()
        return identities


def _epoch(group: PendingGroup, producer_id: int) -> int:
    epoch = group.pending.epoch_of(producer_id)
    return -1 if epoch is None else epoch
