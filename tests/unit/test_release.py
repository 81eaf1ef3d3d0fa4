"""``make release``, in a repository with a small project of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tools.release import CHANGELOG, NotReleased, with_heading, with_version

ROOT = Path(__file__).resolve().parents[2]
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "small"
version = "1.1.0"
requires-python = ">=3.11"
"""
_CHANGES = "# Changelog\n\n## Unreleased\n\n- A change.\n\n## 1.1.0 · 2026-01-02\n\n- An older one.\n"
_TRIAL = """
import os
from pathlib import Path

def test_there_is_a_wheel_and_an_sdist():
    built = sorted(path.name for path in Path(os.environ["STELE_TEST_DISTRIBUTIONS"]).iterdir())
    assert built == ["small-1.2.0-py3-none-any.whl", "small-1.2.0.tar.gz"]
"""


class Repository:
    """A git repository with a project, a changelog and the script."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("pyproject.toml", _PROJECT)
        self.write(CHANGELOG, _CHANGES)
        self.write(".gitignore", "dist/\n__pycache__/\n.pytest_cache/\n")
        self.write("small.py", "")
        self.write("tests/integration/test_wheel.py", _TRIAL)
        self.write("tools/release.py", (ROOT / "tools" / "release.py").read_text())
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def git(self, *arguments: str) -> str:
        return self._run("git", *arguments).stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Change")

    def state(self) -> tuple[str, str, str]:
        """What git has: changes, commits and tags."""
        return self.git("status", "--porcelain"), self.git("rev-parse", "HEAD"), self.git("tag")

    def release(self, version: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self._run(sys.executable, "tools/release.py", version, *options, check=False)

    def _run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        names = {
            f"GIT_{role}_{part}": "x@example"
            for role in ("AUTHOR", "COMMITTER")
            for part in ("NAME", "EMAIL")
        }
        environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(
            command, cwd=self.path, env=environment, check=check, capture_output=True, text=True
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return Repository(tmp_path)


def test_a_dry_run_builds_and_tries_the_distributions_and_changes_nothing_in_git(
    repository: Repository,
) -> None:
    before = repository.state()
    done = repository.release("1.2.0", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "1 passed" in done.stdout
    assert repository.state() == before
    assert not (repository.path / "dist").exists()


def test_a_release_commits_and_tags_what_was_tried_and_prints_the_upload(repository: Repository) -> None:
    done = repository.release("1.2.0")
    assert done.returncode == 0, done.stderr
    assert repository.git("tag").split() == ["v1.2.0"]
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("show", "--name-only", "--format=%s", "v1.2.0^{}").split() == [
        *("Release", "1.2.0"),
        *("CHANGELOG.md", "pyproject.toml"),
    ]
    assert 'version = "1.2.0"' in (repository.path / "pyproject.toml").read_text()
    built = sorted(f"dist/{path.name}" for path in (repository.path / "dist").iterdir())
    assert f"twine upload {' '.join(built)}" in done.stdout


def test_distributions_that_fail_their_trial_are_not_released(repository: Repository) -> None:
    repository.write("tests/integration/test_wheel.py", "def test_it(): raise ValueError\n")
    repository.commit()
    before = repository.state()
    done = repository.release("1.2.0")
    assert "test_wheel.py' failed" in done.stderr
    assert repository.state() == before


def test_a_tree_with_changes_is_not_released(repository: Repository) -> None:
    repository.write("small.py", "changed = True\n")
    assert "small.py" in repository.release("1.2.0", "--dry-run").stderr


def test_a_branch_other_than_main_is_not_released(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "other")
    assert "the branch is other" in repository.release("1.2.0", "--dry-run").stderr


def test_a_version_is_released_once(repository: Repository) -> None:
    repository.git("tag", "v1.2.0")
    assert "the tag v1.2.0 exists" in repository.release("1.2.0", "--dry-run").stderr


@pytest.mark.parametrize("version", ["1.0.9", "1.2", "v1.2.0", "1.2.0rc1"])
def test_a_version_that_is_lower_or_of_another_form_is_not_released(
    repository: Repository, version: str
) -> None:
    assert "not released: " in repository.release(version, "--dry-run").stderr


def test_unreleased_changes_move_under_the_heading_of_the_version() -> None:
    moved = "## Unreleased\n\n## 1.2.0 · 2026-03-04\n\n- A change.\n\n## 1.1.0 · 2026-01-02"
    assert moved in with_heading(_CHANGES, "1.2.0", date(2026, 3, 4))


@pytest.mark.parametrize("changelog", ["# Changelog\n", _CHANGES.replace("- A change.\n", "")])
def test_a_version_without_changes_is_not_released(changelog: str) -> None:
    with pytest.raises(NotReleased, match=CHANGELOG):
        with_heading(changelog, "1.2.0", date(2026, 3, 4))


def test_project_and_changelog_of_this_tree_can_be_released() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    version = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    assert len(version) == 1
    assert with_version(project, version[0]) == project
    assert f"## {version[0]} · 2026-03-04" in with_heading(
        (ROOT / CHANGELOG).read_text(), version[0], date(2026, 3, 4)
    )
