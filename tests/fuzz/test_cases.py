"""What a random search has found stays mended: every case that one has saved is repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.kafka_decoders import read_input, targets_and_seeds
from tests.support.random_search import CASES, save_case

INPUTS = sorted(path for path in CASES.glob("*") if path.suffix not in (".md", ".txt"))
TESTS = sorted(CASES.glob("*.txt"))


def test_the_decoders_read_their_seeds_and_every_input_that_was_found() -> None:
    targets, seeds = targets_and_seeds(lambda function: function)

    for data in [*seeds, *(path.read_bytes() for path in INPUTS)]:
        read_input(targets, data)


@pytest.mark.parametrize("case", TESTS, ids=[path.stem for path in TESTS])
def test_a_test_that_failed_with_a_seed_passes_with_it(case: Path) -> None:
    assert_passes(case.read_text().partition("\n")[0])


def test_a_search_saves_what_repeats_a_failure(tmp_path: Path) -> None:
    node = f"{Path(__file__).name}::test_a_search_saves_what_repeats_a_failure"
    report = pytest.TestReport(node, ("", 0, ""), {}, "failed", "the failure", "call")  # type: ignore[arg-type]

    case = save_case(report, 7, tmp_path)

    first_line, _, rest = case.read_text().partition("\n")
    assert first_line == f"--seed=7 {node}"
    assert "the failure" in rest


def assert_passes(arguments: str) -> None:
    seed, _, node = arguments.partition(" ")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", seed, node],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
