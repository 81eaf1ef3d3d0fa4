"""Write the tables of docs/benchmarks.md and of the README from ``load/results/*.json``.

``python -m load.write_tables`` writes each table between its two markers. A figure is that of the newest file that has
it; † marks what another version of Stele or another machine has measured than the newest section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from .harness import number_text
from .results import ROOT, Measure, Results, Row, read_all

PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
_MARKED = re.compile(r"(<!--table:(\w+)-->\n)(.*?)(<!--end-->)", re.DOTALL)
# What is code in the name of a row, which has no backticks where it is printed in a terminal.
_CODE = re.compile(r"(acks=\w+|kill -9)")
# Rounds further apart than this are shown with their range.
_WIDE = 1.3

Part = Literal["stele", "baseline", "ratio"]


@dataclass(slots=True)
class Figure:
    """A row with the newest values that are known of each part of its measures, and whether they are old."""

    row: Row
    benchmark: str
    values: dict[tuple[str, Part], tuple[Sequence[float], str, bool]] = field(
        default_factory=dict[tuple[str, Part], tuple[Sequence[float], str, bool]]
    )

    def add(self, measures: Mapping[str, Measure], *, is_old: bool) -> None:
        """Fill in what is not known yet."""
        for name, measure in measures.items():
            parts: dict[Part, Sequence[float]] = {
                "stele": measure.stele,
                "baseline": measure.baseline,
                "ratio": measure.ratios,
            }
            for part, values in parts.items():
                if values:
                    self.values.setdefault((name, part), (values, measure.unit, is_old))

    @property
    def is_old(self) -> bool:
        return all(is_old for _, _, is_old in self.values.values())


@dataclass(frozen=True, slots=True)
class Column:
    """A part of measures, which are shown one after the other; those that are not known are left out."""

    title: str
    part: Part
    measures: tuple[str, ...] = ("value",)

    def text(self, figure: Figure) -> str:
        known = [found for name in self.measures if (found := figure.values.get((name, self.part)))]
        show = _ratio_text if self.part == "ratio" else _value_text
        text = " and ".join(show(values, unit, figure.row.is_span) for values, unit, _ in known)
        if self.part == "baseline" and self.title == "yardstick":
            text = ": ".join(filter(None, (figure.row.baseline, text)))
        is_marked = not figure.is_old and any(is_old for _, _, is_old in known)
        return f"† {text}" if is_marked else text


def _value_text(values: Sequence[float], unit: str, is_span: bool) -> str:
    low, high = number_text(min(values)), number_text(max(values))
    text = f"{low} to {high}" if is_span and low != high else number_text(median(values))
    return f"{text}{unit}" if unit.startswith("/") else f"{text} {unit}"


def _ratio_text(ratios: Sequence[float], _unit: str, is_span: bool) -> str:
    low, high = min(ratios), max(ratios)
    if is_span:
        return f"{low:.3g} to {high:.3g}" if high > low else f"{low:.3g}"
    middle = median(ratios)
    text = f"{middle:.2f}" if middle < 3 else f"{middle:.3g}"
    return f"{text} ({low:.3g} to {high:.3g})" if low > 0 and high / low > _WIDE else text


@dataclass(frozen=True, slots=True)
class Table:
    """``first`` is the title of the rows' names; the rows of ``benchmarks`` come in this order."""

    first: str
    benchmarks: tuple[str, ...]
    columns: tuple[Column, ...]
    has_command: bool = True


def _simple(*benchmarks: str, first: str = "what") -> Table:
    columns = Column("Stele", "stele"), Column("yardstick", "baseline"), Column("÷ yardstick", "ratio")
    return Table(first, benchmarks, columns)


_RATE, _CPU, _KAFKA = ("rate",), ("cpu",), ("bench_kafka_requests",)
_TO_KAFKA = Column("rate ÷ Kafka", "ratio", _RATE), Column("broker CPU ÷ Kafka", "ratio", _CPU)
TABLES: Mapping[str, Table] = {
    "produce": Table(
        "produce",
        _KAFKA,
        (Column("Stele", "stele", _RATE), Column("Kafka", "baseline", _RATE), *_TO_KAFKA),
        has_command=False,
    ),
    "consume": Table("consume", _KAFKA, _TO_KAFKA, has_command=False),
    "work": _simple(
        "bench_transactions",
        "bench_share_groups",
        "bench_rebalance",
        "bench_registry",
        "bench_spark_read",
        "bench_cdc",
        "bench_compaction",
    ),
    "latency": Table(
        "what",
        ("bench_lone_sync", "bench_kafka_requests", "bench_fairness", "bench_cdc"),
        (
            Column("p50", "stele", ("p50",)),
            Column("p99", "stele", ("p99",)),
            Column("yardstick", "baseline", ("p50", "p99")),
            Column("÷ yardstick", "ratio", ("p50", "p99")),
        ),
    ),
    "requests": Table(
        "request",
        ("bench_request_cost",),
        (Column("idle machine", "stele", _CPU), Column("awake", "stele", ("awake",))),
        has_command=False,
    ),
    "cost": _simple(
        "bench_kafka_wide", "bench_request_cost", "bench_tls", "bench_fairness", "bench_two_cores"
    ),
    "memory": _simple("bench_start", "bench_kafka_requests", "bench_compaction", "bench_registry"),
    "cluster": Table(
        "setup",
        ("bench_cluster",),
        (
            Column("in", "stele", ("in",)),
            Column("out", "stele", ("out",)),
            Column("ack at 100 records/s, p50 and p99", "stele", ("p50", "p99")),
            Column("in ÷ Kafka", "ratio", ("in",)),
        ),
        has_command=False,
    ),
    "events": _simple("bench_cluster_events", "bench_cdc", first="event"),
}
# The table of the README: a row of another table, its measure, and whether the values are shown, too.
_COMPARISON = (
    ("memory", "memory after a start", "value", "{}"),
    ("produce", "single records, 100 B, acks=1", "rate", "produce {}"),
    ("produce", "single records, 100 B, acks=all", "rate", "produce {}"),
    ("produce", "single records, 100 B, acks=all", "cpu", "broker CPU time of that"),
    ("produce", "librdkafka, 1,024 B, acks=all", "rate", "produce, {}"),
    ("consume", "librdkafka, 1,024 B", "rate", "consume, {}"),
)


def figures(results: Sequence[Results]) -> dict[tuple[str, str], Figure]:
    """Return the newest figures by table and name; ``results`` end with the newest."""
    found: dict[tuple[str, str], Figure] = {}
    origin = next(iter(results[-1].benchmarks.values())).origin
    for result in reversed(results):
        for name, section in result.benchmarks.items():
            for row in section.rows:
                figure = found.setdefault((row.table, row.what), Figure(row, name))
                figure.add(row.measures, is_old=section.origin != origin)
    return found


def table_text(name: str, found: Mapping[tuple[str, str], Figure]) -> str:
    """Return a table in Markdown."""
    if name == "comparison":
        return _comparison_text(found)
    table = TABLES[name]
    head = [table.first, *(column.title for column in table.columns), *(["command"] * table.has_command)]
    lines = [_line(head), f"|{'---|' * len(head)}"]
    for benchmark in table.benchmarks:
        for (in_table, what), figure in found.items():
            if in_table == name and figure.benchmark == benchmark:
                cells = [
                    f"{'† ' * figure.is_old}{_code(what)}",
                    *(each.text(figure) for each in table.columns),
                ]
                lines.append(_line([*cells, *([f"`load.{benchmark}`"] * table.has_command)]))
    return "\n".join(lines)


def _code(what: str) -> str:
    return _CODE.sub(r"`\1`", what)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _comparison_text(found: Mapping[tuple[str, str], Figure]) -> str:
    lines = ["| | Stele | Apache Kafka | Stele ÷ Kafka |", "|---|---|---|---|"]
    for table, what, measure, label in _COMPARISON:
        parts: tuple[Part, ...] = ("stele", "baseline", "ratio")
        cells = [Column("", part, (measure,)).text(found[table, what]) for part in parts]
        lines.append(_line([label.format(_code(what)), *cells]))
    return "\n".join(lines)


def written(page: str, results: Sequence[Results]) -> str:
    """Return ``page`` with the tables of ``results``."""
    found = figures(results)
    return _MARKED.sub(lambda match: f"{match[1]}{table_text(match[2], found)}\n{match[4]}", page)


def main() -> None:
    results = read_all()
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
