"""Transactions in the log: the last stable offset, aborted transactions, and both after any end.

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
The error names the failing seed. To replay it::

    STELE_TRANSACTION_SEED=4711 python -m pytest tests/unit/storage/test_transactions.py -k replayed
"""

from __future__ import annotations

import pytest

from tests.support.histories import replay_history, run_history, seed_ranges
from tests.support.log_transactions import LogTransactionHistory


def run_all(seeds: range) -> None:
    reads = aborted = ends = 0
    for seed in seeds:
        history = run_history(LogTransactionHistory, seed)
        reads += history.reads
        aborted += history.aborted_seen
        ends += history.ends
    assert reads > 10 * len(seeds)
    assert aborted > 5 * len(seeds), "many reads overlap aborted transactions"
    assert ends > len(seeds), "most histories have lives that end in a crash"


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("seeds", seed_ranges(10, 200))
def test_the_log_has_the_transactions_that_its_batches_say(seeds: range) -> None:
    run_all(seeds)


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(LogTransactionHistory, "STELE_TRANSACTION_SEED")
