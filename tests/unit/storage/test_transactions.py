"""Transactions in the log: the last stable offset, aborted transactions, and both after any end.

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
The error names the failing seed. To replay it::

    STELE_TRANSACTION_SEED=4711 python -m pytest tests/unit/storage/test_transactions.py -k replayed
"""

from __future__ import annotations

import pytest

from tests.support.histories import PARTS, TORTURE_SEEDS, replay_history, run_history, seeds_of_part
from tests.support.log_transactions import LogTransactionHistory

SEEDS = 100
LONG_SEEDS = 2_000


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
def test_the_log_has_the_transactions_that_its_batches_say() -> None:
    run_all(range(SEEDS))


@pytest.mark.long
@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("part", range(PARTS))
def test_the_log_has_them_in_many_histories(part: int) -> None:
    run_all(seeds_of_part(part, LONG_SEEDS, first=SEEDS))


@pytest.mark.torture
@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("part", range(PARTS))
def test_the_log_has_them_in_very_many_histories(part: int) -> None:
    run_all(seeds_of_part(part, TORTURE_SEEDS, first=SEEDS + LONG_SEEDS))


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(LogTransactionHistory, "STELE_TRANSACTION_SEED")
