"""Write the suites, their last runs and what is known to differ into docs/conformance.md.

``python -m tests.suites.page`` leaves the results of the runs as they are; ``python -m tests.suites --write`` writes those
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .results import Verdict
from .sources import Folder, GoModule, Sdist
from .table import SUITES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
_FIRST, _LAST = "<!-- The suites: tests/suites/page.py writes them. -->", "<!-- The end of the suites. -->"


# The cells of a suite that no run has filled.
_NOT_RUN = ["", "", "", ""]


def cells_of(verdict: Verdict, date: str) -> list[str]:
    """Return the cells of a run: its date, and how many tests passed, failed and were skipped."""
    return [date, str(verdict.passed), str(len(verdict.unexpected)), str(verdict.skipped)]


def _section(runs: Mapping[str, list[str]]) -> str:
    lines = [
        "| suite | from | known to differ | as of | passed | failed | skipped |",
        "|---|---|--:|---|--:|--:|--:|",
    ]
    for suite in SUITES:
        cells = [suite.name, _origin(suite.source), str(len(suite.known)), *runs.get(suite.name, _NOT_RUN)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| suite | test | why it differs |", "|---|---|---|"]
    for suite in SUITES:
        listed = {**suite.known, **{name: f"left out: {why}" for name, why in suite.left_out.items()}}
        lines += [
            f"| {suite.name} | {name.replace('|', chr(92) + '|')} | {why} |" for name, why in listed.items()
        ]
    return "\n".join(lines)


def _origin(source: GoModule | Sdist | Folder) -> str:
    match source:
        case GoModule():
            return f"Go module proxy, {source.version}"
        case Sdist():
            return f"PyPI, {source.requirement.partition('==')[2]}"
        case Folder():
            return "a folder in SUITES_DIR"


def written(page: str, runs: Mapping[str, list[str]]) -> str:
    """Return ``page`` with the tables of today, and with the cells of these runs; those of other suites stay."""
    before, _, rest = page.partition(_FIRST)
    old, _, after = rest.partition(_LAST)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in old.split("\n\n")[0].splitlines()]
    known = {row[0]: row[3:] for row in rows if len(row) == 3 + len(_NOT_RUN)}
    return f"{before}{_FIRST}\n{_section({**known, **runs})}\n{_LAST}{after}"


def write(runs: Mapping[str, list[str]]) -> None:
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")


if __name__ == "__main__":
    write({})
