"""Groups move between the protocols with their members: no partition has two readers, and none is lost."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tests.support.fast_directory import fast_directory
from tests.support.histories import seed_ranges
from tests.support.migration_history import MigrationHistory
from tests.support.simulated_time import run_simulated


@pytest.mark.parametrize("seeds", seed_ranges(4, 20))
def test_members_of_both_protocols_share_a_group_through_crashes(seeds: range) -> None:
    seen = {kind for seed in seeds for kind in _run(seed)}
    # A history without a conversion shows nothing.
    assert seen >= {("classic", "consumer"), ("consumer", "classic")}


def _run(seed: int) -> set[tuple[str, str]]:
    """Return the changes of protocol that were seen."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(prefix="stele-migration-", dir=fast_directory()) as path:

        async def history() -> list[str]:
            made = MigrationHistory(Path(path), random)
            await made.run()
            return made.types

        try:
            types = run_simulated(history, Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return set(pairwise(types))
