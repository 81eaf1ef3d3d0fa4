"""Give the subjects of ``bench_cluster`` the same work in turn.

Print their rates, and the ratios to Apache Kafka.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .cluster_subjects import DatabaseUse, SteleCluster, Subject
from .cluster_work import LATENCY_PER_S, VALUE_BYTES, SteadyProducer, consume, new_topic, produce
from .measure import percentile

RECORDS_GOAL, INLINE_ACK_GOAL_MS = 50_000, 10.0
_WARM_RECORDS = 10_000


@dataclass(slots=True)
class Figures:
    """Those of one subject, a value per round.

    ``cpu_s`` is the CPU time of each part while records came in, ``per_gb`` what PostgreSQL did for each GB of them.
    """

    in_per_s: list[float] = field(default_factory=list[float])
    out_per_s: list[float] = field(default_factory=list[float])
    cpu_s: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    share: list[float] = field(default_factory=list[float])
    per_gb: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    p50_ms: list[float] = field(default_factory=list[float])
    p99_ms: list[float] = field(default_factory=list[float])
    failed: int = 0


def compare(
    subjects: Sequence[Subject],
    yardsticks: Sequence[Subject],
    *,
    records: int,
    is_throughput: bool,
    latency_s: float,
    rounds: int,
) -> None:
    """Measure ``subjects`` in turn, and print their figures.

    ``yardsticks`` are among them; the ratios of the others to these are printed. ``latency_s`` 0 leaves the latency
    out.
    """
    for subject in subjects:
        produce(subject, new_topic(subject), _WARM_RECORDS)
    found: dict[str, Figures] = {subject.name: Figures() for subject in subjects}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, at a load of {os.getloadavg()[0]:.1f}", flush=True)
        for subject in subjects:
            figures = found[subject.name]
            if is_throughput:
                _measure_throughput(subject, records, figures)
            if latency_s:
                _measure_latency(subject, latency_s, figures)
            print(f"  {subject.name}: {_last(figures)}", flush=True)
    for subject in subjects:
        _print(subject.name, found[subject.name], records)
        for yardstick in yardsticks:
            if subject not in yardsticks:
                _print_ratios(found[subject.name], found[yardstick.name], yardstick.name)


def _measure_throughput(subject: Subject, records: int, figures: Figures) -> None:
    topic = new_topic(subject)
    before = subject.database() if isinstance(subject, SteleCluster) else None
    used_s = _cpu_s(subject)
    seconds = produce(subject, topic, records)
    used_s = {what: after - used_s[what] for what, after in _cpu_s(subject).items()}
    figures.in_per_s.append(records / seconds)
    figures.cpu_s.append(used_s)
    figures.share.append(sum(used_s.values()) / seconds / (os.cpu_count() or 1))
    if before is not None and isinstance(subject, SteleCluster):
        figures.per_gb.append(_per_gb(before, subject.database(), records * VALUE_BYTES / 1e9))
    figures.out_per_s.append(records / consume(subject, topic, records))


def _measure_latency(subject: Subject, seconds: float, figures: Figures) -> None:
    producer = SteadyProducer(subject, new_topic(subject))
    time.sleep(1)
    warm = time.perf_counter()
    time.sleep(seconds)
    producer.end()
    latencies_ms = producer.latencies_ms(warm)
    figures.p50_ms.append(percentile(latencies_ms, 0.5))
    figures.p99_ms.append(percentile(latencies_ms, 0.99))
    figures.failed += producer.failed


def _cpu_s(subject: Subject) -> dict[str, float]:
    """Return the CPU time so far of all that takes part."""
    own = os.times()
    return {
        "client": own.user + own.system,
        "brokers": subject.broker_cpu_s(),
        **subject.other_cpu_s(),
    }


def _per_gb(before: DatabaseUse, after: DatabaseUse, gigabytes: float) -> dict[str, float]:
    return {
        "s CPU": (after.cpu_s - before.cpu_s) / gigabytes,
        "MB WAL": (after.wal_bytes - before.wal_bytes) / 1e6 / gigabytes,
        "objects": (after.objects - before.objects) / gigabytes,
        "rows": (after.runs - before.runs) / gigabytes,
    }


def _last(figures: Figures) -> str:
    parts: list[str] = []
    if figures.in_per_s:
        parts.append(f"in {figures.in_per_s[-1]:,.0f}, out {figures.out_per_s[-1]:,.0f} records/s")
    if figures.p50_ms:
        parts.append(f"ack {figures.p50_ms[-1]:.1f} / {figures.p99_ms[-1]:.1f} ms")
    return ", ".join(parts)


def _print(name: str, figures: Figures, records: int) -> None:
    print(name)
    if figures.in_per_s:
        megabytes = VALUE_BYTES / 1e6
        rate_in, rate_out = statistics.median(figures.in_per_s), statistics.median(figures.out_per_s)
        used = ", ".join(
            f"{what} {statistics.median(round_s[what] for round_s in figures.cpu_s):.2f} s"
            for what in figures.cpu_s[0]
        )
        brokers_s = statistics.median(round_s["brokers"] for round_s in figures.cpu_s)
        print(
            f"  in   {rate_in * megabytes:8.1f} MB/s  {rate_in:9,.0f} records/s of 1 KB"
            f" ({min(figures.in_per_s):,.0f} to {max(figures.in_per_s):,.0f}),"
            f" {records / max(brokers_s, 0.01):,.0f} per second of broker CPU\n"
            f"  CPU of in: {used}, {100 * statistics.median(figures.share):.0f} % of the machine\n"
            f"  out  {rate_out * megabytes:8.1f} MB/s  {rate_out:9,.0f} records/s"
        )
        if figures.per_gb:
            shown = ", ".join(
                f"{statistics.median(round_of[what] for round_of in figures.per_gb):,.1f} {what}"
                for what in figures.per_gb[0]
            )
            print(f"  PostgreSQL per GB: {shown}")
        if name.startswith("1 × ") and "inline" not in name:
            print_goal("records/s through an object store", rate_in, RECORDS_GOAL)
    if figures.p50_ms:
        p50_ms = statistics.median(figures.p50_ms)
        print(
            f"  ack at {LATENCY_PER_S} records/s: p50 {p50_ms:.1f} ms,"
            f" p99 {statistics.median(figures.p99_ms):.1f} ms, {figures.failed} failed"
        )
        if "inline" in name:
            print_goal("ms to an ack at p50", p50_ms, INLINE_ACK_GOAL_MS, at_most=True)


def _print_ratios(ours: Figures, yardstick: Figures, name: str) -> None:
    wanted: list[tuple[str, Callable[[Figures], list[float]]]] = [
        ("in", lambda figures: figures.in_per_s),
        ("out", lambda figures: figures.out_per_s),
        ("ack p50", lambda figures: figures.p50_ms),
        ("ack p99", lambda figures: figures.p99_ms),
        ("broker CPU", lambda figures: [used["brokers"] for used in figures.cpu_s]),
    ]
    shown: list[str] = []
    for what, values in wanted:
        ratios = [a / max(b, 0.01) for a, b in zip(values(ours), values(yardstick), strict=True)]
        if ratios:
            shown.append(f"{what} {statistics.median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"  to {name}: {', '.join(shown)}", flush=True)


def print_goal(what: str, value: float, goal: float, *, at_most: bool = False) -> None:
    is_met = value <= goal if at_most else value >= goal
    print(
        f"  goal: {'at most' if at_most else 'at least'} {goal:,g} {what}: {value:,.6g},"
        f" {'met' if is_met else 'NOT met'}",
        flush=True,
    )
