"""The power goes in the middle of any call: nothing that was promised is lost.

A failing seed is in the name of the error. To see it again::

    STELE_POWER_CUT_SEED=4711 python -m pytest tests/unit/storage/test_power_cut.py -k replayed

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.power_cut import History
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import run_simulated

SEEDS = 2_000
TORTURE_SEEDS = int(os.environ.get("STELE_TORTURE_SEEDS", "100000"))
PARTS = 10
MUTANT_SEEDS_MAX = 500


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery has a lot to say in thousands of cuts."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, files: SimulatedFiles | None = None) -> History:
    history = History(seed, files=files)
    try:
        run_simulated(history.run, Random(seed))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return history


def run_all(seeds: range) -> None:
    cuts = records = 0
    for seed in seeds:
        history = run(seed)
        cuts += history.cuts
        records += history.records_checked
    assert cuts > len(seeds), "most lives end in a cut"
    assert records > 10 * len(seeds), "and leave something to check"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_promised_record_is_lost_when_the_power_goes(part: int) -> None:
    size = SEEDS // PARTS
    run_all(range(part * size, (part + 1) * size))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_no_promised_record_is_lost_in_very_many_power_cuts(part: int) -> None:
    size = TORTURE_SEEDS // PARTS
    run_all(range(SEEDS + part * size, SEEDS + (part + 1) * size))


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    logging.disable(logging.NOTSET)
    run(int(os.environ.get("STELE_POWER_CUT_SEED", "1")))


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = (run(7) for _ in range(2))
    assert (first.cuts, first.records_checked, first.calls) == (
        second.cuts,
        second.records_checked,
        second.calls,
    )


# The simulation must be able to fail: each of these is a sync that the engine needs.
FORGOTTEN: dict[str, Callable[[str, Path], bool]] = {
    "the directory of a partition": lambda kind, path: (
        kind == "sync_dir" and path.name.endswith(("-0", "-1"))
    ),
    "the data directory": lambda kind, path: kind == "sync_dir" and path.name == "data",
    "the log": lambda kind, path: kind == "sync" and path.suffix == ".log",
    "the start record": lambda kind, path: kind == "sync" and path.name.startswith("start-record"),
    "the checkpoints": lambda kind, path: kind == "sync" and "-offset-checkpoint" in path.name,
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
    pytest.fail(f"{MUTANT_SEEDS_MAX} power cuts did not notice that {what} was not synced")
