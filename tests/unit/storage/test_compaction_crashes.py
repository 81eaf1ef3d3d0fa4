"""The machine stops in the middle of a pass of compaction: nothing that counts is lost.

A failing seed is in the name of the error. To see it again::

    STELE_COMPACTION_SEED=4711 python -m pytest tests/unit/storage/test_compaction_crashes.py -k replayed

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.compaction_history import DIRECTORY, CompactionHistory
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import run_simulated

SEEDS = 2_000
TORTURE_SEEDS = int(os.environ.get("STELE_TORTURE_SEEDS", "100000"))
PARTS = 10
MUTANT_SEEDS_MAX = 200


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery has a lot to say in thousands of crashes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, files: SimulatedFiles | None = None) -> CompactionHistory:
    history = CompactionHistory(seed, files)
    try:
        run_simulated(history.run, Random(seed))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return history


def run_all(seeds: range) -> None:
    histories = [run(seed) for seed in seeds]
    assert sum(history.passes for history in histories) > len(seeds)
    inside = sum(history.has_ended_inside for history in histories)
    assert inside > len(seeds) / 2, "most passes are interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_last_record_is_lost_when_a_pass_is_interrupted(part: int) -> None:
    size = SEEDS // PARTS
    run_all(range(part * size, (part + 1) * size))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_no_last_record_is_lost_in_very_many_interrupted_passes(part: int) -> None:
    size = TORTURE_SEEDS // PARTS
    run_all(range(SEEDS + part * size, SEEDS + (part + 1) * size))


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    logging.disable(logging.NOTSET)
    run(int(os.environ.get("STELE_COMPACTION_SEED", "1")))


# The simulation must be able to fail: a pass needs each of these syncs.
FORGOTTEN: dict[str, Callable[[str, Path], bool]] = {
    "the directory": lambda kind, path: kind == "sync_dir" and path == DIRECTORY,
    "the cleaned log": lambda kind, path: kind == "sync" and path.name.endswith(".log.cleaned"),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_sync_is_found_out(what: str) -> None:
    for seed in range(MUTANT_SEEDS_MAX):
        files = SimulatedFiles()
        files.forgets = FORGOTTEN[what]
        try:
            run(seed, files)
        except AssertionError:
            return
    pytest.fail(f"{MUTANT_SEEDS_MAX} crashes did not notice that {what} was not synced")
