"""Rounds measure all groups in turn, and assign series of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import GroupNotFound
from app.groups.lag import PartitionLag
from app.monitor import group_sampler
from app.monitor.group_sampler import OTHERS, GroupLag, GroupSampler
from app.monitor.histories import POINTS_MAX

# Members, and the lag of each partition of one topic.
State = tuple[int, Sequence[int]]


class Bench:
    """``groups`` are those that there are; ``measured`` were looked at in the last round, in this order."""

    def __init__(self, groups: Mapping[str, State], *, own_max: int) -> None:
        self.groups = dict(groups)
        self.measured: list[str] = []
        self.rounds = 0
        self.sampler = GroupSampler(lambda: self.groups, self._measure, own_max=own_max)

    async def _measure(self, name: str) -> tuple[int, Sequence[PartitionLag]]:
        self.measured.append(name)
        if name not in self.groups:
            raise GroupNotFound(name)
        members, lags = self.groups[name]
        return members, [
            PartitionLag(
                topic="orders",
                partition=partition,
                committed=0,
                metadata="",
                log_start_offset=0,
                high_watermark=lag,
                lag=lag,
                member_id=None,
                owner=None,
            )
            for partition, lag in enumerate(lags)
        ]

    def sample(self) -> None:
        self.measured.clear()
        self.rounds += 1
        asyncio.run(self.sampler.sample(lambda: self.rounds))

    def sample_all(self) -> None:
        """As many rounds as it takes until every group had a turn."""
        seen: set[str] = set()
        while not seen >= self.groups.keys():
            self.sample()
            assert self.measured
            seen |= set(self.measured)

    def cost(self) -> int:
        return sum(1 + len(self.groups[name][1]) for name in self.measured if name in self.groups)


def test_every_group_is_sampled_and_the_cost_of_a_round_is_bounded() -> None:
    bench = Bench({f"g{n}": (1, [n]) for n in range(20_000)}, own_max=200)
    bench.sample()
    assert bench.cost() == group_sampler.OTHERS_COST_MAX
    rounds = 1
    while len(bench.sampler.lags) < 20_000:
        bench.sample()
        rounds += 1
        assert bench.cost() <= group_sampler.OTHERS_COST_MAX + 2 * 200
        assert set(bench.measured) >= bench.sampler.own.keys()
        assert len(bench.measured) == len(set(bench.measured))
    assert rounds <= 20_000 // (group_sampler.OTHERS_COST_MAX // 2) + 1
    assert sum(group.lag for group in bench.sampler.lags.values()) == sum(range(20_000))


def test_groups_with_many_partitions_take_turns_as_well() -> None:
    bench = Bench({f"g{n}": (1, [1] * 999) for n in range(40)}, own_max=30)
    most = group_sampler.OWN_COST_MAX + group_sampler.OTHERS_COST_MAX
    bench.sample_all()
    seen: set[str] = set()
    for _ in range(6):
        bench.sample()
        # The last group of a round may start with little of the budget left.
        assert bench.cost() <= most + 2 * 1000
        seen |= set(bench.measured)
    assert seen >= bench.sampler.own.keys()


def test_a_group_that_is_idle_gives_its_series_to_one_that_is_not() -> None:
    bench = Bench({"idle": (0, [0]), "behind": (0, [5]), "there": (1, [0])}, own_max=2)
    bench.sample()
    bench.sample()
    assert bench.sampler.own == {"behind": {"orders": 5}, "there": {"orders": 0}}
    bench.groups["late"] = (1, [7])
    bench.sample()
    # Nobody is idle: it waits, and is seen all the same.
    assert bench.sampler.own.keys() == {"behind", "there"}
    assert bench.sampler.lags["late"] == GroupLag(1, 7)
    assert bench.sampler.others() == GroupLag(1, 7)
    bench.groups["behind"] = (0, [0])
    bench.sample()
    assert bench.sampler.own.keys() == {"late", "there"}
    del bench.groups["there"]
    bench.sample()
    bench.sample()
    assert bench.sampler.own.keys() == {"late", "idle"}
    assert bench.sampler.others() == GroupLag(0, 0)


def test_a_group_with_the_name_of_the_others_has_no_series_besides_theirs() -> None:
    bench = Bench({OTHERS: (1, [3]), "g": (0, [1])}, own_max=5)
    bench.sample()
    assert bench.sampler.own.keys() == {"g"}
    assert bench.sampler.others() == GroupLag(1, 3)


def test_a_history_has_a_point_for_each_round_and_no_more_than_are_kept() -> None:
    bench = Bench({"g": (1, [0, 0])}, own_max=1)
    bench.sample()
    bench.groups["g"] = (1, [1, 2, 3])
    bench.sample()
    assert bench.sampler.history("g") == (
        [1, 2],
        [("orders", 0, [0, 1]), ("orders", 1, [0, 2]), ("orders", 2, [None, 3])],
    )
    bench.groups["g"] = (1, [4])
    for _ in range(POINTS_MAX + 1):
        bench.sample()
    times, ((_, partition, lags),) = bench.sampler.history("g")
    assert (partition, len(times), times[-1]) == (0, POINTS_MAX, POINTS_MAX + 3)
    assert lags == [4] * POINTS_MAX
    assert bench.sampler.history("nobody")[1] == []


def test_series_over_time_are_bounded_over_all_groups() -> None:
    bench = Bench({f"g{n}": (1, [1] * 400) for n in range(4)}, own_max=4)
    for _ in range(3):
        bench.sample()
        kept = [len(bench.sampler.history(f"g{n}")[1]) for n in range(4)]
        assert kept == [400, 400, 200, 0]
    del bench.groups["g0"]
    bench.sample()
    bench.sample()
    assert [len(bench.sampler.history(f"g{n}")[1]) for n in range(4)] == [0, 400, 400, 200]


_NAMES = st.sampled_from([*"abcdefgh", OTHERS])
_STATES = st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=3))


@settings(deadline=None)
@given(st.lists(st.dictionaries(_NAMES, _STATES), min_size=1, max_size=6), st.integers(0, 4))
def test_samples_of_all_groups_add_up_to_the_total(rounds: list[dict[str, State]], own_max: int) -> None:
    bench = Bench({}, own_max=own_max)
    for groups in rounds:
        bench.groups = dict(groups)
        bench.sample()
        bench.sample()
        sampler = bench.sampler
        assert sampler.lags == {
            name: GroupLag(members, sum(lags)) for name, (members, lags) in groups.items()
        }
        assert OTHERS not in sampler.own
        assert len(sampler.own) == min(own_max, len(groups.keys() - {OTHERS}))
        busy = {name for name, group in sampler.lags.items() if not group.is_idle and name != OTHERS}
        assert busy <= sampler.own.keys() or sampler.own.keys() <= busy
        others = sampler.others() or GroupLag(0, 0)
        shown = sum(sum(topics.values()) for topics in sampler.own.values()) + others.lag
        assert shown == sum(sum(lags) for _, lags in groups.values())
        times, _ = sampler.history("a")
        assert {len(lags) for name in "abcdefgh" for _, _, lags in sampler.history(name)[1]} <= {len(times)}
