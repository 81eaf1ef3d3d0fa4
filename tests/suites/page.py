"""Write the suites and what is known to differ into docs/conformance.md.

python -m tests.suites.page
"""

from __future__ import annotations

from pathlib import Path

from .sources import Folder, GoModule, Sdist
from .table import SUITES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
_FIRST, _LAST = "<!-- The suites: tests/suites/page.py writes them. -->", "<!-- The end of the suites. -->"


def section() -> str:
    """Return the tables of the page."""
    lines = ["| suite | from | tests known to differ |", "|---|---|--:|"]
    for suite in SUITES:
        lines.append(f"| {suite.name} | {_origin(suite.source)} | {len(suite.known)} |")
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


def written(page: str) -> str:
    """Return ``page`` with the tables of today."""
    before, _, rest = page.partition(_FIRST)
    _, _, after = rest.partition(_LAST)
    return f"{before}{_FIRST}\n{section()}\n{_LAST}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
