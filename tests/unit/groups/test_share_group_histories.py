"""What was accepted never comes again, no record has two holders and none is left, whatever is lost or killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.support.fast_directory import fast_directory
from tests.support.share_group_history import ShareGroupHistory
from tests.support.simulated_time import run_simulated

SEEDS = 60
TORTURE_SEEDS = 100_000


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(20, SEEDS, 20))]
)
def test_records_are_settled_once_through_crashes(first: int) -> None:
    histories = [run(seed) for seed in range(first, first + 20)]
    delivered = [one for history in histories for one in history.ledger.records.values()]
    assert any(one.count > 1 for one in delivered)
    assert sum(one.is_done for one in delivered) > len(delivered) / 2
    assert any(history.crashes for history in histories)


@pytest.mark.torture
def test_the_same_in_very_many_other_histories() -> None:
    begin = SystemRandom().randrange(1 << 40)
    for seed in range(begin, begin + TORTURE_SEEDS):
        run(seed)


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
