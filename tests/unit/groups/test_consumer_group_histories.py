"""A partition never has two owners and no epoch is lost, whatever is lost, killed or changed on the way."""

import pytest

from tests.support.consumer_group_history import ConsumerGroupHistory
from tests.support.histories import seed_ranges


@pytest.mark.parametrize("seeds", seed_ranges(50, 200))
def test_every_partition_has_one_owner_at_a_time_and_one_in_the_end(seeds: range) -> None:
    for seed in seeds:
        _run(seed)


def _run(seed: int) -> None:
    try:
        ConsumerGroupHistory(seed).run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
