"""Where Java is missing, or is one that Spark does not start on: one line that says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele.spark.java import SparkMissingError, require_java


def fake_java(home: Path, version: str) -> None:
    """A program that says what a Java says of itself, for there is no second Java to be had here."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)


def said(monkeypatch: pytest.MonkeyPatch, home: Path | None) -> str:
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SparkMissingError) as caught:
        require_java()
    return str(caught.value)


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21)])
def test_a_java_that_spark_runs_on_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, number: int
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == number


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.8.0_402", "is Java 8"), ("25.0.1", "is Java 25"), ("x", "of an unknown version")],
)
def test_another_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, words: str
) -> None:
    fake_java(tmp_path, version)
    assert words in said(monkeypatch, tmp_path)


def test_no_java_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    message = said(monkeypatch, None)
    assert message.startswith(
        "Spark needs Java 17 or 21, and there is none: apt install openjdk-17-jre-headless"
    )
    assert "\n" not in message


def test_a_java_home_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert f"what JAVA_HOME points to, {tmp_path}/bin/java, does not start" in said(monkeypatch, tmp_path)
