"""A partition never has two owners and no epoch is lost, whatever is lost, killed or changed on the way."""

from random import SystemRandom

import pytest

from tests.support.consumer_group_history import ConsumerGroupHistory

SEEDS = 300


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_every_partition_has_one_owner_at_a_time_and_one_in_the_end(first: int) -> None:
    for seed in range(first, first + 100):
        _run(seed)


@pytest.mark.torture
def test_the_same_in_100_000_other_histories() -> None:
    begin = SystemRandom().randrange(1 << 40)
    for seed in range(begin, begin + 100_000):
        _run(seed)


def _run(seed: int) -> None:
    try:
        ConsumerGroupHistory(seed).run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
