"""Crashes at any write keep transactions whole: invariants over random histories of lives of a broker.

The error names the failing seed. To replay it::

    STELE_TRANSACTION_SEED=4711 python -m pytest tests/unit/transactions/test_transaction_histories.py -k replayed

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.coordinator_history import TransactionHistory
from tests.support.histories import (
    assert_forgotten_sync_is_noticed,
    replay_history,
    run_history,
    seed_ranges,
)

pytestmark = pytest.mark.usefixtures("without_logs")


def run_all(seeds: range) -> None:
    cuts = commits = retries = 0
    for seed in seeds:
        history = run_history(TransactionHistory, seed)
        cuts += history.cuts
        commits += history.commits
        retries += history.retries
    assert cuts > len(seeds), "most lives end in a cut"
    assert commits > 2 * len(seeds), "transactions were committed before"
    assert retries > len(seeds) // 8, "producers asked again"


@pytest.mark.parametrize("seeds", seed_ranges(5, 100))
def test_transactions_stay_whole_when_the_broker_crashes(seeds: range) -> None:
    run_all(seeds)


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(TransactionHistory, "STELE_TRANSACTION_SEED")


def test_data_that_is_not_synced_before_the_outcome_is_noticed() -> None:
    def forgets(kind: str, path: Path) -> bool:
        return kind == "sync" and path.suffix == ".log"

    assert_forgotten_sync_is_noticed(TransactionHistory, forgets, seeds_max=30)
