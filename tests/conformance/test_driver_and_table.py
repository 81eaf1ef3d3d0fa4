"""The suite's own parts: a driver that fails says why, and the table keeps what was not run again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from tests.conformance import driver as driver_module
from tests.conformance.clients import CLIENTS, by_crc32, by_fnv1a, by_murmur2, selected
from tests.conformance.driver import Driver, DriverFailed, Refused
from tests.conformance.table import (
    CAPABILITIES,
    PROGRAM_CAPABILITIES,
    PROGRAMS_BEGIN,
    PROGRAMS_END,
    Column,
    Outcomes,
    Row,
    note_in_reports,
    parse,
    parse_programs,
    render,
    render_programs,
)

GREETING = """print('{"client": "fake", "version": "1", "unsupported": ["zstd"]}', flush=True)"""
ECHO = f"""
import json, sys
{GREETING}
for line in sys.stdin:
    command = json.loads(line)
    print(json.dumps({{"id": command["id"], "result": command}}), flush=True)
"""

StartFake = Callable[[str], Driver]


@pytest.fixture
def start_fake(tmp_path: Path, request: pytest.FixtureRequest) -> StartFake:
    def start(program: str) -> Driver:
        script = tmp_path / "fake.py"
        script.write_text(program)
        driver = Driver([sys.executable, str(script)], "localhost:1")
        request.addfinalizer(driver.kill)
        return driver

    return start


def test_a_driver_greets_and_answers(start_fake: StartFake) -> None:
    driver = start_fake(ECHO)

    assert (driver.client, driver.version) == ("fake", "1")
    assert driver.offers("gzip")
    assert not driver.offers("zstd")
    told = driver.call("list_topics", topic="ключ", timeout_ms=9000)
    assert told == {"id": 1, "op": "list_topics", "topic": "ключ", "timeout_ms": 9000}
    large = "x" * 3_000_000
    assert driver.call("produce", value=large)["value"] == large
    assert driver.is_clean
    driver.close()
    assert not driver.is_clean


def test_an_error_in_an_answer_has_its_name(start_fake: StartFake) -> None:
    driver = start_fake(f"""
{GREETING}
input()
print('{{"id": 1, "error": "TOPIC_ALREADY_EXISTS", "message": "it is there"}}', flush=True)
input()
""")
    with pytest.raises(Refused, match="it is there") as refused:
        driver.create_topic("t")
    assert refused.value.error == "TOPIC_ALREADY_EXISTS"
    assert driver.is_clean


def test_a_driver_that_owes_an_answer_or_is_a_member_serves_no_other_test(start_fake: StartFake) -> None:
    driver = start_fake(ECHO)
    pending = driver.begin("join", member="m")
    assert not driver.is_clean
    pending.result()
    assert not driver.is_clean
    driver.leave("m")
    assert driver.is_clean


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit('no such broker')", "no such broker"),
        ("print('hello', flush=True); input()", "hello"),
        ("print('[]', flush=True); input()", "instead of a greeting"),
        ("print('{}', flush=True); input()", "its greeting is"),
    ],
)
def test_a_driver_without_a_greeting_is_a_failure_with_its_output(
    start_fake: StartFake, program: str, why: str
) -> None:
    with pytest.raises(DriverFailed, match=why):
        start_fake(program)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("import sys; sys.exit('out of memory')", "out of memory"),
        ("print('connected!', flush=True); input()", "connected!"),
        ("""print('{"id": 7, "result": {}}', flush=True); input()""", "another id"),
        ("input()", "did not come in time"),
    ],
)
def test_a_driver_without_a_response_is_a_failure_with_its_output(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, answer: str, why: str
) -> None:
    monkeypatch.setattr(driver_module, "ANSWER_MARGIN_S", 1.0)
    driver = start_fake(f"{GREETING}\ninput()\n{answer}")

    with pytest.raises(DriverFailed, match=why):
        driver.call("list_topics", timeout_ms=100)

    assert not driver.is_clean


def test_each_hash_is_that_of_its_library() -> None:
    # Murmur2 as the Java client's tests have it; the others are the check values of their definitions.
    assert by_murmur2(b"21", 1 << 31) == -973932308 & 0x7FFF_FFFF
    assert by_crc32(b"123456789", 1 << 32) == 0xCBF4_3926
    assert by_fnv1a(b"a", 1 << 31) == abs(0xE40C_292C - (1 << 32))


def test_clients_are_chosen_by_their_names() -> None:
    assert [client.name for client in selected("sarama, java")] == ["java", "sarama"]
    assert selected("all") == list(CLIENTS)
    assert {client.name for client in selected(None)} == {"confluent-kafka", "kcat", "aiokafka"}
    with pytest.raises(ValueError, match="pulsar"):
        selected("java,pulsar")


def test_a_table_is_read_as_it_was_written() -> None:
    all_pass = {str(name): "✓" for name in CAPABILITIES}
    columns: dict[str, Column] = {
        "sarama 1.60.0": all_pass,
        "java 4.3.1": {**all_pass, "group": "✗", "zstd": "–", "fetch": ""},
    }
    assert parse(render(columns)) == columns
    assert list(parse(render(columns))) == ["java 4.3.1", "sarama 1.60.0"]
    assert parse("") == {}


def test_the_rows_of_programs_are_read_as_they_were_written() -> None:
    all_pass = {str(name): "✓" for name in PROGRAM_CAPABILITIES}
    rows = {
        "kafka-connect": Row("4.3.1", "2026-11-22", all_pass),
        "kafka-streams": Row("4.3.1", "2026-11-20", {**all_pass, "SCRAM": "✗", "missing right": ""}),
    }
    assert parse_programs(render_programs(rows)) == rows


class FakeItem(pytest.Item):
    def runtest(self) -> None: ...


def test_a_run_of_some_tests_of_a_program_changes_their_cells(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = tmp_path / "page.md"
    row = Row("4.3.1", "2026-11-22", {str(name): "✗" for name in PROGRAM_CAPABILITIES})
    page.write_text(f"{PROGRAMS_BEGIN}\n{render_programs({'kafka-streams': row})}{PROGRAMS_END}\n")

    def run(version: str, *tests: tuple[Literal["passed", "failed"], list[str]]) -> Row:
        outcomes = Outcomes(page)
        for number, (outcome, capabilities) in enumerate(tests):
            item: FakeItem = FakeItem.from_parent(request.node.parent, name=str(number))
            for mark in (pytest.mark.program("kafka-streams"), *map(pytest.mark.capability, capabilities)):
                item.add_marker(mark)
            note_in_reports(item)
            outcomes.pytest_runtest_logreport(
                pytest.TestReport(
                    nodeid=item.nodeid,
                    location=("", 0, ""),
                    keywords={},
                    outcome=outcome,
                    longrepr=None,
                    when="call",
                    user_properties=[*item.user_properties, ("version", version)],
                )
            )
        outcomes.pytest_sessionfinish()
        return parse_programs(page.read_text())["kafka-streams"]

    changed = run(
        "4.3.1",
        ("passed", ["SCRAM", "re-authentication"]),
        ("failed", ["OAUTHBEARER", "re-authentication"]),
        ("passed", []),
    )
    assert changed.marks == row.marks | {"SCRAM": "✓", "without logins": "✓"}
    assert changed.date != row.date
    # Nothing that was found of another version stays.
    assert {name for name, mark in run("4.4.0", ("passed", ["SCRAM"])).marks.items() if mark} == {"SCRAM"}
