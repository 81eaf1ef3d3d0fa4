"""Run all series of ``bench_growth`` at the same time for some minutes, and say whether the broker has grown meanwhile.

Each series begins again when it is done, at its smallest size, and deletes what it has made. Memory, open files,
threads and the mean hold of the event loop are sampled; what counts is how much a line through the second half of the
samples rises from its beginning to its end. The exit code is 1 if that is more than a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, linear_regression
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from .decoded_reads import ask
from .growth.costs import Cost, Costs, Work
from .growth.series import SERIES, Series
from .harness import number_text
from .process_usage import resident_mb
from .subjects import Subject, quiet_broker, stele_subject

SAMPLE_S = 2.0
_SHOW_EVERY = 30
# The samples of a block are averaged: a series is in another part of its work each time.
_BLOCKS = 20


class Quantity(NamedTuple):
    """What may rise by ``bound`` in the second half of a run."""

    unit: str
    bound: float


# Memory that is kept between requests (``app/process_memory.py``); the files and threads of work in progress.
QUANTITIES: Mapping[str, Quantity] = {
    "memory": Quantity("MiB", 10),
    "open files": Quantity("", 20),
    "threads": Quantity("", 2),
    "mean hold": Quantity("ms", 0.5),
}


class Mixed(Costs):
    """Does the work beside that of others, and measures nothing."""

    async def cost(self, work: Work) -> Cost:
        await work()
        return Cost(0.0, 0.0)

    async def holds_ms(self, work: Work) -> list[float]:
        await work()
        return []

    async def quiet(self) -> None:
        pass


class Samples:
    """Samples of one broker, by quantity."""

    def __init__(self, costs: Costs) -> None:
        self.taken: dict[str, list[float]] = {name: [] for name in QUANTITIES}
        self.long_holds = 0.0
        self._costs = costs
        self._holds = self._hold_counts()

    def take(self) -> None:
        process = Path(f"/proc/{self._costs.subject.pid}")
        before, after = self._holds, self._hold_counts()
        self._holds = after
        looks = after["+Inf"] - before["+Inf"]
        self.long_holds = after["+Inf"] - after["0.025"]
        values = {
            "memory": resident_mb(self._costs.subject.pid),
            "open files": sum(1 for _ in (process / "fd").iterdir()),
            "threads": sum(1 for _ in (process / "task").iterdir()),
            "mean hold": 1000 * (after["sum"] - before["sum"]) / looks if looks else 0.0,
        }
        for name, value in values.items():
            self.taken[name].append(value)

    def _hold_counts(self) -> dict[str, float]:
        """Return the looks at the loop by the longest hold that they have found, and the sum of the holds in seconds."""
        text = ask(self._costs.broker.http_port, "GET", "/metrics").partition(b"\r\n\r\n")[2].decode()
        (holds,) = (
            family
            for family in text_string_to_metric_families(text)
            if family.name == "stele_loop_hold_seconds"
        )
        return {
            sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value for sample in holds.samples
        }


def rise(samples: Sequence[float]) -> float:
    """Return how much a line through the means of the blocks of the second half rises from its beginning to its end.

    What may be chance, two standard errors, is taken off: more than zero is a rise.
    """
    half = samples[len(samples) // 2 :]
    size = max(1, len(half) // _BLOCKS)
    means = [fmean(half[first : first + size]) for first in range(0, len(half) - size + 1, size)]
    places = range(len(means))
    slope, start = linear_regression(places, means)
    rest = sum((mean - start - slope * place) ** 2 for place, mean in zip(places, means, strict=True))
    spread = sum((place - fmean(places)) ** 2 for place in places)
    error = (rest / (len(means) - 2) / spread) ** 0.5
    return (slope - 2 * error) * len(means)


async def _repeat(costs: Costs, name: str, series: Series, end_s: float, rounds: dict[str, int]) -> None:
    while time.monotonic() < end_s:
        await series.measure(costs, series.sizes[:1])
        rounds[name] += 1


async def run(subject: Subject, minutes: float, names: Sequence[str]) -> Samples:
    """Run series for so many minutes, and return the samples."""
    costs, rounds = Mixed(subject), dict.fromkeys(names, 0)
    samples, begun_s = Samples(costs), time.monotonic()
    end_s = begun_s + 60 * minutes
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_repeat(costs, name, SERIES[name], end_s, rounds))
        while time.monotonic() < end_s:
            await asyncio.sleep(SAMPLE_S)
            await asyncio.to_thread(samples.take)
            if len(samples.taken["memory"]) % _SHOW_EVERY == 0:
                last = (f"{name} {number_text(values[-1])}" for name, values in samples.taken.items())
                shown = ", ".join((*last, *(f"{name} × {count}" for name, count in rounds.items())))
                print(f"{(time.monotonic() - begun_s) / 60:.0f} min: {shown}", flush=True)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m load.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    parser.add_argument("--only", choices=[*SERIES], action="append", help="a series; may be repeated")
    options = parser.parse_args()
    if options.minutes < 0.5:
        parser.error("--minutes must be at least 0.5, or there are too few samples")
    environment = {name: value for series in SERIES.values() for name, value in series.environment.items()}
    with quiet_broker(environment=environment) as broker:
        samples = asyncio.run(run(stele_subject(broker), options.minutes, options.only or [*SERIES]))
    has_grown = False
    for name, (unit, bound) in QUANTITIES.items():
        taken = samples.taken[name]
        risen = rise(taken)
        has_grown |= risen > bound
        print(
            f"{name}: {number_text(taken[len(taken) // 2])} to {number_text(taken[-1])} {unit}, a rise of"
            f" {max(0.0, risen):.3g}; at most {bound:g}: {'GREW' if risen > bound else 'ok'}"
        )
    print(f"holds of more than 25 ms: {samples.long_holds:.0f}")
    return int(has_grown)


if __name__ == "__main__":
    sys.exit(main())
