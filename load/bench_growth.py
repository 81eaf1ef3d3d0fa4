"""Measure how the cost of work grows with the work: each series at three sizes, and what a bystander notices of it.

CPU time per unit at the largest size is compared with that at the middle one, and, for some series, with that of Apache
Kafka under the same clients. A bystander sends one small request after the other meanwhile; what the broker computes
while one of them waits is its hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .growth.costs import Point, costs_of
from .growth.series import SERIES, Series
from .harness import Benchmark, percentile
from .results import Measure, at_most
from .subjects import Subject, stele_and_kafka

CPU_GOAL, P99_GOAL_MS, MAX_GOAL_MS = at_most(1.5), at_most(10, "stele"), at_most(25, "stele")


async def measured(series: Series, subject: Subject, sizes: Sequence[int]) -> list[Point]:
    async with costs_of(subject) as costs:
        return await series.measure(costs, sizes)


def measures_of(point: Point, middle: Point, kafka: Point | None, series: Series) -> dict[str, Measure]:
    unit, holds_ms = f"µs per {series.unit}", point.holds_ms
    is_largest = point is not middle
    measures = {
        "CPU": Measure(
            unit=unit,
            stele=[point.cost.cpu_us],
            baseline=[middle.cost.cpu_us] if is_largest else (),
            goal=CPU_GOAL,
        ),
        "p99": Measure(unit="ms", stele=[percentile(holds_ms, 0.99)], goal=P99_GOAL_MS),
        "longest": Measure(unit="ms", stele=[max(holds_ms)], goal=MAX_GOAL_MS),
        "memory": Measure(unit="MiB", stele=[point.cost.memory_mib]),
    }
    if kafka is not None:
        measures["Kafka"] = Measure(unit=unit, stele=[point.cost.cpu_us], baseline=[kafka.cost.cpu_us])
    return measures


def show(
    bench: Benchmark, name: str, series: Series, points: Sequence[Point], kafka: Sequence[Point]
) -> None:
    of_kafka = {(point.what, point.size): point for point in kafka}
    for what in dict.fromkeys(point.what for point in points):
        *_, middle, last = (point for point in points if point.what == what)
        for point in (middle, last):
            bench.row(
                f"{name}: {what}, {point.size:,}",
                baseline=f"the same with {middle.size:,}",
                measures=measures_of(point, middle, of_kafka.get((what, point.size)), series),
            )


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=1)
    bench.parser.add_argument("--only", choices=[*SERIES], action="append", help="a series; may be repeated")
    bench.parser.add_argument("--without-kafka", action="store_true", help="do not measure Apache Kafka")
    with bench.run() as options:
        for name in options.only or SERIES:
            series = SERIES[name]
            bench.say(name)
            is_alone = options.without_kafka or series.properties is None
            with stele_and_kafka(
                "stele" if is_alone else None, environment=series.environment, properties=series.properties
            ) as (stele, *kafka):
                sizes = series.sizes[:2] if options.quick else series.sizes
                points = asyncio.run(measured(series, stele, sizes))
                others = [
                    point for subject in kafka for point in asyncio.run(measured(series, subject, sizes))
                ]
            show(bench, name, series, points, others)
        missed = [
            f"{row.what}: {part}"
            for row in bench.rows
            for part, each in row.measures.items()
            if each.is_met is False
        ]
        bench.say("\n  ".join((f"{len(missed)} goals are missed", *missed)))


if __name__ == "__main__":
    main()
