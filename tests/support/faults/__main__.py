"""Fault runs of a given length: what is acknowledged stays, whatever fails.

    python -m tests.support.faults --brokers 3 --minutes 120
    python -m tests.support.faults --brokers 1 --kills 100 --full-disks 3
    python -m tests.support.faults --replica --minutes 120

With three brokers, clusters follow each other, each with a seed of its own, with the object store of an S3 server and
with that of PostgreSQL in turn. PostgreSQL has a standby, which is promoted again and again. With one broker, it keeps
its log itself and is killed under load. With --replica, one broker loses its directory under load, and is restored from
its replica, again and again, in SeaweedFS, in versitygw and in a directory in turn. Progress goes to stdout; its last
line is a summary as JSON, which is also written to --summary. Exit code 1: a promise was broken, and the summary names
the seed that repeats the faults.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from load.apache_kafka import libs
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kills.run import kill_and_recover
from tests.support.s3_servers import use_test_credentials
from tests.support.small_disk import small_disk
from tests.support.warm_processes import use_warm_processes

from .buckets import KINDS
from .record import commit_of_tree
from .replica import Restored, lose_and_restore
from .story import BrokenPromises, seed_of_run, tell
from .world import Variant

# More than there will be: the time ends a cluster.
_FAULTS = 10**9
_DISK_BYTES = 256 << 20
_SHOWN = 4_000


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _run_clusters(path: Path, seed: int, minutes: float, cluster_minutes: float) -> dict[str, Any]:
    """Run clusters until the time is over; return the summary."""
    until_s = time.monotonic() + minutes * 60
    seeds = Random(seed)
    summary: dict[str, Any] = {"brokers": 3, "clusters": 0, "violations": []}
    counts: dict[str, Counter[str]] = {"faults": Counter(), "acknowledged": Counter(), "lost": Counter()}
    while (left_s := until_s - time.monotonic()) > 0:
        variant: Variant = "inline" if summary["clusters"] % 2 else "s3"
        own_seed = seeds.randrange(2**32)
        summary["clusters"] += 1
        _say(f"cluster {summary['clusters']}, {variant}, seed {own_seed}; {left_s / 60:.0f} minutes are left")
        try:
            told = tell(
                path / f"{summary['clusters']}",
                variant,
                seed=own_seed,
                faults=_FAULTS,
                fails_over=True,
                seconds=min(left_s, cluster_minutes * 60),
                progress=_say,
            )
        except BrokenPromises as broken:
            told = broken.told
            (path / f"broken-{own_seed}.txt").write_text(str(broken))
            _say(f"BROKEN, see {path}/broken-{own_seed}.txt:\n{str(broken)[:_SHOWN]}")
            summary["violations"].append({"seed": own_seed, "variant": variant, "what": told.broken})
        counts["faults"].update(told.counts)
        counts["acknowledged"].update(told.acknowledged)
        counts["lost"].update(told.lost)
        _say(json.dumps({name: dict(counter) for name, counter in counts.items()}))
    return {**summary, **{name: dict(counter) for name, counter in counts.items()}}


def _run_kills(path: Path, seed: int, kills: int, full_disks: int) -> dict[str, Any]:
    """Kill one broker; return the summary."""
    _say(f"one broker, {kills} kills, {full_disks} full disks, seed {seed}")
    with small_disk(path / "disk", size_bytes=_DISK_BYTES) as disk:
        # What the broker logs is beside its directory, and not on the small disk.
        (disk.path / "data").mkdir()
        (path / "data").symlink_to(disk.path / "data")
        try:
            survived = asyncio.run(
                kill_and_recover(path / "data", kills, seed, disk=disk, full_disks=full_disks, progress=_say)
            )
        except AssertionError as broken:
            traceback.print_exc()
            return {"brokers": 1, "violations": [{"seed": seed, "what": [str(broken)[:_SHOWN]]}]}
    return {"brokers": 1, **asdict(survived), "violations": []}


def _run_restores(path: Path, seed: int, minutes: float, rounds: int) -> dict[str, Any]:
    """Lose and restore directories until the time is over; return the summary."""
    until_s = time.monotonic() + minutes * 60
    seeds = Random(seed)
    with kafka_or_skip():
        libs()
    summary: dict[str, Any] = {"brokers": 1, "runs": 0, "lag_ms_max": 0, "violations": []}
    counts: dict[str, Counter[str]] = {
        name: Counter() for name in ("counts", "restores_from", "acknowledged", "failed_requests")
    }
    while (left_s := until_s - time.monotonic()) > 0:
        kind: str = KINDS[int(summary["runs"]) % len(KINDS)]
        own_seed = seeds.randrange(2**32)
        summary["runs"] += 1
        _say(f"run {summary['runs']}, {kind}, seed {own_seed}; {left_s / 60:.0f} minutes are left")
        own = path / f"{summary['runs']}"
        own.mkdir()
        restored = Restored(seed=own_seed, store=kind)
        try:
            lose_and_restore(
                own,
                restored,
                is_over=lambda so_far: so_far.counts["restores"] >= rounds or time.monotonic() > until_s,
                progress=_say,
            )
            shutil.rmtree(own)
        except AssertionError as broken:
            traceback.print_exc()
            summary["violations"].append({"seed": own_seed, "store": kind, "what": str(broken)[:_SHOWN]})
        counts["counts"].update(restored.counts)
        counts["restores_from"][kind] += restored.counts["restores"]
        counts["acknowledged"].update(restored.acknowledged)
        counts["failed_requests"].update(restored.failed_requests)
        summary["lag_ms_max"] = max(summary["lag_ms_max"], restored.lag_ms_max)
        _say(json.dumps({**summary, **counts}))
    return {**summary, **counts}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        help="three brokers, or --replica: how long faults are caused (10)",
    )
    parser.add_argument(
        "--cluster-minutes", type=float, default=15, help="and after how long a cluster is new (15)"
    )
    parser.add_argument("--kills", type=int, default=100, help="one broker: how often it is killed (100)")
    parser.add_argument("--full-disks", type=int, default=3, help="and how often its disk is full (3)")
    parser.add_argument("--replica", action="store_true", help="restore a broker from its replica")
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="and after how many times the next one begins, with another store (8)",
    )
    parser.add_argument("--seed", type=int, default=seed_of_run())
    parser.add_argument("--summary", type=Path, help="a file for the summary")
    chosen = parser.parse_args()
    if chosen.kills < 4 * chosen.full_disks + 2:
        parser.error("--kills is too small for so many full disks: each takes two, and needs two beside it")
    use_warm_processes()
    # As ctrl-c does: what was started ends, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Clients log each connection that breaks. Not ``logging.disable``: what a member logs explains its gaps.
    logging.getLogger().setLevel(logging.ERROR)
    begun_s = time.monotonic()
    # Not in TMPDIR: the path of PostgreSQL's socket must be short.
    path = Path(tempfile.mkdtemp(prefix="stele-faults-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        use_test_credentials(patch)
        if chosen.replica:
            summary = _run_restores(path, chosen.seed, chosen.minutes, chosen.rounds)
        elif chosen.brokers == 1:
            summary = _run_kills(path, chosen.seed, chosen.kills, chosen.full_disks)
        else:
            summary = _run_clusters(path, chosen.seed, chosen.minutes, chosen.cluster_minutes)
    minutes = round((time.monotonic() - begun_s) / 60, 1)
    summary = {
        "version": commit_of_tree(),
        "seed": chosen.seed,
        "minutes": minutes,
        "files": str(path),
        **summary,
    }
    if chosen.summary is not None:
        chosen.summary.write_text(json.dumps(summary, indent=2) + os.linesep)
    print(json.dumps(summary), flush=True)
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
