"""What all benchmarks share: options, rounds, rows, and what becomes of the figures.

A benchmark measures a yardstick in the same run, in turn with Stele. Its rows are printed as soon as they are there;
``--format json`` prints them as JSON at the end, ``--save`` adds them to ``load/results/DATE.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from stele.broker_process import BrokerStartError
from stele.spark.java import SparkMissingError

from .apache_kafka import KafkaStartError, KafkaUnavailable
from .postgres_server import PostgresMissing
from .results import FOLDER, Goal, Measure, Row, save, section_of
from .seaweedfs import SeaweedMissing

_MISSING = (KafkaUnavailable, PostgresMissing, SeaweedMissing, SparkMissingError)


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class Benchmark:
    """The command line of a benchmark, and the rows of its run.

    ``parser`` takes further options; those with ``quick`` have another default in a quick run.
    """

    def __init__(self, file: str, doc: str | None, *, rounds: int) -> None:
        self.name = Path(file).stem
        self.rows: list[Row] = []
        self.options = argparse.Namespace()
        self._quick: dict[str, tuple[Any, Any]] = {}
        self.parser = argparse.ArgumentParser(
            prog=f"python -m load.{self.name}",
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add("--rounds", type=int, default=rounds, quick=1, help=f"default: {rounds}")
        self.parser.add_argument(
            "--quick", action="store_true", help="less of everything: to see that it works"
        )
        self.parser.add_argument("--format", choices=["text", "json"], default="text")
        self.parser.add_argument(
            "--save",
            type=Path,
            nargs="?",
            const=FOLDER / f"{today()}.json",
            metavar="FILE",
            help="add the result to FILE (default: load/results/DATE.json)",
        )

    def add(self, name: str, *, quick: Any = None, default: Any, **arguments: Any) -> None:
        """Add an option; a quick run has ``quick`` instead of ``default``."""
        action = self.parser.add_argument(name, default=None, **arguments)
        self._quick[action.dest] = default, default if quick is None else quick

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        options = self.options = self.parser.parse_args(arguments)
        if options.quick and options.save is not None and options.save.parent == FOLDER:
            self.parser.error("a quick run is no result: name another file to save it in")
        for name, (full, quick) in self._quick.items():
            if getattr(options, name) is None:
                setattr(options, name, quick if options.quick else full)
        return options

    @contextmanager
    def run(self, arguments: Sequence[str] | None = None) -> Generator[argparse.Namespace]:
        """Parse the options, let the block measure, and print and save what it has measured.

        A program that is missing ends the block, not the process.
        """
        options = self.parse(arguments)
        try:
            yield options
        except _MISSING as missing:
            print(f"not measured: {missing}", file=sys.stderr)
        except (BrokerStartError, KafkaStartError) as error:
            raise SystemExit(str(error)) from None
        given = sys.argv[1:] if arguments is None else arguments
        section = section_of(self.rows, [*given])
        if options.format == "json":
            print(msgspec.json.format(msgspec.json.encode({self.name: section}), indent=1).decode())
        if options.save is not None and self.rows:
            save(options.save, today(), self.name, section)

    def say(self, progress: str) -> None:
        print(f"… {progress}", file=sys.stderr, flush=True)

    def row(
        self,
        what: str,
        *,
        table: str = "",
        baseline: str = "",
        is_span: bool = False,
        value: Measure | None = None,
        measures: Mapping[str, Measure] | None = None,
    ) -> None:
        """Add a row with several measures, or with one that is called ``value``, and print it."""
        named = {**({} if value is None else {"value": value}), **(measures or {})}
        row = Row(what=what, table=table, baseline=baseline, is_span=is_span, measures=named)
        self.rows.append(row)
        if self.options.format == "text":
            print("\n".join(text_of(row)), flush=True)


def text_of(row: Row) -> list[str]:
    """Return the lines that show a row in a terminal."""
    lines = [row.what]
    for name, measure in row.measures.items():
        parts: list[str] = []
        if measure.stele:
            parts.append(f"{number_text(median(measure.stele))} {measure.unit}")
        if measure.baseline:
            parts.append(f"yardstick {number_text(median(measure.baseline))} {measure.unit}")
        if ratios := measure.ratios:
            spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
            parts.append(f"ratio {median(ratios):.2f}{spread}")
        lines.append(f"  {name:<10} {', '.join(parts)}{_verdict(measure)}")
    if row.baseline:
        lines.append(f"  yardstick: {row.baseline}")
    return lines


def _verdict(measure: Measure) -> str:
    goal, is_met = measure.goal, measure.is_met
    if goal is None or is_met is None:
        return ""
    unit = "" if goal.of == "ratio" else f" {measure.unit}"
    return f"; goal {'≤' if goal.at_most else '≥'} {goal.limit:g}{unit}: {'met' if is_met else 'NOT met'}"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def in_turn(
    ours: Callable[[], float],
    yardstick: Callable[[], float],
    *,
    rounds: int,
    unit: str,
    goal: Goal | None = None,
    warm: bool = True,
) -> Measure:
    """Run both once for warmth, then ``rounds`` times; the side that is first changes with each round."""
    stele: list[float] = []
    baseline: list[float] = []
    for number in range(rounds + warm):
        if number % 2:
            theirs, own = yardstick(), ours()
        else:
            own, theirs = ours(), yardstick()
        if number >= warm:
            stele.append(own)
            baseline.append(theirs)
    return Measure(unit=unit, stele=stele, baseline=baseline, goal=goal)


class Rounds:
    """Values of Stele and of the yardstick, by row and measure, as they come."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, tuple[list[float], list[float]]]] = {}

    def add(self, what: str, measure: str, value: float, *, is_stele: bool) -> None:
        sides = self.values.setdefault(what, {}).setdefault(measure, ([], []))
        sides[not is_stele].append(value)

    def measure(self, what: str, measure: str, unit: str, goal: Goal | None = None) -> Measure:
        stele, baseline = self.values.get(what, {}).get(measure, ([], []))
        return Measure(unit=unit, stele=stele, baseline=baseline, goal=goal)
