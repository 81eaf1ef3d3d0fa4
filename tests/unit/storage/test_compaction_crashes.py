"""Crashes in the middle of a compaction pass lose no record that must be kept.

The error names the failing seed. To replay it::

    STELE_COMPACTION_SEED=4711 python -m pytest tests/unit/storage/test_compaction_crashes.py -k replayed

``make test`` runs 100 of 2,000 seeds, ``make long`` the others. ``STELE_TORTURE_SEEDS`` sets how many
seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compaction_history import DIRECTORY, CompactionHistory
from tests.support.histories import (
    PARTS,
    TORTURE_SEEDS,
    assert_forgotten_sync_is_noticed,
    replay_history,
    run_history,
    seeds_of_part,
    short_and_long,
)

pytestmark = pytest.mark.usefixtures("without_logs", "without_pauses")

SEEDS = 2_000
# Parts that `make test` runs; `make long` runs the others.
_SHORT_PARTS = 1
MUTANT_SEEDS_MAX = 200


def run_all(seeds: range) -> None:
    histories = [run_history(CompactionHistory, seed) for seed in seeds]
    assert sum(history.passes for history in histories) > len(seeds)
    inside = sum(history.has_ended_inside for history in histories)
    assert inside > len(seeds) / 2, "most passes are interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("part", short_and_long(PARTS, short=_SHORT_PARTS))
def test_no_last_record_is_lost_when_a_pass_is_interrupted(part: int) -> None:
    run_all(seeds_of_part(part, SEEDS))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_no_last_record_is_lost_in_very_many_interrupted_passes(part: int) -> None:
    run_all(seeds_of_part(part, TORTURE_SEEDS, first=SEEDS))


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
