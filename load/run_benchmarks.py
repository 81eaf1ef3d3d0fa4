"""Run benchmarks one after the other: all, or those that are named.

Further options are passed to each; with ``--save`` all add their results to the same file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from .results import ROOT

# Small differences show in the median of many short rounds.
_SHORT_ROUNDS = ("--rounds", "41", "--scale", "0.2")
# Each takes less than five minutes; of ``bench_growth``, each series.
BENCHMARKS = (
    ("bench_kafka_requests",),
    ("bench_lone_sync",),
    ("bench_fairness",),
    ("bench_contracts",),
    ("bench_request_cost",),
    ("bench_request_cost", "--awake"),
    ("bench_request_cost", "--with", "rules", *_SHORT_ROUNDS),
    ("bench_request_cost", "--with", "quotas", *_SHORT_ROUNDS),
    ("bench_kafka_wide",),
    ("bench_tls",),
    ("bench_two_cores",),
    ("bench_start",),
    ("bench_growth",),
    ("bench_compaction",),
    ("bench_replica",),
    ("bench_restore",),
    ("bench_transactions",),
    ("bench_share_groups",),
    ("bench_rebalance",),
    ("bench_registry",),
    ("bench_spark_read",),
    ("bench_cdc",),
    ("bench_mirror",),
    ("bench_iceberg",),
    ("bench_sql",),
    ("bench_cluster",),
    ("bench_cluster_events",),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m load.run_benchmarks", description=__doc__)
    names = sorted({name for name, *_ in BENCHMARKS})
    parser.add_argument("--benchmark", choices=names, action="append", help="one of them; may be repeated")
    chosen, options = parser.parse_known_args()
    failed: list[str] = []
    for name, *arguments in BENCHMARKS:
        if chosen.benchmark and name not in chosen.benchmark:
            continue
        command = " ".join((name, *arguments))
        print(f"── {command}", flush=True)
        begun_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", f"load.{name}", *arguments, *options], cwd=ROOT, check=False
        )
        print(f"── {time.monotonic() - begun_s:.0f} s", flush=True)
        if done.returncode:
            failed.append(command)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
