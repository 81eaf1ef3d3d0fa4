"""Power cuts in the middle of any call lose nothing that was acknowledged as synced.

The error names the failing seed. To replay it::

    STELE_POWER_CUT_SEED=4711 python -m pytest tests/unit/storage/test_power_cut.py -k replayed

``STELE_TORTURE_SEEDS`` sets how many seeds ``make torture`` runs (100,000).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from app.storage.logs.high_watermark import HighWatermark
from app.storage.logs.log import DiskLog
from app.storage.segments.segment import Segment
from app.storage.syncing import loop_syncs
from app.storage.syncing.flusher import Flusher
from tests.support.histories import (
    assert_forgotten_sync_is_noticed,
    replay_history,
    run_history,
    seed_ranges,
)
from tests.support.power_cut import PowerCutHistory

pytestmark = pytest.mark.usefixtures("without_logs")

SEEDS = seed_ranges(25, 200)
MUTANT_SEEDS_MAX = 500


def run_all(seeds: range) -> None:
    cuts = records = 0
    for seed in seeds:
        history = run_history(PowerCutHistory, seed)
        cuts += history.cuts
        records += history.records_checked
    assert cuts > len(seeds), "most lives end in a cut"
    assert records > 10 * len(seeds), "and leave something to check"


@pytest.mark.parametrize("seeds", SEEDS)
def test_no_promised_record_is_lost_when_the_power_goes(seeds: range) -> None:
    run_all(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.usefixtures("much_space_ahead")
def test_nor_is_one_in_space_that_was_allocated_ahead(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = 0
    cut_space = Segment.cut_space

    def counted(segment: Segment) -> None:
        nonlocal cut
        cut += segment.allocated > segment.size
        cut_space(segment)

    monkeypatch.setattr(Segment, "cut_space", counted)
    run_all(seeds)
    assert cut > len(seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_nor_is_one_whose_sync_the_loop_has_made(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_syncs, "PROBES", 1)
    made = 0
    sync_now = Flusher.sync_now

    def counted(flusher: Flusher, log: DiskLog) -> asyncio.Future[None] | None:
        nonlocal made
        future = sync_now(flusher, log)
        made += future is None
        return future

    monkeypatch.setattr(Flusher, "sync_now", counted)
    run_all(seeds)
    assert made > len(seeds)


def test_one_seed_can_be_replayed_with_all_it_logs() -> None:
    replay_history(PowerCutHistory, "STELE_POWER_CUT_SEED")


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = (run_history(PowerCutHistory, 7) for _ in range(2))
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
def test_a_forgotten_sync_is_noticed(what: str) -> None:
    assert_forgotten_sync_is_noticed(PowerCutHistory, FORGOTTEN[what], seeds_max=MUTANT_SEEDS_MAX)


# So must a reader that sees too much.
def hold_nothing_back(_log: DiskLog, _base_offset: int, _size_bytes: int) -> None:
    pass


def show_what_a_sync_will_cover(self: HighWatermark) -> None:
    self._running = self._next = None


HASTES: dict[str, tuple[type, str, Callable[..., None]]] = {
    "an append": (DiskLog, "hold_back", hold_nothing_back),
    "the beginning of a sync": (HighWatermark, "sync_begins", show_what_a_sync_will_cover),
}


@pytest.mark.parametrize("what", HASTES)
def test_records_that_are_visible_before_their_sync_are_noticed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, replacement = HASTES[what]
    monkeypatch.setattr(owner, name, replacement)
    for seed in range(MUTANT_SEEDS_MAX):
        # What is broken shows in what a reader loses; the rule itself would notice it at once.
        monkeypatch.setattr(PowerCutHistory, "checks_rule", False)
        try:
            run_history(PowerCutHistory, seed)
        except AssertionError as error:
            if "was promised" in str(error):
                return
            raise
    pytest.fail(f"{MUTANT_SEEDS_MAX} histories did not notice that a reader lost records")
