"""All that a listener may call about groups, in one place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from typing import Protocol

from ..errors import NotCoordinator
from .base.messages import GroupListing
from .base.share_state import ShareCounts
from .coordinator import GroupCoordinator
from .leases.manager import LeaseManager
from .share_queue import ShareQueue


class GroupServices(Protocol):
    """All groups of a broker: ``Groups`` of its own, or the shards of a cluster."""

    def of(self, group: str) -> Groups:
        """Return what serves a group.

        Its calls raise ``NotCoordinator`` if another broker has the group.
        """
        ...

    def all(self) -> Sequence[Groups]:
        """Return everything that may serve groups here; some of it may stand by."""
        ...

    def begin_close(self) -> None:
        """Refuse all calls from now on, and end the polls that wait."""
        ...

    async def close(self) -> None: ...


async def list_groups(
    groups: GroupServices, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """List the groups that this broker coordinates, by name.

    Arguments and errors are those of ``GroupCoordinator``.
    """
    listed: list[GroupListing] = []
    for part in groups.all():
        # Otherwise another broker lists them.
        with suppress(NotCoordinator):
            listed += await part.coordinator.list_groups(states, types)
    return sorted(listed, key=lambda listing: listing.group)


def listings(groups: GroupServices) -> Iterator[GroupListing]:
    """Return the groups that this broker coordinates by name; the caller may pause in between.

    Errors are those of ``GroupCoordinator``.
    """
    parts: list[Iterator[GroupListing]] = []
    for part in groups.all():
        # Otherwise another broker lists them.
        with suppress(NotCoordinator):
            parts.append(part.coordinator.listings())
    return merge(*parts, key=lambda listing: listing.group)


def group_count(groups: GroupServices) -> int:
    """Return how many groups this broker coordinates."""
    return sum(part.coordinator.group_count for part in groups.all())


def group_names(groups: GroupServices) -> list[str]:
    """Return the names of the groups that this broker coordinates, unordered."""
    return [name for part in groups.all() for name in part.coordinator.group_names()]


def share_counts(groups: GroupServices) -> ShareCounts:
    """Return what the share groups have done at this broker since its start."""
    counts = [part.coordinator.table.share_counts for part in groups.all()]
    return ShareCounts(
        delivered=sum(part.delivered for part in counts),
        accepted=sum(part.accepted for part in counts),
        released=sum(part.released for part in counts),
        given_up=sum(part.given_up for part in counts),
        expired=sum(part.expired for part in counts),
    )


@dataclass(frozen=True, slots=True)
class Groups:
    """One coordinator with what needs it; implements ``GroupServices`` for a broker on its own."""

    coordinator: GroupCoordinator
    leases: LeaseManager
    queue: ShareQueue

    def of(self, group: str) -> Groups:
        return self

    def all(self) -> Sequence[Groups]:
        return (self,)

    def begin_close(self) -> None:
        self.coordinator.begin_close()
        self.leases.close()

    async def close(self) -> None:
        await self.coordinator.close()
