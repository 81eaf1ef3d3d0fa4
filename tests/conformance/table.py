"""A pytest plugin: what each client was found to be able to do becomes the table of docs/conformance.md.

A run of some clients, or of some tests, changes their cells and leaves the rest of
the table as it was. A second table has a row for each program that was run whole.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conformance.clients import CLIENTS, Client

BEGIN = "<!-- The table: make conformance writes it. -->"
END = "<!-- The end of the table. -->"
PROGRAMS_BEGIN = "<!-- The programs: make conformance writes it. -->"
PROGRAMS_END = "<!-- The end of the programs. -->"
# A driver that has been asked says so with these words; other skips are of this machine.
NOT_OFFERED = "does not offer"

CAPABILITIES = (
    "produce acks=0",
    "produce acks=1",
    "produce acks=all",
    "idempotent",
    "gzip",
    "snappy",
    "lz4",
    "zstd",
    "transactions",
    "fetch",
    "fetch limits",
    "offsets by time",
    "timestamps",
    "partitioner",
    "auto-create",
    "group",
    "rebalance on join",
    "rebalance on leave",
    "rebalance on death",
    "static membership",
    "broker-side assignment",
    "share groups",
    "commit metadata",
    "create",
    "describe",
    "alter",
    "add partitions",
    "delete",
    "list",
    "delete records",
    "groups admin",
    "other listeners",
    "SCRAM",
    "PLAIN",
    "OAUTHBEARER",
    "re-authentication",
    "certificate renewal",
    "wrong password",
    "missing right",
)


class Outcome(IntEnum):
    """The greatest of its tests' outcomes is that of a capability."""

    NOT_OFFERED = 0
    PASSED = 1
    FAILED = 2


# In the order of their rows: the name by which make conformance knows each, and its own.
PROGRAMS = {
    "spark-sql-kafka": "Spark's Kafka connector",
    "kafka-connect": "Kafka Connect",
    "kafka-streams": "Kafka Streams",
    "karapace": "Karapace",
}

MARKS = {Outcome.NOT_OFFERED: "–", Outcome.PASSED: "✓", Outcome.FAILED: "✗"}

# Of one client: the text of a cell for each capability.
Column = dict[str, str]
# Of one program: its version, the date and the mark of its last run.
Row = tuple[str, str, str]


class Outcomes:
    """Collects while tests run, and writes the page when all have."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._tests: dict[str, tuple[str, str]] = {}
        self._labels: dict[str, str] = {}
        self._found: dict[str, dict[str, Outcome]] = defaultdict(dict)
        self._program_tests: dict[str, str] = {}
        self._programs: dict[str, Row] = {}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        marker = item.get_closest_marker("capability")
        client = cast("Any", item).callspec.params.get("client") if hasattr(item, "callspec") else None
        if marker and isinstance(client, Client):
            assert marker.args[0] in CAPABILITIES, f"{item.nodeid}: no such capability"
            self._tests[item.nodeid] = client.name, marker.args[0]
        if program := item.get_closest_marker("program"):
            assert program.args[0] in PROGRAMS, f"{item.nodeid}: no such program"
            self._program_tests[item.nodeid] = program.args[0]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note_program(report)
        if report.nodeid not in self._tests:
            return
        client, capability = self._tests[report.nodeid]
        for name, value in report.user_properties:
            if name == "client":
                self._labels[client] = str(value)
        if report.failed:
            outcome = Outcome.FAILED
        elif report.skipped:
            if NOT_OFFERED not in str(report.longrepr):
                return
            outcome = Outcome.NOT_OFFERED
        elif report.when == "call":
            outcome = Outcome.PASSED
        else:
            return
        found = self._found[client]
        found[capability] = max(outcome, found.get(capability, outcome))

    def _note_program(self, report: pytest.TestReport) -> None:
        # A program that was not installed has no version, and its row stays.
        version = dict(report.user_properties).get("version")
        if report.when == "call" and version and (name := self._program_tests.get(report.nodeid)):
            # The worst of its tests is that of a program.
            before = self._programs.get(name)
            has_failed = report.failed or (before is not None and before[2] == MARKS[Outcome.FAILED])
            mark = MARKS[Outcome.FAILED if has_failed else Outcome.PASSED]
            self._programs[name] = str(version), _today(), mark

    def pytest_sessionfinish(self) -> None:
        self._write_clients()
        if self._programs:
            before, _, rest = self._page.read_text().partition(PROGRAMS_BEGIN)
            old, _, after = rest.partition(PROGRAMS_END)
            rows = render_programs(parse_programs(old) | self._programs)
            self._page.write_text(f"{before}{PROGRAMS_BEGIN}\n{rows}{PROGRAMS_END}{after}")

    def _write_clients(self) -> None:
        if not self._labels:
            return
        text = self._page.read_text()
        before, _, rest = text.partition(BEGIN)
        old, _, after = rest.partition(END)
        columns = parse(old)
        for client, label in self._labels.items():
            # Another version is another client: nothing that is known of the old one holds for it.
            column = columns.get(label, {})
            for known in list(columns):
                if name_in(known) == client:
                    del columns[known]
            columns[label] = column | {
                capability: MARKS[outcome] for capability, outcome in self._found[client].items()
            }
        self._page.write_text(f"{before}{BEGIN}\n{render(columns)}{END}{after}")


def name_in(label: str) -> str:
    return label.partition(" ")[0]


def parse(table: str) -> dict[str, Column]:
    """The columns of a table that ``render`` made, by their headings."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|") and not re.fullmatch(r"[|:-]+", line)
    ]
    if not rows:
        return {}
    (_, *labels), *body = rows
    return {label: {row[0]: row[number] for row in body} for number, label in enumerate(labels, start=1)}


def render(columns: dict[str, Column]) -> str:
    order = {client.name: place for place, client in enumerate(CLIENTS)}
    labels = sorted(columns, key=lambda label: order.get(name_in(label), len(order)))
    lines = [
        f"As of {_today()}.",
        "",
        f"| | {' | '.join(labels)} |",
        f"|---|{':-:|' * len(labels)}",
    ]
    for capability in CAPABILITIES:
        cells = [columns[label].get(capability) or " " for label in labels]
        lines.append(f"| {capability} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def parse_programs(table: str) -> dict[str, Row]:
    """The rows of a table that ``render_programs`` made, by ``PROGRAMS``."""
    names = {label: name for name, label in PROGRAMS.items()}
    rows: dict[str, Row] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] in names:
            label, version, date, mark = cells
            rows[names[label]] = version, date, mark
    return rows


def render_programs(rows: dict[str, Row]) -> str:
    lines = ["| program | version | as of | |", "|---|---|---|:-:|"]
    lines += [f"| {label} | {' | '.join(rows[name])} |" for name, label in PROGRAMS.items() if name in rows]
    return "\n".join(lines) + "\n"
