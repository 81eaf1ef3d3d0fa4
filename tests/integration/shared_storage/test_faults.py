"""Three real brokers, PostgreSQL and an S3 server, of which any may fail at any time, keep every promise.

Producers and consumers of all protocols keep ledgers (``tests/support/faults``). Afterwards no acknowledged
record is lost and none of an idempotent producer is there twice, offsets are dense at every broker, committed
offsets never fell, every run has its object, and no other object is left.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.support.faults.story import seed_of_run, tell
from tests.support.faults.world import Variant

# Together what a run of CI causes.
FAULTS = int(os.environ.get("STELE_FAULTS", "150"))
TORTURE_FAULTS = int(os.environ.get("STELE_TORTURE_FAULTS", "10000"))
# The cluster and the ledgers are new after so many.
FAULTS_PER_CLUSTER = 250


@pytest.mark.long
@pytest.mark.parametrize("variant", ["s3", "inline"])
def test_no_fault_breaks_a_promise(variant: Variant, tmp_path: Path) -> None:
    tell(tmp_path, variant, seed=seed_of_run(), faults=FAULTS)


@pytest.mark.torture
def test_ten_thousand_faults_break_no_promise(tmp_path: Path) -> None:
    variants: tuple[Variant, Variant] = ("s3", "inline")
    seeds, done = Random(seed_of_run()), 0
    while done < TORTURE_FAULTS:
        seed = seeds.randrange(2**32)
        counts = tell(tmp_path / str(seed), variants[seed % 2], seed=seed, faults=FAULTS_PER_CLUSTER)
        done += sum(counts.values())
        print(f"{done} faults in all", flush=True)
