"""Coordinators of groups keep their promises through kills, stops and faults of a cluster (ADR-0041, ADR-0047).

Each seed is one run of ``tests/support/groups_cluster.py``. Each mutant has one mistake; the same runs must notice it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from app.broker.cluster import SharedCluster
from app.broker.lease_keeper import LeaseKeeper
from app.cluster.group_store import StoredGroups
from app.cluster.membership import Member
from tests.support.groups_cluster import simulate_groups
from tests.support.histories import seed_ranges, silenced
from tests.support.model_groups import ModelGroupStore, ModelMembership

# A mutant that survives so many is not noticed.
MUTANT_SEEDS = 400


@pytest.fixture(autouse=True)
def without_logs() -> Iterator[None]:
    with silenced("app"):
        yield


@pytest.mark.parametrize("seeds", seed_ranges(15, 150))
def test_no_promise_is_broken(seeds: range) -> None:
    assert sum(run(seed) for seed in seeds) > 0


def run(seed: int, **classes: Any) -> int:
    """Return how many requests of clients were answered."""
    try:
        return simulate_groups(seed, **classes).answers
    except BaseException as error:
        error.add_note(f"simulate_groups({seed})")
        raise


# ── mutants ──


class StoreWithoutFence(ModelGroupStore):
    """Lets a broker write that has lost the lease."""

    def check_fence(self) -> None:
        pass


class MembershipWithoutEpochs(ModelMembership):
    """Gives a lease to another broker without a new epoch."""

    def acquire(self, name: str, member: Member) -> int | None:
        epoch = super().acquire(name, member)
        if epoch is not None:
            self.database.leases[name].epoch = epoch = 1
        return epoch


class LeaseWithoutEnd(SharedCluster):
    """Believes that it has a lease until it learns of another holder."""

    def is_held(self, name: str) -> bool:
        lease, own = self.lease(name), self._self
        return lease is not None and own is not None and lease.incarnation == own.incarnation


class KeeperWithoutHeartbeats(LeaseKeeper):
    """Takes a lease that it has just renewed for certain, although it may count as dead."""

    def _is_alive(self) -> bool:
        return True


class ClusterWithoutHeartbeats(SharedCluster):
    keeper_class = KeeperWithoutHeartbeats


class StoreThatRemembers(ModelGroupStore):
    """Gives a broker that has the lease again what it read when it had it first."""

    _first: StoredGroups | None = None

    def open(self) -> StoredGroups:
        opened = super().open()
        self._first = self._first or opened
        return replace(self._first, epoch=opened.epoch)


MUTANTS: dict[str, dict[str, Any]] = {
    "a write without the lease": {"store_class": StoreWithoutFence},
    "a lease without epochs": {"membership_class": MembershipWithoutEpochs},
    "a lease without an end": {"cluster_class": LeaseWithoutEnd},
    "a lease without heartbeats": {"cluster_class": ClusterWithoutHeartbeats},
    "groups that are not read again": {"store_class": StoreThatRemembers},
}
# Seeds that notice a mutant which few do. They are tried first; if one notices it no longer, the others follow.
NOTICED_BY = {
    "a lease without heartbeats": 67,
    "a write without the lease": 7,
    "groups that are not read again": 8,
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_noticed(mutant: str) -> None:
    for seed in chain([NOTICED_BY.get(mutant, 0)], range(MUTANT_SEEDS)):
        try:
            run(seed, **MUTANTS[mutant])
        except AssertionError:
            return
    pytest.fail(f"{mutant} was not noticed")
