"""Sample the lag of consumer groups, in rounds of bounded cost.

A round measures the groups that have their own series, and some of the others, until
its budget is used up. The next round continues with the next groups, so every group
is measured; with many groups, the values of some are older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import CoordinatorFenced, CoordinatorNotAvailable, GroupNotFound, NotCoordinator
from ..groups.lag import PartitionLag
from ..work_budget import pause
from .histories import LagHistory

# Budget of one round, in groups and partitions measured (each takes some 10 µs): for groups with their own series,
# and for the others.
OWN_COST_MAX = 10_000
OTHERS_COST_MAX = 4_000

# Label of the sum of the other groups; a group with this name gets no series of its own.
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Members of a group, its total lag, and what share members hold."""

    members: int
    lag: int
    in_flight: int = 0
    is_share: bool = False

    @property
    def is_idle(self) -> bool:
        return not (self.members or self.lag)


class GroupSampler:
    """Samples all groups, and keeps a history of those with their own series.

    ``names`` returns all groups, or none while the coordinator is unavailable.
    ``measure`` returns the members and the lags of one group. At most ``own_max``
    groups have their own series; a group keeps them as long as it exists, unless it
    is idle and another group needs them.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        measure: Callable[[str], Awaitable[tuple[int, Sequence[PartitionLag]]]],
        *,
        own_max: int,
    ) -> None:
        self._names = names
        self._measure = measure
        self._own_max = own_max
        # The last measurement of each group.
        self.lags: dict[str, GroupLag] = {}
        # Lag per topic of the groups with their own series.
        self.own: dict[str, dict[str, int]] = {}
        self._members_sum = self._lag_sum = 0
        # Groups that are still to be measured, next one first.
        self._own_pending: deque[str] = deque()
        self._pending: deque[str] = deque()
        self._history = LagHistory()

    def others(self) -> GroupLag | None:
        """Return the sum of the groups without their own series, None if there are none."""
        if len(self.lags) == len(self.own):
            return None
        own = [self.lags[name] for name in self.own]
        return GroupLag(
            self._members_sum - sum(group.members for group in own),
            self._lag_sum - sum(group.lag for group in own),
        )

    async def sample(self, now_ms: Callable[[], int]) -> None:
        """Run one round, measuring at most one group per turn of the loop."""
        measured: dict[str, Sequence[PartitionLag]] = {}
        if not self._own_pending:
            self._own_pending.extend(self.own)
        await self._measure_pending(self._own_pending, measured, OWN_COST_MAX)
        if not self._pending:
            # Includes known groups, because measuring one that has been deleted removes it.
            self._pending.extend(dict.fromkeys((*self.lags, *self._names())))
        await self._measure_pending(self._pending, measured, OTHERS_COST_MAX)
        for name in self.own.keys() & measured.keys():
            self.own[name] = _by_topic(measured[name])
        self._history.keep(now_ms(), self.own, measured)

    async def _measure_pending(
        self, pending: deque[str], measured: dict[str, Sequence[PartitionLag]], cost_left: int
    ) -> None:
        idle = [name for name in self.own if self.lags[name].is_idle]
        while pending and cost_left > 0:
            name = pending.popleft()
            if name in measured:
                continue
            try:
                members, lags = await self._measure(name)
            except (GroupNotFound, CoordinatorNotAvailable, CoordinatorFenced, NotCoordinator):
                # Deleted, or the coordinator has become unavailable.
                self._forget(name)
            else:
                measured[name] = lags
                held = [partition.in_flight for partition in lags if partition.in_flight is not None]
                lag = sum(partition.lag for partition in lags)
                self._note(name, GroupLag(members, lag, sum(held), bool(held)))
                self._assign_series(name, idle)
                cost_left -= len(lags)
            cost_left -= 1
            await pause()

    def _note(self, name: str, group: GroupLag) -> None:
        before = self.lags.get(name, GroupLag(0, 0))
        self._members_sum += group.members - before.members
        self._lag_sum += group.lag - before.lag
        self.lags[name] = group

    def _forget(self, name: str) -> None:
        self._note(name, GroupLag(0, 0))
        del self.lags[name]
        self.own.pop(name, None)

    def _assign_series(self, name: str, idle: list[str]) -> None:
        """Give ``name`` its own series if possible.

        A group of ``idle`` may lose its own for it, and is then removed from the list.
        """
        if name in self.own or name == OTHERS:
            return
        if len(self.own) >= self._own_max and not self.lags[name].is_idle:
            while idle:
                loser = idle.pop()
                if loser in self.own and self.lags[loser].is_idle:
                    del self.own[loser]
                    break
        if len(self.own) < self._own_max:
            self.own[name] = {}

    def history(self, group: str) -> tuple[list[int], list[tuple[str, int, list[int | None]]]]:
        """Return ``(times in ms, [(topic, partition, lags)])``.

        A lag is None where it was not known yet.
        """
        return self._history.of_group(group)


def _by_topic(lags: Iterable[PartitionLag]) -> dict[str, int]:
    topics: dict[str, int] = {}
    for partition in lags:
        topics[partition.topic] = topics.get(partition.topic, 0) + partition.lag
    return topics
