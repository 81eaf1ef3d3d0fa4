"""A run ends with what it left out and how to run it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.skipped_tests import TARGETS, summary


def test_what_a_marker_keeps_out_is_counted_with_the_command_that_runs_it() -> None:
    assert summary(Counter(long=3), Counter()) == ["     3 marked long: run them with `make long`"]


def test_what_is_skipped_is_counted_by_its_reason_the_most_frequent_first() -> None:
    lines = summary(Counter(), Counter({"needs kcat (apt install kcat)": 1, "needs a browser": 12}))

    assert lines == ["    12 skipped: needs a browser", "     1 skipped: needs kcat (apt install kcat)"]


def test_every_command_is_a_target_of_the_makefile() -> None:
    text = Path("Makefile").read_text()

    assert all(f"\n{target.removeprefix('make ')}:" in text for target in TARGETS.values())
