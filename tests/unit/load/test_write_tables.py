"""The tables of the pages: made of the newest figures, with a mark on those of another version or machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from load.results import ROOT, Measure, Results, Row, Section, read, read_all, save
from load.run_benchmarks import BENCHMARKS
from load.write_tables import PAGES, TABLES, figures, table_text, written


def section(*rows: Row, machine: str = "new") -> Section:
    return Section(commit="0", machine=machine, versions={"stele": "1"}, rows=rows)


def row(table: str, what: str, baseline: str = "", *, is_span: bool = False, **measures: Measure) -> Row:
    return Row(what=what, table=table, baseline=baseline, is_span=is_span, measures=measures)


def lines(name: str, *results: Results) -> list[str]:
    """Return the rows of a table without its head."""
    return table_text(name, figures(results)).splitlines()[2:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text, read_all()) == text, "python -m load.write_tables writes them"


def test_each_table_is_on_a_page() -> None:
    marked = {mark for page in PAGES for mark in re.findall(r"<!--table:(\w+)-->", page.read_text("utf-8"))}
    assert marked == {*TABLES, "comparison"}


def test_each_benchmark_that_make_bench_runs_is_described() -> None:
    readme = (ROOT / "load" / "README.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(bench_\w+)` \|", readme, re.MULTILINE)) == {name for name, *_ in BENCHMARKS}


def test_each_row_of_the_results_is_on_a_page_with_its_benchmark() -> None:
    for (table, _), figure in figures(read_all()).items():
        assert not table or figure.benchmark in TABLES[table].benchmarks


def test_a_row_has_medians_of_the_rounds_and_the_median_of_their_ratios() -> None:
    rate = Measure(unit="/s", stele=[2_000, 1_000, 4_000], baseline=[1_000, 1_000, 1_000])
    cpu = Measure(unit="µs", ratio=[0.5])
    result = Results(
        date="2026-01-01",
        benchmarks={"bench_kafka_requests": section(row("produce", "a", rate=rate, cpu=cpu))},
    )
    assert lines("produce", result) == ["| a | 2,000/s | 1,000/s | 2.00 (1 to 4) | 0.50 |"]


def test_a_span_shows_the_range_and_a_yardstick_its_value() -> None:
    value = Measure(unit="s", stele=[1, 2], baseline=[4, 4])
    spans = row("work", "work with acks=all", "Kafka", is_span=True, value=value)
    assert lines("work", Results(date="2026-01-01", benchmarks={"bench_cdc": section(spans)})) == [
        "| work with `acks=all` | 1 to 2 s | Kafka: 4 s | 0.25 to 0.5 | `load.bench_cdc` |"
    ]


def test_the_newest_figure_counts_and_those_of_another_machine_are_marked() -> None:
    both = Measure(unit="MB", stele=[100], baseline=[400])
    older = Results(
        benchmarks={
            "bench_start": section(
                row("memory", "in both", "Kafka", value=both),
                row("memory", "only old", value=both),
                machine="old",
            )
        }
    )
    newer = Results(
        date="2026-01-01",
        benchmarks={
            "bench_start": section(row("memory", "in both", "Kafka", value=Measure(unit="MB", stele=[80])))
        },
    )
    assert lines("memory", older, newer) == [
        "| in both | 80 MB | † Kafka: 400 MB | † 0.25 | `load.bench_start` |",
        "| † only old | 100 MB | 400 MB | 0.25 | `load.bench_start` |",
    ]


def test_a_run_adds_its_measures_to_those_of_the_same_commit_and_machine(tmp_path: Path) -> None:
    path = tmp_path / "results" / "2026-01-01.json"
    idle, awake = Measure(unit="µs", stele=[50]), Measure(unit="µs", stele=[40])
    save(
        path,
        "2026-01-01",
        "bench_request_cost",
        section(row("requests", "a", cpu=idle), row("requests", "b", cpu=idle)),
    )
    save(path, "2026-01-01", "bench_request_cost", section(row("requests", "a", awake=awake)))
    save(path, "2026-01-01", "bench_tls", section(row("cost", "c", value=idle)))
    results = read(path)
    assert results.date == "2026-01-01"
    assert lines("requests", results) == ["| a | 50 µs | 40 µs |", "| b | 50 µs | |"]
    assert lines("cost", results) == ["| c | 50 µs | | | `load.bench_tls` |"]
    save(path, "2026-01-01", "bench_request_cost", section(row("requests", "a", cpu=awake), machine="other"))
    assert [each.what for each in read(path).benchmarks["bench_request_cost"].rows] == ["a"]
