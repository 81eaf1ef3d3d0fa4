"""How far groups are behind, noted at an interval: all of them in turn, and some of them each time.

However many groups there are, one round costs the same. Groups with series of
their own are looked at in each round, and so is a number of the others, so that
nobody is left out: only what is known of them is older.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import CoordinatorFenced, CoordinatorNotAvailable, GroupNotFound
from ..groups.lag import PartitionLag

# Notes that are kept: an hour of the default interval.
POINTS_MAX = 720
# What one round may cost, in groups and their partitions looked at, each some 10 µs: for groups with series of
# their own, and for the others.
OWN_COST_MAX = 10_000
TURN_COST_MAX = 4_000
# Lag over time is kept for so many partitions of groups, with 8 bytes a point: 6 MB at most.
LAG_SERIES_MAX = 1000

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
        # Times of the rounds, and for each group and partition its lags, the newest last.
        self._times: deque[int] = deque(maxlen=POINTS_MAX)
        self._history: dict[str, dict[tuple[str, int], array[int]]] = {}

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
        self._times.append(now_ms())
        self._keep_history(measured)

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
            await asyncio.sleep(0)

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

    def _keep_history(self, measured: dict[str, Sequence[PartitionLag]]) -> None:
        """All at once, so that nobody sees one series with more points than another."""
        for gone in self._history.keys() - self.own.keys():
            del self._history[gone]
        room = LAG_SERIES_MAX - sum(map(len, self._history.values()))
        for name in self.own:
            lags = measured.get(name)
            series = self._history.setdefault(name, {})
            if lags is None:
                # It was not its turn.
                for kept in series.values():
                    kept.append(kept[-1])
            else:
                by_topic: dict[str, int] = {}
                for one in lags:
                    by_topic[one.topic] = by_topic.get(one.topic, 0) + one.lag
                self.own[name] = by_topic
                for gone in series.keys() - {(one.topic, one.partition) for one in lags}:
                    del series[gone]
                    room += 1
                for one in lags:
                    kept = series.get((one.topic, one.partition))
                    if kept is None:
                        if room <= 0:
                            continue
                        room -= 1
                        kept = series[one.topic, one.partition] = array("q")
                    kept.append(one.lag)
            for kept in series.values():
                del kept[:-POINTS_MAX]

    def history(self, group: str) -> tuple[list[int], list[tuple[str, int, list[int | None]]]]:
        """``(times in ms, [(topic, partition, lags)])``; None where a partition was not known yet."""
        times = list(self._times)
        series: list[tuple[str, int, list[int | None]]] = []
        for (topic, partition), kept in sorted(self._history.get(group, {}).items()):
            lags: list[int | None] = [None] * (len(times) - len(kept))
            series.append((topic, partition, lags + list(kept)))
        return times, series
