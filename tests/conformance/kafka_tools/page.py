"""The section of ``docs/conformance.md`` about the tools, from the calls and the accepted differences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.conformance.kafka_tools.accepted import ACCEPTED
from tests.conformance.kafka_tools.calls import Call, steps

PAGE = Path(__file__).resolve().parents[3] / "docs" / "conformance.md"
BEGIN = "<!-- The tools: python -m tests.conformance.kafka_tools --page writes this. -->"
END = "<!-- The end of the tools. -->"


def render() -> str:
    calls = [step for step in steps() if isinstance(step, Call)]
    counts = Counter(call.tool for call in calls)
    tools = ", ".join(f"`kafka-{tool}` {count}" for tool, count in sorted(counts.items()))
    lines = [
        f"{len(calls)} calls: {tools}.",
        "",
        "| accepted difference | reason |",
        "|---|---|",
        *(f"| {one.what} | {one.reason} |" for one in ACCEPTED),
    ]
    return "\n".join(lines) + "\n"


def section(text: str) -> str:
    """What the page has between its marks."""
    return text.partition(f"{BEGIN}\n")[2].partition(END)[0]


def write() -> None:
    text = PAGE.read_text()
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no section for the tools")
    PAGE.write_text(f"{before}{begin}{render()}{end}{after}")
