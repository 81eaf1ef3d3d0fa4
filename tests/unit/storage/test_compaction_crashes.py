"""Crashes in the middle of a compaction pass lose no record that must be kept.

The error names the failing seed. To replay it::

    STELE_COMPACTION_SEED=4711 python -m pytest tests/unit/storage/test_compaction_crashes.py -k replayed

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compaction_history import DIRECTORY, CompactionHistory
from tests.support.histories import (
    assert_forgotten_sync_is_noticed,
    replay_history,
    run_history,
    seed_ranges,
)

pytestmark = pytest.mark.usefixtures("without_logs", "without_pauses")

MUTANT_SEEDS_MAX = 200


def run_all(seeds: range) -> None:
    histories = [run_history(CompactionHistory, seed) for seed in seeds]
    assert sum(history.passes for history in histories) > len(seeds)
    inside = sum(history.has_ended_inside for history in histories)
    assert inside > len(seeds) / 2, "most passes are interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", seed_ranges(10, 100))
def test_no_last_record_is_lost_when_a_pass_is_interrupted(seeds: range) -> None:
    run_all(seeds)


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(CompactionHistory, "STELE_COMPACTION_SEED")


# The simulation must be able to fail: a pass needs each of these syncs.
FORGOTTEN: dict[str, Callable[[str, Path], bool]] = {
    "the directory": lambda kind, path: kind == "sync_dir" and path == DIRECTORY,
    "the cleaned log": lambda kind, path: kind == "sync" and path.name.endswith(".log.cleaned"),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_sync_is_noticed(what: str) -> None:
    assert_forgotten_sync_is_noticed(CompactionHistory, FORGOTTEN[what], seeds_max=MUTANT_SEEDS_MAX)
