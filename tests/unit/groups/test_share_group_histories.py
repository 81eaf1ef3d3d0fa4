"""What was accepted never comes again, no record has two holders and none is left, whatever is lost or killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.support.fast_directory import fast_directory
from tests.support.histories import seed_ranges
from tests.support.share_group_history import ShareGroupHistory
from tests.support.simulated_time import run_simulated


@pytest.mark.parametrize("seeds", seed_ranges(4, 20))
def test_records_are_settled_once_through_crashes(seeds: range) -> None:
    histories = [run(seed) for seed in seeds]
    delivered = [one for history in histories for one in history.ledger.records.values()]
    assert any(one.count > 1 for one in delivered)
    assert sum(one.is_done for one in delivered) > len(delivered) / 2
    assert any(history.crashes for history in histories)


def run(seed: int) -> ShareGroupHistory:
    random = Random(seed)
    with tempfile.TemporaryDirectory(prefix="stele-shares-", dir=fast_directory()) as path:

        async def history() -> ShareGroupHistory:
            made = ShareGroupHistory(Path(path), random)
            await made.run()
            return made

        try:
            return run_simulated(history, Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
