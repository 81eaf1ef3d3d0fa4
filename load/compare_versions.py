"""Compare the benchmarks of two source trees, in turn, in a Markdown table.

Both run on this machine.

``python -m load.compare_versions OTHER_TREE [BENCH …]`` runs each benchmark that both trees have
in the other tree and in this one, ``--rounds`` times, with ``--options`` of its own. A tree brings its own ``.venv``. The last
column is the median of this tree's figure divided by the other's, round by round: a rate above 1
means that this tree is faster, a time or a size above 1 that it needs more.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

THIS = Path(__file__).parent.parent
_FIGURE = re.compile(r"^  Stele +(?P<value>[0-9.,]+) (?P<unit>\S.*?) *$")
_ROW = re.compile(r"^\| (?P<what>[^|]+?) +\| (?P<value>[0-9.,]+) (?P<unit>[^|]+?) +\|")
# A row of bench_console and bench_kafka_wakeup; its first figure counts.
_LINE = re.compile(r"^ {0,2}(?P<what>\S.*?) {2,}(?P<value>[0-9.,]+) (?P<unit>µs|records/s)")


def figures(output: str) -> dict[str, tuple[float, str]]:
    """Return ``(value, unit)`` of Stele per heading of a benchmark's output."""
    values: dict[str, tuple[float, str]] = {}
    heading = ""
    for line in output.splitlines():
        if figure := _FIGURE.match(line):
            values[heading] = _number(figure["value"]), figure["unit"]
        elif row := _ROW.match(line) or _LINE.match(line):
            values[row["what"]] = _number(row["value"]), row["unit"]
        elif line and not line.startswith(" "):
            heading = line
    return values


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def run(tree: Path, benchmark: str, options: Iterable[str]) -> dict[str, tuple[float, str]]:
    """Run a benchmark in ``tree``.

    Raises ``CalledProcessError`` with its output on standard error.
    """
    print(f"… {benchmark} in {tree}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [tree / ".venv/bin/python", "-m", f"load.{benchmark}", *options],
        cwd=tree,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return figures(done.stdout)


def benchmarks(tree: Path) -> set[str]:
    return {path.stem for path in (tree / "load").glob("bench_*.py")}


def rows(other: Path, names: Iterable[str], rounds: int, options: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Yield a row per figure: benchmark, heading, the other tree's median, this tree's, ratio and spread."""
    for name in names:
        try:
            pairs = [(run(other, name, options), run(THIS, name, options)) for _ in range(rounds)]
        except subprocess.CalledProcessError as error:
            yield name, f"failed with exit status {error.returncode}", "", "", ""
            continue
        for what in pairs[0][1]:
            both = [(old[what][0], new[what][0]) for old, new in pairs if what in old and what in new]
            if not both:
                continue
            unit = pairs[0][1][what][1]
            ratios = [new / old if old else float("nan") for old, new in both]
            yield (
                name,
                what,
                f"{statistics.median(old for old, _ in both):,.1f} {unit}",
                f"{statistics.median(new for _, new in both):,.1f} {unit}",
                f"{statistics.median(ratios):.2f} x ({min(ratios):.2f}–{max(ratios):.2f})",
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the tree to compare with, with its own .venv")
    parser.add_argument("names", nargs="*", metavar="BENCH", help="benchmarks to run (default: all in both)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per tree and benchmark (default: 3)")
    parser.add_argument("--options", default="", help='options for each benchmark, such as "--only stele"')
    arguments = parser.parse_args()
    other = arguments.other.resolve()
    names = arguments.names or sorted(benchmarks(THIS) & benchmarks(other))
    print("| benchmark | what | other tree | this tree | this : other |\n|---|---|---|---|---|")
    for row in rows(other, names, arguments.rounds, shlex.split(arguments.options)):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
