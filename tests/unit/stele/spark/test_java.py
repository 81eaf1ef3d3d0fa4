"""Where what Spark needs is missing: one line that says what to install, or to set."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stele.spark.java import SparkMissingError, require_java, require_python


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


def test_without_java_the_error_is_one_line_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    message = said(monkeypatch, None)
    assert message.startswith(
        "Spark needs Java 17 or 21, and there is none: apt install openjdk-17-jre-headless"
    )
    assert "\n" not in message


def test_a_java_home_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert f"what JAVA_HOME points to, {tmp_path}/bin/java, does not start" in said(monkeypatch, tmp_path)


# ── the interpreter in which Spark looks for data sources ──


@pytest.fixture
def no_python_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def fake_python(path: Path, *, has_stele: bool) -> Path:
    path.write_text(f"#!/bin/sh\nexit {0 if has_stele else 1}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("no_python_named")
def test_the_first_python3_on_the_path_must_have_stele(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = fake_python(tmp_path / "python3", has_stele=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SparkMissingError, match=f"with {first} .*does not have stele-broker: set PYSPARK_PYTHON"
    ):
        require_python()

    fake_python(first, has_stele=True)
    assert require_python() == str(first)


@pytest.mark.usefixtures("no_python_named")
def test_this_interpreter_has_stele(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_python(tmp_path / "python3", has_stele=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert require_python() == sys.executable


@pytest.mark.usefixtures("no_python_named")
def test_the_drivers_python_is_asked_before_that_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = fake_python(tmp_path / "driver-python", has_stele=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(named))
    with pytest.raises(SparkMissingError, match=rf"with {named} \(PYSPARK_DRIVER_PYTHON\)"):
        require_python()


@pytest.mark.usefixtures("no_python_named")
def test_a_python_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "missing"))
    with pytest.raises(SparkMissingError, match="missing, which does not exist: set PYSPARK_PYTHON"):
        require_python()
