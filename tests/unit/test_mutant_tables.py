"""Each mutant names a line that the sources have, and a file of tests that exists."""

from __future__ import annotations

import re

import pytest

from tests.mutants.__main__ import MUTANTS
from tests.mutants.table import Mutant
from tests.support.documents import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.path}: {mutant.before.strip()}")
def test_a_mutant_can_be_tried(mutant: Mutant) -> None:
    assert (ROOT / mutant.path).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after
    assert (ROOT / mutant.tests).exists()
    # Otherwise no test is chosen, and nothing of the run is tried.
    chosen = re.findall(r"\w+", mutant.only)
    assert not chosen or any(word in (ROOT / mutant.tests).read_text() for word in chosen), mutant.only
