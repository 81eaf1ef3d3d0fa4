"""The cores of processes that benchmarks start."""

from __future__ import annotations

import os

from load.process_usage import pinned


def test_processes_inherit_the_cores_and_this_one_gets_its_own_back() -> None:
    before = os.sched_getaffinity(0)
    with pinned(frozenset({min(before)})):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
