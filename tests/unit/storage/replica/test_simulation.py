"""A replica keeps its promises through kills, losses of power, copies, restores and a bucket that fails.

The error names the failing seed. To replay it with all that it logs::

    STELE_REPLICA_SEED=4711 python -m pytest tests/unit/storage/replica/test_simulation.py -k replayed

``tests/mutants/replica.py`` has mistakes that these runs must notice. ``STELE_TORTURE_SEEDS`` sets how many seeds
``make torture`` runs (100,000).
"""

from __future__ import annotations

import pytest

from tests.support.histories import replay_history, run_history, seed_ranges
from tests.support.replicas.history import ReplicaHistory

pytestmark = pytest.mark.usefixtures("without_logs", "without_pauses")


@pytest.mark.parametrize("seeds", seed_ranges(150, 1_000))
def test_no_promise_of_a_replica_is_broken(seeds: range) -> None:
    cuts = kills = restores = copies = segments = 0
    for seed in seeds:
        history = run_history(ReplicaHistory, seed)
        cuts += history.cuts
        kills += history.kills
        restores += history.restores
        copies += history.copies
        segments += history.segments_checked
    assert cuts > 5 * len(seeds), "there is something to check"
    assert segments > 10 * len(seeds)
    assert min(kills, 4 * restores, 4 * copies) > len(seeds) // 2, "and much has happened"


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(ReplicaHistory, "STELE_REPLICA_SEED")


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = (run_history(ReplicaHistory, 7) for _ in range(2))
    assert (first.cuts, first.bucket.requests) == (second.cuts, second.bucket.requests)
    assert first.bucket.objects == second.bucket.objects
