"""The runner of the suites of Kafka clients: an honest result or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.suites.page import PAGE, cells_of, written
from tests.suites.results import judge, of_go, of_junit
from tests.suites.sources import Folder, Unavailable
from tests.suites.table import SUITES


def test_the_page_lists_the_suites_and_what_is_known_to_differ() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, {}), "run: python -m tests.suites.page"


def test_the_page_has_the_results_of_a_run_and_keeps_those_of_others() -> None:
    cells = cells_of(judge({"a": "passed", "b": "failed", "c": "skipped"}, {"b": "why"}), "2026-11-30")
    assert cells == ["2026-11-30", "1", "0", "1"]
    first, second = (suite.name for suite in SUITES[:2])
    page = written(written(PAGE.read_text(encoding="utf-8"), {first: cells}), {second: cells})
    assert page.count("| 2026-11-30 | 1 | 0 | 1 |") == 2


def test_every_known_difference_has_a_reason() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)
    for suite in SUITES:
        assert all(len(reason.split()) >= 4 for reason in suite.known.values()), suite.name


@pytest.mark.parametrize(
    ("outcomes", "good"),
    [
        ({"a": "passed", "b": "skipped"}, False),
        ({"a": "passed", "b": "failed"}, True),
        ({"a": "failed", "b": "failed"}, False),
        ({"a": "passed", "b": "passed"}, False),
        ({"a": "passed"}, False),
        ({"b": "failed"}, False),
        ({}, False),
    ],
)
def test_a_suite_is_good_if_exactly_what_is_known_fails(outcomes: dict[str, str], good: bool) -> None:
    assert judge(outcomes, {"b": "why"}).is_good == good  # pyright: ignore[reportArgumentType]


def test_a_go_test_that_never_ended_has_failed_and_a_parent_does_not_count() -> None:
    events = [
        ("run", "A"), ("run", "A/x"), ("pass", "A/x"), ("run", "A/y"), ("skip", "A/y"), ("pass", "A"),
        ("run", "B"), ("output", "B"), ("run", "C"), ("fail", "C"), ("fail", None),
    ]  # fmt: skip
    lines = ["go: downloading", *(json.dumps({"Action": a} | ({"Test": t} if t else {})) for a, t in events)]
    assert of_go(lines) == {"A/x": "passed", "A/y": "skipped", "B": "failed", "C": "failed"}


def test_an_error_in_the_teardown_of_a_passed_python_test_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert of_junit(report) == {}
    report.write_text(
        "<testsuites><testsuite><testcase classname='m' name='a'/><testcase classname='m' name='a'><error/></testcase>"
        "<testcase classname='m' name='b'><skipped/></testcase></testsuite></testsuites>"
    )
    assert of_junit(report) == {"m::a": "failed", "m::b": "skipped"}


def test_a_suite_that_no_registry_serves_needs_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUITES_DIR", raising=False)
    with pytest.raises(Unavailable, match="set SUITES_DIR"):
        Folder().bring("librdkafka", tmp_path / "sources")
    (tmp_path / "given" / "librdkafka").mkdir(parents=True)
    monkeypatch.setenv("SUITES_DIR", str(tmp_path / "given"))
    Folder().bring("librdkafka", tmp_path / "sources")
    assert (tmp_path / "sources").is_dir()
