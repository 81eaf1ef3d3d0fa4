"""What benchmarks share: whose turn it is, their options, and what becomes of their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from load.apache_kafka import KafkaUnavailable
from load.harness import Benchmark, in_turn
from load.results import FOLDER, Measure, at_least, at_most, read
from load.run_benchmarks import BENCHMARKS


def benchmark() -> Benchmark:
    bench = Benchmark("load/bench_example.py", "Measure an example.", rounds=5)
    bench.add("--records", type=int, default=1000, quick=10)
    return bench


def test_both_sides_are_first_in_turn_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    measure = in_turn(lambda: side("ours"), lambda: side("theirs"), rounds=2, unit="s")
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert (measure.stele, measure.baseline) == ([4, 5], [3, 6])
    assert measure.ratios == [4 / 3, 5 / 6]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (5, 1000)),
        (["--quick"], (1, 10)),
        (["--quick", "--records", "0"], (1, 0)),
        (["--rounds", "7"], (7, 1000)),
    ],
)
def test_a_quick_run_has_smaller_defaults_and_what_is_given_counts(
    arguments: list[str], expected: tuple[int, int]
) -> None:
    options = benchmark().parse(arguments)
    assert (options.rounds, options.records) == expected


def test_a_quick_run_is_not_saved_among_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark().parse(["--quick", "--save"])
    assert "a quick run is no result" in capsys.readouterr().err
    assert benchmark().parse(["--save"]).save.parent == FOLDER


def test_rows_are_printed_with_their_goals(capsys: pytest.CaptureFixture[str]) -> None:
    bench = benchmark()
    with bench.run([]):
        rate = Measure(unit="/s", stele=[200, 300, 400], baseline=[100, 100, 100], goal=at_least(4))
        cpu = Measure(unit="µs", stele=[20], goal=at_most(50, "stele"))
        bench.row("work", baseline="Kafka", measures={"rate": rate, "cpu": cpu})
    assert capsys.readouterr().out.splitlines() == [
        "work",
        "  rate       300 /s, yardstick 100 /s, ratio 3.00 (2.00 to 4.00); goal ≥ 4: NOT met",
        "  cpu        20 µs; goal ≤ 50 µs: met",
        "  yardstick: Kafka",
    ]


def test_a_program_that_is_missing_leaves_what_was_measured_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bench = tmp_path / "run.json", benchmark()
    with bench.run(["--format", "json", "--save", str(path)]):
        bench.row("before", value=Measure(unit="s", stele=[1.5]))
        raise KafkaUnavailable("install Java")
    printed = capsys.readouterr()
    assert "not measured: install Java" in printed.err
    section = json.loads(printed.out)["bench_example"]
    assert section["rows"] == [{"what": "before", "measures": {"value": {"unit": "s", "stele": [1.5]}}}]
    assert section["versions"].keys() >= {"stele", "python", "kafka"}
    assert section["commit"]
    assert [row.what for row in read(path).benchmarks["bench_example"].rows] == ["before"]


def test_all_benchmarks_are_run() -> None:
    files = {path.stem for path in FOLDER.parent.glob("bench_*.py")}
    assert {name for name, *_ in BENCHMARKS} == files
