"""How far groups are behind, noted at an interval: all of them in turn, and some of them each time.

However many groups there are, one round costs the same. Groups with series of
their own are looked at in each round, and so is a number of the others, so that
nobody is left out: only what is known of them is older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import CoordinatorFenced, CoordinatorNotAvailable, GroupNotFound
from ..groups.lag import PartitionLag
from ..work_budget import pause
from .histories import LagHistory

# What one round may cost, in groups and their partitions looked at, each some 10 µs: for groups with series of
# their own, and for the others.
OWN_COST_MAX = 10_000
TURN_COST_MAX = 4_000

# No series of its own is for a group of this name; it is what the others are called.
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class GroupLag:
    members: int
    # In all its partitions.
    lag: int

    @property
    def is_idle(self) -> bool:
        return not (self.members or self.lag)


class GroupSampler:
    """``names``: all groups, none while they cannot be served. ``measure``: members and lags of one.

    ``own_max`` groups have series of their own, for as long as they exist, but for
    one that is idle: it gives its place to one that is not.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        measure: Callable[[str], tuple[int, Sequence[PartitionLag]]],
        *,
        own_max: int,
    ) -> None:
        self._names = names
        self._measure = measure
        self._own_max = own_max
        # As each was when it was looked at last.
        self.lags: dict[str, GroupLag] = {}
        # Of groups with series of their own, by topic.
        self.own: dict[str, dict[str, int]] = {}
        self._members_sum = self._lag_sum = 0
        # Who is to be looked at next.
        self._own_turn: deque[str] = deque()
        self._turn: deque[str] = deque()
        self._history = LagHistory()

    def others(self) -> GroupLag | None:
        """Those without series of their own, added up; None if there is none."""
        if len(self.lags) == len(self.own):
            return None
        own = [self.lags[name] for name in self.own]
        return GroupLag(
            self._members_sum - sum(group.members for group in own),
            self._lag_sum - sum(group.lag for group in own),
        )

    async def sample(self, now_ms: Callable[[], int]) -> None:
        """One round, a group in each turn of the loop."""
        measured: dict[str, Sequence[PartitionLag]] = {}
        if not self._own_turn:
            self._own_turn.extend(self.own)
        await self._take_turns(self._own_turn, measured, OWN_COST_MAX)
        if not self._turn:
            # Who was known and is gone has a turn as well: there it is noticed.
            self._turn.extend(dict.fromkeys((*self.lags, *self._names())))
        await self._take_turns(self._turn, measured, TURN_COST_MAX)
        for name in self.own.keys() & measured.keys():
            self.own[name] = _by_topic(measured[name])
        self._history.keep(now_ms(), self.own, measured)

    async def _take_turns(
        self, turn: deque[str], measured: dict[str, Sequence[PartitionLag]], cost_left: int
    ) -> None:
        idle = [name for name in self.own if self.lags[name].is_idle]
        while turn and cost_left > 0:
            name = turn.popleft()
            if name in measured:
                continue
            try:
                members, lags = self._measure(name)
            except (GroupNotFound, CoordinatorNotAvailable, CoordinatorFenced):
                # Gone since, or none can be served any more: then there is nothing to note of it.
                self._forget(name)
            else:
                measured[name] = lags
                self._note(name, GroupLag(members, sum(one.lag for one in lags)))
                self._give_place(name, idle)
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

    def _give_place(self, name: str, idle: list[str]) -> None:
        """``idle``: who may lose its own; it is taken out of it."""
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
        """``(times in ms, [(topic, partition, lags)])``; None where a partition was not known yet."""
        return self._history.of_group(group)


def _by_topic(lags: Iterable[PartitionLag]) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in lags:
        found[partition.topic] = found.get(partition.topic, 0) + partition.lag
    return found
