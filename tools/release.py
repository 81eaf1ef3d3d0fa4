"""Release a version: ``make release VERSION=x.y.z``; with ``ARGS=--dry-run`` nothing is written.

The distributions are built from the commit that is going to be tagged, and tried in empty environments by
``tests/integration/test_wheel.py``. Then the version is committed and tagged. Nothing is pushed or
uploaded: the commands for that are printed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.metadata import Metadata
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT, CHANGELOG = "pyproject.toml", "CHANGELOG.md"
_VERSION_LINE = re.compile(r'^version = "(.+)"$', re.MULTILINE)
_UNRELEASED = re.compile(
    r"^## (?:.* · )?unreleased\n(.*?)(?=^## |\Z)", re.MULTILINE | re.IGNORECASE | re.DOTALL
)


class NotReleased(Exception):
    """A release that cannot be made; the message says what to do."""


def with_version(project: str, version: str) -> str:
    """Return the text of ``pyproject.toml`` with ``version``, which must not be lower than the one in it."""
    found = _VERSION_LINE.search(project)
    if found is None:
        raise NotReleased(f"{PROJECT} has no line 'version = \"…\"'")
    if Version(version) < Version(found[1]):
        raise NotReleased(f"{PROJECT} is at {found[1]}: choose a version that is not lower than that")
    return project[: found.start(1)] + version + project[found.end(1) :]


def with_heading(changelog: str, version: str, day: date) -> str:
    """Return the changelog with the unreleased changes under a heading of ``version``."""
    found = _UNRELEASED.search(changelog)
    if found is None:
        raise NotReleased(f"{CHANGELOG} has no heading '## Unreleased'")
    if not found[1].strip():
        raise NotReleased(f"{CHANGELOG} lists no unreleased change")
    heading = f"## Unreleased\n\n## {version} · {day.isoformat()}\n"
    return changelog[: found.start()] + heading + changelog[found.start(1) :]


def check_repository(version: str) -> None:
    """Raise NotReleased unless the tree is a clean one of main, and ``version`` is new."""
    if changes := git("status", "--porcelain"):
        raise NotReleased(f"the tree has changes; commit or remove them:\n{changes}")
    if (branch := git("branch", "--show-current")) != "main":
        raise NotReleased(f"the branch is {branch or 'none'}: check out main")
    if git("tag", "--list", f"v{version}"):
        raise NotReleased(f"the tag v{version} exists: choose another version")


def build(commit: str, files: dict[str, str], out: Path) -> list[Path]:
    """Build sdist and wheel of ``commit`` with ``files`` in place of its own; the wheel is built from the sdist."""
    with tempfile.TemporaryDirectory() as tree:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(tree, filter="data")
        for name, text in files.items():
            (Path(tree) / name).write_text(text)
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), tree)
    return sorted(out.iterdir())


def check_metadata(built: list[Path], version: str) -> None:
    """Raise if an index would refuse the metadata, or if they are of another version."""
    for path in built:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
                text = wheel.read(name)
        else:
            with tarfile.open(path) as sdist:
                file = sdist.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
                assert file is not None
                text = file.read()
        metadata = Metadata.from_email(text, validate=True)
        if metadata.version != Version(version):
            raise NotReleased(f"{path.name} is of version {metadata.version}")


def release(version: str, *, dry_run: bool) -> None:
    """Build, try, commit and tag ``version``; a dry run ends after the trial."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReleased(f"{version!r} is not a version of the form x.y.z")
    check_repository(version)
    commit = git("rev-parse", "HEAD")
    files = {
        PROJECT: with_version((ROOT / PROJECT).read_text(), version),
        CHANGELOG: with_heading((ROOT / CHANGELOG).read_text(), version, datetime.now(UTC).date()),
    }
    with tempfile.TemporaryDirectory() as out:
        built = build(commit, files, Path(out))
        check_metadata(built, version)
        # CI: what cannot be tried is an error.
        run(
            *(sys.executable, "-m", "pytest", "-q", "tests/integration/test_wheel.py"),
            env={**os.environ, "STELE_TEST_DISTRIBUTIONS": out, "CI": "true"},
        )
        names = [path.name for path in built]
        if dry_run:
            print(f"{' and '.join(names)} are in order; this was a dry run")
            return
        check_repository(version)
        if git("rev-parse", "HEAD") != commit:
            raise NotReleased("main has moved meanwhile: start again")
        for name, text in files.items():
            (ROOT / name).write_text(text)
        git("commit", "--quiet", "--message", f"Release {version}", "--", *files)
        git("tag", "--annotate", f"v{version}", "--message", f"Stele {version}")
        (ROOT / "dist").mkdir(exist_ok=True)
        for path in built:
            shutil.copy(path, ROOT / "dist")
    print(f"committed and tagged v{version}; to publish it:")
    print(f"  git push origin main v{version}")
    print(f"  twine upload {' '.join(f'dist/{name}' for name in names)}")


def git(*arguments: str) -> str:
    """Run git in this repository; return what it prints."""
    return run("git", *arguments, stdout=subprocess.PIPE).strip()


def run(*command: str, env: dict[str, str] | None = None, stdout: int | None = None) -> str:
    """Run ``command`` in this repository; return what it prints, if ``stdout`` is a pipe."""
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=stdout, text=True, check=False)
    if done.returncode:
        raise NotReleased(f"'{' '.join(command)}' failed with exit code {done.returncode}")
    return done.stdout or ""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Release a version; nothing is pushed or uploaded.")
    parser.add_argument("version", help="x.y.z")
    parser.add_argument(
        "--dry-run", action="store_true", help="build and try the distributions; write nothing"
    )
    arguments = parser.parse_args()
    try:
        release(arguments.version, dry_run=arguments.dry_run)
    except NotReleased as error:
        sys.exit(f"not released: {error}")


if __name__ == "__main__":
    main()
