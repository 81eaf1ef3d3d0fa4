"""A pytest plugin: what each client was found to be able to do becomes the table of docs/conformance.md.

A run of some clients, or of some tests, changes their cells and leaves the rest of
the table as it was. A second table has a row for each program.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import dataclass
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
# Of a program, what its tests without a capability find, and what those with logins do.
WITHOUT_LOGINS = "without logins"
PROGRAM_CAPABILITIES = (
    WITHOUT_LOGINS,
    "SCRAM",
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
    "mirror-maker": "MirrorMaker",
    "debezium": "Debezium's connector for PostgreSQL",
    "debezium-jdbc": "Debezium's JDBC sink",
    "karapace": "Karapace",
    "registry-go": "franz-go's registry client",
    "registry-js": "KafkaJS' registry client",
    "flink-sql": "Flink SQL with avro-confluent",
    "kafka-tools": "Kafka's command-line tools",
}

MARKS = {Outcome.NOT_OFFERED: "–", Outcome.PASSED: "✓", Outcome.FAILED: "✗"}

# Of one client: the text of a cell for each capability.
Column = dict[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Of one program: its version, the date of its last run, and the mark of each capability."""

    version: str
    date: str
    marks: dict[str, str]


def note_in_reports(item: pytest.Item) -> None:
    """Let the reports of a test say of which client or program, and of which capabilities, it is."""
    capabilities = [str(one.args[0]) for one in item.iter_markers("capability")]
    client = cast("Any", item).callspec.params.get("client") if hasattr(item, "callspec") else None
    if program := item.get_closest_marker("program"):
        assert program.args[0] in PROGRAMS, f"{item.nodeid}: no such program"
        assert set(capabilities) <= set(PROGRAM_CAPABILITIES), f"{item.nodeid}: no such capability"
        item.user_properties.append(("program", program.args[0]))
    elif capabilities and isinstance(client, Client):
        capabilities = capabilities[:1]
        assert capabilities[0] in CAPABILITIES, f"{item.nodeid}: no such capability"
        item.user_properties.append(("driven", client.name))
    else:
        return
    item.user_properties.extend(("capability", one) for one in capabilities)


class Outcomes:
    """Collects while tests run, maybe in several processes, and writes the page when all have."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._labels: dict[str, str] = {}
        self._found: dict[str, dict[str, Outcome]] = defaultdict(dict)
        self._versions: dict[str, str] = {}
        self._programs: dict[str, dict[str, Outcome]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "program" in properties:
            self._note_program(report, str(properties["program"]), properties.get("version"))
        if "driven" not in properties:
            return
        client, capability = str(properties["driven"]), str(properties["capability"])
        if "client" in properties:
            self._labels[client] = str(properties["client"])
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

    def _note_program(self, report: pytest.TestReport, name: str, version: object) -> None:
        # A program that was not installed has no version, and its row stays.
        if report.when == "call" and version:
            capabilities = [str(value) for key, value in report.user_properties if key == "capability"]
            self._versions[name] = str(version)
            outcome = Outcome.FAILED if report.failed else Outcome.PASSED
            found = self._programs[name]
            # A test is of several capabilities, and the worst of its tests is that of a capability.
            for capability in capabilities or [WITHOUT_LOGINS]:
                found[capability] = max(outcome, found.get(capability, outcome))

    def pytest_sessionfinish(self) -> None:
        self._write_clients()
        if self._programs:
            before, _, rest = self._page.read_text().partition(PROGRAMS_BEGIN)
            old, _, after = rest.partition(PROGRAMS_END)
            rows = parse_programs(old)
            for name, version in self._versions.items():
                known = rows.get(name)
                # Nothing that is known of another version holds for this one.
                marks = known.marks if known is not None and known.version == version else {}
                new = {capability: MARKS[outcome] for capability, outcome in self._programs[name].items()}
                rows[name] = Row(version, _today(), marks | new)
            self._page.write_text(f"{before}{PROGRAMS_BEGIN}\n{render_programs(rows)}{PROGRAMS_END}{after}")

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
        label, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if label in names:
            version, date, *marks = cells
            rows[names[label]] = Row(version, date, dict(zip(PROGRAM_CAPABILITIES, marks, strict=True)))
    return rows


def render_programs(rows: dict[str, Row]) -> str:
    lines = [
        f"| program | version | as of | {' | '.join(PROGRAM_CAPABILITIES)} |",
        f"|---|---|---|{':-:|' * len(PROGRAM_CAPABILITIES)}",
    ]
    for name, label in PROGRAMS.items():
        if name in rows:
            row = rows[name]
            cells = [row.version, row.date, *(row.marks.get(one) or " " for one in PROGRAM_CAPABILITIES)]
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
