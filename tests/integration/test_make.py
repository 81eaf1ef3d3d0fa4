"""The targets of the Makefile leave other trees alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_CHECK = Path("tests/support/own_directory.sh")
_SCRIPTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests" / "integration").glob("install_*.sh"))
# Those that install into a directory of the tree, and not into the system.
_INSTALLING = [path for path in _SCRIPTS if re.search(r"--target|GOBIN", (ROOT / path).read_text())]
# It notes that it was called, and with which constraints; the caller believes that it succeeded.
_PYTHON = '#!/bin/sh\necho "$PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT $@" >> "{log}"\n'


def installing_targets() -> list[str]:
    """Return the targets that install something first."""
    text = (ROOT / "Makefile").read_text()
    return re.findall(r"^([a-z-]+): \$\((?:RUNTIME|DEVELOPMENT)\)", text, re.MULTILINE)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose ``.venv`` is a link to that of another one; that has a Python that notes its calls."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    for path in (Path("Makefile"), Path("pyproject.toml"), _CHECK, *_SCRIPTS):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    (other / ".venv" / "bin").mkdir(parents=True)
    python = other / ".venv" / "bin" / "python"
    python.write_text(_PYTHON.format(log=other / "calls"))
    python.chmod(0o755)
    (tree / ".venv").symlink_to(other / ".venv")
    return tree


def run(tree: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "VENV", "MAKEFLAGS")}
    environment = inherited | variables
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def files_of(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


def test_the_makefile_has_targets_that_install() -> None:
    assert {"setup", "run", "test", "cluster"} <= set(installing_targets())


@pytest.mark.parametrize("target", installing_targets())
def test_nothing_is_installed_into_the_environment_of_another_tree(tree: Path, target: str) -> None:
    other = tree.parent / "other"
    before = files_of(other)
    made = run(tree, "make", target)
    assert made.returncode != 0
    assert f".venv leads to {other / '.venv'}" in made.stderr
    assert files_of(other) == before


def test_a_link_to_nothing_is_not_filled(tree: Path) -> None:
    (tree / ".venv").unlink()
    (tree / ".venv").symlink_to(tree.parent / "gone" / ".venv")
    made = run(tree, "make", "setup")
    assert made.returncode != 0
    assert "leads to" in made.stderr
    assert not (tree.parent / "gone").exists()


def test_an_environment_that_is_named_is_used(tree: Path) -> None:
    other = tree.parent / "other"
    made = run(tree, "make", "setup", f"VENV={other / '.venv'}")
    assert made.returncode == 0, made.stderr
    assert f"into {other / '.venv'}" in made.stdout
    assert "--editable" in (other / "calls").read_text()


@pytest.mark.parametrize("target", [".installed-runtime", ".installed-development"])
def test_only_continuous_integration_installs_the_versions_of_the_constraints(
    tree: Path, target: str
) -> None:
    other = tree.parent / "other"
    target = f"{other / '.venv'}/{target}"
    for variables in ({}, {"CI": "true"}):
        made = run(tree, "make", "-W", "pyproject.toml", f"VENV={other / '.venv'}", target, **variables)
        assert made.returncode == 0, made.stderr
    ranges, constraints = (other / "calls").read_text().splitlines()[-2:]
    assert ".txt" not in ranges
    assert constraints.split()[:2] == [".ci/constraints.txt"] * 2


def test_a_link_within_the_tree_is_used(tree: Path) -> None:
    other = tree.parent / "other"
    shutil.copytree(other / ".venv", tree / "build" / "environment")
    (tree / ".venv").unlink()
    (tree / ".venv").symlink_to(tree / "build" / "environment")
    made = run(tree, "make", "setup")
    assert made.returncode == 0, made.stderr
    assert (tree / "build" / "environment" / ".installed-development").exists()


@pytest.mark.parametrize("script", _INSTALLING, ids=lambda script: script.stem)
def test_no_server_is_installed_into_another_tree(tree: Path, script: Path) -> None:
    directory = "." + script.stem.removeprefix("install_").replace("_", "-")
    other = tree.parent / "other" / directory
    other.mkdir()
    (tree / directory).symlink_to(other)
    ran = run(tree, "bash", str(script))
    assert f"{directory} leads to {other}" in ran.stderr or "needs Go" in ran.stdout
    assert files_of(other) == set()
