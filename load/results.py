"""The raw results of benchmarks: ``load/results/DATE.json``, one file per run, a section per benchmark."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec.structs import replace

from .apache_kafka import VERSION

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "load" / "results"


class Goal(msgspec.Struct, frozen=True):
    """The limit of a ratio, or of Stele's own value."""

    limit: float
    at_most: bool
    of: Literal["ratio", "stele"] = "ratio"


def at_most(limit: float, of: Literal["ratio", "stele"] = "ratio") -> Goal:
    return Goal(limit, at_most=True, of=of)


def at_least(limit: float, of: Literal["ratio", "stele"] = "ratio") -> Goal:
    return Goal(limit, at_most=False, of=of)


class Measure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One quantity: a value per round of Stele and of the yardstick, or as many as are known.

    ``ratio`` is given where only ratios are known; otherwise it follows from the rounds.
    """

    unit: str = ""
    stele: Sequence[float] = ()
    baseline: Sequence[float] = ()
    ratio: Sequence[float] = ()
    goal: Goal | None = None

    @property
    def ratios(self) -> list[float]:
        """Stele divided by the yardstick, per round."""
        return list(self.ratio) or [a / b for a, b in zip(self.stele, self.baseline, strict=False) if b]

    @property
    def is_met(self) -> bool | None:
        """None without a goal, or without the values that it is about."""
        values = [] if self.goal is None else self.stele if self.goal.of == "stele" else self.ratios
        if self.goal is None or not values:
            return None
        value = median(values)
        return value <= self.goal.limit if self.goal.at_most else value >= self.goal.limit


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a table of docs/benchmarks.md, or of none if ``table`` is empty.

    With ``is_span``, the values are those of several kinds of work: their range is the result, not their median.
    """

    what: str
    measures: Mapping[str, Measure]
    table: str = ""
    baseline: str = ""
    is_span: bool = False


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a benchmark has measured, with what and where."""

    commit: str
    machine: str
    versions: Mapping[str, str]
    options: Sequence[str] = ()
    rows: Sequence[Row] = ()

    @property
    def origin(self) -> tuple[str, str]:
        """Figures of one machine and one version of Stele can be compared."""
        return self.machine, self.versions["stele"]


class Results(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. ``date`` is empty if it is not known."""

    date: str = ""
    benchmarks: dict[str, Section] = {}


def read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def read_all(folder: Path = FOLDER) -> list[Results]:
    """Return all results, the newest last."""
    return sorted(map(read, folder.glob("*.json")), key=lambda results: results.date)


def save(path: Path, date: str, benchmark: str, section: Section) -> None:
    """Add a section to a file.

    Rows of an earlier run of the same benchmark, commit and machine stay, unless this run has measured them again.
    """
    results = read(path) if path.exists() else Results(date=date)
    before = results.benchmarks.get(benchmark)
    if before is not None and (before.commit, before.origin) == (section.commit, section.origin):
        section = replace(section, rows=merged(before.rows, section.rows))
    results.benchmarks[benchmark] = section
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def merged(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    """Return the rows of both; of a row in both, the later measures count."""
    rows = {(row.table, row.what): row for row in before}
    for row in after:
        known = rows.get((row.table, row.what))
        rows[row.table, row.what] = (
            row if known is None else replace(row, measures={**known.measures, **row.measures})
        )
    return list(rows.values())


def section_of(rows: Sequence[Row], options: Sequence[str]) -> Section:
    """Return what this machine and this source tree have measured."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    packages = {"stele": "stele-broker", "uvloop": "uvloop", "confluent-kafka": "confluent-kafka"}
    return Section(
        commit=commit.stdout.strip() or "unknown",
        machine=f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        versions={
            "kernel": platform.release(),
            "python": platform.python_version(),
            "kafka": VERSION,
            **{name: version(package) for name, package in packages.items()},
        },
        options=options,
        rows=rows,
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
