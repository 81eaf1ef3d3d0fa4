"""Read the Markdown pages of the repository: their code spans, code blocks and links, each with its line.

A page is read as text, without a Markdown library: the pages use fences of three
backticks and spans of one backtick, and a test fails on anything else.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *ROOT.glob("*.md"),
        *ROOT.glob("load/*.md"),
        *ROOT.glob("tests/*/README.md"),
    ]
)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a page, counted from 1."""

    page: Path
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Span:
    """The text between two backticks."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: `{self.text}`"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block; ``place`` is its first line of code."""

    place: Place
    language: str
    text: str


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            Place(page, text.count("\n", 0, match.start("code")) + 1),
            match["language"],
            textwrap.dedent(match["code"]),
        )
        for match in re.finditer(
            r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$", text, re.DOTALL | re.MULTILINE
        )
    ]


def prose(page: Path) -> str:
    """Return the page with its code blocks blanked; lines keep their numbers."""
    return re.sub(
        r"^ *```.*?^ *```$",
        lambda match: "\n" * match[0].count("\n"),
        page.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )


def spans(page: Path) -> list[Span]:
    return [
        Span(Place(page, number), text)
        for number, line in enumerate(prose(page).splitlines(), start=1)
        for text in re.findall(r"`([^`]+)`", line)
    ]


def links(page: Path) -> list[Span]:
    """Return the targets of the page's links and images."""
    return [
        Span(Place(page, number), target)
        for number, line in enumerate(prose(page).splitlines(), start=1)
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line))
    ]


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of the page."""
    counts: dict[str, int] = {}
    found: set[str] = set()
    for heading in headings(page):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeated = counts.get(anchor, 0)
        counts[anchor] = repeated + 1
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return found
