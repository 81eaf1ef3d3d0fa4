"""Three real brokers, PostgreSQL and an S3 server, of which any may fail at any time, keep every promise.

Producers and consumers of all protocols keep ledgers (``tests/support/faults``). Afterwards no acknowledged
record is lost and none of an idempotent producer is there twice, offsets are dense at every broker, committed
offsets never fell, every run has its object, and no other object is left. If the database fails over to an
asynchronous standby, records and commits may be lost that the standby lacks, and brokers report them.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.support.faults.record import Record
from tests.support.faults.story import seed_of_run, tell
from tests.support.faults.world import Variant

# Together what a run of CI causes.
FAULTS = int(os.environ.get("STELE_FAULTS", "150"))
TORTURE_FAULTS = int(os.environ.get("STELE_TORTURE_FAULTS", "10000"))
# With a standby, whose failovers are among them.
FAILOVER_FAULTS = int(os.environ.get("STELE_FAULTS_FAILOVERS", "60"))
# The cluster and the ledgers are new after so many.
FAULTS_PER_CLUSTER = 250
FAULTS_PER_PART = 1_000
VARIANTS: tuple[Variant, Variant] = ("s3", "inline")
# A file that collects the clusters of several runs; those of this version are not told again.
RECORD = os.environ.get("STELE_FAULTS_RECORD")


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_fault_breaks_a_promise(variant: Variant, tmp_path: Path) -> None:
    tell(tmp_path, variant, seed=seed_of_run(), faults=FAULTS)


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_failover_loses_what_the_brokers_report_and_nothing_else(variant: Variant, tmp_path: Path) -> None:
    told = tell(tmp_path, variant, seed=seed_of_run(), faults=FAILOVER_FAULTS, fails_over=True)
    assert told.counts["asynchronous failover"]


@pytest.mark.torture
@pytest.mark.parametrize("part", range(1, TORTURE_FAULTS // FAULTS_PER_PART + 1))
def test_ten_thousand_faults_break_no_promise(part: int, tmp_path: Path) -> None:
    """Cause a thousand of them; several processes may share the parts."""
    seeds = Random(seed_of_run())
    record = Record(Path(RECORD)) if RECORD else None
    for number in range(FAULTS_PER_PART // FAULTS_PER_CLUSTER):
        variant = VARIANTS[number % 2]
        name, seed = f"part {part}, cluster {number + 1}", seeds.randrange(2**32)
        if record is not None and record.has(name):
            continue
        print(f"{name}: seed {seed}", flush=True)
        told = tell(tmp_path / str(seed), variant, seed=seed, faults=FAULTS_PER_CLUSTER)
        if record is not None:
            record.add(name, told)
            print(f"{record.faults()} faults are recorded for {told.version}", flush=True)
