"""``uniform`` is even and sticky, ``range`` gives each member a run of each topic."""

from collections.abc import Mapping
from random import Random
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import OwnedPartition
from app.groups.base import assignors
from tests.support.steps import outcome_of

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
Targets = Mapping[str, frozenset[OwnedPartition]]


def uniform(
    subscriptions: Mapping[str, frozenset[UUID]], partitions: Mapping[UUID, int], previous: Targets
) -> Targets:
    return outcome_of(assignors.uniform(OwnedPartition, subscriptions, partitions, previous))


def check_complete(
    targets: Targets, subscriptions: Mapping[str, frozenset[UUID]], partitions: Mapping[UUID, int]
) -> None:
    """Assert that each partition with a subscriber has one member, and that this one subscribes to it."""
    assigned = sorted(part for parts in targets.values() for part in parts)
    wanted = {topic for topics in subscriptions.values() for topic in topics} & partitions.keys()
    assert assigned == sorted(
        OwnedPartition(topic, number) for topic in wanted for number in range(partitions[topic])
    )
    for member, parts in targets.items():
        assert {part.topic_id for part in parts} <= subscriptions[member]


@pytest.mark.parametrize("seed", range(100))
def test_uniform_is_even_complete_and_moves_no_more_than_it_must(seed: int) -> None:
    random = Random(seed)
    partitions = {topic: random.randint(0, 9) for topic in (A, B, C)}
    everyone = frozenset(random.sample([A, B, C], random.randint(1, 3)))
    total = sum(partitions[topic] for topic in everyone)
    targets: Targets = {}
    for _ in range(8):
        members = [f"m{number}" for number in random.sample(range(6), random.randint(1, 6))]
        before, subscriptions = targets, dict.fromkeys(members, everyone)
        targets = uniform(subscriptions, partitions, before)
        check_complete(targets, subscriptions, partitions)
        loads = [len(parts) for parts in targets.values()]
        assert max(loads) - min(loads) <= 1
        # As many as possible stay: each member keeps a fair share, and some one more.
        quota, extra = divmod(total, len(members))
        had = sorted((len(before.get(member, ())) for member in members), reverse=True)
        stay = sum(min(count, quota) for count in had) + min(extra, sum(count > quota for count in had))
        assert sum(len(targets[member] & before.get(member, frozenset())) for member in members) == stay


@pytest.mark.parametrize("seed", range(100))
def test_uniform_with_different_subscriptions_cannot_be_made_more_even_by_a_move(seed: int) -> None:
    random = Random(seed)
    partitions = {topic: random.randint(1, 9) for topic in (A, B, C)}
    targets: Targets = {}
    for _ in range(5):
        subscriptions = {
            f"m{number}": frozenset(random.sample([A, B, C], random.randint(0, 3))) for number in range(5)
        }
        targets = uniform(subscriptions, partitions, targets)
        check_complete(targets, subscriptions, partitions)
        for giver, parts in targets.items():
            for part in parts:
                for taker, topics in subscriptions.items():
                    if taker != giver and part.topic_id in topics:
                        assert len(parts) - len(targets[taker]) <= 1


def test_uniform_assigns_again_what_is_assigned_already() -> None:
    subscriptions = {"m1": frozenset({A, B}), "m2": frozenset({B})}
    targets = uniform(subscriptions, {A: 3, B: 4}, {})
    assert uniform(subscriptions, {A: 3, B: 4}, targets) == targets
    assert uniform({}, {A: 3}, targets) == {}


def test_range_divides_each_topic_into_runs() -> None:
    subscriptions = {"m2": frozenset({A, B}), "m1": frozenset({A})}
    targets = outcome_of(assignors.in_ranges(OwnedPartition, subscriptions, {A: 3, B: 2}, {}))
    assert {member: sorted(parts) for member, parts in targets.items()} == {
        "m1": [(A, 0), (A, 1)],
        "m2": [(A, 2), (B, 0), (B, 1)],
    }
